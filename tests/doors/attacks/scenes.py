"""One attack on one server: what the server holds before it, and what others see while it runs."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from mainstem.records.building import build_batch
from mainstem.testing import server as servers
from mainstem.testing.server import ServerHandle, ServerProcess
from tests.doors.kafka import requests
from tests.doors.kafka.wire import request_frame
from tests.support.certificates import make_self_signed
from tests.support.text import TextClient

from .probes import TOPIC, Observed, observe, receive

P99_MS_MAX = 100.0
RSS_BYTES_MAX = 1 << 30

_DOORS = ("http", "kafka", "text", "pulsar", "s3")
_FEW_DESCRIPTORS = ("silent", "silent_handshakes")  # these attacks try to use up 1,024 open files
_QUIET_S = 1.0
_WIDE_PARTITIONS = 10_000  # of each topic


@contextmanager
def attacked(folder: Path, name: str) -> Iterator[ServerProcess]:
    """A server with what the probes and the attack need."""
    flags: tuple[str, ...] = ()
    if name == "silent_handshakes":
        made = make_self_signed(folder.absolute())  # the server has another working directory
        flags = ("--pulsar-tls-cert", str(made / "cert.pem"), "--pulsar-tls-key", str(made / "key.pem"))
    with ExitStack() as restored:
        if name in _FEW_DESCRIPTORS:
            restored.callback(setattr, servers, "start", servers.start)
            servers.start = _start_with_few_descriptors
        server = ServerProcess(folder / "data", *flags)
    with server:
        _register(server, TOPIC)
        if (before := _BEFORE.get(name)) is not None:
            before(server)
        yield server


def _start_with_few_descriptors(
    arguments: Sequence[str], environment: dict[str, str], folder: Path
) -> ServerHandle:
    limited = ["bash", "-c", 'ulimit -Sn 1024 && ulimit -Hn 1024 && exec "$@"', "bash"]
    command = [*limited, sys.executable, "-m", "mainstem", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment, cwd=folder
    )


def run_attack(server: ServerProcess, name: str, seconds: float) -> Observed:
    addresses = json.dumps({door: str(server.address(door)) for door in _DOORS})
    command = [sys.executable, "-m", "tests.doors.attacks.attackers", name, addresses, str(seconds + 30)]
    with observe(server) as quiet:
        time.sleep(min(seconds / 5, _QUIET_S))
    attacker = subprocess.Popen(command, cwd=Path(__file__).parents[3])
    try:
        time.sleep(1.0)  # until the attack is under way
        with observe(server) as observed:
            time.sleep(seconds)
            assert attacker.poll() is None, "the attack ended early"
            observed.quiet_p99_ms = max(quiet.p99_ms.values())
    finally:
        attacker.kill()
        attacker.wait()
    return observed


def fill(server: ServerProcess, records: int = 32) -> None:
    """Records of 512 KiB in `large`."""
    with httpx.Client(base_url=f"http://{server.address('http')}", timeout=60) as client:
        value = {"data": "x" * (512 << 10)}
        for _ in range(records // 16):
            response = client.post("/v0/topics/large", json={"records": [value] * 16})
            assert response.status_code in (200, 201), response.text


def create_partitions(server: ServerProcess, topics: int = 100) -> int:
    """Topics of 10,000 partitions each, until the server refuses more. Returns the number of partitions."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": str(server.address("kafka")), "log_level": 0})
    created = 0
    for number in range(topics):
        (future,) = admin.create_topics([NewTopic(f"wide-{number}", _WIDE_PARTITIONS, 1)]).values()
        try:
            future.result(60)
        except KafkaException:
            return created
        created += _WIDE_PARTITIONS
    return created


def _register(server: ServerProcess, topic: str) -> None:
    with TextClient(server.address("text")) as text:
        assert text.ask(f"REGISTER {topic}") == "OK"


def _register_flooded(server: ServerProcess) -> None:
    _register(server, "flooded")


def _create_checked(server: ServerProcess) -> None:
    """A topic whose records are checked one by one."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": str(server.address("kafka")), "log_level": 0})
    checked = NewTopic("checked", 1, 1, config={"mainstem.validate.records": "full"})
    admin.create_topics([checked])["checked"].result(60)


def _plant_bomb(server: ServerProcess) -> None:
    batch = build_batch([b"z" * (63 << 20)] * 4, timestamps_ms=int(time.time() * 1000), codec="zstd")
    _register(server, "bomb")
    address = server.address("kafka")
    with socket.create_connection((address.host, address.port), 60) as connection:
        connection.sendall(request_frame(requests.produce(9, "bomb", bytes(batch)), 1))
        (length,) = struct.unpack(">i", receive(connection, 4))
        receive(connection, length)


_BEFORE: dict[str, Callable[[ServerProcess], object]] = {
    "slow_readers": fill,
    "http2_window_zero": fill,
    "unread_fetches": fill,
    "batch_bombs": _plant_bomb,
    "searched_bombs": _plant_bomb,
    "watched_bombs": _plant_bomb,
    "kafka_bombs": _create_checked,
    "kafka_produces": _register_flooded,
    "pipelined_posts": _register_flooded,
    "text_puts": _register_flooded,
    "text_small_puts": _register_flooded,
    "metadata": create_partitions,
}

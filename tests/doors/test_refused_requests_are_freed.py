"""What a refused request held is freed at once, and not only by the garbage collector: an error that its own traceback
refers to would keep the request's body until a collection."""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import boto3
import httpx
import psutil
import pytest
import zstandard
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka import KafkaError, Producer

from mainstem.testing.server import ServerProcess
from tests.doors.pulsar.raw_client import RawClient

_BODY_BYTES = 1_000_000
_WARM, _TIMES = 20, 240
_GROWN_BYTES_MAX = (
    96 << 20
)  # of the 240 MB that are sent; the server keeps up to 64 MiB for the next requests

Refused = Callable[[], None]  # sends one large request that is refused


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server in a process of its own that never collects garbage."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "sitecustomize.py").write_text("import gc\ngc.disable()\n")
    with pytest.MonkeyPatch.context() as patched:
        from mainstem.testing import server as servers

        patched.setattr(servers, "start", servers.execute)
        paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
        # Records that the ledger refuses were written, and stay in this cache for a while.
        small = ("--tail-cache-bytes", str(1 << 20))
        started = ServerProcess(folder / "data", *small, env={"PYTHONPATH": paths})
    with started:
        with _http(started) as client:
            client.put("/v0/topics/full", json={"discard": "reject", "cap_records": 1}).raise_for_status()
            client.post("/v0/topics/full", json={"records": [{"data": 1}]}).raise_for_status()
        yield started


def _http(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=f"http://{server.address('http')}", timeout=60)


def _post(server: ServerProcess, opened: ExitStack, status: int, body: bytes, **headers: str) -> Refused:
    client = opened.enter_context(_http(server))
    sent = {
        "content-type": "application/json",
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }

    def refused() -> None:
        answer = client.post("/v0/topics/full", content=body, headers=sent)
        assert answer.status_code == status, answer.text

    return refused


def _record(data: bytes) -> bytes:
    return b'{"records":[{"data":"%b"}]}' % data


def _full(server: ServerProcess, opened: ExitStack) -> Refused:
    return _post(server, opened, 422, _record(b"x" * _BODY_BYTES))


def _half_json(server: ServerProcess, opened: ExitStack) -> Refused:
    return _post(server, opened, 400, _record(b"x" * _BODY_BYTES)[:-1])


def _zstd_frames(server: ServerProcess, opened: ExitStack) -> Refused:
    frame = zstandard.ZstdCompressor().compress(b"")
    return _post(server, opened, 400, frame * (_BODY_BYTES // len(frame)), content_encoding="zstd")


def _gzip_damaged(server: ServerProcess, opened: ExitStack) -> Refused:
    return _post(server, opened, 400, os.urandom(_BODY_BYTES), content_encoding="gzip")


def _kafka(server: ServerProcess, opened: ExitStack) -> Refused:
    producer = Producer(
        {
            "bootstrap.servers": str(server.address("kafka")),
            "message.max.bytes": 2 * _BODY_BYTES,
            "linger.ms": 0,
        }
    )
    value = os.urandom(_BODY_BYTES - 10_000)

    def refused() -> None:
        errors: list[KafkaError | None] = []
        producer.produce("full", value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert errors[0] is not None

    return refused


def _text(server: ServerProcess, opened: ExitStack) -> Refused:
    address = server.address("text")
    connection = opened.enter_context(socket.create_connection((address.host, address.port), 60))
    answers = opened.enter_context(connection.makefile("rb"))
    request = b"PUT full " + b"x" * 60_000
    times = _BODY_BYTES // len(request)

    def refused() -> None:
        for _ in range(times):
            connection.sendall(struct.pack("<I", len(request)) + request)
            answer = answers.read(struct.unpack("<I", answers.read(4))[0])
            assert answer.startswith(b"ERR"), answer

    return refused


def _pulsar(server: ServerProcess, opened: ExitStack) -> Refused:
    client = opened.enter_context(RawClient(server))
    client.connect()
    client.producer("full", "p")
    value = os.urandom(_BODY_BYTES)
    numbers = itertools.count()

    def refused() -> None:
        assert client.send(next(numbers), value).HasField("send_error")

    return refused


def _s3(server: ServerProcess, opened: ExitStack) -> Refused:
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{server.address('s3')}",
        aws_access_key_id="anybody",
        aws_secret_access_key="anything",
        region_name="local",
        config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
    )
    opened.callback(client.close)
    body = os.urandom(_BODY_BYTES)

    def refused() -> None:
        with pytest.raises(ClientError):
            client.put_object(Bucket="nothing", Key="k", Body=body)

    return refused


@pytest.mark.parametrize(
    "make", [_full, _half_json, _zstd_frames, _gzip_damaged, _kafka, _text, _pulsar, _s3]
)
def test_refused_requests_are_freed_without_a_collection(
    server: ServerProcess, make: Callable[[ServerProcess, ExitStack], Refused]
) -> None:
    process = psutil.Process(server.pid)
    with ExitStack() as opened:
        refused = make(server, opened)
        for _ in range(_WARM):
            refused()
        before = process.memory_info().rss
        for _ in range(_TIMES):
            refused()
        assert process.memory_info().rss - before < _GROWN_BYTES_MAX

"""What somebody else sees while an attack runs: latencies of a health check, a Kafka produce and a text PUT."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from mainstem.address import Address
from mainstem.records.building import build_batch
from mainstem.testing.server import ServerProcess
from tests.doors.kafka import requests
from tests.doors.kafka.wire import request_frame

TOPIC = "probe"

_PATIENCE_S = 20.0
_PAUSE_S = 0.005
_RECONNECT_EVERY = 8  # requests on one connection, so that new connections are measured too
_HEALTH = b"GET /v0/health HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Probe(threading.Thread):
    """Repeats one small request and measures each."""

    def __init__(
        self, name: str, address: Address, request: bytes, read: Callable[[socket.socket], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._address = address
        self._request = request
        self._read = read
        self._ended = threading.Event()
        self.seconds: list[float] = []
        self.failures: list[str] = []

    def run(self) -> None:
        while not self._ended.is_set():
            began = time.perf_counter()
            try:
                with socket.create_connection(
                    (self._address.host, self._address.port), _PATIENCE_S
                ) as connection:
                    for _ in range(_RECONNECT_EVERY):
                        connection.sendall(self._request)
                        self._read(connection)
                        self.seconds.append(time.perf_counter() - began)
                        if self._ended.wait(_PAUSE_S):
                            return
                        began = time.perf_counter()
            except (OSError, AssertionError) as error:
                self.failures.append(repr(error))
                self.seconds.append(max(_PATIENCE_S, time.perf_counter() - began))
                self._ended.wait(_PAUSE_S)

    def finish(self) -> None:
        self._ended.set()
        self.join(2 * _PATIENCE_S)

    @property
    def p99_ms(self) -> float:
        ordered = sorted(self.seconds)
        return 1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]


@dataclass
class Observed:
    """Figures of one attack."""

    p99_ms: dict[str, float] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    quiet_p99_ms: float = 0.0  # of the slowest probe without the attack
    rss_bytes: int = 0  # the highest
    slowest_sync_ms: float = 0.0  # of a file beside the data: how long the disk makes anybody wait

    def __str__(self) -> str:
        latencies = ", ".join(f"{name} {ms:.0f} ms" for name, ms in self.p99_ms.items())
        quiet = f"without the attack {self.quiet_p99_ms:.0f} ms"
        failures = f"{len(self.failures)} failures {self.failures[:3]}"
        disk = f"slowest sync {self.slowest_sync_ms:.0f} ms"
        return f"p99: {latencies} ({quiet}); RSS {self.rss_bytes >> 20} MiB; {disk}; {failures}"


@contextmanager
def observe(server: ServerProcess) -> Iterator[Observed]:
    """Measure while the block runs. The figures are complete after it."""
    observed = Observed()
    ended = threading.Event()
    memory = threading.Thread(target=_watch_memory, args=(server.pid, observed, ended), daemon=True)
    disk = threading.Thread(target=_watch_disk, args=(server.ports_file.parent, observed, ended), daemon=True)
    probes = _probes(server)
    for thread in (*probes, memory, disk):
        thread.start()
    try:
        yield observed
    finally:
        for probe in probes:
            probe.finish()
        ended.set()
        memory.join()
        disk.join()
        observed.p99_ms = {probe.name: probe.p99_ms for probe in probes}
        observed.samples = {probe.name: len(probe.seconds) for probe in probes}
        observed.failures = [failure for probe in probes for failure in probe.failures]


def _probes(server: ServerProcess) -> list[Probe]:
    batch = build_batch([b"probe"], timestamps_ms=int(time.time() * 1000))
    produce = request_frame(requests.produce(9, TOPIC, bytes(batch)), 1)
    put = f"PUT {TOPIC} x".encode()
    return [
        Probe("health", server.address("http"), _HEALTH, _read_health),
        Probe("produce", server.address("kafka"), produce, _read_produced),
        Probe("put", server.address("text"), struct.pack("<I", len(put)) + put, _read_put),
    ]


def receive(connection: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes. Raises ConnectionError at the end."""
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the server closed the connection")
        data += part
    return data


def receive_head(connection: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        data += receive(connection, 1)
    return data


def receive_response(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of a response with a Content-Length."""
    head = receive_head(connection).lower()
    length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
    return int(head.split()[1]), receive(connection, length)


def _read_health(connection: socket.socket) -> None:
    status, _ = receive_response(connection)
    assert status == 200, status


def _read_produced(connection: socket.socket) -> None:
    (length,) = struct.unpack(">i", receive(connection, 4))
    body = receive(connection, length)
    assert TOPIC.encode() in body, body


def _read_put(connection: socket.socket) -> None:
    (length,) = struct.unpack("<I", receive(connection, 4))
    answer = receive(connection, length)
    assert answer == b"OK", answer


def _watch_memory(pid: int, observed: Observed, ended: threading.Event) -> None:
    process = psutil.Process(pid)
    while not ended.wait(0.05):
        try:
            observed.rss_bytes = max(observed.rss_bytes, process.memory_info().rss)
        except psutil.Error:
            return


def _watch_disk(folder: Path, observed: Observed, ended: threading.Event) -> None:
    """Sync a file of a few bytes now and then, as a server without clients would."""
    file = os.open(folder / "disk", os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(file, bytes(4096), 0)
        while not ended.wait(0.1):
            began = time.perf_counter()
            os.pwrite(file, b"x", 0)
            os.fdatasync(file)
            observed.slowest_sync_ms = max(observed.slowest_sync_ms, 1000 * (time.perf_counter() - began))
    finally:
        os.close(file)

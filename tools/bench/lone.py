"""One request at a time: a client that waits for each answer, with the raw cost of the same write in the same run.

The clients are plain sockets in this process. CPU is that of the server's process alone; for the embedded log it is
that of this process. Redis is measured if `redis-server` is installed: a stream entry of the same size, synced before
the answer.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psutil

import mainstem
from mainstem.records.interpreted import build_lone
from mainstem.testing.server import ServerProcess
from tools.bench.http import request as http_request
from tools.bench.machine import settle
from tools.bench.report import Figure, Report, measured

VALUE = b"v" * 100
COMMIT_BYTES = 480  # one record of 100 bytes, with both copies of its entry
FLOOR_FILE_BYTES = 64 << 20
RUNS = 3
SYNCED_CALLS = 3_000
UNSYNCED_CALLS = 60_000
REQUESTS = 4_000
REDIS_CPU_FACTOR, REDIS_RATE_FACTOR = 1.1, 0.9
_LENGTH = struct.Struct("<I")


def run(scratch: Path, report: Report) -> None:
    _floors_and_embedded(scratch, report)
    redis = _redis(scratch, report)
    with ServerProcess((scratch / "server").resolve(), "--durability", "fsync") as server:
        process = psutil.Process(server.pid)
        _served(report, process, "Kafka: produce, fsync", _kafka(server), redis)
        _served(report, process, "text: PUT, fsync", _text(server), redis)
        _http(report, process, server)


# The embedded log, and what it cannot go below


def _floors_and_embedded(scratch: Path, report: Report) -> None:
    """Raw and embedded by turns: on a shared machine the disk differs from minute to minute."""
    kinds: tuple[tuple[Literal["never", "each"], int], ...] = (
        ("never", UNSYNCED_CALLS),
        ("each", SYNCED_CALLS),
    )
    for sync, calls in kinds:
        raw, ours = [], []
        with mainstem.open(scratch / sync, sync=sync) as log:
            for _ in range(2000):
                log.append("bench", VALUE)
            for _ in range(RUNS):
                raw.append(_raw(scratch / "floor", calls, synced=sync == "each"))
                with measured() as span:
                    for _ in range(calls):
                        log.append("bench", VALUE)
                ours.append((calls / span.wall_s, span.cpu_s / calls * 1e6))
        floor, floor_cpu = max(one[0] for one in raw), min(one[1] for one in raw)
        rate, cpu = max(one[0] for one in ours), min(one[1] for one in ours)
        call = "pwrite and fdatasync" if sync == "each" else "pwrite"
        report.add(Figure(f"raw: {call} of {COMMIT_BYTES} B", floor, "/s", note=f"{floor_cpu:.1f} µs CPU"))
        note = f"{rate / floor:.0%} of raw; " + ", ".join(f"{one[0]:.0f}/s" for one in ours)
        bar = 80e3 if sync == "never" else 0.85 * floor
        report.add(Figure(f"embedded: append, sync={sync}", rate, "/s", bar, note=note))
        cpu_bar = 12 if sync == "never" else None
        report.add(Figure("… CPU each", cpu, "µs", cpu_bar, lower_is_better=True))
    _read_next(scratch, report)


def _raw(path: Path, calls: int, *, synced: bool) -> tuple[float, float]:
    """Calls a second, and µs of CPU each, in a preallocated file."""
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    try:
        os.pwrite(fd, bytes(FLOOR_FILE_BYTES), 0)
        os.fsync(fd)
        commit = os.urandom(COMMIT_BYTES)
        with measured() as span:
            for number in range(calls):
                os.pwrite(fd, commit, number * COMMIT_BYTES)
                if synced:
                    os.fdatasync(fd)
    finally:
        os.close(fd)
    return calls / span.wall_s, span.cpu_s / calls * 1e6


def _read_next(scratch: Path, report: Report) -> None:
    """A reader behind, and one that reads each record right after it was appended."""
    lazily = mainstem.at_least_once(persist_every=1_000_000)
    with mainstem.open(scratch / "read", sync="never", consistency=lazily) as log:
        for _ in range(UNSYNCED_CALLS):
            log.append("bench", VALUE)
        with measured() as span:
            while log.read_next("bench") is not None:
                pass
        cpu = span.cpu_s / UNSYNCED_CALLS * 1e6
        report.add(Figure("embedded: read_next of a backlog", cpu, "µs CPU", 10, lower_is_better=True))
        spent = 0.0
        for _ in range(UNSYNCED_CALLS // 10):
            log.append("bench", VALUE)
            before = time.process_time()
            log.read_next("bench")
            spent += time.process_time() - before
        cpu = spent / (UNSYNCED_CALLS // 10) * 1e6
        report.add(Figure("embedded: read_next at the end", cpu, "µs CPU", 10, lower_is_better=True))


# Servers

Ask = Callable[[], None]


def _best(process: psutil.Process, ask: Ask, count: int = REQUESTS) -> tuple[float, float, float, float]:
    """Requests a second, µs of the server's CPU each, p50 and p99 in ms: the best run."""
    for _ in range(500):
        ask()
    settle(lambda: _cpu_s(process))
    runs = []
    for _ in range(RUNS):
        taken = []
        cpu, began = _cpu_s(process), time.perf_counter()
        for _ in range(count):
            sent = time.perf_counter()
            ask()
            taken.append(time.perf_counter() - sent)
        wall_s, cpu_s = time.perf_counter() - began, _cpu_s(process) - cpu
        taken.sort()
        p50, p99 = (taken[int(count * part)] * 1e3 for part in (0.5, 0.99))
        runs.append((count / wall_s, cpu_s / count * 1e6, p50, p99))
    return (
        max(one[0] for one in runs),
        min(one[1] for one in runs),
        min(one[2] for one in runs),
        min(one[3] for one in runs),
    )


def _cpu_s(process: psutil.Process) -> float:
    """From the scheduler: the clock ticks of /proc/…/stat are too coarse for short runs."""
    total = 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def _served(
    report: Report, process: psutil.Process, what: str, ask: Ask, redis: tuple[float, float] | None
) -> None:
    rate, cpu, p50, p99 = _best(process, ask)
    rate_bar = None if redis is None else redis[0] * REDIS_RATE_FACTOR
    cpu_bar = None if redis is None else redis[1] * REDIS_CPU_FACTOR
    report.add(Figure(what, rate, "/s", rate_bar, note=f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"))
    report.add(Figure("… server CPU each", cpu, "µs", cpu_bar, lower_is_better=True))


def _exchange(connection: socket.socket, request: bytes, accepted: Callable[[bytes], bool]) -> Ask:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask() -> None:
        connection.sendall(request)
        answer = connection.recv(65_536)  # answers are small, and nothing else is on its way
        if not accepted(answer):
            raise SystemExit(f"the server answered {answer[:200]!r}")

    return ask


def _kafka(server: ServerProcess) -> Ask:
    address = server.address("kafka")
    admin = socket.create_connection((address.host, address.port))
    name = b"lone"
    metadata = struct.pack(">hhih", 3, 4, 1, -1) + struct.pack(">ih", 1, len(name)) + name + b"\x01"
    for _ in range(20):  # creates the topic
        admin.sendall(struct.pack(">i", len(metadata)) + metadata)
        admin.recv(65_536)
    admin.close()
    batch = bytes(build_lone(VALUE, int(time.time() * 1000)))
    # Version 9: what current clients send. Lengths are unsigned varints, one higher; each struct ends with its tags.
    size = len(batch) + 1
    body = b"\x00" + struct.pack(">hi", -1, 30_000) + b"\x02" + bytes((len(name) + 1,)) + name
    body += b"\x02" + struct.pack(">i", 0) + bytes((size & 127 | 128, size >> 7)) + batch + b"\x00\x00\x00"
    request = struct.pack(">hhih", 0, 9, 7, 5) + b"bench\x00" + body
    request = struct.pack(">i", len(request)) + request
    error_at = 4 + 4 + 1 + 1 + 1 + len(name) + 1 + 4
    return _exchange(
        socket.create_connection((address.host, address.port)),
        request,
        lambda answer: answer[error_at : error_at + 2] == b"\x00\x00",
    )


def _text(server: ServerProcess) -> Ask:
    address = server.address("text")
    connection = socket.create_connection((address.host, address.port))

    def framed(text: bytes) -> bytes:
        return _LENGTH.pack(len(text)) + text

    def accepted(answer: bytes) -> bool:
        return answer == framed(b"OK")

    _exchange(connection, framed(b"REGISTER text"), accepted)()
    return _exchange(connection, framed(b"PUT text " + VALUE), accepted)


def _http(report: Report, process: psutil.Process, server: ServerProcess) -> None:
    address = server.address("http")
    connection = socket.create_connection((address.host, address.port))

    def accepted(answer: bytes) -> bool:
        return answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201"))

    record = {"data": {"n": 1, "s": "x" * 80}}
    for durability in ("disk", "fsync"):
        topic = f"/v0/topics/{durability}"
        _exchange(connection, http_request("PUT", topic, {"durability": durability}), accepted)()
        post = _exchange(connection, http_request("POST", topic, {"records": [record]}), accepted)
        rate, cpu, p50, p99 = _best(process, post)
        what = f"HTTP: POST of one record, {durability}"
        report.add(Figure(what, cpu, "µs CPU", note=f"{rate:.0f}/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms"))
    diff = _exchange(
        connection, http_request("POST", "/v0/topics/disk/diff", {"from_seq": 100, "limit": 1}), accepted
    )
    rate, cpu, p50, p99 = _best(process, diff)
    what = "HTTP: diff of one record"
    report.add(Figure(what, cpu, "µs CPU", note=f"{rate:.0f}/s, p50 {p50:.2f} ms, p99 {p99:.2f} ms"))


@contextmanager
def _redis_server(folder: Path, program: str) -> Iterator[tuple[psutil.Process, int]]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    folder.mkdir()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "always"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield psutil.Process(server.pid), port
        finally:
            server.kill()


def _redis(scratch: Path, report: Report) -> tuple[float, float] | None:
    """Its rate and µs of CPU each, if it is installed."""
    program = shutil.which("redis-server")
    if program is None:
        return None
    with _redis_server(scratch / "redis", program) as (process, port):
        words = (b"XADD", b"bench", b"*", b"v", VALUE)
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        connection = socket.create_connection(("127.0.0.1", port))
        rate, cpu, p50, p99 = _best(process, _exchange(connection, request, lambda a: a.startswith(b"$")))
    note = f"{cpu:.0f} µs CPU, p50 {p50:.2f} ms, p99 {p99:.2f} ms"
    report.add(Figure("beside it: Redis XADD, appendfsync always", rate, "/s", note=note))
    return rate, cpu

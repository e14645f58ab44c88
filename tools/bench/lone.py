"""One request at a time: a client that waits for each answer, with the raw cost of the same write in the same run.

The clients are plain sockets in this process. CPU is that of the server's process alone; for the embedded log it is
that of this process. Redis is measured if `redis-server` is installed: a stream entry of the same size, synced before
the answer. `lone_floor` is what any server in Python costs.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import psutil

import mainstem
from mainstem.records.interpreted import build_lone
from mainstem.testing.server import ServerProcess
from tools.bench import lone_floor, lone_http
from tools.bench.lone_floor import COMMIT_BYTES
from tools.bench.lone_requests import RUNS, Ask, Asked, ask_over, best
from tools.bench.report import Figure, Report, measured

VALUE = b"v" * 100
SYNCED_CALLS = 3_000
UNSYNCED_CALLS = 60_000
REDIS_CPU_FACTOR, REDIS_RATE_FACTOR = 1.1, 0.9
_LENGTH = struct.Struct("<I")


def run(scratch: Path, report: Report) -> None:
    _floors_and_embedded(scratch, report)
    for synced, call in ((False, "write"), (True, "write and sync")):
        floor = lone_floor.asked(scratch / "floor", synced=synced)
        what = f"raw: receive, {call}, answer, in Python"
        report.add(
            Figure(what, floor.cpu_us, "µs CPU", note=f"{floor.note}; no server in Python can do with less")
        )
    redis = _redis(scratch, report)
    with ServerProcess((scratch / "server").resolve(), "--durability", "fsync") as server:
        process = psutil.Process(server.pid)
        _served(report, process, "Kafka: produce, fsync", _kafka(server), redis)
        _served(report, process, "text: PUT, fsync", _text(server), redis)
        lone_http.run(report, process, server.address("http"), scratch)


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
    fd = lone_floor.preallocated(path)
    try:
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


def _served(report: Report, process: psutil.Process, what: str, ask: Ask, redis: Asked | None) -> None:
    asked = best(process, ask)
    rate_bar = None if redis is None else redis.rate * REDIS_RATE_FACTOR
    cpu_bar = None if redis is None else redis.cpu_us * REDIS_CPU_FACTOR
    report.add(Figure(what, asked.rate, "/s", rate_bar, note=asked.note))
    report.add(Figure("… server CPU each", asked.cpu_us, "µs", cpu_bar, lower_is_better=True))


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
    return ask_over(
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

    ask_over(connection, framed(b"REGISTER text"), accepted)()
    return ask_over(connection, framed(b"PUT text " + VALUE), accepted)


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


def _redis(scratch: Path, report: Report) -> Asked | None:
    """What it costs, if it is installed."""
    program = shutil.which("redis-server")
    if program is None:
        return None
    with _redis_server(scratch / "redis", program) as (process, port):
        words = (b"XADD", b"bench", b"*", b"v", VALUE)
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        connection = socket.create_connection(("127.0.0.1", port))
        asked = best(process, ask_over(connection, request, lambda a: a.startswith(b"$")))
    report.add(Figure("beside it: Redis XADD, appendfsync always", asked.rate, "/s", note=asked.note))
    return asked

"""One HTTP request at a time, beside `topics` (github.com/slopus/topics, the same requests in Rust) in the same run.

topics is measured if its program is in the PATH. Every figure is the best of some runs; CPU is that of the server's
process.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from mainstem.address import Address
from tools.bench.http import request
from tools.bench.lone_requests import Asked, ask_over, best
from tools.bench.report import Figure, Report

RECORD = {"data": {"n": 1, "s": "x" * 80}}
CPU_FACTOR = LATENCY_FACTOR = 1.2
REQUESTS = 2_000
ROUTED = 60  # records, each of which waits for the one before; topics takes 50 ms for each
_RECEIVE_BYTES = 1 << 16
_WAIT_MS = 5_000


def run(report: Report, process: psutil.Process, address: Address, scratch: Path) -> None:
    """Ask a Mainstem server, and topics beside it."""
    with _topics(scratch / "topics") as peer:
        theirs = None if peer is None else _measure(*peer)
    ours = _measure(process, address)
    for one in ours:
        beside = None if theirs is None else next(their for their in theirs if their.what == one.what)
        _report(report, one, beside)


@dataclass(frozen=True, slots=True)
class _Measured:
    what: str
    asked: Asked
    by_latency: bool = False  # what counts is the time, not the CPU


def _report(report: Report, ours: _Measured, theirs: _Measured | None) -> None:
    if ours.by_latency:
        value, unit, bar = ours.asked.p50_ms, "ms", None if theirs is None else theirs.asked.p50_ms
        factor = LATENCY_FACTOR
    else:
        value, unit, bar = ours.asked.cpu_us, "µs CPU", None if theirs is None else theirs.asked.cpu_us
        factor = CPU_FACTOR
    note = ours.asked.note + ("" if theirs is None else f"; topics: {theirs.asked.note}")
    report.add(
        Figure(f"HTTP: {ours.what}", value, unit, None if bar is None else bar * factor, True, note=note)
    )


def _measure(process: psutil.Process, address: Address) -> list[_Measured]:
    connection = _connected(address)
    found = []
    for durability in ("disk", "fsync"):
        topic = f"/v0/topics/{durability}"
        _exchange(connection, "PUT", topic, {"durability": durability})()
        post = _exchange(connection, "POST", topic, {"records": [RECORD]})
        found.append(_Measured(f"POST of one record, {durability}", best(process, post, REQUESTS)))
    diff = _exchange(connection, "POST", "/v0/topics/disk/diff", {"from_seq": 100, "limit": 1})
    found.append(_Measured("diff of one record", best(process, diff, REQUESTS)))
    found.append(_Measured("routed record visible", best(process, _routed(address), ROUTED), by_latency=True))
    found.append(_Measured("POST and its event to one watcher", best(process, _watched(address), REQUESTS)))
    return found


def _exchange(connection: socket.socket, method: str, path: str, body: object) -> Callable[[], None]:
    return ask_over(connection, request(method, path, body), lambda answer: answer.startswith(b"HTTP/1.1 20"))


def _routed(address: Address) -> Callable[[], None]:
    """Post one record, and wait for its copy in another topic."""
    writer, reader = _connected(address), _connected(address)
    for topic in ("source", "dest"):
        _exchange(writer, "PUT", f"/v0/topics/{topic}", {"durability": "disk"})()
    _exchange(writer, "PUT", "/v0/routers/bench", {"source": "source", "dest": "dest"})()
    post = _exchange(writer, "POST", "/v0/topics/source", {"records": [RECORD]})
    seen = 0

    def ask() -> None:
        nonlocal seen
        wait = {"from_seq": seen, "limit": 1, "wait_ms": _WAIT_MS}
        reader.sendall(request("POST", "/v0/topics/dest/diff", wait))
        post()
        answer = reader.recv(_RECEIVE_BYTES)
        seen = json.loads(answer.partition(b"\r\n\r\n")[2])["next_from_seq"]

    return ask


def _watched(address: Address) -> Callable[[], None]:
    """Post one record, and wait for the event of one watcher."""
    writer, stream = _connected(address), _connected(address)
    _exchange(writer, "PUT", "/v0/topics/watched", {"durability": "disk"})()
    writer.sendall(request("POST", "/v0/watch", {"topics": {"watched": {"tail": True}}}))
    url = json.loads(writer.recv(_RECEIVE_BYTES).partition(b"\r\n\r\n")[2])["stream_url"]
    stream.sendall(b"GET %b HTTP/1.1\r\nhost: bench\r\n\r\n" % url.encode())
    stream.settimeout(1.0)
    try:
        while True:
            stream.recv(_RECEIVE_BYTES)  # what comes before the first record
    except TimeoutError:
        stream.settimeout(None)
    post = _exchange(writer, "POST", "/v0/topics/watched", {"records": [RECORD]})

    def ask() -> None:
        post()
        told = b""
        while b'"$seq"' not in told:
            told += stream.recv(_RECEIVE_BYTES)

    return ask


def _connected(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port))


@contextmanager
def _topics(folder: Path) -> Iterator[tuple[psutil.Process, Address] | None]:
    program = shutil.which("topics")
    if program is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = Address("127.0.0.1", probe.getsockname()[1])
    folder.mkdir()
    settings = {"TOPICS_PORT": str(address.port), "TOPICS_DATA_DIR": str(folder), "RUST_LOG": "error"}
    with subprocess.Popen([program], env=os.environ | settings, stdout=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    _connected(address).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield psutil.Process(server.pid), address
        finally:
            server.kill()

"""Watchers of one topic: how late a record reaches them, what a delivery costs, and what idle ones weigh."""

from __future__ import annotations

import json
import resource
import select
import socket
import time
from pathlib import Path

import numpy as np
import psutil

from mainstem.address import Address
from mainstem.bench.report import Figure, Report
from mainstem.testing.server import ServerProcess

WATCHERS = 1_000
RATE = 100  # records a second, one write each
SECONDS = 5.0
BURST_RECORDS = 100  # in one write, back to back
IDLE = 10_000
IDLE_SECONDS = 6.0

_RECEIVE_BYTES = 1 << 16
_TIME_FIELD = b'"data":{"sent":'
_WRITERS = 8  # connections that take turns: one alone would wait for its answer
_SAMPLED = 8  # one in so many watchers has its latencies noted


def run(scratch: Path, report: Report) -> None:
    _allow_files(2 * IDLE)
    with _server(scratch / "watch") as server:
        audience = Audience(server.address("http"), WATCHERS)
        _latency(audience, server, report)
        _saturation(audience, server, report)
        audience.close()
    with _server(scratch / "idle") as server:
        _idle(server, report)


def _server(directory: Path) -> ServerProcess:
    flags = ("--text", "off", "--kafka", "off", "--max-sse-connections", str(IDLE))
    return ServerProcess(directory.resolve(), *flags)  # it runs elsewhere


class Audience:
    """Watchers on plain sockets behind one epoll: they must cost less than what is measured."""

    def __init__(self, address: Address, watchers: int) -> None:
        self._address = address
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._writers = [self._connect() for _ in range(_WRITERS)]
        self._answering = {writer.fileno(): writer for writer in self._writers}
        self.unanswered = 0
        self.received = 0
        self.delivered = 0
        self.latencies_ms: list[float] = []
        self.post("/v0/topics/bench", b'{"records":[{"data":{"sent":0}}]}')
        made = self.post("/v0/watch", b'{"topics":{"bench":{"tail":true}}}')
        head = b"GET %b HTTP/1.1\r\nhost: bench\r\n\r\n" % str(made["stream_url"]).encode()
        for _ in range(watchers):
            stream = self._connect()
            stream.sendall(head)
            self._sockets[stream.fileno()] = stream
            self._epoll.register(stream.fileno(), select.EPOLLIN)
        self.read_until_quiet()
        for descriptor in self._answering:
            self._epoll.register(descriptor, select.EPOLLIN)

    def _connect(self) -> socket.socket:
        made = socket.create_connection((self._address.host, self._address.port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def post(self, path: str, body: bytes) -> dict[str, object]:
        """One write alone, and its answer."""
        self.send(path, body)
        told = self._answer(self._writers[-1])
        answer: dict[str, object] = json.loads(told.partition(b"\r\n\r\n")[2])
        return answer

    def send(self, path: str, body: bytes) -> None:
        head = (
            f"POST {path} HTTP/1.1\r\nhost: bench\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer = self._writers.pop(0)
        self._writers.append(writer)
        writer.sendall(head.encode() + body)
        self.unanswered += 1

    def _answer(self, writer: socket.socket) -> bytes:
        """What a writer is told, of one write or more."""
        data = writer.recv(_RECEIVE_BYTES)
        self.unanswered -= data.count(b"HTTP/1.1 200") + data.count(b"HTTP/1.1 201")
        return data

    def read(self, timeout_s: float) -> int:
        """Read what has come. Returns from how many sockets."""
        ready = self._epoll.poll(timeout_s)
        sockets, buffer = self._sockets, self._buffer
        for descriptor, _ in ready:
            stream = sockets.get(descriptor)
            if stream is None:
                self._answer(self._answering[descriptor])
                continue
            size = stream.recv_into(buffer)
            self.received += size
            self.delivered += buffer.count(_TIME_FIELD, 0, size)
            if descriptor % _SAMPLED == 0:
                self._note(size)
        return len(ready)

    def _note(self, size: int) -> None:
        """Note how long ago each record was sent that came just now."""
        now, at = time.monotonic_ns(), self._buffer.find(_TIME_FIELD, 0, size)
        while at >= 0:
            end = self._buffer.find(b"}", at, size)
            if end > 0:
                sent = int(self._buffer[at + len(_TIME_FIELD) : end])
                self.latencies_ms.append((now - sent) / 1e6)
            at = self._buffer.find(_TIME_FIELD, at + 1, size)

    def read_until_quiet(self, quiet_s: float = 0.5) -> None:
        while self.read(quiet_s):
            continue

    def close(self) -> None:
        for stream in (*self._sockets.values(), *self._writers):
            stream.close()
        self._epoll.close()


def _record(sent_ns: int) -> bytes:
    return b'{"data":{"sent":%d}}' % sent_ns


def _latency(audience: Audience, server: ServerProcess, report: Report) -> None:
    audience.latencies_ms.clear()
    audience.delivered = 0
    cpu, begun_ns, sent = _cpu_s(server), time.monotonic_ns(), 0
    while (elapsed := (time.monotonic_ns() - begun_ns) / 1e9) < SECONDS:
        while elapsed * RATE >= sent:
            # The time it should have been sent at: a server that is behind shows that it is.
            due_ns = begun_ns + int(sent * 1e9 / RATE)
            audience.send("/v0/topics/bench?return_seqs=false", b'{"records":[%b]}' % _record(due_ns))
            sent += 1
        audience.read(0.001)
    audience.read_until_quiet()
    late = np.array(audience.latencies_ms)
    spent = _cpu_s(server) - cpu
    note = (
        f"p50 {np.median(late):.1f} ms, {spent / audience.delivered * 1e6:.1f} µs CPU each, "
        f"{audience.delivered} of {sent * WATCHERS}"
    )
    what = f"{WATCHERS} watchers, {RATE} records/s: delivered after, p99"
    report.add(Figure(what, float(np.percentile(late, 99)), "ms", 20, True, spent, note))


def _saturation(audience: Audience, server: ServerProcess, report: Report) -> None:
    audience.delivered = audience.received = 0
    cpu, begun = _cpu_s(server), time.monotonic()
    written = 0
    while time.monotonic() - begun < SECONDS:
        body = b'{"records":[%b]}' % b",".join([_record(time.monotonic_ns())] * BURST_RECORDS)
        audience.send("/v0/topics/bench?return_seqs=false", body)
        written += BURST_RECORDS
        behind = 4 * BURST_RECORDS * WATCHERS  # as much may be on its way
        while audience.unanswered or audience.delivered < written * WATCHERS - behind:
            if not audience.read(1.0) and not audience.unanswered:
                break
    audience.read_until_quiet()
    wall, spent = time.monotonic() - begun - 0.5, _cpu_s(server) - cpu
    note = f"{audience.delivered / wall / 1e3:.0f} k/s, {audience.received / 1e6:.0f} MB"
    what = f"deliveries to {WATCHERS} watchers, as fast as they read"
    report.add(Figure(what, audience.delivered / spent, "per CPU s", 300e3, cpu_s=spent, note=note))


def _idle(server: ServerProcess, report: Report) -> None:
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    audience = Audience(server.address("http"), IDLE)
    weight = (process.memory_info().rss - before) / IDLE
    cpu, begun = _cpu_s(server), time.monotonic()
    while (left := IDLE_SECONDS - (time.monotonic() - begun)) > 0:
        audience.read(left)
    share = (_cpu_s(server) - cpu) / (time.monotonic() - begun)
    note = f"{process.memory_info().rss / 1e6:.0f} MB in all, {share:.1%} of a core while nothing happens"
    report.add(Figure(f"{IDLE} idle event streams: memory of each", weight / 1e3, "KB", note=note))
    audience.close()


def _cpu_s(server: ServerProcess) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))

"""Watchers of one topic: delivery latency, cost per delivery, and memory of idle watchers.

Latency is measured from the send of a record until the kernel has it for the watcher: the kernel timestamps arrivals,
so a slow client does not make the server look slow. One watcher in eight is sampled. Another process reads the others
with one native call every few milliseconds, so that the server does not pay for a wake-up per delivery. The median of
three runs counts.

Over loopback a send includes the receive on the other side: the kernel's part of a delivery is 5 to 6 µs, the
server's about 2 µs. A delivery to a thousand watchers therefore takes 7 to 8 ms of a core, and records that arrive
meanwhile are delivered together in the next one.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import select
import socket
import struct
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil

from mainstem.address import Address
from mainstem.testing.server import ServerProcess
from tools.bench.report import Figure, Report

WATCHERS = 1_000
RATE = 100  # records a second, one write each
SECONDS = 5.0
BURST_RECORDS = 100  # in one write, back to back
IDLE = 10_000
IDLE_SECONDS = 6.0

_RECEIVE_BYTES = 1 << 16
_TIME_FIELD = b'"data":{"sent":'
_WRITERS = 8  # connections that take turns: one alone would wait for its answer
_SAMPLED = 8  # one in so many watchers notes when it was told
_NAP_S = 0.003  # between two looks at the sockets
_STAMPED = 35  # SO_TIMESTAMPNS, which the socket module has no name for
_stamp = struct.Struct("qq")  # seconds and nanoseconds of the clock that time.time_ns reads
_STAMP_SPACE = socket.CMSG_SPACE(_stamp.size)


def run(scratch: Path, report: Report) -> None:
    _allow_files(2 * IDLE)
    with _server(scratch / "watch") as server:
        audience = Audience(server.address("http"), WATCHERS // _SAMPLED)
        with Crowd(server.address("http"), audience.stream_url, WATCHERS - WATCHERS // _SAMPLED) as crowd:
            _latency(audience, crowd, server, report)
        audience.close()
    with _server(scratch / "saturated") as server:
        audience = Audience(server.address("http"), WATCHERS)
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
        self._epoll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._writers = [_connected(address) for _ in range(_WRITERS)]
        self._answering = {writer.fileno(): writer for writer in self._writers}
        self.unanswered = 0
        self.received = 0
        self.delivered = 0
        self.noting = False
        self.latencies_ms: list[float] = []
        self.post("/v0/topics/bench", b'{"records":[{"data":{"sent":0}}]}')
        made = self.post("/v0/watch", b'{"topics":{"bench":{"tail":true}}}')
        self.stream_url = str(made["stream_url"])
        self._buffers = [self._buffer]
        for stream in _streams(address, self.stream_url, watchers):
            stream.setsockopt(socket.SOL_SOCKET, _STAMPED, 1)
            self._sockets[stream.fileno()] = stream
            self._epoll.register(stream.fileno(), select.EPOLLIN)
        self.read_until_quiet()
        for descriptor in self._answering:
            self._epoll.register(descriptor, select.EPOLLIN)

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
            if self.noting:
                size, stamps, _, _ = stream.recvmsg_into(self._buffers, _STAMP_SPACE)
                self._note(size, stamps[0][2])
            else:
                size = stream.recv_into(buffer)
            self.received += size
            self.delivered += buffer.count(_TIME_FIELD, 0, size)
        return len(ready)

    def _note(self, size: int, stamp: bytes) -> None:
        """Note how long each record took that came at this time; the last of them, if there are several."""
        seconds, nanoseconds = _stamp.unpack(stamp)
        arrived, at = seconds * 1_000_000_000 + nanoseconds, self._buffer.find(_TIME_FIELD, 0, size)
        while at >= 0:
            end = self._buffer.find(b"}", at, size)
            if end > 0:
                sent = int(self._buffer[at + len(_TIME_FIELD) : end])
                self.latencies_ms.append((arrived - sent) / 1e6)
            at = self._buffer.find(_TIME_FIELD, at + 1, size)

    def read_until_quiet(self, quiet_s: float = 0.5) -> None:
        while self.read(quiet_s):
            continue

    def deliver(self, writes: int) -> None:
        """Write so often, many records at a time, and read until every watcher has all of them."""
        self.delivered = 0
        for number in range(1, writes + 1):
            self.send("/v0/topics/bench?return_seqs=false", _burst())
            behind = 0 if number == writes else 4  # as many writes may be on their way
            while self.unanswered or self.delivered < (number - behind) * BURST_RECORDS * len(self._sockets):
                self.read(1.0)

    def close(self) -> None:
        for stream in (*self._sockets.values(), *self._writers):
            stream.close()
        self._epoll.close()


class Crowd:
    """The watchers that note nothing, in a process of their own."""

    def __init__(self, address: Address, stream_url: str, watchers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, pipe = context.Pipe()
        self._process = context.Process(target=_read_along, args=(address, stream_url, watchers, pipe))

    def __enter__(self) -> Crowd:
        self._process.start()
        self._pipe.recv()
        return self

    def delivered(self) -> int:
        """How much it was told in all, once nothing more comes."""
        self._pipe.send(None)
        delivered: int = self._pipe.recv()
        return delivered

    def __exit__(self, *error: object) -> None:
        self._pipe.close()
        self._process.join()


def _read_along(address: Address, stream_url: str, watchers: int, pipe: Connection) -> None:
    from tools.bench.native_receive import receive_all

    streams = _streams(address, stream_url, watchers)
    descriptors = np.array([stream.fileno() for stream in streams], np.int32)
    buffer, wanted = np.empty(_RECEIVE_BYTES, np.uint8), np.frombuffer(_TIME_FIELD, np.uint8).copy()
    receive_all(descriptors[:0], buffer, wanted)  # it is compiled by now
    delivered, asked = 0, False
    pipe.send(None)
    while True:
        came = receive_all(descriptors, buffer, wanted)
        delivered += came
        if asked and not came:
            pipe.send(delivered)
            asked = False
        if pipe.poll(_NAP_S):
            try:
                asked = pipe.recv() is None
            except EOFError:
                return


def _streams(address: Address, url: str, watchers: int) -> list[socket.socket]:
    head = b"GET %b HTTP/1.1\r\nhost: bench\r\n\r\n" % url.encode()
    streams = []
    for _ in range(watchers):
        streams.append(_connected(address))
        streams[-1].sendall(head)
    return streams


def _connected(address: Address) -> socket.socket:
    made = socket.create_connection((address.host, address.port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def _record(sent_ns: int) -> bytes:
    return b'{"data":{"sent":%d}}' % sent_ns


def _burst() -> bytes:
    return b'{"records":[%b]}' % b",".join([_record(time.monotonic_ns())] * BURST_RECORDS)


def _latency(audience: Audience, crowd: Crowd, server: ServerProcess, report: Report) -> None:
    audience.noting = True
    audience.read_until_quiet()
    audience.delivered = 0
    before, cpu, sent = crowd.delivered(), _cpu_s(server), 0
    late: list[tuple[float, float]] = []  # p99 and p50 of each time
    for _ in range(3):
        audience.latencies_ms.clear()
        sent += _send_steadily(audience)
        audience.read_until_quiet()
        p50, p99 = np.percentile(audience.latencies_ms, (50, 99))
        late.append((float(p99), float(p50)))
    delivered = audience.delivered + crowd.delivered() - before
    spent = _cpu_s(server) - cpu
    each = ", ".join(f"{p99:.0f}" for p99, _ in late)
    p99, p50 = sorted(late)[1]
    note = (
        f"{each}; p50 {p50:.1f} ms, {spent / delivered * 1e6:.1f} µs CPU each, "
        f"{delivered} of {sent * WATCHERS}"
    )
    what = f"{WATCHERS} watchers, {RATE} records/s: delivered after, p99"
    report.add(Figure(what, p99, "ms", 20, True, spent, note))


def _send_steadily(audience: Audience) -> int:
    """Returns how many records."""
    begun, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - begun) < SECONDS:
        while elapsed * RATE >= sent:
            audience.send("/v0/topics/bench?return_seqs=false", b'{"records":[%b]}' % _record(time.time_ns()))
            sent += 1
        time.sleep(_NAP_S)
        audience.read(0)
    return sent


def _saturation(audience: Audience, server: ServerProcess, report: Report) -> None:
    audience.delivered = audience.received = 0
    cpu, begun = _cpu_s(server), time.monotonic()
    written = 0
    while time.monotonic() - begun < SECONDS:
        audience.send("/v0/topics/bench?return_seqs=false", _burst())
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

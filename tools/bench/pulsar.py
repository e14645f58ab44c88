"""The Pulsar door, through a socket, with frames made beforehand: so that the server is measured, not a client.

Batches have 1,000 messages of 100 bytes; the topics are `fsync`. Acknowledgements name single messages, and travel
1,000 in a command, as clients send them. CPU is that of the server. The client is one Python process, which limits the
rates of single messages (pipelined, and Shared).
"""

from __future__ import annotations

import socket
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import psutil

from mainstem.address import Address
from mainstem.doors.pulsar.messages import NUMBERS, MessageMetadata, SingleMessageMetadata
from mainstem.doors.pulsar.wire import FrameBuffer, parse_frame, payload_frame, simple_frame, varint
from mainstem.testing.server import ServerProcess
from tools.bench.report import Figure, Report

MESSAGES, MESSAGE_BYTES, BATCH_MESSAGES = 2_000_000, 100, 1_000
SINGLES, SHARED_MESSAGES, LONE_SENDS = 100_000, 200_000, 2_000
WINDOW_BATCHES, WINDOW_SINGLES = 32, 1_000  # SENDs without a receipt
ACKED_TOGETHER = 1_000
IDLE_CONSUMERS, IDLE_S = 10_000, 10.0

_EXCLUSIVE, _SHARED = 0, 1
_KERNELS_S, _KERNEL_SEND_S = 60.0, 20e-6
_RECEIVED_BYTES = 1 << 20


class _Server(Protocol):
    def address(self, door: str) -> Address: ...


class _Client:
    def __init__(self, server: _Server) -> None:
        address = server.address("pulsar")
        self._socket = socket.create_connection((address.host, address.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = FrameBuffer()
        self._frames.frame_bytes_max = 1 << 24
        self._request = 0
        self.ask("connect", client_version="bench", protocol_version=21)

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def frame(self) -> memoryview:
        while (found := self._frames.next()) is None:
            data = self._socket.recv(_RECEIVED_BYTES)
            if not data:
                raise RuntimeError("the server closed the connection")
            self._frames.feed(data)
        return found

    def ask(self, name: str, **fields: object) -> Any:
        self.write(simple_frame(name, **fields))
        return parse_frame(self.frame()).command

    def request(self, name: str, **fields: object) -> Any:
        self._request += 1
        return self.ask(name, request_id=self._request, **fields)

    def subscribe(self, topic: str, type: int, consumer: int = 1) -> None:
        self.request(
            "subscribe", topic=topic, subscription="s", subType=type, consumer_id=consumer, initialPosition=1
        )

    def flow(self, permits: int, consumer: int = 1) -> None:
        self.write(simple_frame("flow", consumer_id=consumer, messagePermits=permits))

    def close(self) -> None:
        self._socket.close()


def _send_frame(count: int) -> bytes:
    """A SEND of one message, or of a batch."""
    metadata = MessageMetadata(producer_name=b"bench", sequence_id=1, publish_time=int(time.time() * 1000))
    payload = b"x" * MESSAGE_BYTES
    if count > 1:
        metadata.num_messages_in_batch = count
        one = SingleMessageMetadata(payload_size=MESSAGE_BYTES).SerializeToString()
        payload = (struct.pack(">I", len(one)) + one + payload) * count
    command = simple_frame("send", producer_id=1, sequence_id=1, num_messages=count)[8:]
    return payload_frame(command, metadata.SerializeToString(), payload)


def run(scratch: Path, report: Report) -> None:
    with ServerProcess((scratch / "pulsar").resolve(), "--text", "off") as server:
        process = psutil.Process(server.pid)
        wait_for_kernels(server, process)
        produce(server, process, "warm-singles", 1, 4_000, WINDOW_SINGLES)
        _share(server, process, "warm-singles", 4_000)
        produce(server, process, "warm-batches", BATCH_MESSAGES, 50, WINDOW_BATCHES)
        consume(server, process, "warm-batches", 50)
        batches = MESSAGES // BATCH_MESSAGES
        wall_s, cpu_s = produce(server, process, "batched", BATCH_MESSAGES, batches, WINDOW_BATCHES)
        _add(report, "Pulsar: produce, batches of 1,000", MESSAGES, wall_s, cpu_s, 1e6, 0.25)
        wall_s, cpu_s = consume(server, process, "batched", batches)
        _add(report, "Pulsar: consume, batches of 1,000", MESSAGES, wall_s, cpu_s, 1.5e6, 0.15)
        wall_s, cpu_s = produce(server, process, "singles", 1, SINGLES, WINDOW_SINGLES)
        cpu_us = cpu_s / SINGLES * 1e6
        report.add(Figure("Pulsar: single sends, pipelined", SINGLES / wall_s, "messages/s", cpu_s=cpu_s))
        report.add(Figure("… CPU each", cpu_us, "µs", 20, lower_is_better=True))
        produce(server, process, "shared", 1, SHARED_MESSAGES, WINDOW_SINGLES)
        wall_s, cpu_s = _share(server, process, "shared", SHARED_MESSAGES)
        _add(report, "Pulsar: Shared, individual acks", SHARED_MESSAGES, wall_s, cpu_s, 150e3, None)
        _latency(server, report)
        _idle(server, process, report)
        server.terminate()


def wait_for_kernels(server: _Server, process: psutil.Process) -> None:
    """Until the server, which begins to load them at its first client, computes with them."""
    deadline = time.monotonic() + _KERNELS_S
    while True:
        _, cpu_s = produce(server, process, "warming", 1, WINDOW_SINGLES, WINDOW_SINGLES)
        if cpu_s / WINDOW_SINGLES <= _KERNEL_SEND_S or time.monotonic() > deadline:
            return
        time.sleep(0.5)


def _add(
    report: Report, what: str, messages: int, wall_s: float, cpu_s: float, bar: float, cpu_bar: float | None
) -> None:
    report.add(Figure(what, messages / wall_s, "messages/s", bar, cpu_s=cpu_s))
    report.add(Figure("… CPU a million", cpu_s / messages * 1e6, "s", cpu_bar, lower_is_better=True))


def _timed(process: psutil.Process, work: Callable[[], None]) -> tuple[float, float]:
    """Wall seconds, and CPU seconds of the server."""
    before, begun = process.cpu_times(), time.perf_counter()
    work()
    wall_s = time.perf_counter() - begun
    after = process.cpu_times()
    return wall_s, after.user + after.system - before.user - before.system


def produce(
    server: _Server, process: psutil.Process, topic: str, count: int, sends: int, window: int
) -> tuple[float, float]:
    client = _Client(server)
    client.request("producer", topic=topic, producer_id=1, producer_name="bench")
    frame = _send_frame(count)
    group = max(1, window // 8)

    def work() -> None:
        sent = received = 0
        while received < sends:
            while sent < sends and sent - received < window:
                some = min(group, sends - sent)
                client.write(frame * some)
                sent += some
            client.frame()
            received += 1

    try:
        return _timed(process, work)
    finally:
        client.close()


def consume(server: _Server, process: psutil.Process, topic: str, entries: int) -> tuple[float, float]:
    client = _Client(server)

    def work() -> None:
        client.subscribe(topic, _EXCLUSIVE)
        client.flow(1 << 30)
        for _ in range(entries):
            client.frame()

    try:
        return _timed(process, work)
    finally:
        client.close()


def _share(server: ServerProcess, process: psutil.Process, topic: str, messages: int) -> tuple[float, float]:
    """One connection with two consumers, which acknowledge message by message, with receipts."""
    client = _Client(server)

    def work() -> None:
        for consumer in (1, 2):
            client.subscribe(topic, _SHARED, consumer)
        for consumer in (1, 2):
            client.flow(10_000, consumer)
        waiting: dict[int, list[bytes]] = {1: [], 2: []}
        sent: list[int] = []  # messages of each ACK
        acked = received = 0
        while acked < messages:
            frame = client.frame()
            if frame[5] == NUMBERS["ack_response"]:
                acked += sent[parse_frame(frame).command.ack_response.request_id]
                continue
            if frame[5] != NUMBERS["message"]:
                continue
            received += 1
            consumer, message_id = _message_id(frame)
            waiting[consumer].append(message_id)
            if len(waiting[consumer]) < ACKED_TOGETHER and received < messages:
                continue
            for id, ids in waiting.items():
                if len(ids) >= ACKED_TOGETHER or (received >= messages and ids):
                    client.write(_ack_frame(id, ids, len(sent)))
                    client.flow(len(ids), id)
                    sent.append(len(ids))
                    ids.clear()

    try:
        return _timed(process, work)
    finally:
        client.close()


def _message_id(frame: memoryview) -> tuple[int, bytes]:
    """Consumer and encoded id of a MESSAGE: decoding it with a library would cost more than the server's work."""
    at = 8 if frame[7] < 128 else 9  # after the type, the tag of the command and its size
    size = frame[at + 3]
    return frame[at + 1], bytes(frame[at + 4 : at + 4 + size])


def _ack_frame(consumer: int, ids: list[bytes], request: int) -> bytes:
    command = b"\x08%c\x10\x00" % consumer + b"".join(b"\x1a%c%b" % (len(id), id) for id in ids)
    command += b"\x40" + varint(request)
    command = b"\x08\x0a\x52" + varint(len(command)) + command
    return struct.pack(">II", len(command) + 4, len(command)) + command


def _latency(server: ServerProcess, report: Report) -> None:
    client = _Client(server)
    client.request("producer", topic="lone", producer_id=1, producer_name="bench")
    frame = _send_frame(1)
    taken_ms: list[float] = []
    for _ in range(LONE_SENDS):
        begun = time.perf_counter()
        client.write(frame)
        client.frame()
        taken_ms.append((time.perf_counter() - begun) * 1000)
    client.close()
    cuts = statistics.quantiles(taken_ms, n=100)
    report.add(Figure("Pulsar: a send, fsync, p50", cuts[49], "ms", 0.6, lower_is_better=True))
    report.add(Figure("Pulsar: a send, fsync, p99", cuts[98], "ms", 2.0, lower_is_better=True))


def _idle(server: ServerProcess, process: psutil.Process, report: Report) -> None:
    client = _Client(server)
    for consumer in range(IDLE_CONSUMERS):
        client.subscribe("idle", _SHARED, consumer)
        client.flow(1, consumer)
    client.ask("ping")
    wall_s, cpu_s = _timed(process, lambda: time.sleep(IDLE_S))
    client.close()
    share = cpu_s / wall_s * 100
    report.add(
        Figure(f"Pulsar: {IDLE_CONSUMERS:,} idle consumers", share, "% of a core", 5, lower_is_better=True)
    )

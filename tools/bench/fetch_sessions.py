"""Fetches of a consumer of 5,000 partitions, ten of which get records: with a fetch session, and naming all partitions
each time. Broker CPU of one fetch that returns ten records."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exported without saying so

from mainstem.address import Address
from tools.bench.kafka import Served, serving
from tools.bench.machine import settle
from tools.bench.report import Figure, Report

PARTITIONS = 5_000
ACTIVE = 10
ROUNDS = 300
_VERSION = 11
_SIZE = struct.Struct(">i")
_PART = struct.Struct(">iiqqi")  # partition, leader epoch, offset, log start, limit


def run(scratch: Path, report: Report) -> None:
    with serving(scratch / "sessions") as served:
        admin = AdminClient({"bootstrap.servers": served.bootstrap})
        for future in admin.create_topics([NewTopic("wide", PARTITIONS, 1)]).values():
            future.result()
        producer = Producer({"bootstrap.servers": served.bootstrap, "linger.ms": 1})
        without = _cpu_s(served, producer, None)
        note = f"{PARTITIONS} partitions, {ACTIVE} of them with records"
        for what, session in (
            ("Kafka: fetch in a session", True),
            ("… naming all partitions each time", False),
        ):
            client = _Client(served.server.address("kafka"), session=session)
            client.fetch([])  # all partitions are named, and the session is open
            each = (_cpu_s(served, producer, client) - without) / ROUNDS * 1e6
            client.close()
            report.add(Figure(what, each, "µs CPU", lower_is_better=True, note=note))


def _cpu_s(served: Served, producer: Producer, client: _Client | None) -> float:
    """The broker's CPU seconds for all rounds; without a client, those of the writes alone."""
    settle(served.cpu_s)
    with served.measured() as span:
        for _ in range(ROUNDS):
            for number in range(ACTIVE):
                producer.produce("wide", b"x" * 100, partition=number * (PARTITIONS // ACTIVE))
            producer.flush()
            if client is not None:
                client.fetch(client.moved)
    return span.cpu_s


class _Client:
    """Fetches from the end of what it has read."""

    def __init__(self, address: Address, *, session: bool) -> None:
        self._socket = socket.create_connection((address.host, address.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_session = session
        self._session, self._epoch = 0, 0
        self._offsets = [0] * PARTITIONS
        self.moved: list[int] = []  # partitions whose offset has changed since the last request

    def close(self) -> None:
        self._socket.close()

    def fetch(self, moved: list[int]) -> None:
        whole = not self._in_session or self._epoch == 0
        named = range(PARTITIONS) if whole else moved
        epoch = self._epoch if self._in_session else -1
        body = struct.pack(">iiiibii", -1, 0, 1, 64 << 20, 0, self._session, epoch)
        parts = b"".join(_PART.pack(index, -1, self._offsets[index], -1, 1 << 20) for index in named)
        body += struct.pack(">ih4si", 1, 4, b"wide", len(named)) + parts + struct.pack(">ih", 0, 0)
        head = struct.pack(">hhih", 1, _VERSION, 7, -1)
        self._socket.sendall(_SIZE.pack(len(head) + len(body)) + head + body)
        self._read(self._receive())
        self._epoch += 1

    def _receive(self) -> bytes:
        (size,) = _SIZE.unpack(self._exactly(_SIZE.size))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            found += self._socket.recv(size - len(found))
        return bytes(found)

    def _read(self, answer: bytes) -> None:
        _, _, error, session, topics = struct.unpack_from(">iihii", answer)
        if error:
            raise RuntimeError(f"fetch refused: {error}")
        self._session = session
        at, self.moved = 18, []
        for _ in range(topics):
            (chars,) = struct.unpack_from(">h", answer, at)
            (count,) = _SIZE.unpack_from(answer, at + 2 + chars)
            at += 6 + chars
            for _ in range(count):
                index, _, end = struct.unpack_from(">ihq", answer, at)
                (records,) = _SIZE.unpack_from(answer, at + 38)
                at += 42 + max(records, 0)
                if records > 0 or self._offsets[index] != end:
                    self._offsets[index] = end
                    self.moved.append(index)

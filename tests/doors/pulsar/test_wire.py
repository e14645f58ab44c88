"""Frames that no client sends, over a real socket."""

from __future__ import annotations

import random
import socket
import struct
from typing import Any

import pulsar
import pytest
from confluent_kafka import Producer

from mainstem.doors.pulsar.messages import MessageMetadata
from mainstem.doors.pulsar.wire import FrameBuffer, parse_frame, payload_frame, simple_frame
from mainstem.testing.server import ServerProcess

from .conftest import connect


class _Raw:
    def __init__(self, server: ServerProcess) -> None:
        address = server.address("pulsar")
        self.socket = socket.create_connection((address.host, address.port), timeout=10)
        self._frames = FrameBuffer()
        self._frames.frame_bytes_max = 1 << 24

    def __enter__(self) -> _Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, frame: bytes) -> Any:
        self.socket.sendall(frame)
        return self.receive()

    def receive(self) -> Any:
        while (found := self._frames.next()) is None:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError
            self._frames.feed(data)
        return parse_frame(found).command

    def connect(self) -> None:
        answer = self.ask(simple_frame("connect", client_version="test", protocol_version=21))
        assert answer.connected.max_message_size == 5 << 20

    def closed(self) -> bool:
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            return True
        return True


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", 1 << 30, 8),
        struct.pack(">II", 2, 8),
        struct.pack(">II", 12, 200) + b"x" * 8,
        simple_frame("flow", consumer_id=1, messagePermits=1),
        simple_frame("connect", client_version="a") * 2,
    ],
)
def test_what_is_not_the_protocol_closes_the_connection(server: ServerProcess, data: bytes) -> None:
    with _Raw(server) as raw:
        raw.socket.sendall(data)
        assert raw.closed()


def test_random_commands_do_no_harm(server: ServerProcess) -> None:
    chance = random.Random(7)
    for _ in range(40):
        with _Raw(server) as raw:
            raw.connect()
            body = bytes([8, chance.randrange(70)]) + chance.randbytes(chance.randrange(40))
            raw.socket.sendall(struct.pack(">II", len(body) + 4, len(body)) + body)
            raw.socket.sendall(simple_frame("ping"))
    client = connect(server)
    client.create_producer("alive").send(b"v")
    client.close()


def test_a_wrong_checksum_an_unknown_type_and_an_unknown_command_get_errors(server: ServerProcess) -> None:
    with _Raw(server) as raw:
        raw.connect()
        ready = raw.ask(simple_frame("producer", topic="checked", producer_id=1, request_id=1))
        assert ready.producer_success.producer_name
        metadata = MessageMetadata(producer_name=b"p", sequence_id=0, publish_time=1).SerializeToString()
        command = b"\x08\x06\x32\x04\x08\x01\x10\x05"  # SEND of producer 1, sequence 5
        damaged = bytearray(payload_frame(command, metadata, b"value"))
        damaged[-1] ^= 1
        answer = raw.ask(bytes(damaged))
        assert (answer.send_error.sequence_id, answer.send_error.error) == (5, 9)
        assert raw.ask(payload_frame(command, metadata, b"value")).send_receipt.sequence_id == 5
        answer = raw.ask(
            simple_frame(
                "subscribe", topic="checked", subscription="s", subType=9, consumer_id=1, request_id=2
            )
        )
        assert (answer.error.request_id, answer.error.error) == (2, 22)
        answer = raw.ask(simple_frame("new_txn", request_id=3))
        assert (answer.error.request_id, answer.error.error) == (3, 22)


def test_records_of_kafka_in_compressed_batches_are_read(server: ServerProcess) -> None:
    kafka = Producer(
        {"bootstrap.servers": str(server.address("kafka")), "compression.type": "zstd", "linger.ms": 100}
    )
    for number in range(100):
        kafka.produce("packed", b"v%d" % number)
    kafka.flush()
    client = connect(server)
    reader = client.create_reader("packed", pulsar.MessageId.earliest)
    assert [reader.read_next(10_000).data() for _ in range(100)] == [b"v%d" % at for at in range(100)]
    client.close()

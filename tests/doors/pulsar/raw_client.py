"""The Pulsar protocol without a client library, over a real socket."""

from __future__ import annotations

import itertools
import socket
from collections import deque
from typing import Any

from mainstem.broker.subscriptions.entries import read_varint
from mainstem.doors.pulsar.messages import MessageMetadata
from mainstem.doors.pulsar.wire import FrameBuffer, parse_frame, payload_frame, simple_frame, split_payload
from mainstem.testing.server import ServerProcess


class RawClient:
    """A client that sends the frames it is told to."""

    def __init__(self, server: ServerProcess) -> None:
        address = server.address("pulsar")
        self.socket = socket.create_connection((address.host, address.port), timeout=60)
        self._frames = FrameBuffer()
        self._frames.frame_bytes_max = 1 << 24
        self._requests = itertools.count(1)
        self.messages: deque[tuple[Any, bytes]] = deque()  # MESSAGE commands and their payloads
        self.indexes: list[int] = []  # of messages that came with one
        self.active: list[bool] = []  # what consumers were told, in order

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, frame: bytes) -> Any:
        self.socket.sendall(frame)
        return self.receive()

    def receive(self) -> Any:
        """The next command. Messages are kept in `messages`, and the news which consumer is active is dropped."""
        while (command := self._next_command()) is None:
            pass
        return command

    def _next_command(self) -> Any:
        """None: it was one that `receive` does not return."""
        while (found := self._frames.next()) is None:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError
            self._frames.feed(data)
        frame = parse_frame(found)
        if frame.command.HasField("message"):
            rest = frame.rest
            if rest[:2] == b"\x0e\x02":
                end = 6 + int.from_bytes(rest[2:6], "big")
                assert rest[6] == 0x10  # the index, and nothing else
                index, at = read_varint(bytes(rest[:end]), 7)
                assert at == end
                self.indexes.append(index)
                rest = rest[end:]
            self.messages.append((frame.command.message, bytes(split_payload(rest)[1])))
            return None
        if frame.command.HasField("active_consumer_change"):
            self.active.append(frame.command.active_consumer_change.is_active)
            return None
        return frame.command

    def connect(self, **features: bool) -> None:
        answer = self.ask(
            simple_frame("connect", client_version="test", protocol_version=21, feature_flags=features)
        )
        assert answer.connected.max_message_size == 5 << 20

    def closed(self) -> bool:
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            return True
        return True

    # Whole requests

    def request(self, name: str, **fields: object) -> Any:
        """Send a command that has a request id, and return the command that answers it."""
        return self.ask(simple_frame(name, request_id=next(self._requests), **fields))

    def producer(self, topic: str, name: str, id: int = 1, **fields: object) -> Any:
        found = self.request("producer", topic=topic, producer_id=id, producer_name=name, **fields)
        return found.producer_success

    def send(
        self, sequence: int, payload: bytes, id: int = 1, key: bytes | None = None, **fields: object
    ) -> Any:
        """Returns the receipt or the error."""
        return self.ask(self.send_frame(sequence, payload, id, key, **fields))

    @staticmethod
    def send_frame(
        sequence: int, payload: bytes, id: int = 1, key: bytes | None = None, **fields: object
    ) -> bytes:
        command = simple_frame("send", producer_id=id, sequence_id=sequence, **fields)[8:]
        metadata = MessageMetadata(
            producer_name=b"p", sequence_id=sequence, publish_time=1, partition_key=key
        )
        return payload_frame(command, metadata.SerializeToString(), payload)

    def subscribe(self, topic: str, subscription: str, type: int, id: int = 1) -> None:
        answer = self.try_subscribe(topic, subscription, type, id)
        assert answer.HasField("success"), answer

    def try_subscribe(self, topic: str, subscription: str, type: int, id: int = 1) -> Any:
        """Returns the answer, which may be an error."""
        answer = self.request(
            "subscribe",
            topic=topic,
            subscription=subscription,
            subType=type,
            consumer_id=id,
            initialPosition=1,
        )
        if answer.HasField("success"):
            self.socket.sendall(simple_frame("flow", consumer_id=id, messagePermits=1000))
        return answer

    def message(self) -> tuple[Any, bytes]:
        """The next message of any consumer."""
        while not self.messages:
            unexpected = self._next_command()
            assert unexpected is None, unexpected
        return self.messages.popleft()

    def ack(self, *ids: Any, consumer: int = 1, type: int = 0, **fields: object) -> Any:
        found = self.request("ack", consumer_id=consumer, ack_type=type, message_id=list(ids), **fields)
        return found.ack_response

    def pong(self) -> None:
        """Everything that was sent before is handled."""
        assert self.ask(simple_frame("ping")).HasField("pong")

    def begin(self, timeout_ms: int = 60_000) -> dict[str, int]:
        """The fields that name a new transaction."""
        begun = self.request("new_txn", tc_id=0, txn_ttl_seconds=timeout_ms).new_txn_response
        assert not begun.HasField("error"), begun
        return {"txnid_least_bits": begun.txnid_least_bits, "txnid_most_bits": begun.txnid_most_bits}

    def end(self, transaction: dict[str, int], *, commit: bool) -> Any:
        return self.request("end_txn", txn_action=0 if commit else 1, **transaction).end_txn_response

"""The most common Produce: one batch for one partition, from a client that sends such requests in a row.

They are the same up to the partition's number, so that beginning is compared instead of parsed, and the answer
is its own beginning and end around one struct. What does not look just like the one before takes the long way.
"""

from __future__ import annotations

import asyncio
import struct

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.api import Reply
from mainstem.doors.kafka.errors import produce_code_of
from mainstem.doors.kafka.landing import kept
from mainstem.doors.kafka.wire import INT32, span, write_string
from mainstem.errors import MainstemError
from mainstem.ledger.topics import Topic

_ANSWER = struct.Struct(">ihqqq")  # index, error code, base offset, append time, first offset


class LoneBatches:
    """Requests of one connection that begin alike."""

    __slots__ = (
        "_abortable",
        "_beginning",
        "_broker",
        "_end",
        "_flexible",
        "_head",
        "_joins",
        "_tail",
        "_topic",
        "rules",
    )

    def __init__(
        self,
        broker: Broker,
        topic: Topic,
        beginning: bytes,
        end: bytes,
        *,
        flexible: bool,
        answer: tuple[bytes, bytes],
        rules: int,
        joins: str | None,
        abortable: bool,
    ) -> None:
        """`beginning` and `end`: what stands before the partition's number, and after its records.

        `answer`: what stands before and after the partition in an answer without an error.
        `joins`, `abortable`: as in `Broker.place` and `produce_code_of`."""
        self._broker = broker
        self._topic = topic
        self._beginning = beginning
        self._end = end
        self._flexible = flexible
        self._head, self._tail = answer
        self._joins = joins
        self._abortable = abortable
        self.rules = rules  # state of the access rules by which the client may write them

    def serve(self, body: memoryview, reply: Reply) -> bool:
        """False: this request is another, or its topic is."""
        at = len(self._beginning)
        topic = self._topic
        if body[:at] != self._beginning or self._broker.streams.get(topic.name) is not topic:
            return False
        (index,) = INT32.unpack_from(body, at)
        first, end = span(body, at + 4, self._flexible)
        if first < 0 or body[end:] != self._end:
            return False
        try:
            placing, facts = self._broker.place(topic, index, kept(body, first, end), self._joins)
        except MainstemError as error:
            self.refuse(index, error, reply)
            return True
        append_time = facts.max_timestamp if topic.config.timestamp_type == "LogAppendTime" else -1
        batch = _LoneBatch(self, index, topic.streams[index], append_time, reply)
        asyncio.ensure_future(placing).add_done_callback(batch.settled)
        return True

    def forget(self) -> None:
        """Nothing is held that would outlive it."""

    def answer(self, index: int, stream: int, base: int, append_time: int, reply: Reply) -> None:
        start = self._broker.streams.start(stream)
        reply.send((self._head + _ANSWER.pack(index, 0, base, append_time, start) + self._tail,))

    def refuse(self, index: int, error: Exception, reply: Reply) -> None:
        # The tail: no record errors, then a null message, then the rest.
        none, rest = (self._tail[:1], self._tail[2:]) if self._flexible else (self._tail[:4], self._tail[6:])
        message = write_string(str(error), self._flexible)
        failure = _ANSWER.pack(index, produce_code_of(error, abortable=self._abortable), -1, -1, -1)
        reply.send((self._head + failure + none + message + rest,), failed=True)


class _LoneBatch:
    """One of them, until it is durable."""

    __slots__ = ("_alike", "_append_time", "_index", "_reply", "_stream")

    def __init__(self, alike: LoneBatches, index: int, stream: int, append_time: int, reply: Reply) -> None:
        self._alike = alike
        self._index = index
        self._stream = stream
        self._append_time = append_time
        self._reply = reply

    def settled(self, done: asyncio.Future[tuple[int, bool]]) -> None:
        try:
            base, _ = done.result()
        except Exception as error:  # noqa: BLE001  # whatever became of it, the client is told
            self._alike.refuse(self._index, error, self._reply)
            return
        self._alike.answer(self._index, self._stream, base, self._append_time, self._reply)

"""The most common Produce: one batch for one partition, from a client that repeats such requests.

Apart from the correlation id, these requests are equal up to the partition number. So that prefix is compared instead
of parsed, and the response is a fixed prefix and suffix around one struct. A request that differs from the one before,
or meets a changed topic, quota or access rule, takes the general path (produce.py).

A client that does not wait for answers sends many of them at once. If their batches have no producer id, those of one
partition are appended together: to the log they are one slice of several batches.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from mainstem.broker.append import Placed
from mainstem.broker.topics.service import Topic
from mainstem.broker.transactions.producer_rights import ProducerRights
from mainstem.doors.kafka.apis.record_errors import write_record_errors
from mainstem.doors.kafka.transport.api import Call, Part, Reply
from mainstem.doors.kafka.transport.errors import produce_code_of
from mainstem.doors.kafka.transport.wire import (
    INT32,
    KAFKA_KEPT_IN_PLACE_BYTES_MIN,
    NO_TAGS,
    UVARINT_BYTES_MAX,
    kept,
    span,
    write_string,
)
from mainstem.errors import MainstemError, MalformedRequest
from mainstem.records.header import HEADER_BYTES, LENGTH_COVERS_FROM

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.connection import KafkaConnection
    from mainstem.doors.kafka.transport.dispatch import ApiRoute

_PRODUCE = 0
_API = struct.Struct(">hh")
_CLIENT_ID_LENGTH = struct.Struct(">h")
_HEAD = struct.Struct(">ii")  # of a response: its length without this field, and the correlation id
# Of a batch: its length without the first twelve bytes, the producer, and the number of records (records/header.py).
_BATCH = struct.Struct(">8xi31xq6xi")
_PARTITION = struct.Struct(">ihqqq")  # index, error code, base offset, append time, first offset

REQUESTS_PER_RUN_MAX = 64  # appended at once, which bounds the time without a look at the clock


class LoneBatches:
    """Requests of one connection with the same prefix."""

    __slots__ = (
        "_abortable",
        "_access",
        "_answer",
        "_answer_length",
        "_api",
        "_appends",
        "_beginning",
        "_call",
        "_end",
        "_flexible",
        "_head",
        "_joins",
        "_rates",
        "_read",
        "_records_at",
        "_rights",
        "_rules",
        "_runs",
        "_size_min",
        "_stamped",
        "_tail",
        "_topic",
        "_topics",
    )

    def __init__(
        self,
        call: Call,
        topic: Topic,
        beginning: bytes,
        end: bytes,
        *,
        flexible: bool,
        answer: tuple[bytes, bytes],
        joins: str | None,
        rights: ProducerRights | None,
        abortable: bool,
    ) -> None:
        """`beginning` and `end`: the body before the partition number, and after the records.

        `answer`: the response before and after the partition, without an error.
        `joins`, `abortable`: as in `Appends.batches` and `produce_code_of`."""
        client_id = None if call.client_id is None else call.client_id.encode()
        named = b"" if client_id is None else client_id
        tags = NO_TAGS if flexible else b""
        self._call = call
        broker = call.context.broker
        self._appends = broker.appends
        self._topics = broker.streams
        self._rates = broker.rates.stored
        self._access = call.context.access
        self._rules = self._access.state
        self._topic = topic
        self._stamped = topic.config.timestamp_type == "LogAppendTime"
        self._api = _API.pack(_PRODUCE, call.version)
        self._beginning = (
            _CLIENT_ID_LENGTH.pack(-1 if client_id is None else len(named)) + named + tags + beginning
        )
        read = struct.Struct(f">4si{len(self._beginning)}si")  # api, correlation id, beginning, partition
        self._read = read.unpack_from
        self._records_at = read.size
        self._size_min = read.size + UVARINT_BYTES_MAX
        self._end = end
        self._flexible = flexible
        self._head, self._tail = tags + answer[0], answer[1]
        whole = struct.Struct(f">ii{len(self._head)}sihqqq{len(self._tail)}s")
        self._answer = whole.pack
        self._answer_length = whole.size - 4  # without this field
        self._joins = joins
        self._rights = rights
        self._abortable = abortable
        self._runs = joins is None and not self._stamped

    def serve(self, connection: KafkaConnection, route: ApiRoute, frame: memoryview) -> bool:
        """Start a request. False: the request differs, or something changed since the last one."""
        if len(frame) < self._size_min:
            return False
        api, correlation, beginning, index = self._read(frame)
        topic = self._topic
        if beginning != self._beginning or api != self._api or self._changed():
            return False
        first, end = span(frame, self._records_at, self._flexible)
        if first < 0 or frame[end:] != self._end:
            return False
        request = LoneReply(connection, route, correlation, len(frame), self, index)
        connection.enqueue(request)
        try:
            facts = self._appends.batches(
                topic, index, kept(frame, first, end), request, self._joins, rights=self._rights
            )
        except MainstemError as error:
            request.set_exception(error)
            return True
        if self._stamped:
            request.append_time = facts.max_timestamp
        return True

    def serve_run(
        self, connection: KafkaConnection, route: ApiRoute, buffer: memoryview, at: int, end: int
    ) -> int:
        """Those for the partition of the first one, whose batches have no producer id."""
        if not self._runs or self._changed():
            return at
        run = LoneRun(connection, route, self)
        run_ends = self._collect(run, buffer, at, end)
        if len(run.correlations) < 2:
            return at
        run.size = run_ends - at
        connection.enqueue(run)
        try:
            self._appends.batches(
                self._topic, run.index, bytearray().join(run.batches), run, rights=self._rights, several=True
            )
        except MainstemError:
            # One of them is refused: serve each by itself, now and later.
            connection.withdraw(run)
            self._runs = False
            return at
        run.batches.clear()
        return run_ends

    def _collect(self, run: LoneRun, buffer: memoryview, at: int, end: int) -> int:
        """Add the requests that are alike. Returns where they end."""
        wanted, api, read, flexible = self._beginning, self._api, self._read, self._flexible
        tail, records_at, size_min = self._end, self._records_at + INT32.size, self._size_min
        while end - at > INT32.size and len(run.correlations) < REQUESTS_PER_RUN_MAX:
            (length,) = INT32.unpack_from(buffer, at)
            stop = at + INT32.size + length
            if length < size_min or stop > end:
                break
            own_api, correlation, beginning, index = read(buffer, at + INT32.size)
            if beginning != wanted or own_api != api or (run.correlations and index != run.index):
                break
            try:
                first, last = span(buffer, at + records_at, flexible)
            except MalformedRequest:
                break
            size = last - first
            if (
                first < 0
                or size < HEADER_BYTES
                or size > KAFKA_KEPT_IN_PLACE_BYTES_MIN
                or last > stop  # `span` knows only where the buffer ends
                or buffer[last:stop] != tail
            ):
                break
            batch_length, producer, records = _BATCH.unpack_from(buffer, first)
            if batch_length + LENGTH_COVERS_FROM != size or producer != -1:
                break
            run.add(correlation, index, records, buffer[first:last])
            at = stop
        return at

    def _changed(self) -> bool:
        """Whether requests that repeat the first one may mean something else by now, or are limited."""
        topic, session = self._topic, self._call.session
        return (
            self._topics.get(topic.name) is not topic
            or (self._rates.active and self._limited())
            or self._access.state != self._rules
            or (session is not None and not session.admits(_PRODUCE))
        )

    def _limited(self) -> bool:
        call = self._call
        return call.producing(self._topic.name) is not None or call.request_meter() is not None

    def answer(self, correlation: int, index: int, base: int, append_time: int) -> bytes:
        """The response, with its length and header."""
        start = self._topics.start(self._topic.streams[index])
        return self._answer(
            self._answer_length, correlation, self._head, index, 0, base, append_time, start, self._tail
        )

    def answers(self, run: LoneRun, base: int) -> list[bytes]:
        """The responses to a run whose first batch got the offset `base`."""
        start = self._topics.start(self._topic.streams[run.index])
        found = []
        for correlation, records in zip(run.correlations, run.records, strict=True):
            found.append(
                self._answer(
                    self._answer_length, correlation, self._head, run.index, 0, base, -1, start, self._tail
                )
            )
            base += records
        return found

    def refusal(self, correlation: int, index: int, error: BaseException) -> bytes:
        rest = (
            self._tail[2:] if self._flexible else self._tail[6:]
        )  # after no record errors and a null message
        message = self._call.text(str(error))
        invalid = write_record_errors(error, message, self._flexible)
        failure = _PARTITION.pack(index, produce_code_of(error, abortable=self._abortable), -1, -1, -1)
        body = self._head + failure + invalid + write_string(message, self._flexible) + rest
        return _HEAD.pack(len(body) + 4, correlation) + body


class LoneReply(Reply):
    """One request that waits until its batch is durable."""

    __slots__ = ("_alike", "_index", "append_time")

    def __init__(
        self,
        connection: KafkaConnection,
        route: ApiRoute,
        correlation: int,
        size: int,
        alike: LoneBatches,
        index: int,
    ) -> None:
        super().__init__(connection, route, correlation, False, size)
        self._alike = alike
        self._index = index
        self.append_time = -1

    def done(self) -> bool:
        return self.answered

    def set_result(self, placed: Placed) -> None:
        try:
            answer = self._alike.answer(self.correlation, self._index, placed[0], self.append_time)
        except Exception as error:  # noqa: BLE001  # its topic may be deleted; the client gets a response in any case
            self.set_exception(error)
        else:
            self.send((answer,))

    def set_exception(self, error: BaseException) -> None:
        self.send((self._alike.refusal(self.correlation, self._index, error),), failed=True)

    def write(self, out: list[Part]) -> int:
        if not self.parts:
            return 0
        (whole,) = self.parts
        out.append(whole)
        return len(whole)


class LoneRun(Reply):
    """Several requests for one partition, which wait until all their batches are durable."""

    __slots__ = ("_alike", "batches", "correlations", "index", "records")

    def __init__(self, connection: KafkaConnection, route: ApiRoute, alike: LoneBatches) -> None:
        super().__init__(connection, route, 0, False, 0)
        self._alike = alike
        self.index = -1  # of the partition
        self.correlations: list[int] = []
        self.records: list[int] = []  # in the batch of each
        self.batches: list[memoryview] = []  # until they are appended

    def add(self, correlation: int, index: int, records: int, batch: memoryview) -> None:
        self.index = index
        self.correlations.append(correlation)
        self.records.append(records)
        self.batches.append(batch)

    def done(self) -> bool:
        return self.answered

    def set_result(self, placed: Placed) -> None:
        try:
            answers = self._alike.answers(self, placed[0])
        except Exception as error:  # noqa: BLE001  # its topic may be deleted; the client gets responses in any case
            self.set_exception(error)
        else:
            self.send(answers)

    def set_exception(self, error: BaseException) -> None:
        refusal = self._alike.refusal
        self.send([refusal(one, self.index, error) for one in self.correlations], failed=True)

    def _finish(self, failed: bool) -> None:
        self.answered = True
        connection = self.connection
        self.route.counters.finished(connection.now() - self.started, failed, len(self.correlations))
        connection.answered(self)

    def write(self, out: list[Part]) -> int:
        parts = self.parts or ()
        out += parts
        return sum(map(len, parts))

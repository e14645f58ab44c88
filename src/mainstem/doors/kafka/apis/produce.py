"""Produce: append record batches in the order of arrival, and respond when they are durable.

Written by hand. Request body (flexible from 9):

| field            | type            | versions |
|------------------|-----------------|----------|
| transactional_id | nullable string | 3+       |
| acks             | i2              |          |
| timeout_ms       | i4              |          |
| topics           | array           |          |
| · name           | string          | 0 to 12  |
| · topic_id       | uuid            | 13+      |
| · partitions     | array           |          |
| · · index        | i4              |          |
| · · records      | nullable bytes  |          |

Answer body:

| field                | type                          | versions |
|----------------------|-------------------------------|----------|
| topics               | array                         |          |
| · name or topic_id   | as asked                      |          |
| · partitions         | array                         |          |
| · · index            | i4                            |          |
| · · error_code       | i2                            |          |
| · · base_offset      | i8                            |          |
| · · log_append_time  | i8, -1 = the producer's times | 2+       |
| · · log_start_offset | i8                            | 5+       |
| · · record_errors    | array (record_errors.py)      | 8+       |
| · · error_message    | nullable string               | 8+       |
| throttle_time_ms     | i4                            | 1+       |
"""

from __future__ import annotations

import struct

from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.append import Placed
from mainstem.broker.rates import PRODUCER_BYTE_RATE
from mainstem.broker.topics.service import Topic
from mainstem.broker.transactions.producer_rights import ProducerRights
from mainstem.doors.kafka.apis.auto_create import create_missing, may_create
from mainstem.doors.kafka.apis.lone_batch import LoneBatches
from mainstem.doors.kafka.apis.record_errors import write_record_errors
from mainstem.doors.kafka.security.refusals import FORBIDDEN
from mainstem.doors.kafka.transport.api import Call, FastApi, Reply, RequestOrder
from mainstem.doors.kafka.transport.errors import produce_code_of
from mainstem.doors.kafka.transport.message_bounds import KAFKA_PARTITIONS_PER_REQUEST_MAX
from mainstem.doors.kafka.transport.wire import (
    INT32,
    NO_TAGS,
    count,
    kept,
    skip_tags,
    span,
    string,
    topic_id,
    write_count,
    write_string,
)
from mainstem.errors import InvalidBatch, MainstemError, MalformedRequest
from mainstem.records.header import Slice, record_count

_FLEXIBLE_FROM = 9
_TOPIC_IDS_FROM = 13
_ABORTABLE_FROM = 11  # first version that knows TRANSACTION_ABORTABLE
_JOINS_FROM = 12  # first version before which no AddPartitionsToTxn is sent (transaction.version 2)
_ACKS_AND_TIMEOUT = struct.Struct(">hi")

# One partition of the answer, by the first version that has the layout.
_PARTITION_0 = struct.Struct(">ihq")
_PARTITION_2 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")
_NO_RECORD_ERRORS = INT32.pack(0)
_NO_RECORD_ERRORS_FLEXIBLE = b"\1"
_NO_THROTTLE = INT32.pack(0)


class _PartitionProduce:
    """One partition of a request, and its outcome."""

    __slots__ = (
        "append_time",
        "base",
        "code",
        "error",
        "index",
        "message",
        "records",
        "start",
        "stream",
        "work",
    )

    def __init__(self, index: int, records: Slice | None) -> None:
        self.index = index
        self.records = records  # until they are placed
        self.work: _Produce | None = None  # while they are placed
        self.stream = -1
        self.base = -1
        self.append_time = -1
        self.start = -1
        self.code = 0
        self.message: str | None = None
        self.error: BaseException | None = None

    def fail(self, code: int, message: str, error: BaseException | None = None) -> None:
        self.code, self.message, self.error = code, message, error
        self.base = self.append_time = self.start = -1

    def done(self) -> bool:
        return self.work is None

    def set_result(self, placed: Placed) -> None:
        work, self.work = self.work, None
        if work is not None:
            work.placed(self, placed)

    def set_exception(self, error: BaseException) -> None:
        work, self.work = self.work, None
        if work is not None:
            work.refused(self, error)


class _TopicParts:
    """The partitions of one topic, named as the client does."""

    __slots__ = ("forbidden", "key", "name", "parts", "parts_at", "topic", "topic_id")

    def __init__(self, key: bytes, name: str | None, topic_id: bytes | None) -> None:
        self.key = key  # name or id, as the response repeats it
        self.name = name
        self.topic_id = topic_id
        self.topic: Topic | None = None
        self.forbidden = False  # by the access rules
        self.parts: list[_PartitionProduce] = []
        self.parts_at = 0  # where they stand in the request

    def find(self, call: Call) -> None:
        streams = call.context.broker.streams
        if self.topic_id is None:
            self.topic = streams.get(self.name or "")
        else:
            self.topic = call.topic_of_id(self.topic_id)

    def fail(self, code: int, message: str) -> None:
        for part in self.parts:
            part.fail(code, message)


class _Produce:
    """One request: appends its batches, and responds when the last one is settled."""

    __slots__ = (
        "_abortable",
        "_acks",
        "_broker",
        "_call",
        "_joins",
        "_reply",
        "_rights",
        "_throttle_ms",
        "_topics",
        "_unsettled",
        "_version",
    )

    def __init__(
        self,
        call: Call,
        transactional_id: str | None,
        acks: int,
        topics: list[_TopicParts],
        reply: Reply,
        rights: ProducerRights | None,
    ) -> None:
        self._call = call
        self._broker = call.context.broker
        self._rights = rights
        self._version = version = call.version
        self._abortable = transactional_id is not None and version >= _ABORTABLE_FROM
        self._joins = transactional_id if version >= _JOINS_FROM else None
        self._acks = acks
        self._topics = topics
        self._reply = reply
        self._throttle_ms = 0
        self._unsettled = 1  # partitions not settled, plus one until all are appended

    def refuse(self, code: int, message: str) -> None:
        if self._broker.rates.stored.active:
            self._throttle()
        for topic in self._topics:
            topic.fail(code, message)
        self._settled()

    def place(self) -> None:
        if self._broker.rates.stored.active:
            self._throttle()
        for wanted in self._topics:
            topic = wanted.topic
            if wanted.forbidden:
                wanted.fail(ErrorCode.topic_authorization_failed, FORBIDDEN)
                continue
            if topic is None:
                code, message = _missing(wanted)
                wanted.fail(code, self._call.text(message))
                continue
            for part in wanted.parts:
                self._place(topic, part)
        self._settled()

    def _place(self, topic: Topic, part: _PartitionProduce) -> None:
        records, part.records = part.records, None
        part.work = self
        try:
            if records is None:
                raise InvalidBatch("there are no records")
            facts = self._broker.appends.batches(
                topic, part.index, records, part, self._joins, rights=self._rights
            )
        except MainstemError as error:
            part.work = None
            self._fail(part, error)
            return
        part.stream = topic.streams[part.index]
        if topic.config.timestamp_type == "LogAppendTime":
            part.append_time = facts.max_timestamp
        self._unsettled += 1

    def _throttle(self) -> None:
        """Count the request, appended or not, against the rates of its topics and their namespaces."""
        held_ms = 0
        for wanted in self._topics:
            limiter = self._call.producing("" if wanted.topic is None else wanted.topic.name)
            if limiter is None:
                continue
            slices = [part.records for part in wanted.parts if part.records is not None]
            records = sum(map(record_count, slices)) if limiter.counts_records else 0
            held_ms = max(held_ms, limiter.take(sum(map(len, slices)), records))
        self._throttle_ms = self._call.throttle(PRODUCER_BYTE_RATE, held_ms, self._reply)

    def placed(self, part: _PartitionProduce, placed: Placed) -> None:
        # An idempotent retry gets the same response as the original, with the same offsets.
        part.base = placed[0]
        try:
            part.start = self._broker.streams.start(part.stream)
        except Exception as error:  # noqa: BLE001  # its topic may be gone
            self.refused(part, error)
        else:
            self._settled()

    def refused(self, part: _PartitionProduce, error: BaseException) -> None:
        """Record the outcome; the client gets a response in every case."""
        self._fail(part, error)
        self._settled()

    def _fail(self, part: _PartitionProduce, error: BaseException) -> None:
        part.fail(produce_code_of(error, abortable=self._abortable), self._call.text(str(error)), error)

    def _settled(self) -> None:
        self._unsettled -= 1
        if self._unsettled:
            return
        failed = any(part.code for topic in self._topics for part in topic.parts)
        if self._acks == 0:
            self._reply.send_nothing(failed=failed)
            if failed:  # without a response, closing the connection is the only error signal
                self._reply.hang_up("a Produce with acks=0 failed")
        else:
            self._reply.send([_body(self._version, self._topics, self._throttle_ms)], failed=failed)


def _missing(wanted: _TopicParts) -> tuple[int, str]:
    if wanted.topic_id is not None:
        return ErrorCode.unknown_topic_id, f"no topic has the id {wanted.topic_id.hex()}"
    return ErrorCode.unknown_topic_or_partition, f"no topic is named {wanted.name!r}"


def _body(version: int, topics: list[_TopicParts], throttle_ms: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    out = [write_count(len(topics), flexible)]
    for topic in topics:
        out += (topic.key, write_count(len(topic.parts), flexible))
        for part in topic.parts:
            _write_part(out, part, version)
        if flexible:
            out.append(NO_TAGS)
    if version >= 1:
        out.append(INT32.pack(throttle_ms))
    if flexible:
        out.append(NO_TAGS)
    return b"".join(out)


def _write_part(out: list[bytes], part: _PartitionProduce, version: int) -> None:
    if version >= 5:
        out.append(_PARTITION_5.pack(part.index, part.code, part.base, part.append_time, part.start))
    elif version >= 2:
        out.append(_PARTITION_2.pack(part.index, part.code, part.base, part.append_time))
    else:
        out.append(_PARTITION_0.pack(part.index, part.code, part.base))
    if version < 8:
        return
    flexible = version >= _FLEXIBLE_FROM
    if part.error is not None:
        out.append(write_record_errors(part.error, part.message or "", flexible))
    else:
        out.append(_NO_RECORD_ERRORS_FLEXIBLE if flexible else _NO_RECORD_ERRORS)
    out.append(write_string(part.message, flexible))
    if flexible:
        out.append(NO_TAGS)


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    restricted = call.restricted
    transactional_id, acks, topics = _parse(call.version, body)
    if transactional_id is not None:
        transactional_id = call.stored_id(transactional_id)
    if call.view is not None:
        for topic in topics:
            topic.name = None if topic.name is None else call.view.topic(topic.name)
    missing = False
    for topic in topics:
        topic.find(call)
        if restricted:
            _check_access(call, topic)
        missing |= topic.topic is None and not topic.forbidden
    # Without access rules, producers are not tied to principals.
    broker = call.context.broker
    rights = broker.producer_rights(call.principal, call.host, transactional_id) if restricted else None
    work = _Produce(call, transactional_id, acks, topics, reply, rights)
    if acks not in (-1, 0, 1):
        work.refuse(ErrorCode.invalid_required_acks, f"acks is {acks}: it is -1 (all), 0 or 1")
    elif transactional_id is not None and not call.may_or_audit(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        work.refuse(ErrorCode.transactional_id_authorization_failed, FORBIDDEN)
    elif missing and (call.context.auto_create or call.context.shared):
        reply.hold_others()  # later batches of the topic must not overtake
        reply.run(_create_and_place(call, topics, work))
    else:
        alike = _lone_batch_matcher(call, body, transactional_id, topics, rights) if acks else None
        if alike is not None:
            reply.expect(alike)
        work.place()


def _lone_batch_matcher(
    call: Call,
    body: memoryview,
    transactional_id: str | None,
    topics: list[_TopicParts],
    rights: ProducerRights | None,
) -> LoneBatches | None:
    """The matcher for the following requests, if this one is a lone batch."""
    version = call.version
    if len(topics) != 1 or len(topics[0].parts) != 1 or version < 8:
        return None
    (wanted,) = topics
    topic, records = wanted.topic, wanted.parts[0].records
    if topic is None or records is None or wanted.forbidden:
        return None
    flexible = version >= _FLEXIBLE_FROM
    if flexible:
        end = 3 * NO_TAGS  # of the partition, the topic and the request
        answer = b"\2" + wanted.key + b"\2", b"\1\0" + 2 * NO_TAGS + _NO_THROTTLE + NO_TAGS
    else:
        end = b""
        one = INT32.pack(1)
        answer = one + wanted.key + one, _NO_RECORD_ERRORS + write_string(None, False) + _NO_THROTTLE
    return LoneBatches(
        call,
        topic,
        bytes(body[: wanted.parts_at]),
        end,
        flexible=flexible,
        answer=answer,
        joins=transactional_id if version >= _JOINS_FROM else None,
        rights=rights,
        abortable=transactional_id is not None and version >= _ABORTABLE_FROM,
    )


def _check_access(call: Call, wanted: _TopicParts) -> None:
    """Whether the client may write to the topic, or create it by writing to it."""
    name = wanted.name if wanted.topic is None else wanted.topic.name
    if name is None:
        return  # an unknown id has its own error code
    wanted.forbidden = not call.may(Operation.WRITE, ResourceType.TOPIC, name) or (
        wanted.topic is None and call.context.auto_create and not may_create(call, name)
    )
    if wanted.forbidden:
        call.denied(Operation.WRITE.name, ResourceType.TOPIC, name)


async def _create_and_place(call: Call, topics: list[_TopicParts], work: _Produce) -> None:
    missing = [topic for topic in topics if topic.topic is None and not topic.forbidden]
    await call.context.broker.barrier()  # another broker may have created them just now
    for topic in missing:
        topic.find(call)
    if call.context.auto_create:
        await create_missing(call.context, [t.name for t in missing if t.topic is None and t.name])
    for topic in missing:
        topic.find(call)
    work.place()


def _parse(version: int, body: memoryview) -> tuple[str | None, int, list[_TopicParts]]:
    """The transactional id, the acks, and where the rest starts."""
    flexible = version >= _FLEXIBLE_FROM
    at = 0
    transactional_id = None
    if version >= 3:
        transactional_id, at = string(body, at, flexible)
    acks, _ = _ACKS_AND_TIMEOUT.unpack_from(body, at)
    topics, at = count(body, at + _ACKS_AND_TIMEOUT.size, flexible)
    found: list[_TopicParts] = []
    partitions = 0
    for _ in range(topics):
        at = _parse_topic(version, flexible, body, at, found)
        partitions += len(found[-1].parts)
        if max(partitions, len(found)) > KAFKA_PARTITIONS_PER_REQUEST_MAX:
            raise MalformedRequest(
                f"a Produce request names more than {KAFKA_PARTITIONS_PER_REQUEST_MAX} topics or partitions"
            )
    if flexible:
        at = skip_tags(body, at)
    if at > len(body):
        raise MalformedRequest(f"a Produce request of {len(body)} bytes ends at byte {at}")
    return transactional_id, acks, found


def _parse_topic(version: int, flexible: bool, body: memoryview, at: int, found: list[_TopicParts]) -> int:
    begin = at
    if version >= _TOPIC_IDS_FROM:
        id, at = topic_id(body, at)
        topic = _TopicParts(id, None, id)
    else:
        name, at = string(body, at, flexible)
        topic = _TopicParts(bytes(body[begin:at]), name or "", None)
    found.append(topic)
    partitions, at = count(body, at, flexible)
    if partitions > KAFKA_PARTITIONS_PER_REQUEST_MAX:
        raise MalformedRequest(
            f"a Produce request names more than {KAFKA_PARTITIONS_PER_REQUEST_MAX} topics or partitions"
        )
    topic.parts_at = at
    for _ in range(partitions):
        (index,) = INT32.unpack_from(body, at)
        first, at = span(body, at + 4, flexible)
        topic.parts.append(_PartitionProduce(index, None if first < 0 else kept(body, first, at)))
        if flexible:
            at = skip_tags(body, at)
    return skip_tags(body, at) if flexible else at


def _throttle_at(version: int) -> int | None:
    """Offset from the end of the response."""
    if version == 0:
        return None
    return -5 if version >= _FLEXIBLE_FROM else -4


API = FastApi(
    0, 0, 13, _FLEXIBLE_FROM, handle, RequestOrder.OVERLAPPING, large=True, throttle_at=_throttle_at
)

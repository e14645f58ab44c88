"""Fetch: record batches out, as they came in, with a long poll over many partitions (fetch_poll.py).

Written by hand. Request body (flexible from 12):

| field                          | type       | versions |
|--------------------------------|------------|----------|
| replica_id                     | i4         | 4 to 14  |
| max_wait_ms, min_bytes         | i4, i4     |          |
| max_bytes                      | i4         |          |
| isolation_level                | i1         |          |
| session_id, session_epoch      | i4, i4     | 7+       |
| topics                         | array      |          |
| · name                         | string     | 4 to 12  |
| · topic_id                     | uuid       | 13+      |
| · partitions                   | array      |          |
| · · index                      | i4         |          |
| · · current_leader_epoch       | i4         | 9+       |
| · · fetch_offset               | i8         |          |
| · · last_fetched_epoch         | i4         | 12+      |
| · · log_start_offset           | i8         | 5+       |
| · · partition_max_bytes        | i4         |          |
| forgotten topics               | array      | 7+       |
| rack_id                        | string     | 11+      |

Answer body:

| field                          | type       | versions |
|--------------------------------|------------|----------|
| throttle_time_ms               | i4         |          |
| error_code, session_id         | i2, i4     | 7+       |
| topics                         | array      |          |
| · name or topic_id             | as asked   |          |
| · partitions                   | array      |          |
| · · index, error_code          | i4, i2     |          |
| · · high_watermark             | i8         |          |
| · · last_stable_offset         | i8         |          |
| · · log_start_offset           | i8         | 5+       |
| · · aborted transactions       | array of (producer i8, first offset i8), null unless read_committed | |
| · · preferred_read_replica     | i4         | 11+      |
| · · records                    | bytes      |          |

No fetch session is ever opened (session id 0), which clients take to mean: name every partition every time.
"""

from __future__ import annotations

import struct

from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.streams import find_stream
from mainstem.doors.kafka.apis.fetch_poll import FetchPart, FetchPoll, FetchTopic
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH, UNKNOWN_EPOCH, wrong_epoch
from mainstem.doors.kafka.transport.api import Call, FastApi, Part, Reply, RequestOrder
from mainstem.doors.kafka.transport.wire import (
    INT32,
    NO_TAGS,
    count,
    skip_tags,
    string,
    topic_id,
    write_count,
    write_uvarint,
)
from mainstem.errors import MalformedRequest, invariant

_FIRST, _LAST = 4, 18
_FLEXIBLE_FROM = 12
_TOPIC_IDS_FROM = 13

_HEAD_4 = struct.Struct(">xxxxiiib")
_HEAD_7 = struct.Struct(">xxxxiiibii")
_HEAD_15 = struct.Struct(">iiibii")

# One partition of a request: index, leader epoch, offset, limit. Padding stands for fields nobody here needs.
_PART_4 = struct.Struct(">iqi")
_PART_5 = struct.Struct(">iq8xi")
_PART_9 = struct.Struct(">iiq8xi")
_PART_12 = struct.Struct(">iiq4x8xi")

_THROTTLE_AND_SESSION = struct.Struct(">ihi")
_ANSWER_PART_4 = struct.Struct(">ihqq")
_ANSWER_PART_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_READ_COMMITTED = 1


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    asked = bytes(body)
    before = call.memory
    if isinstance(before, FetchPoll):
        if call.context.access.state == before.rules and before.again(asked, reply):
            return
        before.forget()
        call.memory = None
    poll = _parse(call, body)
    if poll is None:
        reply.send([_session_refused(call.version)], failed=True)
    elif call.context.shared and poll.beyond():
        reply.run(_fetch_behind_barrier(call, asked, reply))
    else:
        poll.start(asked, reply)


async def _fetch_behind_barrier(call: Call, asked: bytes, reply: Reply) -> None:
    """What is not known here may be known to another broker: catch up before saying that there is no such thing."""
    await call.context.broker.barrier()
    poll = _parse(call, memoryview(asked))
    invariant(poll is not None, "a request that was parsed once is parsed the same way again")
    poll.start(asked, reply)  # type: ignore[union-attr]  # just checked


def _parse(call: Call, body: memoryview) -> FetchPoll | None:
    """None: the client goes on with a session that is not known here."""
    context, version = call.context, call.version
    flexible = version >= _FLEXIBLE_FROM
    epoch = -1
    if version >= 15:
        wait, least, most, isolation, _, epoch = _HEAD_15.unpack_from(body)
        at = _HEAD_15.size
    elif version >= 7:
        wait, least, most, isolation, _, epoch = _HEAD_7.unpack_from(body)
        at = _HEAD_7.size
    else:
        wait, least, most, isolation = _HEAD_4.unpack_from(body)
        at = _HEAD_4.size
    topics, at = count(body, at, flexible)
    found: list[FetchTopic] = []
    for _ in range(topics):
        at = _parse_topic(call, version, body, at, found)
    rack = _parse_rest(version, body, at)
    if epoch > 0:
        return None
    if rack and rack != context.rack and context.peers.near(rack):
        for part in (part for topic in found for part in topic.parts if not part.code):
            part.elsewhere = context.peers.leader(part.stream, rack)
    return FetchPoll(
        call,
        found,
        lambda poll: _answer(version, poll),
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        committed_only=isolation == _READ_COMMITTED,
    )


def _parse_topic(call: Call, version: int, body: memoryview, at: int, found: list[FetchTopic]) -> int:
    flexible = version >= _FLEXIBLE_FROM
    begin = at
    if version >= _TOPIC_IDS_FROM:
        id, at = topic_id(body, at)
        topic = call.topic_of_id(id)
        name = None if topic is None else topic.name
        unknown = ErrorCode.unknown_topic_id
    else:
        sent, at = string(body, at, flexible)
        name = call.full_name(sent or "")
        topic = call.context.broker.streams.get(name)
        unknown = ErrorCode.unknown_topic_or_partition
    if name is not None and not call.may_or_audit(Operation.READ, ResourceType.TOPIC, name):
        topic, unknown = None, ErrorCode.topic_authorization_failed
    parts: list[FetchPart] = []
    namespace = "default" if topic is None else topic.namespace
    found.append(FetchTopic(bytes(body[begin:at]), namespace, parts))
    partitions, at = count(body, at, flexible)
    for _ in range(partitions):
        epoch = -1
        if version >= 12:
            index, epoch, offset, most = _PART_12.unpack_from(body, at)
            at = skip_tags(body, at + _PART_12.size)
        elif version >= 9:
            index, epoch, offset, most = _PART_9.unpack_from(body, at)
            at += _PART_9.size
        elif version >= 5:
            index, offset, most = _PART_5.unpack_from(body, at)
            at += _PART_5.size
        else:
            index, offset, most = _PART_4.unpack_from(body, at)
            at += _PART_4.size
        part = FetchPart(index, find_stream(topic, index), offset, most)
        if part.stream < 0:
            part.code = unknown if topic is None else ErrorCode.unknown_topic_or_partition
        elif epoch not in (LEADER_EPOCH, UNKNOWN_EPOCH):
            part.code = wrong_epoch(epoch)
        parts.append(part)
    return skip_tags(body, at) if flexible else at


def _parse_rest(version: int, body: memoryview, at: int) -> str:
    """Where the client says it is. Reads over what is of no use here, and sees that the body goes that far."""
    flexible = version >= _FLEXIBLE_FROM
    rack: str | None = None
    if version >= 7:
        forgotten, at = count(body, at, flexible)
        for _ in range(forgotten):
            _, at = topic_id(body, at) if version >= _TOPIC_IDS_FROM else string(body, at, flexible)
            partitions, at = count(body, at, flexible)
            at += 4 * partitions
            if flexible:
                at = skip_tags(body, at)
    if version >= 11:
        rack, at = string(body, at, flexible)
    if flexible:
        at = skip_tags(body, at)
    if at > len(body):
        raise MalformedRequest(f"a Fetch request of {len(body)} bytes ends at byte {at}")
    return rack or ""


def _session_refused(version: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    head = _THROTTLE_AND_SESSION.pack(0, ErrorCode.fetch_session_id_not_found, 0)
    return head + write_count(0, flexible) + (NO_TAGS if flexible else b"")


def _answer(version: int, poll: FetchPoll) -> list[Part]:
    """The body as buffers: what is small joined, the batches as they are."""
    flexible = version >= _FLEXIBLE_FROM
    out: list[Part] = []
    small: list[bytes] = [
        _THROTTLE_AND_SESSION.pack(poll.throttle_ms, 0, 0) if version >= 7 else INT32.pack(poll.throttle_ms)
    ]
    small.append(write_count(len(poll.topics), flexible))
    for topic in poll.topics:
        small += (topic.key, write_count(len(topic.parts), flexible))
        for part in topic.parts:
            _write_part(small, version, part)
            if part.size:
                out.append(b"".join(small))
                out += part.batches
                small = []
            if flexible:
                small.append(NO_TAGS)
        if flexible:
            small.append(NO_TAGS)
    if flexible:
        small.append(NO_TAGS)
    if small:
        out.append(b"".join(small))
    return out


def _write_part(small: list[bytes], version: int, part: FetchPart) -> None:
    flexible = version >= _FLEXIBLE_FROM
    if version >= 5:
        small.append(_ANSWER_PART_5.pack(part.index, part.code, part.end, part.stable_end, part.start))
    else:
        small.append(_ANSWER_PART_4.pack(part.index, part.code, part.end, part.stable_end))
    if part.aborted is None:
        small.append(b"\0" if flexible else b"\xff\xff\xff\xff")
    else:
        small.append(write_count(len(part.aborted), flexible))
        for producer, first in part.aborted:
            small.append(_ABORTED.pack(producer, first))
            if flexible:
                small.append(NO_TAGS)
    if version >= 11:
        small.append(INT32.pack(part.elsewhere))
    small.append(write_uvarint(part.size + 1) if flexible else INT32.pack(part.size))


API = FastApi(1, _FIRST, _LAST, _FLEXIBLE_FROM, handle, RequestOrder.SINGLE)

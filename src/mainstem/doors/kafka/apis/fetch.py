"""Fetch: return record batches as they were written, with a long poll over many partitions (fetch_poll.py).

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

A client that opens a fetch session (fetch_session.py) names all partitions once, and then those that change.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.streams import find_stream
from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.apis.fetch_poll import FetchLimits, FetchPart, FetchPoll
from mainstem.doors.kafka.apis.fetch_session import FetchSession, SessionPoll
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH, UNKNOWN_EPOCH, wrong_epoch
from mainstem.doors.kafka.transport.api import Call, FastApi, Part, Reply, RequestOrder
from mainstem.doors.kafka.transport.message_bounds import KAFKA_PARTITIONS_PER_REQUEST_MAX
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
from mainstem.errors import MalformedRequest

_FIRST, _LAST = 4, 18
_FLEXIBLE_FROM = 12
_TOPIC_IDS_FROM = 13

_HEAD_4 = struct.Struct(">xxxxiiib")
_HEAD_7 = struct.Struct(">xxxxiiibii")
_HEAD_15 = struct.Struct(">iiibii")

# One partition of a request: index, leader epoch, offset, limit. Padding covers unused fields.
_PART_4 = struct.Struct(">iqi")
_PART_5 = struct.Struct(">iq8xi")
_PART_9 = struct.Struct(">iiq8xi")
_PART_12 = struct.Struct(">iiq4x8xi")

_THROTTLE_AND_SESSION = struct.Struct(">ihi")
_ANSWER_PART_4 = struct.Struct(">ihqq")
_ANSWER_PART_5 = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_READ_COMMITTED = 1


class _Request(NamedTuple):
    wanted: FetchLimits
    session: int
    epoch: int  # -1: no session; 0: a new one; else the next request of a session
    parts: list[FetchPart]
    forgotten: list[tuple[bytes, int]]
    rack: str


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    before = call.memory
    current = not isinstance(before, FetchPoll | FetchSession) or call.context.access.state == before.rules
    if isinstance(before, FetchPoll):
        asked = bytes(body)
        if current and before.again(asked, reply):
            return
        _close(call)
    request = _parse(call, body)
    if request.epoch > 0:
        code = _session_fault(before, request) if current else ErrorCode.fetch_session_id_not_found
        if code:
            if not current:
                _close(call)
            reply.send([_session_refused(call.version, code)], failed=True)
            return
    elif isinstance(before, FetchSession):
        _close(call)  # the request names every partition again
    if call.context.shared and _beyond(call, request):
        reply.run(_fetch_behind_barrier(call, bytes(body), reply))
    else:
        _start(call, request, bytes(body), reply)


def _close(call: Call) -> None:
    if call.memory is not None:
        call.memory.forget()
        call.memory = None


async def _fetch_behind_barrier(call: Call, asked: bytes, reply: Reply) -> None:
    """Another broker may have created what this broker does not know: catch up before refusing the request."""
    await call.context.broker.barrier()
    _start(call, _parse(call, memoryview(asked)), asked, reply)


def _start(call: Call, request: _Request, asked: bytes, reply: Reply) -> None:
    version = call.version
    session = call.memory if request.epoch > 0 else None
    if isinstance(session, FetchSession):
        session.change(request.parts, request.forgotten)
        session.poll(call, request.wanted, partial(_answer, version)).start(asked, reply)
        return
    rack = request.rack
    near = bool(rack and rack != call.context.rack and call.context.peers.near(rack))
    if near:
        for part in (part for part in request.parts if not part.code):
            part.elsewhere = call.context.peers.leader(part.stream, rack)
    if request.epoch == 0 and not near:
        opened = FetchSession.open(call, request.parts, partial(_find, call, version))
        if opened is not None:
            call.memory = opened
            opened.poll(call, request.wanted, partial(_answer, version)).start(asked, reply)
            return
    FetchPoll(call, request.parts, partial(_answer, version), request.wanted).start(asked, reply)


def _session_fault(session: object, request: _Request) -> int:
    if not isinstance(session, FetchSession) or session.id != request.session:
        return ErrorCode.fetch_session_id_not_found
    return 0 if session.next_epoch(request.epoch) else ErrorCode.invalid_fetch_session_epoch


def _beyond(call: Call, request: _Request) -> bool:
    """Whether the request names partitions or offsets that this broker does not know."""
    streams = call.context.broker.streams
    return any(part.code or part.offset > streams.known_end(part.stream) for part in request.parts)


def _parse(call: Call, body: memoryview) -> _Request:
    version = call.version
    flexible = version >= _FLEXIBLE_FROM
    session, epoch = 0, -1
    if version >= 15:
        wait, least, most, isolation, session, epoch = _HEAD_15.unpack_from(body)
        at = _HEAD_15.size
    elif version >= 7:
        wait, least, most, isolation, session, epoch = _HEAD_7.unpack_from(body)
        at = _HEAD_7.size
    else:
        wait, least, most, isolation = _HEAD_4.unpack_from(body)
        at = _HEAD_4.size
    topics, at = count(body, at, flexible)
    parts: list[FetchPart] = []
    _check_items(topics)
    for _ in range(topics):
        at = _parse_topic(call, version, body, at, parts)
    forgotten, rack = _parse_rest(version, body, at)
    wanted = FetchLimits(wait, least, most, isolation == _READ_COMMITTED)
    return _Request(wanted, session, epoch, parts, forgotten, rack)


def _find(call: Call, version: int, key: bytes) -> tuple[Topic | None, int]:
    """A topic that the client may read, and the error code for a partition that does not exist."""
    if version >= _TOPIC_IDS_FROM:
        topic = call.topic_of_id(key)
        name = None if topic is None else topic.full_name
        unknown = ErrorCode.unknown_topic_id
    else:
        name = call.full_name(string(memoryview(key), 0, version >= _FLEXIBLE_FROM)[0] or "")
        topic = call.context.broker.streams.get(name)
        unknown = ErrorCode.unknown_topic_or_partition
    if name is not None and not call.may_or_audit(Operation.READ, ResourceType.TOPIC, name):
        return None, ErrorCode.topic_authorization_failed
    return topic, unknown if topic is None else ErrorCode.unknown_topic_or_partition


def _parse_topic(call: Call, version: int, body: memoryview, at: int, parts: list[FetchPart]) -> int:
    flexible = version >= _FLEXIBLE_FROM
    begin = at
    at = (topic_id(body, at) if version >= _TOPIC_IDS_FROM else string(body, at, flexible))[1]
    key = bytes(body[begin:at])
    topic, unknown = _find(call, version, key)
    name = "" if topic is None else topic.name
    partitions, at = count(body, at, flexible)
    _check_items(len(parts) + partitions)
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
        part = FetchPart(key, name, index, find_stream(topic, index), offset, most)
        if part.stream < 0:
            part.code = unknown
        elif epoch not in (LEADER_EPOCH, UNKNOWN_EPOCH):
            part.code = wrong_epoch(epoch)
        parts.append(part)
    return skip_tags(body, at) if flexible else at


def _check_items(items: int) -> None:
    """Raises MalformedRequest."""
    if items > KAFKA_PARTITIONS_PER_REQUEST_MAX:
        raise MalformedRequest(
            f"a Fetch request names more than {KAFKA_PARTITIONS_PER_REQUEST_MAX} topics or partitions"
        )


def _parse_rest(version: int, body: memoryview, at: int) -> tuple[list[tuple[bytes, int]], str]:
    """The partitions that leave the session, and the client's rack. Checks that the body is complete."""
    flexible = version >= _FLEXIBLE_FROM
    rack: str | None = None
    gone: list[tuple[bytes, int]] = []
    if version >= 7:
        forgotten, at = count(body, at, flexible)
        _check_items(forgotten)
        for _ in range(forgotten):
            begin = at
            _, at = topic_id(body, at) if version >= _TOPIC_IDS_FROM else string(body, at, flexible)
            key = bytes(body[begin:at])
            partitions, at = count(body, at, flexible)
            if at + 4 * partitions > len(body):
                break
            _check_items(len(gone) + partitions)
            gone += ((key, index) for (index,) in INT32.iter_unpack(body[at : at + 4 * partitions]))
            at += 4 * partitions
            if flexible:
                at = skip_tags(body, at)
    if version >= 11:
        rack, at = string(body, at, flexible)
    if flexible:
        at = skip_tags(body, at)
    if at > len(body):
        raise MalformedRequest(f"a Fetch request of {len(body)} bytes ends at byte {at}")
    return gone, rack or ""


def _session_refused(version: int, code: int) -> bytes:
    flexible = version >= _FLEXIBLE_FROM
    head = _THROTTLE_AND_SESSION.pack(0, code, 0)
    return head + write_count(0, flexible) + (NO_TAGS if flexible else b"")


def _answer(version: int, poll: FetchPoll) -> list[Part]:
    """The body as buffers: small parts joined, batches not copied."""
    flexible = version >= _FLEXIBLE_FROM
    out: list[Part] = []
    session = poll.session.id if isinstance(poll, SessionPoll) else 0
    small: list[bytes] = [
        _THROTTLE_AND_SESSION.pack(poll.throttle_ms, 0, session)
        if version >= 7
        else INT32.pack(poll.throttle_ms)
    ]
    topics = _by_topic(poll.parts)
    small.append(write_count(len(topics), flexible))
    for parts in topics:
        small += (parts[0].key, write_count(len(parts), flexible))
        for part in parts:
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


def _by_topic(parts: list[FetchPart]) -> list[list[FetchPart]]:
    """Group consecutive partitions of one topic, in the order of the request."""
    topics: list[list[FetchPart]] = []
    for part in parts:
        if topics and topics[-1][0].key == part.key:
            topics[-1].append(part)
        else:
            topics.append([part])
    return topics


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

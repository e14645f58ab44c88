"""ShareFetch: a share consumer acknowledges records, and gets more (KIP-932).

The library reads and writes the messages. Like Fetch it runs in its own order, since it may wait for records.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.share_fetch.v2.response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64

from mainstem import limits
from mainstem.broker.namespaces import ID_SEPARATOR
from mainstem.broker.rates import CONSUMER_BYTE_RATE, RateLimiter
from mainstem.broker.share.sessions import OPENS, ShareSession, TopicPartition
from mainstem.broker.share.shares import Acquired, AcquireLimits
from mainstem.doors.kafka.apis import messages
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, ItemResult, outcome_of
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH
from mainstem.doors.kafka.apis.share_sessions import (
    Acknowledgement,
    acknowledge,
    attend,
    catch_up,
    check_group,
    check_readable,
    close,
    closes,
    stream_of,
    topic_bytes,
)
from mainstem.doors.kafka.transport import namespaces
from mainstem.doors.kafka.transport.api import Call, FastApi, Reply, RequestOrder
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError, UnknownMember

_MS = timedelta(milliseconds=1)
_FIRST_WITH_RENEWAL = 2
_RECORD_LIMIT = 1  # acquire mode

_Outcomes = dict[TopicPartition, ItemResult]
_Found = dict[TopicPartition, Acquired | ItemResult]


def handle(call: Call, body: memoryview, reply: Reply) -> None:
    sent = bytes(body)
    request = messages.read(API, call.version, sent)
    if call.view is not None:
        request = namespaces.qualified(call.view, call.context.broker.streams, request)
    elif ID_SEPARATOR.encode() in sent:
        namespaces.check_ids(request)
    try:
        session = _session(call, request)  # now, not later: the session ends with the connection
    except (ItemRefused, MainstemError) as error:
        refused = _refused(outcome_of(error))
        if call.view is not None:
            refused = namespaces.plain(call.view, refused)
        reply.send([messages.write(API, call.version, refused)], failed=True)
        return
    reply.run(_answer(call, request, session, reply))


async def _answer(call: Call, request: ShareFetchRequest, session: ShareSession, reply: Reply) -> None:
    hurry = asyncio.Event()
    reply.on_hurry(hurry.set)
    held_ms = 0
    try:
        answer, found = await _served(call, request, session, hurry)
        if call.context.broker.rates.stored.active:
            held_ms = call.throttle(CONSUMER_BYTE_RATE, _charged(call, session.group, found), reply)
    except (ItemRefused, MainstemError) as error:
        answer = _refused(outcome_of(error))
    if held_ms:
        answer = replace(answer, throttle_time=i32Timedelta.parse(held_ms * _MS))
    if call.view is not None:
        answer = namespaces.plain(call.view, answer)
    reply.send([messages.write(API, call.version, answer)], failed=bool(answer.error_code))


def _charged(call: Call, group: str, found: _Found) -> int:
    """Count what a member gets. Returns the milliseconds to throttle it."""
    held_ms = 0
    for place, one in found.items():
        limiter = _limiter(call, group, place)
        if limiter is not None and isinstance(one, Acquired):
            held_ms = max(held_ms, limiter.take(one.size, one.records))
    return held_ms


def _limiter(call: Call, group: str, place: TopicPartition) -> RateLimiter | None:
    topic = call.context.broker.streams.get_by_id(place[0])
    return None if topic is None else call.consuming(topic.name, group)


def _session(call: Call, request: ShareFetchRequest) -> ShareSession:
    """The session of the request, updated by it. Raises Refused, GroupRefused."""
    group, member, epoch = request.group_id or "", request.member_id or "", request.share_session_epoch
    check_group(call, group)
    if not 1 <= len(member) <= limits.NAME_CHARS_MAX:
        raise UnknownMember(group, member)
    sessions = call.context.share_sessions
    named = [
        (topic_bytes(topic.topic_id), part.partition_index)
        for topic in request.topics
        for part in topic.partitions
    ]
    if epoch == OPENS:
        if any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions):
            raise ItemRefused(
                ErrorCode.invalid_request, "a share session that opens has nothing to acknowledge"
            )
        session = sessions.open(group, member)
        attend(call, session)
    else:
        session = sessions.find(group, member, epoch)
    if not closes(epoch):
        forgotten = [
            (topic_bytes(topic.topic_id), index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        sessions.change(session, named, forgotten)
    return session


async def _served(
    call: Call, request: ShareFetchRequest, session: ShareSession, hurry: asyncio.Event
) -> tuple[ShareFetchResponse, _Found]:
    """The response, and the records of each partition."""
    renews = call.version >= _FIRST_WITH_RENEWAL
    told = [
        Acknowledgement(topic_bytes(topic.topic_id), part.partition_index, part.acknowledgement_batches)
        for topic in request.topics
        for part in topic.partitions
        if part.acknowledgement_batches
    ]
    await catch_up(call, {*(row.topic_id for row in told), *(place[0] for place in session.partitions)})
    outcomes = await acknowledge(call, session, told, renews=renews)
    found: _Found = {}
    if closes(request.share_session_epoch):
        await close(call, session)
    elif request.max_bytes > 0 and not (renews and request.is_renew_ack):  # otherwise it only acknowledges
        found = await _fetched(call, request, session, hurry)
    return _response(call, session, outcomes, found), found


async def _fetched(
    call: Call, request: ShareFetchRequest, session: ShareSession, hurry: asyncio.Event
) -> _Found:
    found: _Found = {}
    streams: dict[int, TopicPartition] = {}
    for place in list(session.partitions):
        try:
            check_readable(call, place[0])
            streams[stream_of(call, *place)] = place
        except ItemRefused as refused:
            found[place] = outcome_of(refused)
    size = min(request.max_bytes, limits.KAFKA_FETCH_BYTES_MAX)
    if call.context.broker.rates.stored.active:
        for place in session.partitions:
            limiter = _limiter(call, session.group, place)
            size = size if limiter is None else min(size, limiter.burst_bytes)
    wanted = AcquireLimits(max(request.max_records, 1), size, request.share_acquire_mode == _RECORD_LIMIT)
    wait_s = 0.0 if found else min(request.max_wait // _MS, limits.READ_WAIT_MS_MAX) / 1000
    fetched = await call.context.broker.shares.fetch(
        session.group, session.member, list(streams), wanted, wait_s=wait_s, hurry=hurry
    )
    if not call.context.share_sessions.current(
        session
    ):  # its connection broke while records were locked for it
        call.context.broker.shares.abandon(session.group, session.member)
    for stream, one in fetched.items():
        found[streams[stream]] = outcome_of(one) if isinstance(one, MainstemError) else one
    return found


def _response(call: Call, session: ShareSession, outcomes: _Outcomes, found: _Found) -> ShareFetchResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    for place in dict.fromkeys([*outcomes, *found]):
        part = _partition(call, place, outcomes.get(place, DONE), found.get(place))
        topics.setdefault(place[0], []).append(part)
    lock_ms = call.context.broker.shares.settings(session.group).lock_ms
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=i32Timedelta.parse(lock_ms * _MS),
        responses=tuple(
            ShareFetchableTopicResponse(
                topic_id=UUID(bytes=topic_id) if topic_id else None, partitions=tuple(partitions)
            )
            for topic_id, partitions in topics.items()
        ),
        node_endpoints=(),
    )


def _partition(
    call: Call, place: TopicPartition, acknowledged: ItemResult, found: Acquired | ItemResult | None
) -> PartitionData:
    fetched = found if isinstance(found, ItemResult) else DONE
    acquired = found if isinstance(found, Acquired) else None
    return PartitionData(
        partition_index=i32(place[1]),
        error_code=fetched.code,
        error_message=fetched.message,
        acknowledge_error_code=i16(acknowledged.code),
        acknowledge_error_message=acknowledged.message,
        current_leader=LeaderIdAndEpoch(leader_id=i32(call.context.node_id), leader_epoch=i32(LEADER_EPOCH)),
        records=Records(b"".join(acquired.batches) if acquired else b""),
        acquired_records=tuple(
            AcquiredRecords(first_offset=i64(first), last_offset=i64(end - 1), delivery_count=i16(deliveries))
            for first, end, deliveries in (acquired.runs if acquired else ())
        ),
    )


def _refused(outcome: ItemResult) -> ShareFetchResponse:
    return ShareFetchResponse(
        throttle_time=NO_THROTTLE,
        error_code=outcome.code,
        error_message=outcome.message,
        acquisition_lock_timeout=NO_THROTTLE,
        responses=(),
        node_endpoints=(),
    )


API = FastApi(78, 1, 2, 1, handle, RequestOrder.SINGLE)

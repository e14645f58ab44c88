"""Offsets: where the partitions of a topic begin and end, or stood at a time; and how far a group has read."""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.api.access import Operation
from mainstem.api.groups import GroupOffsetsCommitted, GroupPositionsBody
from mainstem.api.topics import PartitionPosition, TopicPositions
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.streams import stream_of
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.routes.groups import require_group
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply

_EARLIEST = "earliest"
_LATEST = "latest"
_DIGITS_MAX = 16


_positions = msgspec.json.Decoder(GroupPositionsBody)


async def get_offsets(request: HttpRequest) -> Response:
    """Get start and end offsets of partitions, and the offset `at` earliest, latest or a time in ms.

    A place in time is the first record of that time or later, null if there is none."""
    topic = request.broker.streams.topic(request.topic)
    at = request.text("at") or _LATEST
    if at not in (_EARLIEST, _LATEST) and not (at.isascii() and at.isdigit() and len(at) <= _DIGITS_MAX):
        raise invalid(f"at={at[:64]} is not a position: use earliest, latest, or milliseconds since 1970")
    isolation = request.text("isolation") or "read_committed"
    if isolation not in ("read_committed", "read_uncommitted"):
        raise invalid("isolation is read_committed or read_uncommitted")
    committed_only = isolation == "read_committed"
    partitions = [
        await _position(request, topic, partition, at, committed_only) for partition in _asked(request, topic)
    ]
    return reply(
        TopicPositions(
            topic.name,
            topic.topic_id.hex(),
            topic.config.type,
            topic.config.timestamp_type,
            topic.config.max_message_bytes,
            len(topic.streams),
            tuple(partitions),
        )
    )


def _asked(request: HttpRequest, topic: Topic) -> range:
    if request.text("partition") is None:
        return range(len(topic.streams))
    partition = request.partition
    stream_of(topic, partition)  # raises PartitionNotFound
    return range(partition, partition + 1)


async def _position(
    request: HttpRequest, topic: Topic, partition: int, at: str, committed_only: bool
) -> PartitionPosition:
    streams = request.broker.streams
    stream = topic.streams[partition]
    start, end = streams.bounds(stream)
    if committed_only:
        end = streams.stable_end(stream, end)
    offset: int | None
    if at == _LATEST:
        offset = end
    elif at == _EARLIEST:
        offset = start
    else:
        found = await streams.at_time(stream, int(at))
        offset = found[0] if found is not None and found[0] < end else None
    return PartitionPosition(partition, start, end, offset)


async def post_group_offsets(request: HttpRequest) -> Response:
    """Commit offsets of a group, as a consumer without group assignment does."""
    group = request.parameters["group"]
    body = request.json(_positions)
    if not 1 <= len(group) <= limits.NAME_CHARS_MAX:
        raise invalid(f"a group name has 1 to {limits.NAME_CHARS_MAX} characters")
    require_group(request, Operation.READ, group)
    for position in body.offsets:
        request.require_topic(position.topic, Operation.READ)
    rows = [OffsetToCommit(one.topic, one.partition, one.offset) for one in body.offsets]
    if body.member_id is None:
        outcomes = await request.broker.groups.offsets.commit(group, rows)
    else:
        groups = request.broker.groups
        outcomes = await groups.commit(group, rows, member_id=body.member_id, generation=body.epoch)
    for wrong in outcomes:
        if wrong is not None:
            raise wrong
    return reply(GroupOffsetsCommitted(group, len(rows)))

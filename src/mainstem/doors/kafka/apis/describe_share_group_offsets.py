"""DescribeShareGroupOffsets: the start offsets and the lag of share groups."""

from __future__ import annotations

from uuid import UUID

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.streams import find_stream
from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.apis.bulk import DONE, ItemRefused, outcome_of
from mainstem.doors.kafka.apis.leader_epochs import LEADER_EPOCH
from mainstem.doors.kafka.security.refusals import FORBIDDEN
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError

_UNKNOWN = i64(-1)  # the group does not read it, or the lag is unknown


async def handle(call: Call, request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    groups = tuple(_group(call, asked) for asked in request.groups)
    return DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=groups)


def _group(
    call: Call, asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        call.context.groups.check_coordinator(asked.group_id)
    except MainstemError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, topics=(), error_code=group_code_of(error), error_message=str(error)
        )
    if asked.topics is None:
        wanted = _all(call, asked.group_id)
    else:
        wanted = [
            (str(topic.topic_name), [int(index) for index in topic.partitions]) for topic in asked.topics
        ]
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id,
        topics=tuple(_topic(call, asked.group_id, name, indexes) for name, indexes in wanted),
        error_code=ErrorCode.none,
    )


def _all(call: Call, group: str) -> list[tuple[str, list[int]]]:
    """The topics that the group reads and the client may describe."""
    found: dict[str, list[int]] = {}
    for stream in call.context.broker.shares.of_group(group):
        topic = call.context.broker.streams.of_stream(stream)
        if topic is not None and call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
            found.setdefault(topic.name, []).append(topic.streams.index(stream))
    return sorted(found.items())


def _topic(call: Call, group: str, name: str, indexes: list[int]) -> DescribeShareGroupOffsetsResponseTopic:
    topic = call.context.broker.streams.get(name)
    may = call.may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName(name),
        topic_id=None if topic is None or not may else UUID(bytes=topic.topic_id),
        partitions=tuple(_partition(call, group, topic, index, may=may) for index in indexes),
    )


def _partition(
    call: Call, group: str, topic: Topic | None, index: int, *, may: bool
) -> DescribeShareGroupOffsetsResponsePartition:
    start = lag = _UNKNOWN
    outcome = DONE
    try:
        if not may:
            raise ItemRefused(ErrorCode.topic_authorization_failed, FORBIDDEN)
        stream = find_stream(topic, index)
        if stream < 0:
            raise ItemRefused(ErrorCode.unknown_topic_or_partition, "there is no such partition")
        share = call.context.broker.shares.of_group(group).get(stream)
        if share is not None:
            first, end = call.context.broker.streams.bounds(stream)
            start, lag = i64(max(share.start, first)), i64(share.left(first, end))
    except (ItemRefused, MainstemError) as error:
        outcome = outcome_of(error)
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(index),
        start_offset=start,
        leader_epoch=i32(LEADER_EPOCH),
        lag=lag,
        error_code=outcome.code,
        error_message=outcome.message,
    )


API = Api(90, 0, 1, handle, coordinated=True)

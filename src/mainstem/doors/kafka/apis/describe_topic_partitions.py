"""DescribeTopicPartitions: the partitions of some or all topics, a page at a time.

A page ends with a cursor to the first partition that did not fit. Topics are sorted by name, so a cursor is still
valid after its topic was deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from kio.schema.describe_topic_partitions.v0.request import DescribeTopicPartitionsRequest
from kio.schema.describe_topic_partitions.v0.response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from mainstem.broker.access.rules import ResourceType
from mainstem.broker.namespaces import DEFAULT
from mainstem.broker.streams import LEADER_EPOCH
from mainstem.broker.topics.service import Topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.operations import operations_on
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE

KAFKA_DESCRIBED_PARTITIONS_MAX = 2000  # in one page of DescribeTopicPartitions


async def handle(call: Call, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    room = max(1, min(request.response_partition_limit, KAFKA_DESCRIBED_PARTITIONS_MAX))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None
    for name, topic in _from_cursor(call, request):
        first = _first_partition(request, name)
        if not room:
            next_cursor = Cursor(topic_name=TopicName(name), partition_index=i32(first))
            break
        if topic is None:
            topics.append(_unknown(name))
            room -= 1
            continue
        end = min(len(topic.streams), first + room)
        topics.append(_describe_topic(call, topic, first, end))
        room -= max(0, end - first)
        if end < len(topic.streams):
            next_cursor = Cursor(topic_name=TopicName(name), partition_index=i32(end))
            break
    return DescribeTopicPartitionsResponse(
        throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=next_cursor
    )


def _from_cursor(call: Call, request: DescribeTopicPartitionsRequest) -> Iterator[tuple[str, Topic | None]]:
    """The requested topics, or all if none is named, starting at the cursor."""
    streams = call.context.broker.streams
    names: set[str] = {topic.name for topic in request.topics}
    namespace = DEFAULT if call.view is None else call.view.namespace
    names = names or {topic.name for topic in streams.topics() if topic.namespace == namespace}
    start = "" if request.cursor is None else request.cursor.topic_name
    for name in sorted(names):
        if name >= start:
            yield name, streams.get(name)


def _first_partition(request: DescribeTopicPartitionsRequest, name: str) -> int:
    cursor = request.cursor
    return max(0, cursor.partition_index) if cursor is not None and cursor.topic_name == name else 0


def _describe_topic(call: Call, topic: Topic, first: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    context = call.context
    replicas = [tuple(map(BrokerId, context.peers.replicas(stream))) for stream in topic.streams[first:end]]
    partitions = tuple(
        DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.none,
            partition_index=i32(partition),
            leader_id=nodes[0],
            leader_epoch=i32(LEADER_EPOCH),
            replica_nodes=nodes,
            isr_nodes=nodes,
            # Empty, not null: the protocol allows null, but the Java client fails on it.
            eligible_leader_replicas=(),
            last_known_elr=(),
        )
        for partition, nodes in enumerate(replicas, first)
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.none,
        name=TopicName(topic.name),
        topic_id=UUID(bytes=topic.topic_id),
        partitions=partitions,
        topic_authorized_operations=operations_on(call, ResourceType.TOPIC, topic.name),
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.unknown_topic_or_partition, name=TopicName(name), topic_id=None, partitions=()
    )


API = Api(75, 0, 0, handle, fresh=True)

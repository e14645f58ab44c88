"""StreamsGroupDescribe: topology, members and tasks of groups of Kafka Streams members (KIP-1071)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kio.schema.errors import ErrorCode
from kio.schema.streams_group_describe.v0.request import StreamsGroupDescribeRequest
from kio.schema.streams_group_describe.v0.response import (
    Assignment,
    DescribedGroup,
    Endpoint,
    KeyValue,
    Member,
    StreamsGroupDescribeResponse,
    Subtopology,
    TaskIds,
    TopicInfo,
    Topology,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i16, i32, u16

from mainstem.broker.access.rules import Operation, ResourceType
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.classic import DEAD
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.broker.groups.streams_member import StreamsMember
from mainstem.broker.groups.task_assignor import ACTIVE, STANDBY, WARMUP
from mainstem.broker.groups.topology_topics import InternalTopic
from mainstem.doors.kafka.apis.by_topic import HIDDEN
from mainstem.doors.kafka.apis.streams_group_heartbeat import task_ids
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.operations import on_groups
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    operations = on_groups(call, request.group_ids, asked=request.include_authorized_operations)
    groups = tuple(_describe_group(call, name, allowed) for name, allowed in operations)
    return StreamsGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def _describe_group(call: Call, name: GroupId, operations: i32) -> DescribedGroup:
    group = call.context.groups.get(name)
    if not isinstance(group, StreamsGroup):
        elsewhere = not call.context.peers.coordinates("group", name)
        code = ErrorCode.not_coordinator if elsewhere else ErrorCode.group_id_not_found
        return _refused(name, code, f"there is no streams group {name!r}")
    topics = frozenset[str]() if group.topology is None or not call.restricted else group.topology.topics
    if not all(call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic) for topic in topics):
        return _refused(name, ErrorCode.topic_authorization_failed, HIDDEN)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=name,
        group_state=group.state,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.target_epoch),
        topology=_topology(group),
        members=tuple(_member(group, member) for member in group.members.values()),
        authorized_operations=operations,
    )


def _refused(name: GroupId, code: ErrorCode, message: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=name,
        group_state=DEAD,
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        topology=None,
        members=(),
    )


def _topology(group: StreamsGroup) -> Topology | None:
    """As its members declared it; with the number of partitions of each internal topic, if all topics exist."""
    if group.topology is None:
        return None
    counts = group.fitted.partitions if group.fitted.ready else {}
    subtopologies = tuple(
        Subtopology(
            subtopology_id=one.subtopology_id,
            source_topics=tuple(map(TopicName, one.source_topics)),
            repartition_sink_topics=tuple(map(TopicName, one.repartition_sinks)),
            state_changelog_topics=_internal(one.changelogs, counts),
            repartition_source_topics=_internal(one.repartition_sources, counts),
        )
        for one in group.topology.subtopologies
    )
    return Topology(epoch=i32(group.topology.epoch), subtopologies=subtopologies)


def _internal(topics: Iterable[InternalTopic], counts: Mapping[str, int]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(
            name=TopicName(topic.name),
            partitions=i32(counts.get(topic.name, topic.partitions)),
            replication_factor=i16(topic.replication_factor),
            topic_configs=tuple(KeyValue(key=key, value=value) for key, value in topic.configs),
        )
        for topic in topics
    )


def _member(group: StreamsGroup, member: StreamsMember) -> Member:
    endpoint = member.endpoint
    return Member(
        member_id=member.member_id,
        member_epoch=i32(member.epoch),
        instance_id=member.instance_id,
        rack_id=member.rack,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=i32(member.topology_epoch),
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=u16(endpoint[1])),
        client_tags=tuple(KeyValue(key=key, value=value) for key, value in member.tags),
        task_offsets=(),
        task_end_offsets=(),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(group.target.get(member.member_id, frozenset())),
        is_classic=False,
    )


def _assignment(tasks: Partitions) -> Assignment:
    return Assignment(
        active_tasks=task_ids(tasks, ACTIVE, TaskIds),
        standby_tasks=task_ids(tasks, STANDBY, TaskIds),
        warmup_tasks=task_ids(tasks, WARMUP, TaskIds),
    )


API = Api(89, 0, 0, handle, coordinated=True)

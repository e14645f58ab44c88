"""ConsumerGroupDescribe: members and assignments of groups whose partitions the broker assigns (KIP-848)."""

from __future__ import annotations

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.classic import DEAD
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import ConsumerMember
from mainstem.doors.kafka.apis.by_topic import HIDDEN, hidden, named_by_topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.operations import on_groups
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE

_CLASSIC, _CONSUMER = i8(0), i8(1)  # kinds of members


async def handle(call: Call, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    operations = on_groups(call, request.group_ids, asked=request.include_authorized_operations)
    groups = tuple(_describe_group(call, name, allowed) for name, allowed in operations)
    return ConsumerGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def _describe_group(call: Call, name: GroupId, operations: i32) -> DescribedGroup:
    group = call.context.groups.get(name)
    if not isinstance(group, ConsumerGroup):
        elsewhere = not call.context.peers.coordinates("group", name)
        code = ErrorCode.not_coordinator if elsewhere else ErrorCode.group_id_not_found
        return _refused(name, code, f"there is no group {name!r} whose partitions the broker assigns")
    if hidden(call, [*(member.assigned for member in group.members.values()), *group.target.values()]):
        return _refused(name, ErrorCode.topic_authorization_failed, HIDDEN)
    return DescribedGroup(
        error_code=ErrorCode.none,
        group_id=name,
        group_state=group.state,
        group_epoch=i32(group.epoch),
        assignment_epoch=i32(group.target_epoch),
        assignor_name=group.assignor,
        members=tuple(_member(call, group, member) for member in group.members.values()),
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
        assignor_name="",
        members=(),
    )


def _member(call: Call, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(TopicName(name) for name in sorted(member.topics)),
        subscribed_topic_regex=member.pattern or "",
        assignment=_assignment(call, member.assigned),
        target_assignment=_assignment(call, group.target.get(member.member_id, frozenset())),
        member_type=_CLASSIC if member.classic else _CONSUMER,
    )


def _assignment(call: Call, partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for topic_id, name, numbers in named_by_topic(call, partitions)
        )
    )


API = Api(69, 0, 1, handle, coordinated=True)

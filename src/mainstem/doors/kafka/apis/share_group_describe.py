"""ShareGroupDescribe: the members of share groups, and what each reads (KIP-932)."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.classic import DEAD, EMPTY
from mainstem.broker.share.assignor import NAME
from mainstem.broker.share.group import ShareGroup, ShareMember
from mainstem.doors.kafka.apis.by_topic import HIDDEN, hidden, named_by_topic
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.operations import on_groups
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(call: Call, request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    operations = on_groups(call, request.group_ids, asked=request.include_authorized_operations)
    groups = tuple(_describe_group(call, name, allowed) for name, allowed in operations)
    return ShareGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=groups)


def _describe_group(call: Call, name: GroupId, operations: i32) -> DescribedGroup:
    group = call.context.groups.get(name)
    concealed = isinstance(group, ShareGroup) and hidden(
        call, [member.assigned for member in group.members.values()]
    )
    if isinstance(group, ShareGroup) and not concealed:
        return DescribedGroup(
            error_code=ErrorCode.none,
            group_id=name,
            group_state=group.state,
            group_epoch=i32(group.epoch),
            assignment_epoch=i32(group.epoch),
            assignor_name=NAME,
            members=tuple(_member(call, member) for member in group.members.values()),
            authorized_operations=operations,
        )
    code, message = ErrorCode.none, None
    if not call.context.peers.coordinates("group", name):
        code, message = ErrorCode.not_coordinator, f"another broker coordinates group {name!r}"
    elif concealed:
        code, message = ErrorCode.topic_authorization_failed, HIDDEN
    elif group is not None or not call.context.broker.shares.has(name):
        code, message = ErrorCode.group_id_not_found, f"there is no share group {name!r}"
    return DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=name,
        group_state=DEAD if code else EMPTY,
        group_epoch=i32(0),
        assignment_epoch=i32(0),
        assignor_name="" if code else NAME,
        members=(),
        authorized_operations=operations,
    )


def _member(call: Call, member: ShareMember) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(TopicName(name) for name in sorted(member.topics)),
        assignment=_assignment(call, member.assigned),
    )


def _assignment(call: Call, partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for topic_id, name, numbers in named_by_topic(call, partitions)
        )
    )


API = Api(77, 1, 1, handle, coordinated=True)

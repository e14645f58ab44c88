"""DescribeGroups: members and assignments of classic groups."""

from __future__ import annotations

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId
from kio.static.primitive import i32

from mainstem.broker.groups.classic import DEAD, EMPTY, STABLE, ClassicGroup
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.operations import on_groups
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import NotCoordinator

_FIRST, _LAST = 0, 6
_FIRST_WITH_NOT_FOUND = 6


async def handle(call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    operations = on_groups(call, request.groups, asked=request.include_authorized_operations)
    groups = tuple(_describe_group(call, name, allowed) for name, allowed in operations)
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=groups)


def _describe_group(call: Call, name: GroupId, operations: i32) -> DescribedGroup:
    try:
        call.context.groups.check_coordinator(name)
    except NotCoordinator as error:
        return DescribedGroup(
            error_code=group_code_of(error),
            group_id=name,
            group_state="",
            protocol_type="",
            protocol_data="",
            members=(),
            authorized_operations=operations,
        )
    group = call.context.groups.get(name)
    if isinstance(group, ClassicGroup):
        return DescribedGroup(
            error_code=ErrorCode.none,
            group_id=name,
            group_state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if group.state == STABLE else "",
            members=_members(group),
            authorized_operations=operations,
        )
    consumers = call.context.broker.subscriptions.groups().get(name)
    found = group is None and (consumers is not None or call.context.groups.offsets.exists(name))
    missing = not found and call.version >= _FIRST_WITH_NOT_FOUND
    return DescribedGroup(
        error_code=ErrorCode.group_id_not_found if missing else ErrorCode.none,
        error_message=f"there is no classic group {name!r}" if missing else None,
        group_id=name,
        group_state=(STABLE if consumers else EMPTY) if found else DEAD,
        protocol_type="" if consumers is None else "pulsar",
        protocol_data="",
        members=(),
        authorized_operations=operations,
    )


def _members(group: ClassicGroup) -> tuple[DescribedGroupMember, ...]:
    """A group in a rebalance has no assignments yet."""
    stable = group.state == STABLE
    return tuple(
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    )


API = Api(15, _FIRST, _LAST, handle, coordinated=True)

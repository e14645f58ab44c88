"""JoinGroup: join a classic group, or its next generation."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.static.primitive import i32

from mainstem.broker.groups.member import Join
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError, MemberIdRequired

_FIRST, _LAST = 0, 9
_FIRST_WITH_GIVEN_IDS = 4
_FIRST_WITH_NULL_PROTOCOL = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9

_MS = timedelta(milliseconds=1)


async def handle(call: Call, request: JoinGroupRequest) -> JoinGroupResponse:
    try:
        joined = await call.context.groups.join(_join(call, request))
    except MainstemError as error:
        return _refusal(call, request, error)
    members = tuple(
        JoinGroupResponseMember(
            member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
        )
        for member in joined.members
    )
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        generation_id=i32(joined.generation),
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=members,
    )


def _join(call: Call, request: JoinGroupRequest) -> Join:
    return Join(
        group=request.group_id,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        session_ms=request.session_timeout // _MS,
        rebalance_ms=request.rebalance_timeout // _MS,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=call.client_id or "",
        client_host=f"/{call.host}",
        id_required=call.version >= _FIRST_WITH_GIVEN_IDS,
        may_skip_assignment=call.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
    )


def _refusal(call: Call, request: JoinGroupRequest, error: MainstemError) -> JoinGroupResponse:
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=group_code_of(error),
        protocol_name=None if call.version >= _FIRST_WITH_NULL_PROTOCOL else "",
        leader="",
        member_id=error.member if isinstance(error, MemberIdRequired) else request.member_id,
        members=(),
    )


API = Api(11, _FIRST, _LAST, handle, coordinated=True)

"""LeaveGroup: members leave a classic group, or an administrator removes them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.doors.kafka.transport.versions import bridge
from mainstem.errors import InvalidGroupName, MainstemError, Unavailable

_FIRST, _LAST = 0, 5
_FIRST_WITH_SEVERAL_MEMBERS = 3


async def handle(call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
    members = []
    for member in request.members:
        code = ErrorCode.none
        instance = member.group_instance_id
        try:
            await call.context.groups.leave(request.group_id, member.member_id, instance)
        except (Unavailable, InvalidGroupName) as error:
            return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=group_code_of(error), members=())
        except MainstemError as error:
            code = group_code_of(error)
        members.append(
            MemberResponse(member_id=member.member_id, group_instance_id=instance, error_code=code)
        )
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, members=tuple(members))


def _bridge_single_member(version: int) -> None:
    """Versions in which one member leaves, and its error is the response's."""
    older = import_module(f"kio.schema.leave_group.v{version}.request").LeaveGroupRequest
    answer = import_module(f"kio.schema.leave_group.v{version}.response").LeaveGroupResponse

    def up(request: Any) -> LeaveGroupRequest:
        return LeaveGroupRequest(
            group_id=request.group_id, members=(MemberIdentity(member_id=request.member_id),)
        )

    def down(response: LeaveGroupResponse) -> Any:
        codes = [response.error_code, *(member.error_code for member in response.members)]
        code = next((code for code in codes if code), ErrorCode.none)
        return answer(error_code=code, **({"throttle_time": response.throttle_time} if version else {}))

    bridge(older, LeaveGroupRequest, up)
    bridge(LeaveGroupResponse, answer, down)


for _version in range(_FIRST, _FIRST_WITH_SEVERAL_MEMBERS):
    _bridge_single_member(_version)

API = Api(13, _FIRST, _LAST, handle, coordinated=True)

"""Heartbeat: keep a member of a classic group alive, and tell it whether to rejoin."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
    code = ErrorCode.none
    try:
        call.context.groups.heartbeat(
            request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )
    except MainstemError as error:
        code = group_code_of(error)
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)


API = Api(12, 0, 4, handle, coordinated=True)

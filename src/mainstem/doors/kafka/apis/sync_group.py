"""SyncGroup: the leader of a generation sends the assignments, and every member gets its own."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from mainstem import limits
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError

_FIRST_WITH_PROTOCOL = 5  # first version in which members repeat what their group agreed on (KIP-559)


async def handle(call: Call, request: SyncGroupRequest) -> SyncGroupResponse:
    if call.version >= _FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return _refused(ErrorCode.inconsistent_group_protocol)
    try:
        synced = await call.context.groups.sync(
            request.group_id,
            request.member_id,
            request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={part.member_id: part.assignment for part in request.assignments},
        )
    except MainstemError as error:
        return _refused(group_code_of(error))
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def _refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(throttle_time=NO_THROTTLE, error_code=code, assignment=b"")


# The leader sends the assignments of all members, which are not decoded.
_BYTES_MAX = 16 * limits.MIB

API = Api(14, 0, 5, handle, coordinated=True, bytes_max=_BYTES_MAX)

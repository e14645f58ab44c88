"""DeleteGroups: delete groups without members, and their offsets."""

from __future__ import annotations

from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeletableGroupResult, DeleteGroupsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.errors import group_code_of
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE
from mainstem.errors import MainstemError


async def handle(call: Call, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    results = [await _delete(call, name) for name in dict.fromkeys(request.groups_names)]
    return DeleteGroupsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


async def _delete(call: Call, name: GroupId) -> DeletableGroupResult:
    code = ErrorCode.none
    try:
        await call.context.groups.delete(name)
    except MainstemError as error:
        code = group_code_of(error)
    return DeletableGroupResult(group_id=name, error_code=code)


API = Api(42, 0, 2, handle, coordinated=True)

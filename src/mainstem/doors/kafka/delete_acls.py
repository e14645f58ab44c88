"""DeleteAcls: access rules go away."""

from __future__ import annotations

from kio.schema.delete_acls.v3.request import DeleteAclsRequest
from kio.schema.delete_acls.v3.response import DeleteAclsFilterResult, DeleteAclsResponse

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.authorizer import NO_AUTHORIZER
from mainstem.doors.kafka.throttle import NO_THROTTLE


async def handle(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message, matching_acls=()
    )
    return DeleteAclsResponse(throttle_time=NO_THROTTLE, filter_results=(refused,) * len(request.filters))


API = Api(31, 1, 3, handle)

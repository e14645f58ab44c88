"""CreateAcls: new access rules."""

from __future__ import annotations

from kio.schema.create_acls.v3.request import CreateAclsRequest
from kio.schema.create_acls.v3.response import AclCreationResult, CreateAclsResponse

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.authorizer import NO_AUTHORIZER
from mainstem.doors.kafka.throttle import NO_THROTTLE


async def handle(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=NO_AUTHORIZER.code, error_message=NO_AUTHORIZER.message)
    return CreateAclsResponse(throttle_time=NO_THROTTLE, results=(refused,) * len(request.creations))


API = Api(30, 1, 3, handle)

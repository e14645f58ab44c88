"""DescribeAcls: the access rules."""

from __future__ import annotations

from kio.schema.describe_acls.v3.request import DescribeAclsRequest
from kio.schema.describe_acls.v3.response import DescribeAclsResponse

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.authorizer import NO_AUTHORIZER
from mainstem.doors.kafka.throttle import NO_THROTTLE


async def handle(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        throttle_time=NO_THROTTLE,
        error_code=NO_AUTHORIZER.code,
        error_message=NO_AUTHORIZER.message,
        resources=(),
    )


API = Api(29, 1, 3, handle)

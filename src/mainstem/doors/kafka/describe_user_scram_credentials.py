"""DescribeUserScramCredentials: no user has any, as no client has to authenticate."""

from __future__ import annotations

from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.throttle import NO_THROTTLE


async def handle(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    names = dict.fromkeys(user.name for user in request.users or ())
    results = tuple(
        DescribeUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.resource_not_found,
            error_message=f"user {name[:64]!r} has no SCRAM credentials",
            credential_infos=(),
        )
        for name in names
    )
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, results=results
    )


API = Api(50, 0, 0, handle)

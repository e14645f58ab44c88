"""AlterUserScramCredentials: refused, as no client has to authenticate."""

from __future__ import annotations

from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode

from mainstem.doors.kafka.api import Api, Call
from mainstem.doors.kafka.throttle import NO_THROTTLE


async def handle(call: Call, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    names = [deletion.name for deletion in request.deletions]
    names += [upsertion.name for upsertion in request.upsertions]
    results = tuple(
        AlterUserScramCredentialsResult(
            user=name,
            error_code=ErrorCode.security_disabled,
            error_message="no client has to authenticate, so credentials would not be used",
        )
        for name in dict.fromkeys(names)
    )
    return AlterUserScramCredentialsResponse(throttle_time=NO_THROTTLE, results=results)


API = Api(51, 0, 0, handle)

"""DescribeUserScramCredentials: which users have a password, and the hash mechanism. Never the hash."""

from __future__ import annotations

from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32

from mainstem.doors.kafka.apis.bulk import repeated
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.doors.kafka.transport.throttle import NO_THROTTLE


async def handle(
    call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    stored: dict[str, list[CredentialInfo]] = {}
    for credential in call.context.broker.security.credentials():
        info = CredentialInfo(mechanism=i8(credential.mechanism), iterations=i32(credential.iterations))
        stored.setdefault(credential.user, []).append(info)
    asked = [user.name for user in request.users or ()]  # none: all
    twice = repeated(asked)
    results = tuple(
        _describe_user(name, stored.get(name), twice=name in twice) for name in dict.fromkeys(asked or stored)
    )
    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, error_message=None, results=results
    )


def _describe_user(
    name: str, infos: list[CredentialInfo] | None, *, twice: bool
) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.none, None
    if twice:
        code, message = ErrorCode.duplicate_resource, "the user is named twice in one request"
    elif infos is None:
        code, message = ErrorCode.resource_not_found, f"user {name[:64]!r} has no SCRAM credentials"
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=code,
        error_message=message,
        credential_infos=() if twice else tuple(infos or ()),
    )


API = Api(50, 0, 0, handle)

"""SaslAuthenticate: one message of a login, and the server's reply."""

from __future__ import annotations

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.static.primitive import i64Timedelta

from mainstem import events
from mainstem.broker.access.rules import CLUSTER_NAME, ResourceType
from mainstem.doors.kafka.transport.api import Api, Call
from mainstem.errors import Unauthorized

_log = events.named("kafka")


async def handle(call: Call, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    session = call.session
    if session is None or session.exchange is None:
        if session is not None:
            session.give_up()
        return _refused(ErrorCode.illegal_sasl_state, "a login begins with SaslHandshake")
    try:
        step = await session.exchange.step(request.auth_bytes)
        lifetime_ms = 0 if step.principal is None else session.log_in(step.principal, step.expires_ms)
    except Unauthorized as error:
        _log.warning("login refused", client=call.host, reason=str(error))
        call.denied("AUTHENTICATE", ResourceType.CLUSTER, CLUSTER_NAME)
        session.give_up()
        return _refused(ErrorCode.sasl_authentication_failed, f"authentication failed: {error}")
    return SaslAuthenticateResponse(
        error_code=ErrorCode.none,
        error_message=None,
        auth_bytes=step.message,
        session_lifetime=i64Timedelta.parse(timedelta(milliseconds=lifetime_ms)),
    )


def _refused(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")


API = Api(36, 0, 2, handle, metered=False)

"""SaslHandshake: the client chooses a SASL mechanism."""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from mainstem.doors.kafka.transport.api import Api, Call


async def handle(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    session = call.session
    if session is None:
        return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=())
    if session.begin(request.mechanism):
        return SaslHandshakeResponse(error_code=ErrorCode.none, mechanisms=tuple(session.mechanisms))
    session.give_up()
    return SaslHandshakeResponse(
        error_code=ErrorCode.unsupported_sasl_mechanism, mechanisms=tuple(session.mechanisms)
    )


# After a handshake of version 0 the client would send raw SASL messages instead of requests.
API = Api(17, 1, 1, handle, metered=False)

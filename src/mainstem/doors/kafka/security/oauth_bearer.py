"""SASL OAUTHBEARER (RFC 7628): the client presents a token from an identity provider."""

from __future__ import annotations

from mainstem.broker.access.authentication import Authentication
from mainstem.broker.cluster.clock import Clock
from mainstem.doors.kafka.security.exchange import ExchangeStep, text_of
from mainstem.errors import Unauthorized

_SCHEME = "bearer "


class OAuthBearerExchange:
    def __init__(self, authentication: Authentication, clock: Clock) -> None:
        self._authentication = authentication
        self._clock = clock

    async def step(self, message: bytes) -> ExchangeStep:
        head, *pairs = text_of(message).split("\1")
        flag, _, acting_for = head.partition(",")
        if flag not in ("n", "y") or not head.endswith(","):
            raise Unauthorized("this is not an OAUTHBEARER message")
        values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        given = values.get("auth", "")
        if given[: len(_SCHEME)].lower() != _SCHEME:
            raise Unauthorized("OAUTHBEARER needs a bearer token")
        token = given[len(_SCHEME) :].strip()
        principal, expires_ms = await self._authentication.by_token(token, self._clock.now_ms())
        if acting_for not in (",", f"a={principal.name.removeprefix('User:')},"):
            raise Unauthorized("acting for another user is not supported")
        return ExchangeStep(b"", principal, expires_ms)

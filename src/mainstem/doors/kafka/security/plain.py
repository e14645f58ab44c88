"""SASL PLAIN (RFC 4616): the client sends its password. Use it over TLS."""

from __future__ import annotations

from mainstem.broker.access.authentication import Authentication
from mainstem.doors.kafka.security.exchange import REFUSED, ExchangeStep, text_of
from mainstem.errors import Unauthorized


class PlainExchange:
    def __init__(self, authentication: Authentication) -> None:
        self._authentication = authentication

    async def step(self, message: bytes) -> ExchangeStep:
        parts = text_of(message).split("\0")
        if len(parts) != 3:
            raise Unauthorized("PLAIN needs an authorization id, a user and a password, separated by NUL")
        acting_for, user, password = parts
        if not user or not password:
            raise Unauthorized("PLAIN needs a user and a password")
        if acting_for not in ("", user):
            raise Unauthorized("acting for another user is not supported")
        principal = await self._authentication.by_password(user, password)
        if principal is None:
            raise Unauthorized(REFUSED)
        return ExchangeStep(b"", principal, self._authentication.key_expires_ms(principal))

"""SASL PLAIN (RFC 4616): the client sends its password. Use it over TLS."""

from __future__ import annotations

import asyncio

from mainstem.doors.kafka.security.exchange import REFUSED, ExchangeStep, text_of
from mainstem.doors.kafka.security.passwords import matches
from mainstem.doors.kafka.security.users import Users
from mainstem.errors import Unauthorized


class PlainExchange:
    def __init__(self, users: Users) -> None:
        self._users = users

    async def step(self, message: bytes) -> ExchangeStep:
        parts = text_of(message).split("\0")
        if len(parts) != 3:
            raise Unauthorized(
                "PLAIN takes an authorization id, a user and a password, with NUL between them"
            )
        acting_for, user, password = parts
        if not user or not password:
            raise Unauthorized("PLAIN takes a user and a password")
        if acting_for not in ("", user):
            raise Unauthorized("nobody acts for another user here")
        credential = self._users.any_credential(user)
        if not await asyncio.to_thread(matches, credential, password):  # milliseconds of hashing
            raise Unauthorized(REFUSED)
        return ExchangeStep(b"", user)

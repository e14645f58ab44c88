"""SASL PLAIN (RFC 4616): the client sends its password. Use it over TLS."""

from __future__ import annotations

from mainstem.doors.kafka.security.exchange import REFUSED, ExchangeStep, text_of
from mainstem.doors.kafka.security.password_checks import PasswordChecks
from mainstem.doors.kafka.security.users import Users
from mainstem.errors import Unauthorized

_CHECKS = PasswordChecks()  # of the process: one thread, whatever the number of doors


class PlainExchange:
    def __init__(self, users: Users) -> None:
        self._users = users

    async def step(self, message: bytes) -> ExchangeStep:
        parts = text_of(message).split("\0")
        if len(parts) != 3:
            raise Unauthorized("PLAIN needs an authorization id, a user and a password, separated by NUL")
        acting_for, user, password = parts
        if not user or not password:
            raise Unauthorized("PLAIN needs a user and a password")
        if acting_for not in ("", user):
            raise Unauthorized("acting for another user is not supported")
        credential = self._users.any_credential(user)
        if not await _CHECKS.matches(credential, password):
            raise Unauthorized(REFUSED)
        return ExchangeStep(b"", user)

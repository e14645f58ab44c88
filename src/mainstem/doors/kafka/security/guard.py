"""What the connections of one door share for authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.broker.broker import Broker
from mainstem.broker.cluster.clock import Clock
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.security.session import LoginSession
from mainstem.doors.kafka.security.users import Users

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.connection import KafkaConnection


class AuthenticationContext:
    def __init__(self, security: KafkaSecurity, broker: Broker, clock: Clock) -> None:
        self._reauthenticate_ms = security.reauthenticate_ms
        self._clock = clock
        users = Users(security.users, broker.security)
        self._exchanges = security.exchanges(users, clock)

    def session(self, connection: KafkaConnection) -> LoginSession | None:
        """None: clients need not authenticate."""
        if not self._exchanges:
            return None
        return LoginSession(connection, self._exchanges, self._reauthenticate_ms, self._clock.now_ms)

"""What the connections of one door share for authentication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.broker.access.principal import ANONYMOUS, UNRESTRICTED, Principal
from mainstem.broker.broker import Broker
from mainstem.broker.cluster.clock import Clock
from mainstem.doors.kafka.security.options import KafkaSecurity
from mainstem.doors.kafka.security.session import LoginSession

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.connection import KafkaConnection


class AuthenticationContext:
    def __init__(self, security: KafkaSecurity, broker: Broker, clock: Clock) -> None:
        self._security = security
        self._access = broker.access
        self._authentication = broker.authentication
        self._clock = clock

    def session(self, connection: KafkaConnection) -> LoginSession | None:
        """None: clients need not authenticate."""
        exchanges = self._security.exchanges(
            self._authentication, self._clock, restricted=self._access.restricted
        )
        if not exchanges:
            return None
        return LoginSession(connection, exchanges, self._security.reauthenticate_ms, self._clock.now_ms)

    @property
    def anonymous(self) -> Principal:
        """Who a client is that need not log in."""
        return UNRESTRICTED if self._security.insecure and self._access.restricted else ANONYMOUS

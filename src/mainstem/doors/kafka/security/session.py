"""Authentication of one connection, and its expiry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.broker.access.principal import Principal
from mainstem.doors.kafka.security.exchange import Exchange
from mainstem.errors import Unauthorized

if TYPE_CHECKING:
    from mainstem.doors.kafka.transport.connection import KafkaConnection

_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE = 18, 17, 36
_BEFORE_LOGIN = frozenset({_API_VERSIONS, _SASL_HANDSHAKE, _SASL_AUTHENTICATE})


class LoginSession:
    """The login of a connection. After the login expires, the client must log in again or is disconnected."""

    def __init__(
        self,
        connection: KafkaConnection,
        mechanisms: dict[str, Callable[[], Exchange]],
        reauthenticate_ms: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._connection = connection
        self._mechanisms = mechanisms
        self._reauthenticate_ms = reauthenticate_ms
        self._now_ms = now_ms
        self._principal: Principal | None = None
        self._expires_ms: int | None = None
        self.exchange: Exchange | None = None  # in progress

    @property
    def mechanisms(self) -> list[str]:
        return list(self._mechanisms)

    def admits(self, api_key: int) -> bool:
        """Whether the client may send this request now."""
        if api_key in _BEFORE_LOGIN:
            return True
        if self._principal is None:
            return False
        return self._expires_ms is None or self._now_ms() < self._expires_ms

    def begin(self, mechanism: str) -> bool:
        """False: the mechanism is not offered."""
        offered = self._mechanisms.get(mechanism)
        self.exchange = None if offered is None else offered()
        return offered is not None

    def log_in(self, principal: Principal, expires_ms: int | None) -> int:
        """Returns the duration of the login in milliseconds; 0: as long as the connection. Raises Unauthorized."""
        if self._principal is not None and self._principal.name != principal.name:
            raise Unauthorized("a connection cannot change its user")
        now = self._now_ms()
        if self._reauthenticate_ms:
            limit = now + self._reauthenticate_ms
            expires_ms = limit if expires_ms is None else min(expires_ms, limit)
        changed = self._principal != principal
        self._principal, self._expires_ms, self.exchange = principal, expires_ms, None
        if changed:
            self._connection.logged_in(principal)
        return 0 if expires_ms is None else max(1, expires_ms - now)

    def give_up(self) -> None:
        """Close the connection after the response; do not serve requests that the client has already sent."""
        self._principal = self.exchange = None
        self._connection.finish()

"""The interface of SASL mechanisms: an exchange of messages until the user is known."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from mainstem.broker.access.principal import Principal
from mainstem.errors import Unauthorized

REFUSED = "unknown user or wrong password"  # does not say which of the two


class ExchangeStep(NamedTuple):
    """The server's response to one message."""

    message: bytes
    principal: Principal | None = None  # once the client is authenticated
    expires_ms: int | None = None  # when the authentication expires, if it does


class Exchange(Protocol):
    """One login attempt."""

    async def step(self, message: bytes) -> ExchangeStep:
        """Respond to the client's next message. Raises Unauthorized."""
        ...


def text_of(message: bytes) -> str:
    """Raises Unauthorized."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Unauthorized("the message is not valid UTF-8") from None

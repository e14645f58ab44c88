"""What every SASL mechanism is to the door: messages back and forth until a user is known."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from mainstem.errors import Unauthorized

REFUSED = "the user is not known, or this is not the password"  # which of the two is nobody's business


class ExchangeStep(NamedTuple):
    """The server's side of one round."""

    message: bytes
    user: str | None = None  # once the client has proved who it is
    expires_ms: int | None = None  # when that proof ends, if it says so


class Exchange(Protocol):
    """One attempt to log in."""

    async def step(self, message: bytes) -> ExchangeStep:
        """Answer the client's next message. Raises Unauthorized."""
        ...


def text_of(message: bytes) -> str:
    """Raises Unauthorized."""
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise Unauthorized("the message is no text") from None

"""Responses of handlers: a body, or a stream of bytes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from mainstem.broker.streams import ClientActivity
from mainstem.doors.budget import Budget
from mainstem.doors.http.transport.namespaces import current, plain

Header = tuple[bytes, bytes]
Asgi = dict[str, Any]
Receive = Callable[[], Awaitable[Asgi]]
Send = Callable[[Asgi], Coroutine[Any, Any, None]]

JSON: Header = (b"content-type", b"application/json")

_encode = msgspec.json.Encoder().encode


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[Header, ...] = (JSON,)


@dataclass(frozen=True, slots=True)
class Stream:
    """A body of unknown length. The iterator is closed when the client disconnects."""

    chunks: AsyncIterator[bytes]
    headers: tuple[Header, ...]
    status: int = 200


class Push(ABC):
    """A response that sends data by itself over time."""

    status = 200

    @abstractmethod
    async def serve(self, receive: Receive, send: Send) -> int:
        """Send head and body until the stream ends or the client disconnects. Returns the bytes sent."""


class ConnectionApp(Protocol):
    """The application of a door, which serves the requests of its connections."""

    @property
    def budget(self) -> Budget: ...

    @property
    def client_activity(self) -> ClientActivity: ...

    def connected(self, transport: asyncio.Transport) -> None:
        """A connection was made."""
        ...

    def repeats(self, scope: Asgi) -> bool:
        """Whether clients are likely to repeat this request, with other bodies, and it is served in few steps."""
        ...

    async def serve(
        self,
        scope: Asgi,
        receive: Receive,
        send: Send,
        write: Callable[[Response], Awaitable[None]] | None,
    ) -> None:
        """Serve one request. `write` sends a complete response in one call, if the server supports that."""
        ...


def reply(content: object, status: int = 200) -> Response:
    """Anything msgspec encodes, as JSON."""
    view = current.get()
    return Response(status, _encode(content if view is None else plain(view, content)))

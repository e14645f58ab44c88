"""A hand-made client: frames written and read with the message library, one version at a time."""

from __future__ import annotations

import asyncio
import contextlib
import io
import struct
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from mainstem.address import Address


def encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode(schema: type[Any], body: bytes) -> Any:
    """Raises if the body is longer or shorter than the message."""
    entity, size = entity_reader(schema)(body, 0)
    assert size == len(body), f"{len(body) - size} bytes follow {schema.__name__}"
    return entity


def request_frame(request: Any, correlation: int, client_id: str | None = "test") -> bytes:
    """A whole request, length included."""
    header = request.__header_schema__
    fields = {
        "request_api_key": request.__api_key__,
        "request_api_version": request.__version__,
        "correlation_id": correlation,
        "client_id": client_id,
    }
    body = encode(header(**fields)) + encode(request)
    return struct.pack(">i", len(body)) + body


class Wire:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._correlation = 0
        self._unanswered: list[Any] = []

    @classmethod
    async def connect(cls, address: Address) -> Wire:
        return cls(*await asyncio.open_connection(address.host, address.port))

    def send(self, request: Any) -> int:
        """Returns the correlation id."""
        self._correlation += 1
        self.writer.write(request_frame(request, self._correlation))
        self._unanswered.append((self._correlation, request))
        return self._correlation

    def send_raw(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive_raw(self) -> bytes:
        """One response, header included. Raises IncompleteReadError at the end of the connection."""
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def receive(self, schema: type[Any]) -> tuple[int, Any]:
        """The correlation id and the response."""
        frame = await self.receive_raw()
        header, at = entity_reader(schema.__header_schema__)(frame, 0)
        return header.correlation_id, decode(schema, frame[at:])

    async def ask(self, request: Any) -> Any:
        """The response to a request, in the request's version."""
        self._unanswered.clear()  # none, or of requests that get no response
        self.send(request)
        return (await self.answers())[0]

    async def ask_next(self, *requests: Any) -> list[Any]:
        """Send these too, then return the responses to all requests sent, in order."""
        for request in requests:
            self.send(request)
        return await self.answers()

    async def answers(self) -> list[Any]:
        """The responses to all requests that have none yet, in order."""
        found = []
        for sent, request in self._unanswered:
            schema = load_response_schema(request.__api_key__, request.__version__)
            correlation, answer = await self.receive(schema)
            assert correlation == sent
            found.append(answer)
        self._unanswered.clear()
        return found

    async def ended(self) -> bool:
        with contextlib.suppress(ConnectionError):
            return await self.reader.read() == b""
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):  # the server may close first
            await self.writer.wait_closed()


def request_class(key: int, version: int) -> Any:
    return load_request_schema(key, version)

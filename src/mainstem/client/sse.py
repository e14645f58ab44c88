"""Parses server-sent events incrementally."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import NamedTuple


class Event(NamedTuple):
    name: str
    data: bytes
    id: str


class EventParser:
    """Takes bytes and yields whole events. Skips comments and unknown fields."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[Event]:
        unseen = max(len(self._rest) - 1, 0)  # the end of a frame may span two chunks
        self._rest += chunk
        begin = 0
        while (end := self._rest.find(b"\n\n", max(unseen, begin))) >= 0:
            event = _parsed(bytes(self._rest[begin:end]))
            begin = end + 2
            if event is not None:
                yield event
        del self._rest[:begin]


async def events(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Event]:
    frames = EventParser()
    async for chunk in chunks:
        for event in frames.feed(chunk):
            yield event


def _parsed(frame: bytes) -> Event | None:
    name, id, data = "message", "", []
    for line in frame.split(b"\n"):
        field, _, content = line.partition(b":")
        content = content.removeprefix(b" ")
        if field == b"event":
            name = content.decode("utf-8", "replace")
        elif field == b"id":
            id = content.decode("utf-8", "replace")
        elif field == b"data":
            data.append(content)
    return Event(name, b"\n".join(data), id) if data else None

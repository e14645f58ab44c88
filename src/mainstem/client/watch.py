"""Watching topics over an event stream that is opened again where it broke off."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal

import msgspec

from mainstem import tracing
from mainstem.client import sse
from mainstem.client.failures import event_failure
from mainstem.client.reconnect import ReconnectPolicy
from mainstem.client.responses import CaughtUp, ConsumerRecord, DeletedRecord, Gap, TopicDeleted
from mainstem.client.transport import Transport, decoded
from mainstem.errors import InvalidInput, NotFound, TopicNotFound, Unavailable

Beginning = int | Literal["tail"]
Event = ConsumerRecord | Gap | CaughtUp | TopicDeleted


class _TopicPosition(msgspec.Struct):
    from_seq: int


class _Session(msgspec.Struct):
    wid: str
    topics: dict[str, _TopicPosition]


class _Frame(msgspec.Struct):
    topic: str
    records: list[ConsumerRecord]
    to_seq: int


async def watch(
    transport: Transport,
    topics: Mapping[str, Beginning],
    *,
    node: str | list[str] | None = None,
    lenient: bool = False,
) -> AsyncGenerator[list[Event]]:
    """What happens in the topics, a frame at a time. Raises TopicNotFound unless `lenient`."""
    if not topics:
        raise InvalidInput("name at least one topic to watch")
    watching = _WatchState(transport, topics, node, lenient)
    for name in await watching.begin():
        yield [TopicDeleted(name)]
    persistence = ReconnectPolicy(transport.timeout_s)
    while watching.cursors:
        try:
            async with aclosing(watching.frames(persistence)) as frames:
                async for items in frames:
                    yield items
            continue  # the server ended the stream: all is deleted, or it goes away
        except NotFound:
            gone = await watching.begin()  # the session is forgotten: a new one goes on in its place
        except Unavailable as error:
            await persistence.pause(error)
            continue
        for name in gone:
            yield [TopicDeleted(name)]


class _WatchState:
    """One session, and how far it is. `cursors` holds the topics that are left."""

    def __init__(
        self,
        transport: Transport,
        topics: Mapping[str, Beginning],
        node: str | list[str] | None,
        lenient: bool,
    ) -> None:
        self._transport = transport
        self._node = node
        self._lenient = lenient
        self._wid = ""
        self._begun = False
        self.cursors: dict[str, Beginning] = dict(topics)

    async def begin(self) -> list[str]:
        """Make a session from the cursors. Returns the topics that are not there any more."""
        gone: list[str] = []
        while self.cursors:
            body: dict[str, Any] = {
                "topics": {
                    name: {"tail": True} if cursor == "tail" else {"from_seq": cursor}
                    for name, cursor in self.cursors.items()
                },
                "include_tags": True,
                **({"include_trace": True} if tracing.enabled() else {}),
                "node": self._node,
            }
            try:
                session = await self._transport.ask(
                    "POST", "/v0/watch", _Session, body, query={"lenient": self._lenient}
                )
            except TopicNotFound as missing:
                if not self._begun or missing.topic not in self.cursors:
                    raise
                del self.cursors[missing.topic]
                gone.append(missing.topic)
                continue
            self._wid, self._begun = session.wid, True
            gone += [name for name in self.cursors if name not in session.topics and self._begun]
            self.cursors = {name: place.from_seq for name, place in session.topics.items()}
            break
        return gone

    async def frames(self, persistence: ReconnectPolicy) -> AsyncGenerator[list[Event]]:
        """One connection's. Raises NotFound when the session is gone, Unavailable when the server is."""
        resume = base64.urlsafe_b64encode(msgspec.json.encode(self.cursors)).decode().rstrip("=")
        headers = {"last-event-id": resume}
        async with (
            self._transport.stream(f"/v0/watch/{self._wid}", headers=headers) as chunks,
            aclosing(sse.events(chunks)) as events,
        ):
            async for event in events:
                persistence.succeeded()
                items = self._items(event)
                if items:
                    yield items
        if self.cursors:
            raise Unavailable("the event stream ended")

    def _items(self, event: sse.Event) -> list[Event]:
        if event.name == "record":
            frame = decoded(event.data, _Frame)
            self.cursors[frame.topic] = frame.to_seq
            for record in frame.records:
                record.topic = frame.topic
            return list(frame.records)
        if event.name == "tombstone":
            tombstone = decoded(event.data, DeletedRecord)
            self.cursors[tombstone.topic] = tombstone.earliest_seq - 1
            return [tombstone.gap(tombstone.topic)]
        if event.name == "caught-up":
            return [decoded(event.data, CaughtUp)]
        if event.name == "topic-deleted":
            deleted = decoded(event.data, TopicDeleted)
            self.cursors.pop(deleted.topic, None)
            return [deleted]
        if event.name == "error":
            raise event_failure(event.data)
        return []  # of a newer server

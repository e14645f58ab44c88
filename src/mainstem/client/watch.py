"""Watches topics over an event stream, and reconnects where it broke off."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Literal

import msgspec

from mainstem import tracing
from mainstem.api import routes
from mainstem.api.records import CaughtUp, GapEvent, StartPosition, TopicDeleted, WatchBody
from mainstem.client import sse
from mainstem.client.failures import event_failure
from mainstem.client.reconnect import ReconnectPolicy
from mainstem.client.responses import ConsumerRecord, Gap, RecordsFrame, gap_of
from mainstem.client.transport import Transport, decoded
from mainstem.errors import InvalidInput, NotFound, TopicNotFound, Unavailable

# A sequence number; of a topic with several partitions 0, or partition → sequence number.
Beginning = int | Literal["tail"] | Mapping[int, int]
Event = ConsumerRecord | Gap | CaughtUp | TopicDeleted


async def watch(
    transport: Transport,
    topics: Mapping[str, Beginning],
    *,
    node: str | list[str] | None = None,
    lenient: bool = False,
) -> AsyncGenerator[list[Event]]:
    """The events of the topics, a frame at a time. Raises TopicNotFound unless `lenient`."""
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
            continue  # the server ended the stream: all topics are deleted, or it shuts down
        except NotFound:
            gone = await watching.begin()  # the session expired: continue in a new one
        except Unavailable as error:
            await persistence.pause(error)
            continue
        for name in gone:
            yield [TopicDeleted(name)]


def _start(cursor: Beginning) -> StartPosition:
    if cursor == "tail":
        return StartPosition(tail=True)
    if isinstance(cursor, Mapping):
        return StartPosition(cursor.get(0, 0), from_={str(number): seq for number, seq in cursor.items()})
    return StartPosition(cursor)


class _WatchState:
    """One session and its progress. `cursors` holds the remaining topics."""

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
        """Create a session from the cursors. Returns the topics that do not exist any more."""
        gone: list[str] = []
        while self.cursors:
            body = WatchBody(
                {name: _start(cursor) for name, cursor in self.cursors.items()},
                self._node,
                include_tags=True,
                include_headers=True,
                include_trace=tracing.enabled(),
            )
            try:
                session = await self._transport.call(
                    routes.POST_WATCH, body=body, query={"lenient": self._lenient}
                )
            except TopicNotFound as missing:
                if not self._begun or missing.topic not in self.cursors:
                    raise
                del self.cursors[missing.topic]
                gone.append(missing.topic)
                continue
            self._wid, self._begun = session.wid, True
            gone += [name for name in self.cursors if name not in session.topics and self._begun]
            self.cursors = {
                name: place.from_seq
                if place.partitions is None
                else {int(number): one.from_seq for number, one in place.partitions.items()}
                for name, place in session.topics.items()
            }
            break
        return gone

    async def frames(self, persistence: ReconnectPolicy) -> AsyncGenerator[list[Event]]:
        """The frames of one connection. Raises NotFound if the session expired, Unavailable if the connection broke."""
        resume = base64.urlsafe_b64encode(msgspec.json.encode(self.cursors)).decode().rstrip("=")
        headers = {"last-event-id": resume}
        async with (
            self._transport.stream(routes.GET_WATCH.url(self._wid), headers=headers) as chunks,
            aclosing(sse.events(chunks)) as events,
        ):
            async for event in events:
                persistence.succeeded()
                items = self._items(event)
                if items:
                    yield items
        if self.cursors:
            raise Unavailable("the event stream ended")

    def _move(self, topic: str, partition: int | None, cursor: int) -> None:
        before = self.cursors.get(topic)
        if isinstance(before, Mapping) and partition is not None:
            self.cursors[topic] = {**before, partition: cursor}
        else:
            self.cursors[topic] = cursor

    def _items(self, event: sse.Event) -> list[Event]:
        if event.name == "record":
            frame = decoded(event.data, RecordsFrame)
            self._move(frame.topic, frame.partition, frame.to_seq)
            for record in frame.records:
                record.topic = frame.topic
            return list(frame.records)
        if event.name == "tombstone":
            gap = decoded(event.data, GapEvent)
            self._move(gap.topic, gap.partition, gap.earliest_seq - 1)
            return [gap_of(gap.topic, gap, gap.partition or 0)]
        if event.name == "caught-up":
            return [decoded(event.data, CaughtUp)]
        if event.name == "topic-deleted":
            deleted = decoded(event.data, TopicDeleted)
            self.cursors.pop(deleted.topic, None)
            return [deleted]
        if event.name == "error":
            raise event_failure(event.data)
        return []  # an event type of a newer server

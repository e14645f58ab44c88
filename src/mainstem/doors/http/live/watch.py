"""Watch sessions and their event streams."""

from __future__ import annotations

import asyncio
import base64
import binascii
from contextlib import ExitStack

import msgspec

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.base import U64, ErrorEvent
from mainstem.api.records import StartPosition, WatchBody, WatchedTopic, WatchStarted
from mainstem.broker.rates import RateLimiter
from mainstem.broker.streams import find_stream
from mainstem.broker.topics.service import Topic
from mainstem.broker.watch import WatchOptions, WatchPage, WatchPosition
from mainstem.broker.watch_sessions import WatchSession
from mainstem.doors.http.live import sse
from mainstem.doors.http.live.shared_event_streams import RecordFormat, event_id
from mainstem.doors.http.routes.diff import node_set
from mainstem.doors.http.transport.errors import Refusal, invalid
from mainstem.doors.http.transport.frames import caught_up_data, deleted_data, shown, tombstone_data
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Push, Receive, Response, Send, reply
from mainstem.doors.http.transport.send_buffer import SendBuffer
from mainstem.doors.http.transport.throttle import reading
from mainstem.errors import Closed, TopicNotFound

WATCH_TOPICS_MAX = 256  # of one session
WATCH_HEARTBEAT_MS_MIN = 1_000
WATCH_HEARTBEAT_MS_MAX = 60_000

_watch_body = msgspec.json.Decoder(WatchBody)
_cursors = msgspec.json.Decoder(dict[str, U64])
_encode = msgspec.json.Encoder().encode


async def post_watch(request: HttpRequest) -> Response:
    """Create a watch session for topics."""
    body = request.json(_watch_body)
    if not 1 <= len(body.topics) <= WATCH_TOPICS_MAX:
        raise invalid(f"watch 1 to {WATCH_TOPICS_MAX} topics at once, not {len(body.topics)}")
    for name in body.topics:
        request.require_topic(name, Operation.READ)
    request.context.live.sessions.check_room(request.holder)
    cursors: dict[str, int] = {}
    partitions: dict[str, int] = {}
    watched: dict[str, WatchedTopic] = {}
    for topic, begin in _existing_topics(request, body):
        await request.broker.routing.drain(topic.name)
        state = await request.broker.states.settled(topic, begin.partition)
        cursors[topic.name] = state.head_seq if begin.tail else min(begin.from_seq, limits.OFFSET_MAX)
        if begin.partition:
            partitions[topic.name] = begin.partition
        watched[topic.name] = WatchedTopic(cursors[topic.name], state.head_seq, state.earliest_seq)
    low, high = WATCH_HEARTBEAT_MS_MIN, WATCH_HEARTBEAT_MS_MAX
    session = request.context.live.sessions.create(
        request.client.id,
        cursors,
        watch_options(body.limit, body.max_batch_bytes, body.node),
        partitions=partitions,
        heartbeat_ms=max(low, min(high, body.heartbeat_ms)),
        include_meta=body.include_meta,
        include_tags=body.include_tags,
        include_data=body.include_data,
        include_trace=body.include_trace,
        holder=request.holder,
    )
    url = f"/v0/watch/{session.wid}"
    ttl_ms = limits.WATCH_SESSION_TTL_MS
    return reply(WatchStarted(session.wid, url, ttl_ms, watched, request.performance()))


def _existing_topics(request: HttpRequest, body: WatchBody) -> list[tuple[Topic, StartPosition]]:
    """The topics that are there. Raises TopicNotFound for one that is not, unless the client is lenient."""
    lenient = request.flag("lenient", False)
    found = []
    for name, begin in body.topics.items():
        topic = request.broker.streams.get(name)
        if topic is not None:
            found.append((topic, begin))
        elif not lenient:
            raise TopicNotFound(name)
    return found


def watch_options(limit: int, max_batch_bytes: int, node: str | list[str] | None) -> WatchOptions:
    """As asked for, within the bounds of a diff; 0 is the default."""
    return WatchOptions(
        min(limit or limits.WATCH_RECORDS_DEFAULT, limits.DIFF_RECORDS_MAX),
        min(max_batch_bytes or limits.WATCH_BYTES_DEFAULT, limits.DIFF_BYTES_MAX),
        tuple(sorted(node_set(node))),
    )


async def get_watch(request: HttpRequest) -> WatchStream:
    """Stream the events of a watch session: records, tombstones, caught-up."""
    sse.check_accept(request)
    live = request.context.live
    session = live.sessions.find(request.parameters["wid"])
    if session is None:
        raise Refusal(404, "not_found", "there is no such watch session, or not any more: make a new one")
    if session.owner != request.client.id or not all(
        request.view is None or request.view.plain_topic(topic) is not None for topic in session.cursors
    ):
        raise Refusal(401, "unauthorized", "this watch session was made with another key")
    for topic in session.cursors:
        request.require_topic(topic, Operation.READ)
    with ExitStack() as held:
        held.enter_context(sse.admitted(request))
        live.sessions.connect(session)
        held.callback(live.sessions.disconnect, session)
        session.rewind(_resume_at(request.header(b"last-event-id")))
        return WatchStream(request, session, held.pop_all())


def _resume_at(event_id: bytes | None) -> dict[str, int]:
    """Where the client says it is; nowhere, if that cannot be read."""
    if not event_id:
        return {}
    try:
        padded = event_id.strip() + b"=" * (-len(event_id.strip()) % 4)
        return _cursors.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


class WatchStream(Push):
    """One connection that reads a session."""

    def __init__(self, request: HttpRequest, session: WatchSession, held: ExitStack) -> None:
        self._live = request.context.live
        self._request = request
        self._rates = request.broker.rates.stored
        self._broker = request.broker
        self._plain = request.view is not None
        self._session = session
        self._held = held  # what is given back when it ends
        # Its own: another connection of the session may be somewhere else.
        self._cursors = dict(session.cursors)
        self._places: list[WatchPosition] = []
        self._ended = False
        self._chorus = self._live.watcher_group(
            RecordFormat(
                session.include_tags,
                session.include_meta,
                session.include_data,
                session.include_trace,
                self._plain,
            )
        )
        self.heartbeat_s = session.heartbeat_ms / 1000
        self.slot = -1

    async def serve(self, receive: Receive, send: Send) -> int:
        self.send_buffer = SendBuffer(send, self._resume)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(sse.HEADERS)})
            await send({"type": "http.response.body", "body": sse.RETRY, "more_body": True})
            self.spoke_at = self._broker.clock.monotonic()
            self._live.open.add(self)
            self._live.heartbeats.add(self)
            self._session.readers[self] = None
            asyncio.get_running_loop().call_soon(self._enter)
            while (await receive())["type"] != "http.disconnect":
                continue
            return self.send_buffer.sent_bytes
        finally:
            self._live.open.discard(self)
            self._live.heartbeats.remove(self)
            for place in self._places:
                self._broker.watching.leave(place)
            self.save()
            self._session.readers.pop(self, None)
            self.send_buffer.close()
            self._held.close()

    def save(self) -> None:
        for place in self._places:
            if place.topic in self._session.cursors:
                self._session.cursors[place.topic] = place.cursor

    def _enter(self) -> None:
        session, watching = self._session, self._broker.watching
        if self.send_buffer.gone or self._ended:
            return
        # The id of a frame names every topic of the stream: only those that watch one alone share it.
        watch_options = (
            session.watch_options._replace(watcher_group=self._chorus)
            if len(self._cursors) == 1
            else session.watch_options
        )
        for name, cursor in list(self._cursors.items()):
            topic = self._broker.streams.get(name)
            partition = session.partitions.get(name, 0)
            if topic is None or find_stream(topic, partition) < 0:
                self._forget(name)
            else:
                self._places.append(watching.enter(self, topic, cursor, watch_options, partition))
        if not self._cursors:
            self._end()

    # As a watcher

    def take(self, place: WatchPosition, watch_page: WatchPage) -> None:
        page, name = watch_page.page, place.topic
        frames = b""
        if page.tombstone is not None:
            self._cursors[name] = watch_page.from_seq
            frames = sse.event(
                b"tombstone", tombstone_data(watch_page, first=place.first, plain=self._plain), self._id()
            )
        self._cursors[name] = self._session.cursors[name] = page.next_from_seq
        if page.count:
            frames += b"id: %b\n%b" % (self._id(), self._chorus.record_frame(watch_page))
        if watch_page.caught_up and not place.tailing:
            frames += sse.event(b"caught-up", caught_up_data(watch_page, plain=self._plain), self._id())
        if frames:
            self._push(frames)
        if page.count and self._rates.active:
            limiter = self.limiter(place)
            if limiter is not None:
                self.send_buffer.pause(limiter.take(page.bytes, page.count))

    def limiter(self, place: WatchPosition) -> RateLimiter | None:
        return reading(self._request, place.topic)

    def lose(self, place: WatchPosition) -> None:
        self._forget(place.topic)

    def _forget(self, name: str) -> None:
        self._cursors.pop(name, None)
        self._session.cursors.pop(name, None)
        self._push(sse.event(b"topic-deleted", deleted_data(name, plain=self._plain), self._id()))
        if not self._cursors:
            self._live.sessions.remove(self._session)
            self._end()

    def fail(self, place: WatchPosition, error: Exception) -> None:
        if isinstance(error, Closed):
            self.shut_down()
            return
        data = _encode(sse.read_failure(shown(place.topic, plain=self._plain), error))
        self._push(sse.event(b"error", data))
        self._end()

    def _resume(self) -> None:
        self._broker.watching.resume(self._places)

    # Ending, and staying

    def check_rights(self) -> None:
        for topic in self._cursors:
            if not self._request.may(Operation.READ, ResourceType.TOPIC, topic):
                name = shown(topic, plain=self._plain)
                denial = ErrorEvent(
                    "forbidden", f"the access rules do not allow READ on topic {name!r}", name
                )
                self._push(sse.event(b"error", _encode(denial)))
                self._end()
                return

    def shut_down(self) -> None:
        self._push(sse.SHUTTING_DOWN)
        self._end()

    def beat(self) -> None:
        if self.send_buffer.idle:
            self._push(sse.heartbeat(self._broker.clock.now_ms()))

    @property
    def spoke_at(self) -> float:
        return self.send_buffer.spoke_at

    @spoke_at.setter
    def spoke_at(self, at: float) -> None:
        self.send_buffer.spoke_at = at

    def _id(self) -> bytes:
        return event_id(self._cursors)

    def _push(self, frames: bytes) -> None:
        self.spoke_at = self._broker.clock.monotonic()
        if not self._ended:
            self.send_buffer.sent_bytes += len(frames)
            self.send_buffer.push({"type": "http.response.body", "body": frames, "more_body": True})

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        for place in self._places:
            self._broker.watching.leave(place)
        self.send_buffer.push({"type": "http.response.body", "body": b"", "more_body": False})

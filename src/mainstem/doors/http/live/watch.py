"""Watch sessions and their event streams."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import msgspec

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.base import U64, ErrorEvent
from mainstem.api.records import StartPosition, WatchBody, WatchedPartition, WatchedTopic, WatchStarted
from mainstem.broker.rates import RateLimiter
from mainstem.broker.streams import find_stream
from mainstem.broker.topics.service import Topic
from mainstem.broker.watch import WatchOptions, WatchPage, WatchPosition
from mainstem.broker.watch_sessions import CursorKey, WatchSession
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
_cursors = msgspec.json.Decoder(dict[str, U64 | dict[str, U64]])
_encode = msgspec.json.Encoder().encode


async def post_watch(request: HttpRequest) -> Response:
    """Create a watch session for topics."""
    body = request.json(_watch_body)
    if not 1 <= len(body.topics) <= WATCH_TOPICS_MAX:
        raise invalid(f"watch 1 to {WATCH_TOPICS_MAX} topics at once, not {len(body.topics)}")
    for name in body.topics:
        request.require_topic(name, Operation.READ)
    request.context.live.sessions.check_room(request.holder)
    cursors: dict[CursorKey, int] = {}
    whole: set[str] = set()
    watched: dict[str, WatchedTopic] = {}
    for topic, begin in _existing_topics(request, body):
        await request.broker.routers.drain(topic.name)
        places = await starts(request, topic, begin)
        cursors.update(((topic.name, partition), place.from_seq) for partition, place in places.items())
        watched[topic.name] = watched_topic(places)
        if len(places) > 1:
            whole.add(topic.name)
    low, high = WATCH_HEARTBEAT_MS_MIN, WATCH_HEARTBEAT_MS_MAX
    session = request.context.live.sessions.create(
        request.client.id,
        cursors,
        watch_options(body.limit, body.max_batch_bytes, body.node),
        whole=frozenset(whole),
        heartbeat_ms=max(low, min(high, body.heartbeat_ms)),
        include_meta=body.include_meta,
        include_tags=body.include_tags,
        include_data=body.include_data,
        include_trace=body.include_trace,
        include_headers=body.include_headers,
        holder=request.holder,
    )
    url = f"/v0/watch/{session.wid}"
    ttl_ms = limits.WATCH_SESSION_TTL_MS
    return reply(WatchStarted(session.wid, url, ttl_ms, watched, request.performance()))


def _existing_topics(request: HttpRequest, body: WatchBody) -> list[tuple[Topic, StartPosition]]:
    """The topics that exist. Raises TopicNotFound for one that does not, unless the client is lenient."""
    lenient = request.flag("lenient", False)
    found = []
    for name, begin in body.topics.items():
        topic = request.broker.streams.get(name)
        if topic is not None:
            found.append((topic, begin))
        elif not lenient:
            raise TopicNotFound(name)
    return found


async def starts(request: HttpRequest, topic: Topic, begin: StartPosition) -> dict[int, WatchedPartition]:
    """The start offset of each watched partition. Raises PartitionNotFound, Refusal 400."""
    partitions: Sequence[int] = range(len(topic.streams)) if begin.partition is None else (begin.partition,)
    if topic.config.type == "queue" and begin.partition is None:
        partitions = (0,)
    if len(partitions) > 1 and begin.from_seq and begin.from_ is None:
        name = shown(topic.name, plain=request.view is not None)
        raise invalid(
            f"topic {name!r} has {len(partitions)} partitions, each with its own sequence "
            'numbers: give from, such as {"0": 17, "1": 4}, or a partition with from_seq'
        )
    places: dict[int, WatchedPartition] = {}
    for partition in partitions:
        state = await request.broker.states.settled(topic, partition)
        given = begin.from_seq if begin.from_ is None else begin.from_.get(str(partition), 0)
        cursor = state.head_seq if begin.tail else min(given, limits.OFFSET_MAX)
        places[partition] = WatchedPartition(cursor, state.head_seq, state.earliest_seq)
    return places


def watched_topic(places: Mapping[int, WatchedPartition]) -> WatchedTopic:
    first = next(iter(places.values()))
    named = {str(partition): place for partition, place in places.items()} if len(places) > 1 else None
    return WatchedTopic(first.from_seq, first.head_seq, first.earliest_seq, named)


def watch_options(limit: int, max_batch_bytes: int, node: str | list[str] | None) -> WatchOptions:
    """The requested value within the bounds of a diff; 0 is the default."""
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
        raise Refusal(404, "not_found", "the watch session does not exist or has expired: create a new one")
    if session.owner != request.client.id or not all(
        request.view is None or request.view.plain_topic(topic) is not None for topic in session.topics
    ):
        raise Refusal(401, "unauthorized", "this watch session was made with another key")
    for topic in session.topics:
        request.require_topic(topic, Operation.READ)
    with ExitStack() as held:
        held.enter_context(sse.admitted(request))
        live.sessions.connect(session)
        held.callback(live.sessions.disconnect, session)
        session.rewind(_resume_at(request.header(b"last-event-id")))
        return WatchStream(request, session, held.pop_all())


def _resume_at(event_id: bytes | None) -> dict[str, int | dict[str, int]]:
    """The client's cursors; none if they cannot be parsed."""
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
        self._held = held  # released when it ends
        # Of this connection: another one of the session may be elsewhere.
        self._cursors = dict(session.cursors)
        self._places: list[WatchPosition] = []
        self._ended = False
        self._chorus = self._live.watcher_group(
            RecordFormat(
                session.include_tags,
                session.include_meta,
                session.include_data,
                session.include_trace,
                session.include_headers,
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
            if place.key in self._session.cursors:
                self._session.cursors[place.key] = place.cursor

    def _enter(self) -> None:
        session, watching = self._session, self._broker.watching
        if self.send_buffer.gone or self._ended:
            return
        # The id of a frame names every topic of the stream: only streams of one topic share frames.
        watch_options = (
            session.watch_options._replace(watcher_group=self._chorus)
            if len(self._cursors) == 1
            else session.watch_options
        )
        for (name, partition), cursor in list(self._cursors.items()):
            topic = self._broker.streams.get(name)
            if topic is None or find_stream(topic, partition) < 0:
                self._forget(name)
            elif (name, partition) in self._cursors:  # not already lost with another partition of the topic
                self._places.append(watching.enter(self, topic, cursor, watch_options, partition))
        for name in session.whole:
            self._enter_new_partitions(name)
        if not self._cursors:
            self._end()

    def _enter_new_partitions(self, name: str) -> None:
        """Watch partitions that were added to a topic watched as a whole."""
        topic = self._broker.streams.get(name)
        if topic is None or (name, 0) not in self._cursors or (name, len(topic.streams) - 1) in self._cursors:
            return
        for partition in range(len(topic.streams)):
            if (name, partition) not in self._cursors:
                self._cursors[name, partition] = self._session.cursors[name, partition] = 0
                options = self._session.watch_options
                self._places.append(self._broker.watching.enter(self, topic, 0, options, partition))

    # As a watcher

    def take(self, place: WatchPosition, watch_page: WatchPage) -> None:
        page, key = watch_page.page, place.key
        frames = b""
        if page.tombstone is not None:
            self._cursors[key] = watch_page.from_seq
            frames = sse.event(
                b"tombstone", tombstone_data(watch_page, first=place.first, plain=self._plain), self._id()
            )
        self._cursors[key] = self._session.cursors[key] = page.next_from_seq
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
        if place.topic in self._session.whole:
            self._enter_new_partitions(place.topic)

    def limiter(self, place: WatchPosition) -> RateLimiter | None:
        return reading(self._request, place.topic)

    def lose(self, place: WatchPosition) -> None:
        self._forget(place.topic)

    def _forget(self, name: str) -> None:
        keys = [key for key in self._cursors if key[0] == name]
        for key in keys:
            del self._cursors[key]
            self._session.cursors.pop(key, None)
        if not keys:
            return  # lost with another partition of the topic
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

    # Closing and heartbeats

    def check_rights(self) -> None:
        for topic, _ in self._cursors:
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
        for name in self._session.whole:
            self._enter_new_partitions(name)

    @property
    def spoke_at(self) -> float:
        return self.send_buffer.spoke_at

    @spoke_at.setter
    def spoke_at(self, at: float) -> None:
        self.send_buffer.spoke_at = at

    def _id(self) -> bytes:
        return event_id(self._cursors, self._session.whole)

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

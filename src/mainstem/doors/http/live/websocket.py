"""The WebSocket: subscribe and publish to topics through one connection, in JSON messages."""

from __future__ import annotations

import asyncio
from functools import cache
from time import perf_counter
from typing import Any, TypeVar

import msgspec

from mainstem import events
from mainstem.api.access import Operation, ResourceType
from mainstem.api.base import ErrorEvent
from mainstem.api.records import CommandHead, Publish, StartPosition, Subscribe, Unsubscribe, WatchedPartition
from mainstem.api.routes import GET_WEBSOCKET
from mainstem.broker.watch import WatchPage, WatchPosition
from mainstem.doors.http.live import sse
from mainstem.doors.http.live.watch import starts, watch_options, watched_topic
from mainstem.doors.http.routes.records import post_records
from mainstem.doors.http.transport.context import Context
from mainstem.doors.http.transport.errors import Refusal, answer, invalid, throttled, unauthorized
from mainstem.doors.http.transport.frames import (
    caught_up_data,
    deleted_data,
    records_data,
    shown,
    tombstone_data,
)
from mainstem.doors.http.transport.namespaces import plain_text, qualified
from mainstem.doors.http.transport.requests import HttpRequest, decoded
from mainstem.doors.http.transport.responses import Asgi, Receive, Response, Send
from mainstem.doors.http.transport.send_buffer import SendBuffer
from mainstem.doors.http.transport.throttle import publish_allowed, reading
from mainstem.errors import Closed, MainstemError, TopicNotFound

WEBSOCKET_COMMANDS_MAX = 64  # received without a response on one socket; above it, reading stops
WEBSOCKET_TOPICS_MAX = 1_024  # subscribed to through one socket

T = TypeVar("T")

_log = events.named("http")
_encode = msgspec.json.Encoder().encode
_error_body = msgspec.json.Decoder(dict[str, dict[str, msgspec.Raw]])

_head = msgspec.json.Decoder(CommandHead)
_any = msgspec.json.Decoder(msgspec.Raw)

PATH = GET_WEBSOCKET.path.encode()

_GOING_AWAY = 1001


async def get_plain(request: HttpRequest) -> Response:
    """Open a WebSocket; rejects a request without the handshake."""
    raise invalid("this path speaks WebSocket: connect to it with a WebSocket handshake")


async def serve(context: Context, scope: Asgi, receive: Receive, send: Send) -> None:
    """One socket, from its handshake to its end."""
    await receive()  # the handshake; its data is in the scope
    headers = dict(reversed(scope["headers"]))
    host = str((scope.get("client") or ("",))[0])
    try:
        anonymous = not context.clients.required
        context.origins.check("GET", headers, anonymous=anonymous, socket=True)
        client = await context.clients.find(headers.get(b"authorization"), scope.get("client"))
        if client is None:
            raise unauthorized(given=b"authorization" in headers)
        if scope["raw_path"] != PATH:
            raise Refusal(404, "not_found", "there is no web socket at this path")
        request = HttpRequest(context, client, host, {}, scope["query_string"], headers, b"", perf_counter())
        request.bind()
        with sse.admitted(request):
            await send({"type": "websocket.accept"})
            await Socket(request, send).run(receive)
    except Refusal as refusal:
        await _refuse(refusal.response(), scope, send)


async def _refuse(response: Response, scope: Asgi, send: Send) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [*response.headers]
    await send({"type": "websocket.http.response.start", "status": response.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})


class Socket:
    """One connection: receives commands, sends records of its subscriptions."""

    def __init__(self, request: HttpRequest, send: Send) -> None:
        self._request = request
        self._view = request.view
        self._plain = request.view is not None
        self._context = request.context
        self._watching = request.broker.watching
        self._rates = request.broker.rates.stored
        self.send_buffer = SendBuffer(send, self._resume)
        self._places: dict[str, list[WatchPosition]] = {}  # one for each partition of the topic
        self._forms: dict[
            WatchPosition, tuple[bool, bool, bool, bool, bool]
        ] = {}  # tags, meta, data, trace, headers
        self._publishing: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def run(self, receive: Receive) -> None:
        live = self._context.live
        live.open.add(self)
        try:
            while True:
                # A client that does not read responses may not send more commands.
                await self.send_buffer.until_ready()
                message = await receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._command(message)
        finally:
            live.open.discard(self)
            for topic in list(self._places):
                self._leave(topic)
            self.send_buffer.close()
            # Publishes complete even if the sender disconnects.
            await asyncio.gather(*self._publishing, return_exceptions=True)

    # Commands

    async def _command(self, message: Asgi) -> None:
        text = message.get("text")
        if text is None:
            self._fail(None, "unsupported_message", "commands are JSON in text messages")
            return
        body = text.encode("utf-8", "surrogatepass")
        try:
            head = decode_head(body)
        except msgspec.ValidationError:
            self._fail(None, "unsupported_message", 'a command is an object with an "op"')
            return
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._fail(None, "invalid_json", "the message is not valid JSON")
            return
        try:
            await self._execute(head, body)
        except (MainstemError, Refusal) as error:
            self._refuse(head, error)
        except Exception as error:  # noqa: BLE001 - one command must not take the socket down
            _log.exception("command failed", op=head.op)
            self._fail(head, "internal", f"an internal error: {type(error).__name__}")

    async def _execute(self, head: CommandHead, body: bytes) -> None:
        match head.op:
            case "ping":
                self._reply(b"pong", head, b'"ts":%d' % self._context.broker.clock.now_ms())
            case "subscribe":
                await self._subscribe(head, self._qualified(decoded(decoder_of(Subscribe), body)))
            case "unsubscribe":
                self._unsubscribe(head, self._qualified(decoded(decoder_of(Unsubscribe), body)))
            case "publish":
                await self._publish(head, self._qualified(decoded(decoder_of(Publish), body)), body)
            case _:
                known = "subscribe, unsubscribe, publish, ping"
                self._fail(head, "unsupported_message", f"unknown op; use one of {known}")

    def _qualified(self, command: T) -> T:
        """A command, with full names."""
        return command if self._view is None else qualified(self._view, command)

    def _name(self, topic: str) -> str:
        return shown(topic, plain=self._plain)

    async def _subscribe(self, head: CommandHead, command: Subscribe) -> None:
        self._request.require_some(Operation.READ, ResourceType.TOPIC)
        wanted = beginnings(command)
        if not wanted:
            raise invalid("name the topics to subscribe to, in topic or topics")
        for name in wanted:
            self._request.require_topic(name, Operation.READ)
        bound = WEBSOCKET_TOPICS_MAX
        if len(self._places.keys() | wanted.keys()) > bound:
            raise throttled("max_socket_topics", bound, f"a socket subscribes to up to {bound} topics")
        broker = self._request.broker
        await broker.refresh()
        found: dict[str, dict[int, WatchedPartition]] = {}
        for name, begin in wanted.items():
            topic = broker.streams.get(name)
            if topic is None:
                if not command.lenient:
                    raise TopicNotFound(name)
                continue
            found[name] = await starts(self._request, topic, begin)
        self._reply(
            b"subscribed",
            head,
            b'"topics":%b'
            % _encode({self._name(name): watched_topic(places) for name, places in found.items()}),
        )
        form = (
            command.include_tags,
            command.include_meta,
            command.include_data,
            command.include_trace,
            command.include_headers,
        )
        asked = watch_options(command.limit, command.max_batch_bytes, command.node)
        for name, places in found.items():
            self._leave(name)
            topic = broker.streams.get(name)
            if topic is None:  # deleted meanwhile
                self._push(b"topic_deleted", deleted_data(name, plain=self._plain))
                continue
            for partition, begins in places.items():
                place = self._watching.enter(self, topic, begins.from_seq, asked, partition)
                self._places.setdefault(name, []).append(place)
                self._forms[place] = form

    def _unsubscribe(self, head: CommandHead, command: Unsubscribe) -> None:
        named = named_topics(command)
        gone = [name for name in (self._places if named is None else named) if name in self._places]
        for name in gone:
            self._leave(name)
        self._reply(b"unsubscribed", head, b'"topics":%b' % _encode([*map(self._name, gone)]))

    async def _publish(self, head: CommandHead, command: Publish, body: bytes) -> None:
        self._request.require_topic(command.topic, Operation.WRITE)
        if bytes(command.config) not in (b"", b"null"):
            self._request.require_topic(command.topic, Operation.ALTER_CONFIGS)
        query = f"return_seqs={str(command.return_seqs).lower()}"
        if command.partition is not None:
            query += f"&partition={command.partition}"
        request = HttpRequest(
            self._context,
            self._request.client,
            self._request.host,
            {"topic": command.topic},
            query.encode(),
            {},
            body,
            perf_counter(),
        )
        request.view = self._view
        if self._rates.active:
            await publish_allowed(request, command.topic)
        writing = self._write(head, request)
        if self._request.broker.streams.get(command.topic) is None:
            await writing  # later commands find the topic, and follow this one
            return
        if len(self._publishing) >= WEBSOCKET_COMMANDS_MAX:
            await asyncio.wait(self._publishing, return_when=asyncio.FIRST_COMPLETED)
        # Tasks start in the order of creation, and take their place in the log when they start.
        task = self._loop.create_task(writing)
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _write(self, head: CommandHead, request: HttpRequest) -> None:
        self._context.bodies.take(request.holder, len(request.body))
        try:
            response = await post_records(request)
        except (MainstemError, Refusal) as error:
            self._refuse(head, error)
        except Exception as error:  # noqa: BLE001 - one command must not take the socket down
            _log.exception("publish failed", topic=request.topic)
            self._fail(head, "internal", f"an internal error: {type(error).__name__}")
        else:
            self._reply(b"ack", head, response.body[1:-1])
        finally:
            self._context.bodies.give(request.holder, len(request.body))

    def _leave(self, topic: str) -> None:
        for place in self._places.pop(topic, ()):
            self._forms.pop(place, None)
            self._watching.leave(place)

    # As a watcher

    def take(self, place: WatchPosition, watch_page: WatchPage) -> None:
        page = watch_page.page
        if page.tombstone is not None:
            self._push(b"tombstone", tombstone_data(watch_page, first=place.first, plain=self._plain))
        if page.count:
            self.send_buffer.push({"type": "websocket.send", "text": self._record_text(place, watch_page)})
            if self._rates.active:
                limiter = reading(self._request, place.topic)
                if limiter is not None:
                    self.send_buffer.pause(limiter.take(page.bytes, page.count))
        if page.caught_up and not place.tailing:
            self._push(b"caught_up", caught_up_data(watch_page, plain=self._plain))

    def _record_text(self, place: WatchPosition, watch_page: WatchPage) -> str:
        """Encoded once for all sockets with the same form."""
        tags, meta, data, trace, headers = self._forms[place]
        form = ("socket", tags, meta, data, trace, headers, self._plain)
        text = watch_page.rendered.get(form)
        if text is None:
            text = _message(
                b"record",
                records_data(
                    watch_page,
                    tags=tags,
                    meta=meta,
                    data=data,
                    trace=trace,
                    headers=headers,
                    plain=self._plain,
                ),
            )
            watch_page.rendered[form] = text
        return str(text)

    def lose(self, place: WatchPosition) -> None:
        self._forms.pop(place, None)
        others = self._places.get(place.topic, [])
        if place in others:
            others.remove(place)
        if others:
            return  # sent once, with the last partition
        self._places.pop(place.topic, None)
        self._push(b"topic_deleted", deleted_data(place.topic, plain=self._plain))

    def fail(self, place: WatchPosition, error: Exception) -> None:
        self._leave(place.topic)
        if isinstance(error, Closed):
            self.shut_down()
            return
        failure = sse.read_failure(self._name(place.topic), error)
        self._push(b"error", _encode(failure))

    def _resume(self) -> None:
        for places in self._places.values():
            self._watching.resume(places)

    def check_rights(self) -> None:
        for topic in list(self._places):
            if not self._request.may(Operation.READ, ResourceType.TOPIC, topic):
                self._leave(topic)
                name = self._name(topic)
                denial = ErrorEvent(
                    "forbidden", f"the access rules do not allow READ on topic {name!r}", name
                )
                self._push(b"error", _encode(denial))

    def shut_down(self) -> None:
        failure = ErrorEvent("server_shutting_down", "the server is shutting down: connect again soon")
        self._push(b"error", _encode(failure))
        self.send_buffer.push({"type": "websocket.close", "code": _GOING_AWAY, "reason": "shutting down"})

    # Sending

    def _push(self, op: bytes, data: bytes) -> None:
        """Send an object under an op. Callbacks of the loop only."""
        self.send_buffer.push({"type": "websocket.send", "text": _message(op, data)})

    def _reply(self, op: bytes, head: CommandHead | None, fields: bytes) -> None:
        """Respond to a command. Its request id is returned unchanged."""
        id = bytes(head.request_id) if head is not None else b""
        echoed = b'"request_id":%b,' % id if id else b""
        self._loop.call_soon(self._push, op, b"{%b%b}" % (echoed, fields))

    def _fail(self, head: CommandHead | None, code: str, message: str) -> None:
        self._reply(b"error", head, _encode(ErrorEvent(code, message))[1:-1])

    def _refuse(self, head: CommandHead, error: MainstemError | Refusal) -> None:
        body = answer(error).body
        if self._view is not None:
            body = plain_text(self._view, body)
        told: dict[str, Any] = _error_body.decode(body)["error"]
        self._reply(b"error", head, _encode(told)[1:-1])


def _message(op: bytes, data: bytes) -> str:
    """`data` is a JSON object with something in it."""
    return (b'{"op":"%b",%b' % (op, data[1:])).decode("utf-8", "replace")


# Decoding commands


def decode_head(body: bytes) -> CommandHead:
    """Raises ValidationError for JSON that is not a command, DecodeError for invalid JSON."""
    try:
        return _head.decode(body)
    except msgspec.ValidationError:
        _any.decode(body)  # it may be invalid JSON after the mismatch
        raise


@cache
def decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def beginnings(command: Subscribe) -> dict[str, StartPosition]:
    """Every named topic, and its start position."""
    default = StartPosition(command.from_seq, command.tail, command.partition)
    found: dict[str, StartPosition] = {}
    if isinstance(command.topics, dict):
        found.update(command.topics)
    else:
        found.update((name, default) for name in command.topics or ())
    if command.topic is not None:
        found[command.topic] = default
    return found


def named_topics(command: Unsubscribe) -> list[str] | None:
    """The named topics; None, which means all, if there are none."""
    if command.topic is None and command.topics is None:
        return None
    return [*(command.topics or ()), *([command.topic] if command.topic is not None else [])]

"""HTTP/2 on the same port, by the h2 library; the application is the same."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from uvicorn.server import ServerState

from mainstem import limits
from mainstem.doors.budget import FrameRate, Seats, peer_of
from mainstem.doors.http.transport.responses import Asgi, ConnectionApp, Header, Response
from mainstem.doors.http.transport.upload_rate import UploadRate

HTTP2_STREAMS_MAX = 256  # concurrent requests on one connection
HTTP2_STREAM_WINDOW_BYTES = 1 * limits.MIB  # of a body, received and not yet consumed
HTTP2_CONNECTION_WINDOW_BYTES = 16 * limits.MIB  # the same for all bodies of a connection
HTTP2_RESETS_MAX = 1_000  # requests that a connection may start and cancel

CONTROL_FRAMES_PER_S = 100.0  # frames without data on one connection …
CONTROL_FRAMES_BURST = 500.0  # … and at once
CONTROL_FRAMES_FREE = 32  # of one connection, which do not count for its principal
HTTP2_FRAMES_PER_TURN = 16  # processed before the event loop serves others

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_FRAME_HEAD_BYTES = 9
_FRAME_BYTES_MAX = 16 * limits.KIB  # of a payload, as our settings allow
_DATA, _HEADERS, _CONTINUATION = 0, 1, 9
_END_STREAM, _END_HEADERS = 1, 4
_STREAM_BYTES = 4 * limits.KIB  # about what a request takes beside its head and body
_FRAMES_PER_DATA_FRAME = 3  # control frames a client may send for each data frame it gets: window updates

_NOT_FORWARDED = {b"connection", b"transfer-encoding", b"keep-alive", b"upgrade"}


class Http2Connection(asyncio.Protocol):
    def __init__(self, state: ServerState, app: ConnectionApp, seats: Seats) -> None:
        self._state = state
        self._app = app
        self._seats = seats
        self._budget = app.budget
        self._peer = ""
        self._frames = FrameRate(CONTROL_FRAMES_PER_S, CONTROL_FRAMES_BURST)
        self._free_frames = CONTROL_FRAMES_FREE
        self._received = b""  # frames not processed yet, and the start of an incomplete one
        self._preface = len(PREFACE)  # missing bytes of that frame
        self._block_bytes = 0  # of a head whose last frame has not arrived
        self._counted = 0  # of those bytes, as the budget counts them
        self._held = 0  # of requests: heads, and bodies that the application has not taken
        self._working = False  # frames wait for their turn
        self._loop = asyncio.get_running_loop()
        self._h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self._streams: dict[int, _Stream] = {}
        self._writable = asyncio.Event()
        self._writable.set()
        self._heard_at = self._loop.time()
        self._resets = 0
        self._closing = False
        self.transport: asyncio.Transport

    @property
    def idle(self) -> bool:
        return not self._streams

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._peer = peer_of(transport)
        if not self._seats.admit(self._peer, self):
            transport.abort()
            return
        self._state.connections.add(self)  # type: ignore[arg-type]  # it has what the door asks of one
        self._h2.initiate_connection()
        self._h2.update_settings(
            {
                SettingCodes.MAX_CONCURRENT_STREAMS: HTTP2_STREAMS_MAX,
                SettingCodes.INITIAL_WINDOW_SIZE: HTTP2_STREAM_WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.HTTP_HEAD_BYTES_MAX,
                SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
            }
        )
        self._h2.increment_flow_control_window(HTTP2_CONNECTION_WINDOW_BYTES)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._seats.leave(self._peer, self)
        self._state.connections.discard(self)
        self._received = b""
        self._block_bytes = 0
        self._count_received()
        self._writable.set()
        for stream in self._streams.values():
            stream.leave()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Receiving

    def unused_since(self) -> float | None:
        return None if self._streams else self._heard_at

    def abort(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        activity = self._app.client_activity
        if activity.last is not self:
            activity.last, activity.changed_at = self, self._heard_at
        self._received = self._received + data if self._received else data
        if not self._working:
            self._work()
        self._count_received()

    def _count_received(self) -> None:
        """Tell the budget what has arrived of incomplete frames and heads."""
        held = len(self._received) + self._block_bytes
        more, self._counted = held - self._counted, held
        self._count(more)

    def hold(self, more: int) -> None:
        """Tell the budget what is held of requests."""
        self._held += more
        self._count(more)

    def _count(self, more: int) -> None:
        received = self._budget.received
        if more < 0:
            received.give(self._peer, -more)
        elif more > 0:
            received.take(self._peer, more)
            if received.over(self._peer) and not self.transport.is_closing():
                self._budget.floods_closed += 1
                self.transport.abort()

    def _work(self) -> None:
        """Process some frames, and others after the loop has served other connections."""
        self._working = False
        if self.transport.is_closing():
            return
        frames = _whole_frames(self._received, self._preface, self._block_bytes)
        self._block_bytes = frames.block_bytes
        if self._block_bytes > limits.HTTP_HEAD_BYTES_MAX:
            self._close_for(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        if frames.control and not self._affordable(frames.control):
            self._budget.floods_closed += 1
            self._close_for(ErrorCodes.ENHANCE_YOUR_CALM)
            return
        part, self._received = self._received[: frames.end], self._received[frames.end :]
        self._preface = max(0, self._preface - len(part))
        if part and not self._process(part):
            return
        if frames.more:
            self.transport.pause_reading()
            self._working = True
            self._budget.turns.later(self._peer, self._go_on)
        elif not self.transport.is_reading():
            self.transport.resume_reading()

    def _go_on(self) -> None:
        self._work()
        self._count_received()

    def _affordable(self, control: int) -> bool:
        """Whether the client may send frames that carry no data."""
        counted = max(0, control - self._free_frames)
        self._free_frames = max(0, self._free_frames - control)
        if not self._frames.spend(control):
            return False
        return not counted or self._budget.frame_rate(self._peer).spend(counted)

    def _close_for(self, code: ErrorCodes) -> None:
        self._received = b""
        self._h2.close_connection(code)
        self._flush()
        self.transport.close()

    def _process(self, data: bytes) -> bool:
        """False: the client broke the protocol, and the connection is closed."""
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self._received = b""
            self._flush()  # h2 has put the reason into a GOAWAY
            self.transport.close()
            return False
        for event in events:
            self._handle(event)
        self._flush()
        return not self.transport.is_closing()

    def _handle(self, event: object) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event.stream_id, event.headers)
        elif isinstance(event, DataReceived):
            stream = self._streams.get(event.stream_id)
            if stream is None:  # the response was sent: drop the rest of the body, and restore the window
                self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            else:
                stream.feed(event.data, event.flow_controlled_length)
        elif isinstance(event, StreamEnded):
            if event.stream_id in self._streams:
                self._streams[event.stream_id].end()
        elif isinstance(event, StreamReset):
            self._reset(event.stream_id)
        elif isinstance(event, WindowUpdated | RemoteSettingsChanged):
            for stream in self._streams.values():
                stream.window.set()
        elif isinstance(event, ConnectionTerminated):
            self.transport.close()

    def _begin(self, number: int, headers: Any) -> None:
        if self._closing:
            self._h2.reset_stream(number, ErrorCodes.REFUSED_STREAM)
            return
        stream = self._streams[number] = _Stream(self, number, _scope(headers, self.transport))
        self.hold(stream.head_bytes)
        task = self._loop.create_task(self._run(stream))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    def _reset(self, number: int) -> None:
        """Limit cancelled streams: starting a request costs the client nothing."""
        self._resets += 1
        if number in self._streams:
            self._streams[number].leave()
        if self._resets > HTTP2_RESETS_MAX:
            self._close_for(ErrorCodes.ENHANCE_YOUR_CALM)

    async def _run(self, stream: _Stream) -> None:
        try:
            if stream.left:  # cancelled before it began
                return
            await self._app.serve(stream.scope, stream.receive, stream.send, stream.write)
            if not stream.answered and not stream.left:
                self._h2.reset_stream(stream.number, ErrorCodes.INTERNAL_ERROR)
        except ProtocolError:
            stream.leave()  # the client ended the stream or the connection meanwhile
        finally:
            del self._streams[stream.number]
            self.hold(-stream.head_bytes - stream.unread_bytes)
            self._flush()
            if self._closing and not self._streams:
                self.transport.close()

    # Sending

    def consumed(self, number: int, size: int) -> None:
        """The application consumed this many bytes of a body: enlarge the client's window."""
        if size and not self.transport.is_closing():
            self._h2.acknowledge_received_data(size, number)
            self._flush()

    def send_head(self, number: int, status: int, headers: list[Header], end: bool) -> None:
        kept = [(name, value) for name, value in headers if name not in _NOT_FORWARDED]
        self._h2.send_headers(number, [(b":status", b"%d" % status), *kept], end_stream=end)

    async def send_body(self, stream: _Stream, body: bytes, end: bool) -> None:
        """Send as much as the client's windows allow."""
        at = 0
        while at < len(body) or end:
            await self._writable.wait()
            if stream.left:
                return
            room = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
            if at < len(body) and room <= 0:
                self._flush()
                stream.window.clear()
                stream.blocked = True
                await stream.window.wait()
                stream.blocked = False
                continue
            part = body[at : at + room]
            at += len(part)
            last = end and at >= len(body)
            self._h2.send_data(stream.number, part, end_stream=last)
            self._frames.earn(_FRAMES_PER_DATA_FRAME)
            stream.read_pace.heard(len(part))
            if last:
                break
        self._flush()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    # Closing

    def shutdown(self) -> None:
        """Accept no more requests; close after the responses to those in progress."""
        self._closing = True
        if not self._streams:
            self._h2.close_connection()
            self._flush()
            self.transport.close()

    def check(self, now: float) -> None:
        """Close the connection of a client that makes no progress."""
        quiet_s = now - self._heard_at
        receiving = [stream for stream in self._streams.values() if not (stream.ended or stream.answered)]
        stalled = not self._writable.is_set() and quiet_s > limits.HTTP_STALL_S
        dripping = any(stream.pace.too_slow(now) for stream in receiving)
        for stream in self._streams.values():
            if not stream.blocked:
                stream.read_pace.begin(now)
            elif stream.read_pace.too_slow(now):
                dripping = True
        if (not self._streams and quiet_s > limits.HTTP_IDLE_S) or stalled or dripping:
            self.transport.abort()


class _Stream:
    """One request and its response."""

    def __init__(self, connection: Http2Connection, number: int, scope: Asgi) -> None:
        self._connection = connection
        self._parts: list[bytes] = []
        self._size = 0  # of the parts, as flow control counts them
        self.head_bytes = _STREAM_BYTES + sum(len(name) + len(value) for name, value in scope["headers"])
        self.head_bytes += len(scope["raw_path"]) + len(scope["query_string"])
        self._news = asyncio.Event()
        self.number = number
        self.scope = scope
        self.window = asyncio.Event()
        self.ended = False  # the request is complete
        self._told = False  # the application got all of it: only a disconnect can follow
        self.answered = False
        self.left = False  # the client disconnected
        self.pace = UploadRate(asyncio.get_running_loop().time())
        self.read_pace = UploadRate(asyncio.get_running_loop().time())
        self.blocked = False  # the client's window has no room for the response

    @property
    def unread_bytes(self) -> int:
        """Of the body, that the application has not taken."""
        return self._size

    def feed(self, data: bytes, size: int) -> None:
        self.pace.heard(size)
        self._connection.hold(size)
        self._parts.append(data)
        self._size += size
        self._news.set()

    def end(self) -> None:
        self.ended = True
        self._news.set()

    def leave(self) -> None:
        self.left = True
        self._news.set()
        self.window.set()

    async def receive(self) -> Asgi:
        while not (self._parts or self.left or self.answered or (self.ended and not self._told)):
            self._news.clear()
            await self._news.wait()
        if self.left or self.answered:
            return {"type": "http.disconnect"}
        body, size = b"".join(self._parts), self._size
        self._parts, self._size = [], 0
        self._connection.hold(-size)
        self._connection.consumed(self.number, size)
        more = not self.ended
        self._told = not more
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Asgi) -> None:
        if self.left:
            return
        if message["type"] == "http.response.start":
            self._connection.send_head(self.number, message["status"], message["headers"], False)
            return
        end = not message.get("more_body", False)
        await self._connection.send_body(self, message.get("body", b""), end)
        if end:
            self.answered = True
            self._news.set()

    async def write(self, response: Response) -> None:
        """Send a complete response."""
        if self.left:
            return
        body = b"" if self.scope["method"] == "HEAD" else response.body
        headers = [*response.headers, (b"content-length", b"%d" % len(response.body))]
        self._connection.send_head(self.number, response.status, headers, not body)
        if body:
            await self._connection.send_body(self, body, True)
        self.answered = True


class _WholeFrames(NamedTuple):
    end: int  # the position after them
    control: int  # those that carry no data and start no request
    more: bool  # others follow that are complete
    block_bytes: int  # of a head whose last frame is not among them


def _whole_frames(data: bytes, skipped: int, block: int) -> _WholeFrames:
    """The complete frames at the start, after `skipped` bytes of the preface, up to the number of one turn.

    `block`: bytes of a head whose last frame has not arrived."""
    at, frames, control = skipped, 0, 0
    while len(data) - at >= _FRAME_HEAD_BYTES:
        length = int.from_bytes(data[at : at + 3], "big")
        kind, flags = data[at + 3], data[at + 4]
        end = at + _FRAME_HEAD_BYTES + length
        if length > _FRAME_BYTES_MAX:
            return _WholeFrames(len(data), control, False, block)  # h2 rejects it
        if end > len(data):
            break
        if frames == HTTP2_FRAMES_PER_TURN:
            return _WholeFrames(at, control, True, block)
        frames += 1
        if kind in (_HEADERS, _CONTINUATION):
            block = 0 if flags & _END_HEADERS else block + length
        control += kind not in (_DATA, _HEADERS) or (kind == _DATA and not length and not flags & _END_STREAM)
        at = end
    return _WholeFrames(at if len(data) >= skipped else 0, control, False, block)


def _scope(headers: list[Header], transport: asyncio.Transport) -> Asgi:
    pseudo = {name: value for name, value in headers if name.startswith(b":")}
    plain = [(name, value) for name, value in headers if not name.startswith(b":")]
    if b":authority" in pseudo:  # a proxy may send both, and h2 has checked that they are the same
        plain = [(name, value) for name, value in plain if name != b"host"]
        plain.append((b"host", pseudo[b":authority"]))
    raw_path, _, query = pseudo.get(b":path", b"/").partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "2",
        "method": pseudo.get(b":method", b"GET").decode("latin-1"),
        "scheme": pseudo.get(b":scheme", b"http").decode("latin-1"),
        "path": unquote(raw_path.decode("latin-1")),
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": plain,
        "client": transport.get_extra_info("peername"),
        "server": transport.get_extra_info("sockname"),
    }

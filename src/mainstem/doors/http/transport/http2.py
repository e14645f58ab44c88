"""HTTP/2 on the same port: the h2 library speaks the protocol, the application is the same."""

from __future__ import annotations

import asyncio
from typing import Any
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
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.responses import Asgi, Header, Response
from mainstem.doors.http.transport.upload_rate import UploadRate

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

_NOT_FORWARDED = {b"connection", b"transfer-encoding", b"keep-alive", b"upgrade"}


class Http2Connection(asyncio.Protocol):
    def __init__(self, state: ServerState, app: App) -> None:
        self._state = state
        self._app = app
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
        self._state.connections.add(self)  # type: ignore[arg-type]  # it has what the door asks of one
        self._h2.initiate_connection()
        self._h2.update_settings(
            {
                SettingCodes.MAX_CONCURRENT_STREAMS: limits.HTTP2_STREAMS_MAX,
                SettingCodes.INITIAL_WINDOW_SIZE: limits.HTTP2_STREAM_WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.HTTP_HEAD_BYTES_MAX,
                SettingCodes.ENABLE_CONNECT_PROTOCOL: 0,
            }
        )
        self._h2.increment_flow_control_window(limits.HTTP2_CONNECTION_WINDOW_BYTES)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(self)
        self._writable.set()
        for stream in self._streams.values():
            stream.leave()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Receiving

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self._flush()  # h2 has put the reason into a GOAWAY
            self.transport.close()
            return
        for event in events:
            self._handle(event)
        self._flush()

    def _handle(self, event: object) -> None:
        if isinstance(event, RequestReceived):
            self._begin(event.stream_id, event.headers)
        elif isinstance(event, DataReceived):
            stream = self._streams.get(event.stream_id)
            if stream is None:  # answered already: what still comes is dropped, and makes room for more
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
        task = self._loop.create_task(self._run(stream))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    def _reset(self, number: int) -> None:
        """A client may change its mind, but not by the thousand: starting requests costs it nothing."""
        self._resets += 1
        if number in self._streams:
            self._streams[number].leave()
        if self._resets > limits.HTTP2_RESETS_MAX:
            self._h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            self._flush()
            self.transport.close()

    async def _run(self, stream: _Stream) -> None:
        try:
            await self._app.serve(stream.scope, stream.receive, stream.send, stream.write)
            if not stream.answered and not stream.left:
                self._h2.reset_stream(stream.number, ErrorCodes.INTERNAL_ERROR)
        except ProtocolError:
            stream.leave()  # the client ended the stream or the connection meanwhile
        finally:
            del self._streams[stream.number]
            self._flush()
            if self._closing and not self._streams:
                self.transport.close()

    # Sending

    def consumed(self, number: int, size: int) -> None:
        """The application took so many bytes of a body: the client may send more."""
        if size and not self.transport.is_closing():
            self._h2.acknowledge_received_data(size, number)
            self._flush()

    def send_head(self, number: int, status: int, headers: list[Header], end: bool) -> None:
        kept = [(name, value) for name, value in headers if name not in _NOT_FORWARDED]
        self._h2.send_headers(number, [(b":status", b"%d" % status), *kept], end_stream=end)

    async def send_body(self, stream: _Stream, body: bytes, end: bool) -> None:
        """As fast as the client's windows allow."""
        at = 0
        while at < len(body) or end:
            await self._writable.wait()
            if stream.left:
                return
            room = min(self._h2.local_flow_control_window(stream.number), self._h2.max_outbound_frame_size)
            if at < len(body) and room <= 0:
                self._flush()
                stream.window.clear()
                await stream.window.wait()
                continue
            part = body[at : at + room]
            at += len(part)
            last = end and at >= len(body)
            self._h2.send_data(stream.number, part, end_stream=last)
            if last:
                break
        self._flush()

    def _flush(self) -> None:
        data = self._h2.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    # Ending

    def shutdown(self) -> None:
        """Take no more requests; close once those under way are answered."""
        self._closing = True
        if not self._streams:
            self._h2.close_connection()
            self._flush()
            self.transport.close()

    def check(self, now: float) -> None:
        """Give up on a client that holds a place without getting anywhere."""
        quiet_s = now - self._heard_at
        receiving = [stream for stream in self._streams.values() if not (stream.ended or stream.answered)]
        stalled = not self._writable.is_set() and quiet_s > limits.HTTP_STALL_S
        dripping = any(stream.pace.too_slow(now) for stream in receiving)
        if (not self._streams and quiet_s > limits.HTTP_IDLE_S) or stalled or dripping:
            self.transport.abort()


class _Stream:
    """One request and its answer."""

    def __init__(self, connection: Http2Connection, number: int, scope: Asgi) -> None:
        self._connection = connection
        self._parts: list[bytes] = []
        self._size = 0  # of the parts, as flow control counts them
        self._news = asyncio.Event()
        self.number = number
        self.scope = scope
        self.window = asyncio.Event()
        self.ended = False  # the client has said all
        self._told = False  # and the application knows it: from then on only a disconnect is news
        self.answered = False
        self.left = False  # the client is gone
        self.pace = UploadRate(asyncio.get_running_loop().time())

    def feed(self, data: bytes, size: int) -> None:
        self.pace.heard(size)
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
        """A whole answer at once."""
        if self.left:
            return
        body = b"" if self.scope["method"] == "HEAD" else response.body
        headers = [*response.headers, (b"content-length", b"%d" % len(response.body))]
        self._connection.send_head(self.number, response.status, headers, not body)
        if body:
            await self._connection.send_body(self, body, True)
        self.answered = True


def _scope(headers: list[Header], transport: asyncio.Transport) -> Asgi:
    pseudo = {name: value for name, value in headers if name.startswith(b":")}
    plain = [(name, value) for name, value in headers if not name.startswith(b":")]
    if b":authority" in pseudo:
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

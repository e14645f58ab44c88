"""One connection: HTTP/1.1 by uvicorn, with defences against clients that are slow on purpose.

What this adds to uvicorn's protocol: a connection that starts with the HTTP/2 preface is passed to another protocol;
a complete response is sent in one write; and a connection that makes no progress is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mainstem import events, limits
from mainstem.broker.eager_tasks import run_eagerly
from mainstem.doors.budget import Seats, peer_of
from mainstem.doors.http.transport.errors import error_response
from mainstem.doors.http.transport.http2 import PREFACE, Http2Connection
from mainstem.doors.http.transport.repeated import RepeatedHead
from mainstem.doors.http.transport.responses import JSON, Asgi, ConnectionApp, Response
from mainstem.doors.http.transport.upload_rate import UploadRate

HTTP_HEAD_S = 10.0  # time for the request line and headers, from the first byte

HTTP_PIPELINE_REQUESTS_MAX = 32  # received behind another on one connection; above it, reading stops
HTTP_HEAD_STEP_BYTES = 4 * limits.KIB  # parsed at a time, which bounds the requests that one step finds …
HTTP_BODY_STEP_BYTES = 64 * limits.KIB  # … and the same inside a body
HTTP_COUNTED_HEAD_BYTES_MIN = 4 * limits.KIB  # a head of this size counts as received until it is answered

_JOINED_BYTES_MAX = 64 * limits.KIB  # a larger body is not copied behind its head

_log = events.named("http")

_ONLY_JSON = (JSON,)
_JSON_HEADS = {  # by status, up to the length
    status: b"%bcontent-type: application/json\r\ncontent-length: " % line
    for status, line in STATUS_LINE.items()
}


class _ReadControl(FlowControl):
    """Does not resume while enough requests wait."""

    full = False

    def resume_reading(self) -> None:
        if not self.full:
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    def __init__(self, config: Config, state: ServerState, app: ConnectionApp, seats: Seats) -> None:
        super().__init__(config, state, {})
        self._app = app
        self._client_activity = app.client_activity
        self._budget = app.budget
        self._seats = seats
        self._peer = ""
        self._unparsed = b""  # received while enough requests wait
        self._waiting = 0  # requests in the pipeline, as counted by the budget
        self._used_at = 0.0
        self._pace = UploadRate()  # of the body now being received
        self._head_since = 0.0  # when the head being received began; 0: none is
        self._head_bytes = 0
        self._heads: deque[int] = (
            deque()
        )  # the counted bytes of the head of each request that is not answered
        self._head_counted = 0  # of the one being received
        self._heads_bytes = 0  # of all of them, and of the head being received
        self._in_body = False
        self._first: bytes | None = b""  # bytes received before the protocol is known
        self._read_pace = UploadRate()  # whether the client reads its responses
        self._unread_bytes = 0
        # Set while the parser is between two requests: what was received last was exactly one.
        self._repeated: RepeatedHead | None = None

    @property
    def idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow: _ReadControl = _ReadControl(transport)
        self._head_since = self._used_at = self.loop.time()
        self._read_pace.begin(self._used_at)
        self._peer = peer_of(transport)
        self._app.connected(transport)
        if not self._seats.admit(self._peer, self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        self._seats.leave(self._peer, self)
        self._hold(b"")
        self.pipeline.clear()
        self._count_waiting()
        self._count_head(-self._heads_bytes)

    def unused_since(self) -> float | None:
        return self._used_at if self.idle else None

    def abort(self) -> None:
        self.transport.abort()

    # Receiving

    def data_received(self, data: bytes) -> None:
        activity = self._client_activity
        if activity.last is not self:
            activity.last, activity.changed_at = self, self.loop.time()
        if self._first is not None:
            data = self._first + data
            if len(data) < len(PREFACE) and PREFACE.startswith(data):
                self._first = data  # too few bytes to tell the protocol
                return
            self._first = None
            if data.startswith(PREFACE):
                self._become_http2(data)
                return
        repeated, self._repeated = self._repeated, None
        if repeated is not None and self.idle:
            body = repeated.body_of(data)
            if body is not None:
                self._repeated = repeated
                self._serve_repeated(repeated.scope, body)
                return
        if self._unparsed:
            self._hold(self._unparsed + data)
            return
        starts = not self._in_body and not self._head_since and not self.pipeline
        if len(data) <= HTTP_HEAD_STEP_BYTES and not self.pipeline:
            self._parse(data)
            if self.pipeline:
                self._limit_pipeline()
        else:
            self._parse_in_steps(data)
        if starts and not self.pipeline:
            self._expect_repetition(data)

    def _expect_repetition(self, data: bytes) -> None:
        """Compare the next request with the one in `data`, if that is all of it."""
        cycle = self.cycle
        if cycle is None or cycle.more_body or not cycle.keep_alive:
            return
        scope: Asgi = cycle.scope  # type: ignore[assignment]
        if self._app.repeats(scope):
            self._repeated = RepeatedHead.of(data, scope, self.url)

    def _serve_repeated(self, scope: Asgi, body: bytes) -> None:
        """Serve a request whose head was not parsed, because it is that of the one before."""
        cycle = self.cycle = RequestResponseCycle(
            scope=scope,  # type: ignore[arg-type]
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        cycle.body += body
        cycle.more_body = False
        cycle.message_event.set()
        try:
            task = run_eagerly(self._run(cycle))
        except Exception as error:  # noqa: BLE001  # a bug in one request must not take the server, nor hide
            _log.failure("request failed", error, path=scope["path"])
            self.transport.abort()
        else:
            if task is not None:
                self._keep(task)

    def _parse(self, data: bytes) -> None:
        if self._in_body:
            self._pace.heard(len(data))
        else:
            if not self._head_since:
                self._head_since = self.loop.time()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > limits.HTTP_HEAD_BYTES_MAX and not self._in_body:
            self.send_400_response("its head is too long")
        if self._head_bytes >= HTTP_COUNTED_HEAD_BYTES_MIN:
            self._count_head(self._head_bytes - self._head_counted)
            self._head_counted = self._head_bytes
            if self._budget.received.over(self._peer):
                self._budget.floods_closed += 1
                self.transport.abort()

    def _count_head(self, more: int) -> None:
        """Tell the budget what is held of heads."""
        self._heads_bytes += more
        if more > 0:
            self._budget.received.take(self._peer, more)
        elif more < 0:
            self._budget.received.give(self._peer, -more)

    def _parse_in_steps(self, data: bytes) -> None:
        """Stop while enough requests wait: each takes far more memory than its bytes."""
        at = 0
        while at < len(data) and len(self.pipeline) < HTTP_PIPELINE_REQUESTS_MAX:
            if self.transport.is_closing() or self.transport.get_protocol() is not self:
                return
            step = HTTP_BODY_STEP_BYTES if self._in_body else HTTP_HEAD_STEP_BYTES
            self._parse(data[at : at + step])
            at += step
        self._hold(data[at:])
        self._limit_pipeline()

    def _limit_pipeline(self) -> None:
        """Stop reading while enough requests wait, and close the connection if all clients together hold too much."""
        self._count_waiting()
        self.flow.full = bool(self._unparsed) or len(self.pipeline) >= HTTP_PIPELINE_REQUESTS_MAX
        if self.flow.full:
            self.flow.pause_reading()
            if self._budget.requests.over(self._peer) or self._budget.received.over(self._peer):
                self._budget.floods_closed += 1
                self.transport.abort()

    def _count_waiting(self) -> None:
        more = len(self.pipeline) - self._waiting
        if more:
            self._waiting += more
            if more > 0:
                self._budget.requests.take(self._peer, more)
            else:
                self._budget.requests.give(self._peer, -more)

    def _hold(self, unparsed: bytes) -> None:
        more = len(unparsed) - len(self._unparsed)
        self._unparsed = unparsed
        if more > 0:
            self._budget.received.take(self._peer, more)
        elif more < 0:
            self._budget.received.give(self._peer, -more)

    def on_response_complete(self) -> None:
        self._used_at = self.loop.time()
        if self._heads and (counted := self._heads.popleft()):
            self._count_head(-counted)
        if self.pipeline:
            self._budget.turns.later(self._peer, self._continue)
        else:
            self.flow.resume_reading()

    def _continue(self) -> None:
        """Serve the next request of the pipeline."""
        super().on_response_complete()
        self._count_waiting()
        if self.flow.full and len(self.pipeline) <= HTTP_PIPELINE_REQUESTS_MAX // 2:
            unparsed = self._unparsed
            self._hold(b"")
            self._parse_in_steps(unparsed)
            self.flow.resume_reading()

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        socket: Any = self.transport.get_protocol()
        ended = socket.connection_lost

        def connection_lost(exc: Exception | None) -> None:
            self._leave()
            ended(exc)

        if socket is not self:
            socket.connection_lost = connection_lost

    def _become_http2(self, data: bytes) -> None:
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        self._leave()
        protocol = Http2Connection(self.server_state, self._app, self._seats)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._head_since:  # it began behind another request
            self._head_since = self.loop.time()

    def on_headers_complete(self) -> None:
        self._head_since = 0.0
        self._heads.append(self._head_counted)
        self._head_bytes = self._head_counted = 0
        self._in_body = True
        self._pace.begin(self.loop.time())
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        response = error_response(400, "invalid_request", f"this is not an HTTP/1.1 request: {msg}")
        self.transport.write(_head(response, 400, keep_alive=False) + response.body)
        self.transport.close()

    # Responding

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._keep(self.loop.create_task(self._run(cycle)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _run(self, cycle: RequestResponseCycle) -> None:
        async def write(response: Response) -> None:
            """Head and body in one write: a second system call costs as much as all the parsing."""
            if self.flow.write_paused and not cycle.disconnected:
                await self.flow.drain()
            if cycle.disconnected:
                return
            cycle.response_started = True
            body = b"" if cycle.scope["method"] == "HEAD" else response.body
            head = _head(response, response.status, cycle.keep_alive)
            if len(body) <= _JOINED_BYTES_MAX:
                self.transport.write(head + body)
            else:
                self.transport.writelines((head, body))
                if self.flow.write_paused:
                    await self.flow.drain()  # the response counts until the client has read it
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                self.transport.close()
            self.on_response_complete()

        await self._app.serve(cycle.scope, cycle.receive, cycle.send, write)  # type: ignore[arg-type]
        if not cycle.response_complete and not cycle.disconnected:
            self.transport.close()

    # Watching

    def check(self, now: float) -> None:
        """Close the connection if a head, a body or a reader makes no progress, or if it is not used."""
        if self.flow.read_paused:  # by us
            self._pace.begin(now)
            self._head_since = self._head_since and now
        slow_head = self._head_since and not self._in_body and now - self._head_since > HTTP_HEAD_S
        slow_body = self._in_body and self._pace.too_slow(now)
        if slow_head or slow_body or self._unread(now):
            self.transport.abort()
        elif self.idle and not self._head_since and now - self._used_at > limits.HTTP_IDLE_S:
            self.transport.close()

    def _unread(self, now: float) -> bool:
        size = self.transport.get_write_buffer_size()
        self._read_pace.heard(max(0, self._unread_bytes - size))
        if not size:
            self._read_pace.begin(now)
        self._unread_bytes = size
        return self._read_pace.too_slow(now)


def _head(response: Response, status: int, keep_alive: bool) -> bytes:
    if keep_alive and response.headers == _ONLY_JSON:
        return b"%b%d\r\n\r\n" % (_JSON_HEADS[status], len(response.body))
    lines = [STATUS_LINE[status]]
    for name, value in response.headers:
        lines += (name, b": ", value, b"\r\n")
    lines.append(b"content-length: %d\r\n" % len(response.body))
    lines.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"".join(lines)

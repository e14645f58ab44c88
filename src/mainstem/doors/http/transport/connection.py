"""One connection: HTTP/1.1 by uvicorn, watched for clients that take their time on purpose.

What this adds to uvicorn's protocol: a connection that starts with the preface of HTTP/2 is handed to another
protocol; an answer that is there as a whole goes out in one write; and whoever holds a place without getting
anywhere is cut off.
"""

from __future__ import annotations

from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from mainstem import limits
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.errors import error_response
from mainstem.doors.http.transport.http2 import PREFACE, Http2Connection
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.http.transport.upload_rate import UploadRate


class HttpConnection(HttpToolsProtocol):
    def __init__(self, config: Config, state: ServerState, app: App) -> None:
        super().__init__(config, state, {})
        self._app = app
        self._pace = UploadRate()  # of the body now being received
        self._head_since = 0.0  # when the head now being received began; 0 = none is
        self._head_bytes = 0
        self._in_body = False
        self._first: bytes | None = b""  # what came so far, until it is clear which protocol it is
        self._unread_since = 0.0  # since when a client takes nothing of what is written; 0 = it does
        self._unread_bytes = 0

    @property
    def idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_since = self.loop.time()
        self._app.context.clients.connected(transport)
        if len(self.connections) > limits.HTTP_CONNECTIONS_MAX:
            transport.abort()

    # Receiving

    def data_received(self, data: bytes) -> None:
        if self._first is not None:
            data = self._first + data
            if len(data) < len(PREFACE) and PREFACE.startswith(data):
                self._first = data  # not enough yet to tell which protocol it is
                return
            self._first = None
            if data.startswith(PREFACE):
                self._become_http2(data)
                return
        if self._in_body:
            self._pace.heard(len(data))
        else:
            if not self._head_since:
                self._head_since = self.loop.time()
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > limits.HTTP_HEAD_BYTES_MAX and not self._in_body:
            self.send_400_response("its head is too long")

    def _become_http2(self, data: bytes) -> None:
        self.connections.discard(self)
        self._unset_keepalive_if_required()
        protocol = Http2Connection(self.server_state, self._app)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        protocol.data_received(data)

    def on_headers_complete(self) -> None:
        self._head_since = 0.0
        self._head_bytes = 0
        self._in_body = True
        self._pace.begin(self.loop.time())
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        response = error_response(400, "invalid_request", f"this is no HTTP/1.1 request: {msg}")
        self.transport.write(_head(response, 400, keep_alive=False) + response.body)
        self.transport.close()

    # Answering

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        task = self.loop.create_task(self._run(cycle))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _run(self, cycle: RequestResponseCycle) -> None:
        async def write(response: Response) -> None:
            """Head and body in one write: a second system call costs as much as all the parsing."""
            if self.flow.write_paused and not cycle.disconnected:
                await self.flow.drain()
            if cycle.disconnected:
                return
            cycle.response_started = cycle.response_complete = True
            body = b"" if cycle.scope["method"] == "HEAD" else response.body
            self.transport.write(_head(response, response.status, cycle.keep_alive) + body)
            cycle.message_event.set()
            if not cycle.keep_alive:
                self.transport.close()
            self.on_response_complete()

        await self._app.serve(cycle.scope, cycle.receive, cycle.send, write)  # type: ignore[arg-type]
        if not cycle.response_complete and not cycle.disconnected:
            self.transport.close()

    # Watching

    def check(self, now: float) -> None:
        """Give up on a head, a body or a reader that does not get anywhere."""
        slow_head = self._head_since and not self._in_body and now - self._head_since > limits.HTTP_HEAD_S
        if self.flow.read_paused:
            self._pace.begin(now)  # it waits for us
        slow_body = self._in_body and self._pace.too_slow(now)
        if slow_head or slow_body or self._unread(now):
            self.transport.abort()

    def _unread(self, now: float) -> bool:
        size = self.transport.get_write_buffer_size()
        if not size or size < self._unread_bytes:
            self._unread_since = 0.0
        elif not self._unread_since:
            self._unread_since = now
        self._unread_bytes = size
        return bool(self._unread_since) and now - self._unread_since > limits.HTTP_STALL_S


def _head(response: Response, status: int, keep_alive: bool) -> bytes:
    lines = [STATUS_LINE[status]]
    for name, value in response.headers:
        lines += (name, b": ", value, b"\r\n")
    lines.append(b"content-length: %d\r\n" % len(response.body))
    lines.append(b"\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"".join(lines)

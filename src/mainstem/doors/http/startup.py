"""What the HTTP door's address answers while the broker opens its log: health, and 503 for everything else.

The door then takes over the same listening sockets, so no connection is refused in between.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import cast

import httptools

from mainstem import limits
from mainstem.address import Address
from mainstem.api import routes as api
from mainstem.api.server import Health
from mainstem.doors.budget import Budget
from mainstem.doors.http.transport.errors import RETRY_SOON, error_response
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.doors.tls import Connect, accepting
from mainstem.version import VERSION

BACKLOG = 2048
HEAD_BYTES_MAX = 64 * limits.KIB  # of a request
REQUEST_S_MAX = 10.0
CONNECTIONS_MAX = 256  # at once

_ALMOST = 0.9999  # 1 is for a server that replayed its log and is not ready for another reason

_HEALTH = frozenset({api.GET_HEALTH.path.encode(), api.GET_HEALTHZ.path.encode()})


class StartupListener:
    """Listens until a door takes over, or until it is closed."""

    def __init__(self, progress: Callable[[], float]) -> None:
        self._progress = progress  # the part of the log that is replayed, 0 to 1
        self._connect: Connect
        self._server: asyncio.Server
        self._open: set[_StartupConnection] = set()
        self._handed_over = False
        self._started = time.monotonic()

    async def listen(self, address: Address, tls: ssl.SSLContext | None = None) -> Address:
        """Listen at the door's address. Returns it as bound. Raises OSError."""
        self._connect = accepting(lambda: _StartupConnection(self._answer, self._open), tls, Budget())
        self._server = await asyncio.get_running_loop().create_server(
            lambda: self._connect(),
            address.host,
            address.port,
            backlog=BACKLOG,
            reuse_port=address.reuse_port,
        )
        host, port, *_ = self._server.sockets[0].getsockname()
        return Address(host, port)

    def hand_over(self, connect: Connect) -> asyncio.Server:
        """From now on, `connect` makes the connections of the server that is returned."""
        self._connect = connect
        self._handed_over = True
        return self._server

    def close(self) -> None:
        """Stop listening, unless a door has taken over."""
        if not self._handed_over:
            self._server.close()

    def _answer(self, path: bytes) -> Response:
        if path in _HEALTH:
            return reply(Health("ok", VERSION, int((time.monotonic() - self._started) * 1000)))
        done = self._progress()
        return error_response(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "not_ready",
            f"the server replays its log and has done {min(done, 0.99):.0%}: try again",
            {"replay_progress": min(round(done, 4), _ALMOST)},
            (RETRY_SOON,),
        )


class _StartupConnection(asyncio.Protocol):
    """Answers one HTTP/1.1 request and closes."""

    def __init__(self, answer: Callable[[bytes], Response], others: set[_StartupConnection]) -> None:
        self._answer = answer
        self._others = others
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._received = 0
        self._in_body = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = asyncio.get_running_loop().call_later(REQUEST_S_MAX, self._transport.abort)
        self._others.add(self)
        if len(self._others) > CONNECTIONS_MAX:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._others.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()
            return
        self._received += len(data)
        if self._received > HEAD_BYTES_MAX and not self._in_body:
            self._transport.abort()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_message_complete(self) -> None:
        if self._transport.is_closing():
            return
        response = self._answer(self._url.partition(b"?")[0])
        status = HTTPStatus(response.status)
        head = b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode())
        for name, text in (*response.headers, (b"content-length", b"%d" % len(response.body))):
            head += name + b": " + text + b"\r\n"
        body = b"" if self._parser.get_method() == b"HEAD" else response.body
        self._transport.write(head + b"connection: close\r\n\r\n" + body)
        self._transport.close()

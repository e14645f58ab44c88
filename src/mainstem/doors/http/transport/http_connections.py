"""The HTTP connections of a door: it opens them, closes those that make no progress, and drains them when it closes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from uvicorn import Config
from uvicorn.server import ServerState

from mainstem import limits
from mainstem.doors.budget import Seats
from mainstem.doors.http.transport.connection import HttpConnection
from mainstem.doors.http.transport.http2 import Http2Connection
from mainstem.doors.http.transport.responses import ConnectionApp

_SWEEP_S = 1.0


class HttpConnections:
    def __init__(self, app: ConnectionApp, seats: Seats, **options: Any) -> None:
        """`options`: those of uvicorn that this door sets apart from the others."""
        self._app = app
        self._seats = seats
        self._config = Config(
            cast("Callable[..., Any]", app),
            http="httptools",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=int(limits.HTTP_IDLE_S),
            **options,
        )
        self._config.load()
        self._state = ServerState()
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep(), name="mainstem-http-sweep")

    def new(self) -> HttpConnection:
        """The protocol of a connection that a client has just opened."""
        return HttpConnection(self._config, self._state, self._app, self._seats)

    @property
    def held(self) -> list[HttpConnection | Http2Connection]:
        """The open connections, without those that became WebSockets."""
        return [one for one in self._state.connections if isinstance(one, HttpConnection | Http2Connection)]

    async def drain(self, within_s: float) -> int:
        """Respond to what was received and close. Returns how many connections were cut off after `within_s`."""
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = set(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        still_open = list(self._state.connections)
        busy = [
            one for one in still_open if not (isinstance(one, HttpConnection | Http2Connection) and one.idle)
        ]
        for connection in still_open:
            connection.transport.abort()
        self._sweeping.cancel()
        return len(busy)

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = loop.time()
            for connection in self.held:
                connection.check(now)

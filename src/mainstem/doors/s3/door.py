"""The S3 door: listens, hands out connections, and closes them politely."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

from uvicorn import Config
from uvicorn.server import ServerState

from mainstem import limits
from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.doors.budget import Budget
from mainstem.doors.http.transport.connection import HttpConnection
from mainstem.doors.http.transport.http2 import Http2Connection
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.s3.app import S3App
from mainstem.doors.s3.sending import FileSender
from mainstem.doors.tls import accepting
from mainstem.metrics import Metric

S3_CONNECTIONS_MAX = 10_000

_BACKLOG = 1024
_SWEEP_S = 1.0


class S3Door:
    def __init__(
        self,
        broker: Broker,
        *,
        budget: Budget | None = None,
        origins: OriginPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        insecure: bool = False,
    ) -> None:
        self._sender = FileSender()
        self._budget = budget = budget or Budget()
        self._app = S3App(broker, budget, self._sender, origins or OriginPolicy(), insecure=insecure)
        self._seats = budget.door(S3_CONNECTIONS_MAX)
        self._tls = tls
        self._state = ServerState()
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self.bound: Address | None = None

    @property
    def authenticates(self) -> bool:
        return self._app.authenticates

    def published(self) -> Iterator[Metric]:
        return self._app.traffic.published()

    async def start(self, address: Address) -> Address:
        """Listen. Returns the address as bound. Raises OSError."""
        config = Config(
            self._app,
            http="httptools",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=True,
            timeout_keep_alive=int(limits.HTTP_IDLE_S),
        )
        config.load()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            accepting(
                lambda: HttpConnection(config, self._state, self._app, self._seats), self._tls, self._budget
            ),
            address.host,
            address.port,
            backlog=_BACKLOG,
            reuse_port=address.reuse_port,
        )
        self._sweeping = loop.create_task(self._sweep(), name="mainstem-s3-sweep")
        host, port, *_ = self._server.sockets[0].getsockname()
        self.bound = Address(host, port)
        return self.bound

    async def stop(self, drain_s: float = limits.SHUTDOWN_DRAIN_S) -> int:
        """Accept nobody, answer what was received, close. Returns how many were cut off after `drain_s`."""
        if self._server is None:
            return 0
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        tasks = set(self._state.tasks)
        if tasks:
            await asyncio.wait(tasks, timeout=drain_s)
        open_still = list(self._state.connections)
        left = [
            held
            for held in open_still
            if not (isinstance(held, HttpConnection | Http2Connection) and held.idle)
        ]
        for held in open_still:
            held.transport.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._sender.close()
        return len(left)

    async def _sweep(self) -> None:
        """Close connections that hold a place without doing anything with it."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = loop.time()
            for connection in list(self._state.connections):
                if isinstance(connection, HttpConnection | Http2Connection):
                    connection.check(now)

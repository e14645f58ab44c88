"""The S3 door: listens, hands out connections, and closes them politely."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator

from mainstem import limits
from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.doors.budget import Budget
from mainstem.doors.http.transport.http_connections import HttpConnections
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.s3.app import S3App
from mainstem.doors.s3.sending import FileSender
from mainstem.doors.tls import accepting
from mainstem.metrics import Metric

S3_CONNECTIONS_MAX = 10_000

_BACKLOG = 1024


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
        self._server: asyncio.Server | None = None
        self._connections: HttpConnections
        self.bound: Address | None = None

    @property
    def authenticates(self) -> bool:
        return self._app.authenticates

    def published(self) -> Iterator[Metric]:
        return self._app.traffic.published()

    async def start(self, address: Address) -> Address:
        """Listen. Returns the address as bound. Raises OSError."""
        self._connections = HttpConnections(self._app, self._seats, ws="none", date_header=True)
        self._server = await asyncio.get_running_loop().create_server(
            accepting(self._connections.new, self._tls, self._budget),
            address.host,
            address.port,
            backlog=_BACKLOG,
            reuse_port=address.reuse_port,
        )
        host, port, *_ = self._server.sockets[0].getsockname()
        self.bound = Address(host, port)
        return self.bound

    async def stop(self, drain_s: float = limits.SHUTDOWN_DRAIN_S) -> int:
        """Accept no more connections, answer what was received, close. Returns how many were cut after `drain_s`."""
        if self._server is None:
            return 0
        self._server.close()
        cut_off = await self._connections.drain(drain_s)
        self._sender.close()
        return cut_off

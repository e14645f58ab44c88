"""The HTTP door: listens, creates connections, and drains them when it closes."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
from pathlib import Path

from mainstem import limits
from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import view_of
from mainstem.doors.budget import Budget
from mainstem.doors.http.routes.history import sample_forever
from mainstem.doors.http.routes.rendering import warm_up
from mainstem.doors.http.startup import BACKLOG, StartupListener
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.connection import HttpConnection
from mainstem.doors.http.transport.context import Context, HttpLimits
from mainstem.doors.http.transport.http2 import Http2Connection
from mainstem.doors.http.transport.http_connections import HttpConnections
from mainstem.doors.http.transport.origins import OriginPolicy
from mainstem.doors.tls import accepting
from mainstem.errors import CannotListen

HTTP_CONNECTIONS_MAX = 20_000

WEBSOCKET_MESSAGE_BYTES_MAX = 16 * limits.MIB  # one command

HTTP_PROTOCOLS = ("h2", "http/1.1")  # over TLS, the preferred one first

_MESSAGES_QUEUED_MAX = 2  # queued on a WebSocket behind the message being served: each may be large


class HttpDoor:
    def __init__(
        self,
        broker: Broker,
        *,
        bounds: HttpLimits | None = None,
        insecure: bool = False,
        origins: OriginPolicy | None = None,
        path_roots: tuple[Path, ...] = (),
        allow_insecure: bool = False,
        probe_auth: bool = False,
        tls: ssl.SSLContext | None = None,
        budget: Budget | None = None,
        startup: StartupListener | None = None,
    ) -> None:
        self.context = Context(
            broker,
            limits=bounds or HttpLimits(),
            probe_auth=probe_auth,
            insecure=insecure,
            origins=origins or OriginPolicy(),
            path_roots=path_roots,
            budget=budget or Budget(),
        )
        self._seats = self.context.budget.door(HTTP_CONNECTIONS_MAX)
        self._allow_insecure = allow_insecure
        self._tls = tls
        self._startup = startup
        self._server: asyncio.Server | None = None
        self._others: list[asyncio.Server] = []
        self._connections: HttpConnections
        self._sampling: asyncio.Task[None] | None = None
        self._warming: asyncio.Future[None] | None = None
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would log client errors

    @property
    def authenticates(self) -> bool:
        return self.context.clients.required

    async def start(self, address: Address) -> Address:
        """Listen, or take over from the listener of the startup. Returns the address as bound.

        Raises OSError, or CannotListen where keys are missing."""
        if not (address.loopback or self.authenticates or self._allow_insecure):
            raise CannotListen(
                f"the http door does not listen on {address} without keys: set --api-keys-file or "
                "MAINSTEM_API_KEYS, or --insecure to allow every client that can reach it"
            )
        self.context.view = view_of(address.namespace) if address.namespace else None
        app = App(self.context)
        self._connections = HttpConnections(
            app,
            self._seats,
            date_header=False,
            ws_max_size=WEBSOCKET_MESSAGE_BYTES_MAX,
            ws_max_queue=_MESSAGES_QUEUED_MAX,
            ws_per_message_deflate=False,  # it would cost every socket some 300 KB
        )
        loop = asyncio.get_running_loop()
        connect = accepting(self._connected, self._tls, self.context.budget)
        if self._startup is not None:
            self._server = self._startup.hand_over(connect)
        else:
            self._server = await loop.create_server(
                connect, address.host, address.port, backlog=BACKLOG, reuse_port=address.reuse_port
            )
        self._sampling = loop.create_task(sample_forever(self.context), name="mainstem-http-history")
        host, port, *_ = self._server.sockets[0].getsockname()
        return Address(host, port)

    async def listen_inside(self) -> Address:
        """Listen without TLS on a loopback port, for this server's own processes. They need credentials, too."""
        return await self._listen_also("127.0.0.1", None)

    async def listen_apart(self, host: str) -> Address:
        """Listen also on a free port that no other worker has, for clients that need this one. Raises OSError."""
        return await self._listen_also(host, self._tls)

    async def _listen_also(self, host: str, tls: ssl.SSLContext | None) -> Address:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(accepting(self._connected, tls, self.context.budget), host, 0)
        self._others.append(server)
        host, port, *_ = server.sockets[0].getsockname()
        return Address(host, port)

    def _connected(self) -> HttpConnection:
        if self._warming is None:  # not before the first client: the kernels take 100 MB
            self._warming = asyncio.get_running_loop().run_in_executor(None, self._warm_up)
        return self._connections.new()

    def _warm_up(self) -> None:
        warm_up()
        self.context.live.broadcast.warm_up()
        gc.freeze()  # keep the loaded compiler out of full garbage collections

    async def stop(self, drain_s: float = limits.SHUTDOWN_DRAIN_S) -> int:
        """Stop accepting, respond to what was received, close. Returns how many were cut off after `drain_s`."""
        if self._server is None:
            return 0
        self._server.close()
        for server in self._others:
            server.close()
        self.context.stopping.set()
        self.context.broker.diffs.stop_waiting()
        self.context.broker.decoding.stop_waiting()
        await self.context.live.shut_down()
        cut_off = await self._connections.drain(drain_s)
        if self._sampling is not None:
            self._sampling.cancel()
        if self._warming is not None:
            await asyncio.wait((self._warming,))  # if it failed, a request that needs the kernels reported it
        return cut_off

    @property
    def connections(self) -> list[HttpConnection | Http2Connection]:
        """The open ones, without WebSockets."""
        return self._connections.held

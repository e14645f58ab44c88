"""The text door: listens, creates connections, and drains them when it closes."""

from __future__ import annotations

import asyncio

from mainstem import limits
from mainstem.address import Address
from mainstem.broker.broker import Broker
from mainstem.broker.namespaces import view_of
from mainstem.doors.budget import Budget
from mainstem.doors.text.connection import TextConnection
from mainstem.doors.text.connections import TextConnections
from mainstem.doors.text.service import TextService
from mainstem.doors.text.status import SegmentLeader

_BACKLOG = 1024


class TextDoor:
    def __init__(
        self,
        broker: Broker,
        *,
        broker_id: int = 1,
        node: str = "local",
        segment_entries: int = limits.TEXT_SEGMENT_ENTRIES,
        connections_max: int = limits.TEXT_CONNECTIONS_MAX,
        stall_s: float = limits.TEXT_STALL_S,
        idle_s: float = limits.TEXT_IDLE_S,
        budget: Budget | None = None,
        insecure: bool = False,
    ) -> None:
        self._broker = broker
        self._broker_id = broker_id
        self._node = node
        self._segment_entries = segment_entries
        self._stall_s = stall_s
        self._insecure = insecure
        self._connections = TextConnections(budget or Budget(), connections_max, idle_s)
        self._server: asyncio.Server | None = None

    async def start(self, address: Address) -> Address:
        """Listen. Returns the address as bound. Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._connection,
            address.host,
            address.port,
            backlog=_BACKLOG,
            start_serving=False,
            reuse_port=address.reuse_port,
        )
        host, port, *_ = self._server.sockets[0].getsockname()
        bound = Address(host, port)
        node = SegmentLeader(self._broker_id, self._node, str(bound), self._segment_entries)
        view = view_of(address.namespace) if address.namespace else None
        self._service = TextService(self._broker, node, insecure=self._insecure, view=view)
        self._connections.start_sweeping()
        await self._server.start_serving()
        return bound

    @property
    def authenticates(self) -> bool:
        """Whether clients must authenticate."""
        return self._broker.access.restricted and not self._insecure

    async def stop(self, drain_s: float = limits.SHUTDOWN_DRAIN_S) -> int:
        """Stop accepting, respond to what was received, close. Returns how many were cut off after `drain_s`."""
        if self._server is None:
            return 0
        self._server.close()
        return await self._connections.drain(drain_s)

    def _connection(self) -> TextConnection:
        return TextConnection(self._service, self._connections, self._stall_s)

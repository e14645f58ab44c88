"""Watches the processes of other brokers: a connection to each, which ends when the process does.

A process that dies closes its sockets at once, long before anyone can call it silent. When a connection ends, the
watch connects again: if nobody listens there any more, the process is gone. No answer at all says nothing, because the
network may be to blame: silence decides then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

PEER_CONNECT_S = 1.0  # to wait for a connection
PEER_RETRY_S = 0.5  # between two attempts, and between two connections


class PeerWatch:
    """Calls `refused` when the process of a broker has ended. Belongs to one event loop."""

    def __init__(self, refused: Callable[[int], None], accepted: Callable[[int], None]) -> None:
        self._refused = refused
        self._accepted = accepted
        self._watching: dict[int, tuple[str, asyncio.Task[None]]] = {}  # address and task, by broker

    def watch(self, addresses: Mapping[int, str]) -> None:
        """Watch exactly these brokers, each at its address, as host:port."""
        for broker, (address, task) in list(self._watching.items()):
            if addresses.get(broker) != address:
                task.cancel()
                del self._watching[broker]
        for broker, address in addresses.items():
            if broker not in self._watching:
                watching = asyncio.get_running_loop().create_task(
                    self._watch(broker, address), name="mainstem-peer"
                )
                self._watching[broker] = (address, watching)

    async def close(self) -> None:
        tasks = [task for _, task in self._watching.values()]
        self._watching.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, broker: int, address: str) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        while True:
            try:
                async with asyncio.timeout(PEER_CONNECT_S):
                    reader, writer = await asyncio.open_connection(host, int(port))
            except ConnectionRefusedError:
                self._refused(broker)
            except (OSError, TimeoutError):
                pass  # maybe only the network failed
            else:
                self._accepted(broker)
                began = asyncio.get_running_loop().time()
                await _ended(reader, writer)
                if asyncio.get_running_loop().time() - began >= PEER_RETRY_S:
                    continue  # it lasted for a while: connect again at once, to learn why it ended
            await asyncio.sleep(PEER_RETRY_S)


async def _ended(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the other side closes the connection."""
    try:
        with contextlib.suppress(OSError):
            while await reader.read(4096):
                pass
    finally:
        writer.transport.abort()

"""A TCP proxy that can drop responses, so that the caller does not learn the outcome of its request."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


class LossyProxy:
    """Forwards connections to one server. While it swallows, requests arrive and responses do not; while it hangs,
    neither arrive, silently; while it refuses, connections fail. `delay_s` delays everything it forwards."""

    def __init__(self, target: str) -> None:
        self.aim(target)
        self._server: asyncio.Server | None = None
        self._swallowing = False
        self._hanging = False
        self._refusing = False
        self.delay_s = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self.swallowed_bytes = 0

    async def start(self) -> str:
        """The address to connect to."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def aim(self, target: str) -> None:
        """Pass new connections on to this server."""
        self._host, _, port = target.rpartition(":")
        self._port = int(port)

    def swallow(self) -> None:
        self._swallowing = True

    def hang(self) -> None:
        """Connections stand and are taken, and nothing passes."""
        self._hanging = True

    def refuse(self) -> None:
        """End every connection, and every new one."""
        self._refusing = True
        self.cut()

    def heal(self) -> None:
        """Cut the connections that lost something, and pass on all that comes after."""
        self._swallowing = self._hanging = self._refusing = False
        self.delay_s = 0.0
        self.cut()

    def cut(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            onward, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = {writer, back}
        self._writers |= ends
        try:
            await asyncio.gather(self._pass(reader, back), self._answer(onward, writer))
        finally:
            for end in ends:
                end.transport.abort()
            self._writers -= ends

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self._hanging:
                    continue
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self._swallowing or self._hanging:
                    self.swallowed_bytes += len(data)
                    continue
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class ProxyThread:
    """Proxies for callers that have no event loop: they run in a thread of their own. Leaving the block ends them."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._proxies: list[LossyProxy] = []

    def __enter__(self) -> ProxyThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            asyncio.run_coroutine_threadsafe(proxy.close(), self._loop).result(_STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)
        self._loop.close()

    def open(self, target: str) -> tuple[LossyProxy, str]:
        """A proxy for one server, and the address to connect to."""
        proxy = LossyProxy(target)
        address = asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result(_STOP_S)
        self._proxies.append(proxy)
        return proxy, address

    def tell(self, act: Callable[[], object]) -> None:
        """Do something to a proxy, in the thread that it runs in."""
        done = threading.Event()

        def run() -> None:
            act()
            done.set()

        self._loop.call_soon_threadsafe(run)
        done.wait(_STOP_S)


_STOP_S = 20.0

"""A TCP proxy that can lose what a server answers: the caller never learns what its request has done."""

from __future__ import annotations

import asyncio
import contextlib


class LossyProxy:
    """Passes connections on to one server. While it swallows, requests arrive and answers do not."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._swallowing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self.swallowed_bytes = 0

    async def start(self) -> str:
        """The address to connect to."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def swallow(self) -> None:
        self._swallowing = True

    def heal(self) -> None:
        """Cut the connections that lost something, and pass on all that comes after."""
        self._swallowing = False
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
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                if self._swallowing:
                    self.swallowed_bytes += len(data)
                    continue
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

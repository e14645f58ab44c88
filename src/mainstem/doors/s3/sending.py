"""Sending files: from the page cache to the socket (sendfile), on threads of their own, paused for slow readers."""

from __future__ import annotations

import asyncio
import os
import select
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle
from uvloop.loop import TCPTransport  # type: ignore[attr-defined]  # in the module, not in its stub

from mainstem import limits
from mainstem.broker.buckets.blobs import OpenSpan
from mainstem.doors.http.transport.responses import Send

SENDING_THREADS = 4
TURN_S = 0.1  # after which a thread serves another response
WAIT_MS = 20  # that a thread waits for a client to read before it serves another response
_ONCE_BYTES = 8 * limits.MIB  # of one system call
_PAUSE_S = 0.002


class ReaderStalled(Exception):
    """The client does not read its response."""


class FileSender:
    """Sends ranges of files on HTTP/1.1 connections without TLS."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SENDING_THREADS, thread_name_prefix="mainstem-s3-send")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def cycle_of(self, send: Send) -> RequestResponseCycle | None:
        """The exchange behind `send`, if files can be sent on its socket."""
        cycle = getattr(send, "__self__", None)
        if type(cycle) is not RequestResponseCycle or type(cycle.transport) is not TCPTransport:
            return None
        return cycle

    async def send(
        self,
        cycle: RequestResponseCycle,
        status: int,
        headers: list[tuple[bytes, bytes]],
        spans: list[OpenSpan],
    ) -> int:
        """Send a whole response. Returns how many bytes of the body. Raises OSError, ReaderStalled."""
        transport = cycle.transport
        head = [STATUS_LINE[status], *(b"%b: %b\r\n" % pair for pair in headers)]
        head.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        cycle.response_started = True
        transport.write(b"".join(head))
        # A descriptor of its own: the transport may close the other while a thread uses it.
        socket = os.dup(transport.get_extra_info("socket").fileno())
        try:
            await self._until_written(transport)
            sent = 0
            for span in spans:
                sent += await self._send_span(socket, span)
        finally:
            os.close(socket)
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            transport.close()
        cycle.on_response()
        return sent

    async def _until_written(self, transport: asyncio.Transport) -> None:
        """Wait until everything in front is in the socket."""
        await asyncio.sleep(0)
        until = time.monotonic() + limits.HTTP_STALL_S
        while transport.get_write_buffer_size():
            if transport.is_closing():
                raise BrokenPipeError
            if time.monotonic() > until:
                raise ReaderStalled
            await asyncio.sleep(_PAUSE_S)

    async def _send_span(self, socket: int, span: OpenSpan) -> int:
        loop = asyncio.get_running_loop()
        sent = 0
        while sent < span.length:
            turn = loop.run_in_executor(
                self._threads, _send_some, socket, span.fd, span.start + sent, span.length - sent
            )
            try:
                count, blocked = await asyncio.shield(turn)
            except asyncio.CancelledError:
                await asyncio.wait((turn,))  # it uses the descriptors, which the caller closes
                raise
            sent += count
            if blocked:
                await _writable(socket)
        return sent


def _send_some(socket: int, file: int, start: int, length: int) -> tuple[int, bool]:
    """Send for up to `TURN_S`. Returns how many bytes were sent, and whether the client does not read."""
    sent = 0
    until = time.monotonic() + TURN_S
    ready: Any = None
    while sent < length:
        try:
            count = os.sendfile(socket, file, start + sent, min(length - sent, _ONCE_BYTES))
        except BlockingIOError:
            if ready is None:
                ready = select.poll()
                ready.register(socket, select.POLLOUT)
            if not ready.poll(WAIT_MS):
                return sent, True
            continue
        if not count:
            raise BrokenPipeError("the file is shorter than the response")
        sent += count
        if time.monotonic() >= until:
            break
    return sent, False


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _writable(socket: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(socket, _resolve, ready)
    try:
        await asyncio.wait_for(ready, limits.HTTP_STALL_S)
    except TimeoutError:
        raise ReaderStalled from None
    finally:
        loop.remove_writer(socket)

"""One connection of the text door: requests in, responses out in order, with bounds on both."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import cast

from mainstem import events, limits
from mainstem.doors.budget import STEP_S, peer_of
from mainstem.doors.text.connections import TextConnections
from mainstem.doors.text.frames import FrameReader, InvalidLength, frame
from mainstem.doors.text.requests import (
    INVALID_LENGTH,
    GetRequest,
    PutRequest,
    Request,
    RequestRefused,
    next_run,
    parse,
)
from mainstem.doors.text.service import TextService

_log = events.named("text")
_QUICK_ACK: int = getattr(socket, "TCP_QUICKACK", -1)  # Linux only
_INTERNAL_ERROR = b"ERR internal error"
_TOO_MANY = b"ERR too many connections"


class TextConnection(asyncio.Protocol):
    """Requests wait in `_waiting`; a worker serves them in runs.

    Back-pressure: reading pauses while too many requests wait, and serving pauses while the client does not read its
    responses. So a client occupies at most one pipeline of requests and one run of responses."""

    def __init__(self, service: TextService, connections: TextConnections, stall_s: float) -> None:
        self._service = service
        self._connections = connections
        self._stall_s = stall_s
        self._frames = FrameReader()
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._counted = 0  # bytes that the budget counts for this connection
        self._worker: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True  # False: ignore what arrives from now on
        self._paused = False
        self._ended = False  # the client has closed its side
        self._lingering = False
        self._lost = False
        self._active_at = 0.0
        self.peer = ""

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=limits.TEXT_WRITE_BUFFER_BYTES)
        self._active_at = asyncio.get_running_loop().time()
        self.peer = peer_of(transport)
        self._socket = transport.get_extra_info("socket") if _QUICK_ACK >= 0 else None
        self._caller = self._service.caller(self.peer)
        if not self._connections.admit(self):
            self._transport.write(frame(_TOO_MANY))
            self._linger()

    def data_received(self, data: bytes) -> None:
        if self._reading:
            turns = self._service.turns
            if turns.last is not self:
                turns.last, turns.changed_at = self, asyncio.get_running_loop().time()
            if not self._frames.incomplete or self._worker is not None:
                self._active_at = asyncio.get_running_loop().time()  # a request must not arrive forever
            self._frames.feed(data)
            if self._frames.incomplete:
                self._acknowledge()
            self._receive()

    def eof_received(self) -> bool:
        """A client may close its side early and still read its responses."""
        self._reading = False
        self._ended = True
        return self._worker is not None and not self._lingering

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        self._reading = False
        self._writable.set()
        self._count_received()
        self._connections.forget(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # Called by the door

    def finish(self) -> None:
        self._reading = False
        if self._worker is None and not self._lingering:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def unused_since(self) -> float | None:
        return self._active_at if self._worker is None else None

    @property
    def incomplete(self) -> bool:
        return self._frames.incomplete

    def _acknowledge(self) -> None:
        """Acknowledge a part of a request at once. A client that sends the length and the body in two writes, without
        TCP_NODELAY, holds the body back until then, and the kernel would wait 40 ms for data to send along."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    # Requests

    def _receive(self) -> None:
        """Move complete requests to `_waiting`, up to the bound, and make sure that a worker runs."""
        while self._has_room() and (request := self._next_request()) is not None:
            self._waiting.append(request)
            if isinstance(request, PutRequest):
                self._waiting_bytes += len(request.payload)
        self._pause_or_resume()
        if self._waiting and self._worker is None:
            self._worker = self._connections.work(self._serve())
        self._count_received()

    def _next_request(self) -> Request | None:
        try:
            body = self._frames.next()
        except InvalidLength:
            self._reading = False
            self._frames.clear()
            return INVALID_LENGTH
        return None if body is None else parse(body)

    def _has_room(self) -> bool:
        return (
            len(self._waiting) < limits.TEXT_PIPELINE_REQUESTS_MAX
            and self._waiting_bytes < limits.TEXT_PIPELINE_BYTES_MAX
        )

    def _count_received(self) -> None:
        """Tell the budget how many bytes are held for this connection. One that holds more than a request while its
        client exceeds its share is closed."""
        held = 0 if self._lost else len(self._frames) + self._waiting_bytes
        budget, change = self._connections.budget, held - self._counted
        self._counted = held
        if change <= 0:
            budget.received.give(self.peer, -change)
            return
        budget.received.take(self.peer, change)
        served_alone = self._worker is not None and held <= limits.TEXT_FRAME_BYTES_MAX
        if not served_alone and budget.received.over(self.peer):
            budget.floods_closed += 1
            self._transport.abort()

    def _pause_or_resume(self) -> None:
        full = not self._has_room()
        if not self._reading or full == self._paused:
            return
        self._paused = full
        if full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # Responses

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            if (
                len(self._waiting) > 1
            ):  # it sent ahead: many such connections at once must not serve all in one turn
                await self._connections.budget.turns.wait()
            ends = loop.time() + STEP_S
            while self._waiting and await self._can_write():
                run = next_run(self._waiting)
                self._waiting_bytes -= sum(len(put.payload) for put in run if isinstance(put, PutRequest))
                if self._lost and isinstance(run[0], GetRequest):
                    continue  # a disconnected client must not consume records
                answers = await self._answers(run)
                if not self._lost:
                    self._transport.write(b"".join(map(frame, answers)))
                if isinstance(run[0], RequestRefused) and run[0].closes:
                    return
                self._receive()
                if loop.time() >= ends and self._waiting:
                    await self._connections.budget.turns.wait()
                    ends = loop.time() + STEP_S
        finally:
            self._worker = None
            self._active_at = loop.time()
            if not self._reading:
                self._linger()

    async def _can_write(self) -> bool:
        """Wait until the client has read enough. A client that reads nothing is disconnected."""
        if self._writable.is_set():
            return True
        try:
            async with asyncio.timeout(self._stall_s):
                await self._writable.wait()
        except TimeoutError:
            _log.warning("stalled client cut off", stall_s=self._stall_s)
            self._transport.abort()
            return False
        return True

    async def _answers(self, run: list[Request]) -> list[bytes]:
        try:
            return await self._service.answer(run, self._caller)
        except Exception:  # noqa: BLE001  # a bug in one request must not take the connection, nor hide
            _log.exception("request failed", request=type(run[0]).__name__)
            return [_INTERNAL_ERROR] * len(run)

    def _linger(self) -> None:
        """Close our side and read until the client closes: closing with unread bytes would reset the connection,
        and the client could lose its last responses."""
        self._reading = False
        if self._lost or self._lingering:
            return
        if self._ended:
            self._transport.close()
            return
        self._lingering = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if self._paused:
            self._transport.resume_reading()
        asyncio.get_running_loop().call_later(limits.TEXT_LINGER_S, self._transport.close)

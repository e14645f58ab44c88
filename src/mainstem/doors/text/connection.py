"""One connection of the text door: requests in, responses out in order, with bounds on both."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import cast

from mainstem import events, limits
from mainstem.broker.append import Placed
from mainstem.broker.streams import LONE_QUIET_S
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
from mainstem.doors.text.service import OK, TextService, refusal
from mainstem.errors import MainstemError

_log = events.named("text")
_QUICK_ACK: int = getattr(socket, "TCP_QUICKACK", -1)  # Linux only
_INTERNAL_ERROR = b"ERR internal error"
_OK = frame(OK)
_TOO_MANY = b"ERR too many connections"
_BULK_BYTES_MIN = 16 * limits.KIB  # a run of PUTs above this waits for its turn while others append much


class _LonePut:
    """Answers one PUT."""

    __slots__ = ("_connection",)

    def __init__(self, connection: TextConnection) -> None:
        self._connection = connection

    def done(self) -> bool:
        return False

    def set_result(self, placed: Placed) -> None:
        self._connection.put_settled(_OK)

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, MainstemError):
            answer = refusal(error)
        else:
            _log.error("request failed", request="PutRequest", error=repr(error))
            answer = _INTERNAL_ERROR
        self._connection.put_settled(frame(answer))


class TextConnection(asyncio.BufferedProtocol):
    """Requests wait in `_waiting`; a worker serves them in runs.

    Back-pressure: reading pauses while too many requests wait, and serving pauses while the client does not read its
    responses. So a client occupies at most one pipeline of requests and one run of responses. While clients wait to
    append, a connection is read only after its requests were served: however many connections send ahead, the event
    loop reads from few of them in each turn."""

    def __init__(self, service: TextService, connections: TextConnections, stall_s: float) -> None:
        self._service = service
        self._connections = connections
        self._stall_s = stall_s
        self._frames = FrameReader()
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0
        self._serving_bytes = 0
        self._counted = 0  # bytes that the budget counts for this connection
        self._worker: asyncio.Task[None] | None = None
        self._put: _LonePut | None = None  # being served without a worker
        self._loop = asyncio.get_running_loop()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading = True  # False: ignore what arrives from now on
        self._paused = False
        self._deferred = False  # not read until its turn, because many connections send much
        self._ended = False  # the client has closed its side
        self._lingering = False
        self._lost = False
        self._active_at = 0.0
        self.peer = ""

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=limits.TEXT_WRITE_BUFFER_BYTES)
        self._active_at = self._loop.time()
        self.peer = peer_of(transport)
        self._socket = transport.get_extra_info("socket") if _QUICK_ACK >= 0 else None
        self._caller = self._service.caller(self.peer)
        if not self._connections.admit(self):
            self._transport.write(frame(_TOO_MANY))
            self._linger()

    def get_buffer(self, sizehint: int) -> memoryview:
        """One buffer for all connections, because it is copied at once. Its size bounds what one read returns."""
        return self._connections.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._reading:
            now, activity = self._loop.time(), self._service.client_activity
            if not self._frames.incomplete or self._busy:
                self._active_at = now  # a request must not arrive forever
            self._frames.feed(bytes(self._connections.receive_buffer[:nbytes]))
            if not self._deferred and self._connections.must_wait(nbytes):
                self._deferred = True
                self._connections.budget.turns.later(self.peer, self._read_on)
            if activity.last is not self:
                activity.last, activity.changed_at = self, now
            activity.reading = now - activity.changed_at >= LONE_QUIET_S
            try:
                self._take_in()
            finally:
                activity.reading = False
                if activity.due:
                    activity.write()
            self._count_received()
            if self._frames.incomplete:
                self._acknowledge()

    def eof_received(self) -> bool:
        """A client may close its side early and still read its responses."""
        self._reading = False
        self._ended = True
        return self._busy and not self._lingering

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
        if not self._busy and not self._lingering:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def unused_since(self) -> float | None:
        return None if self._busy else self._active_at

    @property
    def _busy(self) -> bool:
        """Whether a request is being served."""
        return self._worker is not None or self._put is not None

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

    def _take_in(self) -> None:
        """Take what has arrived, and make sure that it is served."""
        self._take_requests()
        if self._waiting and not self._busy and not self._put_lone():
            self._worker = self._connections.work(self._serve())
        self._pause_or_resume()

    def _take_requests(self) -> None:
        """Move complete requests to `_waiting`, up to the bound."""
        while self._has_room() and (request := self._next_request()) is not None:
            self._waiting.append(request)
            if isinstance(request, PutRequest):
                self._waiting_bytes += len(request.payload)

    def _put_lone(self) -> bool:
        """Serve a PUT that nothing waits behind without a task. False: a task is needed."""
        (put, *others) = self._waiting
        if others or type(put) is not PutRequest or not self._writable.is_set():
            return False
        if len(put.payload) > _BULK_BYTES_MIN:
            return False
        waiter = _LonePut(self)
        if not self._service.put(put, self._caller, waiter):
            return False
        self._put = waiter
        self._waiting.clear()
        self._waiting_bytes, self._serving_bytes = 0, len(put.payload)
        return True

    def put_settled(self, answer: bytes) -> None:
        """The PUT that is served without a task is over."""
        self._put = None
        self._serving_bytes = 0
        self._count_received()
        self._active_at = self._loop.time()
        if not self._lost:
            self._transport.write(answer)
        self._take_requests()
        self._pause_or_resume()
        if self._waiting:
            self._worker = self._connections.work(self._serve())
        elif not self._reading:
            self._linger()

    def _next_request(self) -> Request | None:
        try:
            body = self._frames.next()
        except InvalidLength:
            self._reading = False
            self._frames.clear()
            return INVALID_LENGTH
        return None if body is None else parse(body)

    def _has_room(self) -> bool:
        if self._waiting and self._connections.budget.appends.waited_for:
            return False
        return (
            len(self._waiting) < limits.TEXT_PIPELINE_REQUESTS_MAX
            and self._waiting_bytes < limits.TEXT_PIPELINE_BYTES_MAX
        )

    def _count_received(self) -> None:
        """Tell the budget how many bytes are held for this connection. One that holds more than a request while its
        client exceeds its share is closed."""
        held = 0 if self._lost else len(self._frames) + self._waiting_bytes + self._serving_bytes
        budget, change = self._connections.budget, held - self._counted
        self._counted = held
        if not change:
            return
        if change < 0:
            budget.received.give(self.peer, -change)
            return
        budget.received.take(self.peer, change)
        served_alone = self._busy and held <= limits.TEXT_FRAME_BYTES_MAX
        if not served_alone and budget.received.over(self.peer):
            budget.floods_closed += 1
            self._transport.abort()

    def _pause_or_resume(self) -> None:
        full = self._deferred or not self._has_room()
        if not self._reading or full == self._paused:
            return
        self._paused = full
        if full:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _read_on(self) -> None:
        self._deferred = False
        if not self._lost:
            self._pause_or_resume()

    # Responses

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            if (
                len(self._waiting) > 1
            ):  # it sent ahead: many such connections at once must not serve all in one turn
                await self._connections.budget.turns.wait(self.peer)
            ends = loop.time() + STEP_S
            while self._waiting and await self._can_write():
                run = next_run(self._waiting)
                if self._lost and isinstance(run[0], GetRequest):
                    continue  # a disconnected client must not consume records
                size = sum(len(put.payload) for put in run if isinstance(put, PutRequest))
                self._waiting_bytes -= size
                self._serving_bytes = size
                large = size > _BULK_BYTES_MIN
                answers = await (self._answers_in_turn(run, size) if large else self._answers(run))
                self._serving_bytes = 0
                if not self._lost:
                    self._transport.write(b"".join(map(frame, answers)))
                if isinstance(run[0], RequestRefused) and run[0].closes:
                    return
                self._take_in()
                self._count_received()
                if loop.time() >= ends and self._waiting:
                    await self._connections.budget.turns.wait(self.peer)
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

    async def _answers_in_turn(self, run: list[Request], size: int) -> list[bytes]:
        """Answer requests that append much. Those of all clients together leave room for others in the commit path."""
        appends = self._connections.budget.appends
        await appends.reserve(self.peer, size)
        try:
            return await self._answers(run)
        finally:
            appends.give(self.peer, size)

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

"""The way out to one client: messages leave as they come, and cost a task only while it does not read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvloop.loop import TCPTransport  # type: ignore[attr-defined]  # in the module, not in its stub

from mainstem import events
from mainstem.broker.eager_tasks import run_eagerly
from mainstem.doors.http.transport.responses import Asgi, Send

_log = events.named("http")


class SendBuffer:
    """`drained` is called when a client that had fallen behind has taken everything."""

    __slots__ = (
        "_clear",
        "_cycle",
        "_descriptor",
        "_drained",
        "_pause",
        "_send",
        "_sending",
        "_waiters",
        "_waiting",
        "gone",
        "ready",
        "sent_bytes",
        "spoke_at",
    )

    def __init__(self, send: Send, drained: Callable[[], None]) -> None:
        self._send = send
        self._cycle = _cycle_of(send)
        self._descriptor = _descriptor_of(self._cycle)
        self._clear = False  # the transport is known to hold nothing back
        self._drained = drained
        self._pause: asyncio.TimerHandle | None = None  # a rate allows no more records until it ends
        self._sending: asyncio.Task[Any] | None = None  # a message the client has no room for
        self._waiting: deque[Asgi] = deque()  # behind it; short, since nothing large is pushed unless `ready`
        self._waiters: list[asyncio.Future[None]] = []
        self.gone = False  # the client left: nothing goes out any more
        self.ready = True  # nothing waits to go out, and the client is there
        self.sent_bytes = 0
        self.spoke_at = 0.0  # when something last went out, in the clock's monotonic seconds

    def push(self, message: Asgi) -> None:
        """Send it, behind everything pushed before. Call it from a callback of the loop, not from a task."""
        if self.gone:
            return
        if self._sending is not None:
            self._waiting.append(message)
            return
        self._clear = False
        try:
            self._sending = run_eagerly(self._send(message))
        except Exception as error:  # noqa: BLE001 - a client that left raises one thing or another
            self._lose(error)
            return
        if self._sending is not None:
            self.ready = False
            self._sending.add_done_callback(self._sent)

    def push_chunk(self, body: bytes, chunk: bytes) -> None:
        """Push a part of a body. `chunk` is the same as HTTP/1.1 frames it, which saves doing that again."""
        cycle = self._cycle
        self.sent_bytes += len(body)
        if cycle is None or not self.ready or cycle.flow.write_paused:
            self.push({"type": "http.response.body", "body": body, "more_body": True})
        else:
            self.write(chunk)

    def descriptor(self) -> int:
        """That of the client's socket, if bytes may go there past the transport; else -1.

        Good until the loop does something else: then the transport may close it, and it may become another's."""
        cycle = self._cycle
        if self._descriptor < 0 or cycle is None or cycle.disconnected or not self.ready:
            return -1
        if not self._clear:
            transport = cycle.transport
            if transport.is_closing() or transport.get_write_buffer_size():
                return -1
            self._clear = True
        return self._descriptor

    def write(self, part: bytes) -> None:
        """Write bytes as HTTP/1.1 carries them, behind everything before. For outlets with a descriptor."""
        cycle = self._cycle
        if cycle is not None and not cycle.disconnected:
            self._clear = False
            cycle.transport.write(part)

    def pause(self, ms: int) -> None:
        """Take no more records for so long. What else is pushed goes out."""
        if self.gone or not ms:
            return
        if self._pause is not None:
            self._pause.cancel()
        self.ready = False
        self._pause = asyncio.get_running_loop().call_later(ms / 1000, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        if self.idle:
            self.ready = True
            self._drained()

    @property
    def idle(self) -> bool:
        """Whether nothing waits to go out, and the client is there."""
        return self._sending is None and not self.gone

    async def until_ready(self) -> None:
        """Wait until the client has taken everything, or is gone."""
        if self._sending is not None and not self.gone:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """The client left, or must: give up what did not go out."""
        self.gone = True
        self.ready = False
        self._release()
        self._waiting.clear()
        if self._pause is not None:
            self._pause.cancel()
        if self._sending is not None:
            self._sending.cancel()

    def _sent(self, task: asyncio.Task[Any]) -> None:
        self._sending = None
        self.ready = not self.gone and self._pause is None
        if task.cancelled():
            self.close()
            return
        error = task.exception()
        if error is not None:
            self._lose(error)
            return
        while self._waiting and self.idle:
            self.push(self._waiting.popleft())
        if self.idle:
            self._release()
        if self.ready:
            self._drained()

    def _release(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _lose(self, error: BaseException) -> None:
        self.close()
        if not isinstance(error, OSError):  # which is what servers raise for a client that has left
            _log.warning("a client is cut off", error=repr(error))


def chunked(body: bytes) -> bytes:
    """A part of a body as HTTP/1.1 frames it."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def _cycle_of(send: Send) -> RequestResponseCycle | None:
    """The HTTP/1.1 exchange behind `send`, if that is what it is.

    A frame for a thousand watchers is written to each transport as it is. Going through ASGI costs as much
    again as the write, and a copy that every slow reader would hold for itself."""
    owner = getattr(send, "__self__", None)
    return owner if type(owner) is RequestResponseCycle else None


def _descriptor_of(cycle: RequestResponseCycle | None) -> int:
    """-1 where bytes are not sent as they are written: over TLS, and on other loops than the server's."""
    if cycle is None or type(cycle.transport) is not TCPTransport:
        return -1
    descriptor: int = cycle.transport.get_extra_info("socket").fileno()
    return descriptor

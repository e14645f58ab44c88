"""The way out to one client: messages leave as they come, and cost a task only while it does not read."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from mainstem import events
from mainstem.broker.eager import run_eagerly
from mainstem.doors.http.responses import Asgi, Send

_log = events.named("http")


class Outlet:
    """`drained` is called when a client that had fallen behind has taken everything."""

    __slots__ = ("_cycle", "_drained", "_send", "_sending", "_waiters", "_waiting", "gone", "sent_bytes")

    def __init__(self, send: Send, drained: Callable[[], None]) -> None:
        self._send = send
        self._cycle = _cycle_of(send)
        self._drained = drained
        self._sending: asyncio.Task[Any] | None = None  # a message the client has no room for
        self._waiting: deque[Asgi] = deque()  # behind it; short, since nothing large is pushed unless `ready`
        self._waiters: list[asyncio.Future[None]] = []
        self.gone = False  # the client left: nothing goes out any more
        self.sent_bytes = 0

    @property
    def ready(self) -> bool:
        return self._sending is None and not self.gone

    def push(self, message: Asgi) -> None:
        """Send it, behind everything pushed before. Call it from a callback of the loop, not from a task."""
        if self.gone:
            return
        if self._sending is not None:
            self._waiting.append(message)
            return
        try:
            self._sending = run_eagerly(self._send(message))
        except Exception as error:  # noqa: BLE001 - a client that left raises one thing or another
            self._lose(error)
            return
        if self._sending is not None:
            self._sending.add_done_callback(self._sent)

    def push_chunk(self, body: bytes, chunk: bytes) -> None:
        """Push a part of a body. `chunk` is the same as HTTP/1.1 frames it, which saves doing that again."""
        cycle = self._cycle
        self.sent_bytes += len(body)
        if cycle is None or self._sending is not None or self.gone or cycle.flow.write_paused:
            self.push({"type": "http.response.body", "body": body, "more_body": True})
        elif not cycle.disconnected:
            cycle.transport.write(chunk)

    async def until_ready(self) -> None:
        """Wait until the client has taken everything, or is gone."""
        if self._sending is not None and not self.gone:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """The client left, or must: give up what did not go out."""
        self.gone = True
        self._release()
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _sent(self, task: asyncio.Task[Any]) -> None:
        self._sending = None
        if task.cancelled():
            self.close()
            return
        error = task.exception()
        if error is not None:
            self._lose(error)
            return
        while self._waiting and self.ready:
            self.push(self._waiting.popleft())
        if self.ready:
            self._release()
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

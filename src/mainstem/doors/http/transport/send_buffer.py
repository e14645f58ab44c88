"""The send buffer of one client: messages are sent at once; only a client that does not read needs a task."""

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
    """`drained` is called when a client that fell behind has read everything."""

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
        self._clear = False  # the transport's buffer is empty
        self._drained = drained
        self._pause: asyncio.TimerHandle | None = None  # a rate limit holds records back until then
        self._sending: asyncio.Task[Any] | None = None  # a message that waits for the client to read
        self._waiting: deque[Asgi] = (
            deque()
        )  # messages after it; few, since large ones are pushed only if `ready`
        self._waiters: list[asyncio.Future[None]] = []
        self.gone = False  # the client disconnected: nothing more is sent
        self.ready = True  # nothing waits to be sent, and the client is connected
        self.sent_bytes = 0
        self.spoke_at = 0.0  # when something was last sent, in monotonic seconds

    def push(self, message: Asgi) -> None:
        """Send it after everything pushed before. Call it from a callback of the loop, not from a task."""
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
        """Push a part of a body. `chunk`: the same part with HTTP/1.1 chunk framing, if already built."""
        cycle = self._cycle
        self.sent_bytes += len(body)
        if cycle is None or not self.ready or cycle.flow.write_paused:
            self.push({"type": "http.response.body", "body": body, "more_body": True})
        else:
            self.write(chunk)

    def descriptor(self) -> int:
        """The descriptor of the client's socket, if bytes may bypass the transport; else -1.

        Valid until the loop runs something else: the transport may then close it, and the number may be reused."""
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
        """Write framed HTTP/1.1 bytes after everything pushed before. For buffers with a descriptor."""
        cycle = self._cycle
        if cycle is not None and not cycle.disconnected:
            self._clear = False
            cycle.transport.write(part)

    def pause(self, ms: int) -> None:
        """Hold records back for this long. Other messages are sent."""
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
        """Whether nothing waits to be sent, and the client is connected."""
        return self._sending is None and not self.gone

    async def until_ready(self) -> None:
        """Wait until the client has read everything, or is disconnected."""
        if self._sending is not None and not self.gone:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """The client disconnected, or must: discard what was not sent."""
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
        if not isinstance(error, OSError):  # servers raise it for a disconnected client
            _log.warning("client cut off", error=repr(error))


def chunked(body: bytes) -> bytes:
    """A part of a body with HTTP/1.1 chunk framing."""
    return b"%x\r\n%b\r\n" % (len(body), body)


def _cycle_of(send: Send) -> RequestResponseCycle | None:
    """The HTTP/1.1 exchange behind `send`, if it is one.

    A frame for a thousand watchers is written directly to each transport. ASGI would double the cost, and every slow
    reader would hold its own copy."""
    owner = getattr(send, "__self__", None)
    return owner if type(owner) is RequestResponseCycle else None


def _descriptor_of(cycle: RequestResponseCycle | None) -> int:
    """-1 if written bytes are not sent unchanged: over TLS, and on loops other than the server's."""
    if cycle is None or type(cycle.transport) is not TCPTransport:
        return -1
    descriptor: int = cycle.transport.get_extra_info("socket").fileno()
    return descriptor

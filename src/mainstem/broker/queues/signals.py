"""Signals: wake workers that wait for jobs of a queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mainstem import events
from mainstem.errors import MainstemError, NotFound
from mainstem.log.log import Log
from mainstem.ports.clock import Clock

_log = events.named("queues")


class QueueSignal:
    """The signal of one queue. Fires on an append, when jobs are settled, and when a lease or a delay ends."""

    def __init__(self, wake_signals: QueueSignals, stream: int) -> None:
        self._wake_signals = wake_signals
        self._stream = stream
        self._listeners = 0
        self.rings = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None

    def join(self) -> None:
        self._listeners += 1

    def leave(self) -> None:
        self._listeners -= 1
        if not self._listeners:
            self.silence()
            self._wake_signals.drop(self._stream)

    def silence(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._expiring is not None:
            self._expiring.cancel()

    def changed(self) -> None:
        """Wake all waiting workers."""
        self.rings += 1
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def rung(self, since: int) -> None:
        """Wait until it has fired more than `since` times."""
        if self.rings > since or self._wake_signals.closed:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self.arm()
        try:
            await waiter
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def arm(self) -> None:
        """Set a timer for the end of the next lease or delay."""
        due_ms = self._wake_signals.next_change_ms(self._stream)
        if due_ms is None or not self._waiters:
            return
        if self._timer is not None:
            self._timer.cancel()
        # One more millisecond: a lease holds up to and including its deadline.
        wait_s = max(1, due_ms + 1 - self._wake_signals.now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._run_out)

    def _run_out(self) -> None:
        self._timer = None
        if self._expiring is None or self._expiring.done():
            self._expiring = asyncio.get_running_loop().create_task(self._expire())

    async def _expire(self) -> None:
        try:
            await self._wake_signals.expire(self._stream)
        except MainstemError as error:  # the queue or the log is closed: its workers get their own errors
            _log.info("lease expiry failed", stream=self._stream, error=str(error))
        self.changed()


class QueueSignals:
    """The signals of queues with waiting workers, by stream."""

    def __init__(self, log: Log, clock: Clock, expire: Callable[[int], Awaitable[None]]) -> None:
        self._log = log
        self._clock = clock
        self._wake_signals: dict[int, QueueSignal] = {}
        self.expire = expire
        self.closed = False

    def get(self, stream: int) -> QueueSignal | None:
        return self._wake_signals.get(stream)

    def open(self, stream: int) -> QueueSignal:
        wake_signal = self._wake_signals.get(stream)
        if wake_signal is None:
            wake_signal = self._wake_signals[stream] = QueueSignal(self, stream)
            self._log.visibility.watch((stream,), wake_signal)
        wake_signal.join()
        return wake_signal

    def drop(self, stream: int) -> None:
        self._log.visibility.unwatch((stream,), self._wake_signals.pop(stream))

    def close(self) -> None:
        """Fire all signals a last time."""
        self.closed = True
        for wake_signal in list(self._wake_signals.values()):
            wake_signal.silence()
            wake_signal.changed()

    def now_ms(self) -> int:
        return self._log.now_ms()

    def next_change_ms(self, stream: int) -> int | None:
        try:
            queues, number = self._log.streams.of(stream).queue(stream)
        except NotFound:
            return None
        leases = queues.leases(number)
        return leases.next_change_ms if leases else None

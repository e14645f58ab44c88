"""Deadlines of all groups, in one heap behind one timer of the event loop.

Every heartbeat moves a member's session deadline, so a move must be cheap: the heap keeps the old time and checks the
deadline again when it is reached.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from mainstem.ports.clock import Clock

_COMPACT_FROM = 1024  # entries; a smaller heap keeps cancelled ones until they are due
_WAKE_S_MIN = 0.001  # the loop's clock and the broker's differ by less than this


class Timer:
    """One deadline that may be moved or cancelled at any time."""

    __slots__ = ("_timers", "action", "due_s", "queued_s")

    def __init__(self, timers: Timers, action: Callable[[], None]) -> None:
        self._timers = timers
        self.action = action
        self.due_s: float | None = None  # None = not running
        self.queued_s: float | None = None  # when the heap will check it

    @property
    def running(self) -> bool:
        return self.due_s is not None

    def start(self, ms: int) -> None:
        """Run the action `ms` from now, instead of at the time set before."""
        self._timers.set(self, ms)

    def cancel(self) -> None:
        self.due_s = None


class Timers:
    """Without `start`, actions run only in `fire`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Timer]] = []
        self._order = count()
        self._compact_at = _COMPACT_FROM
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._wake_s = 0.0

    def __len__(self) -> int:
        return len(self._heap)

    def timer(self, action: Callable[[], None]) -> Timer:
        return Timer(self, action)

    def start(self) -> None:
        """Run due actions on the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._arm()

    def stop(self) -> None:
        self._loop = None
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def set(self, timer: Timer, ms: int) -> None:
        due_s = self._clock.monotonic() + ms / 1000
        timer.due_s = due_s
        if timer.queued_s is None or due_s < timer.queued_s:
            self._push(timer, due_s)

    def fire(self) -> None:
        """Run all due actions."""
        now = self._clock.monotonic()
        try:
            while self._heap and self._heap[0][0] <= now:
                at, _, timer = heapq.heappop(self._heap)
                if timer.queued_s != at:
                    continue  # it was moved to an earlier time, and has another entry
                timer.queued_s = None
                if timer.due_s is None:
                    continue
                if timer.due_s > now:
                    self._push(timer, timer.due_s)
                    continue
                timer.due_s = None
                timer.action()
        finally:
            self._arm()

    def _push(self, timer: Timer, due_s: float) -> None:
        timer.queued_s = due_s
        heapq.heappush(self._heap, (due_s, next(self._order), timer))
        if len(self._heap) > self._compact_at:
            self._compact()
        self._arm()

    def _compact(self) -> None:
        """Remove cancelled timers of members that left, so that they do not accumulate until they are due."""
        kept = []
        for entry in self._heap:
            at, _, timer = entry
            if timer.queued_s != at:
                continue
            if timer.due_s is None:
                timer.queued_s = None
            else:
                kept.append(entry)
        heapq.heapify(kept)
        self._heap = kept
        self._compact_at = max(_COMPACT_FROM, 2 * len(kept))

    def _arm(self) -> None:
        if self._loop is None or not self._heap:
            return
        due_s = self._heap[0][0]
        if self._wake is not None:
            if self._wake_s <= due_s:
                return
            self._wake.cancel()
        delay_s = max(due_s - self._clock.monotonic(), _WAKE_S_MIN)
        self._wake, self._wake_s = self._loop.call_later(delay_s, self._woken), due_s

    def _woken(self) -> None:
        self._wake = None
        self.fire()

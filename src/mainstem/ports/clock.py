"""Time and randomness, injected so that tests control them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from mainstem import events, limits

LEDGER_AHEAD_MS_MAX = 1_000  # ledger time further ahead of the clock runs on by itself

_log = events.named("clock")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, milliseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds that never run backwards; only differences mean anything."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    # As `monotonic`, but it also counts while the machine sleeps, where the system can tell.
    boottime: Callable[[], float] = staticmethod(
        partial(time.clock_gettime, time.CLOCK_BOOTTIME)
        if hasattr(time, "CLOCK_BOOTTIME")
        else time.monotonic
    )


class SteadyClock:
    """A wall clock that does not follow a jump ahead of the system clock.

    A jump ahead, even for a moment, would expire every record with a time to live, and everything in the log that
    carries the time would be ahead of the clock once that is set right. So the wall time of a process runs on at the
    pace of a monotonic clock from its start. It follows the system clock back, and ahead by a bound at a time."""

    def __init__(
        self,
        source: Clock,
        elapsed_s: Callable[[], float] | None = None,
        step_ms_max: int = limits.CLOCK_STEP_MS_MAX,
    ) -> None:
        """`elapsed_s`: a clock without jumps, which also counts while the machine sleeps. `step_ms_max`: 0 follows
        every jump."""
        self.source = source
        self.monotonic = source.monotonic
        self._elapsed_s = elapsed_s or source.monotonic
        self._step_ms_max = step_ms_max
        self._base_ms = source.now_ms() - self._elapsed_ms()  # wall time minus elapsed time
        self._refused = False

    def _elapsed_ms(self) -> int:
        return int(self._elapsed_s() * 1000)

    def now_ms(self) -> int:
        wall, steady = self.source.now_ms(), self._base_ms + int(self._elapsed_s() * 1000)
        ahead = wall - steady
        if ahead > self._step_ms_max > 0:
            if not self._refused:
                self._refused = True
                _log.error(
                    "clock jumped ahead",
                    ahead_ms=ahead,
                    action="the server keeps its own time: correct the system clock, or restart to accept it",
                )
            return steady
        if self._refused:
            self._refused = False
            _log.warning("clock is right again", ahead_ms=ahead)
        if ahead > -limits.CLOCK_STEP_MS_MAX:
            self._base_ms += ahead
        return wall  # also far back: a record kept too long is not a loss

    @property
    def refused_ms(self) -> int:
        """How far the system clock is ahead of this one; 0 if this one follows it."""
        return max(0, self.source.now_ms() - self.now_ms())

    def accept(self) -> None:
        """Accept the time of the system clock: something else confirms it."""
        self._base_ms = self.source.now_ms() - self._elapsed_ms()


class HasTime(Protocol):
    time_ms: int


class LedgerClock:
    """Ledger time as the next commit carries it.

    Ledger time never runs back. If it is ahead of the clock, because the clock was wrong once, it runs on at the pace
    of a monotonic clock: what ends after a duration (leases, transactions) still ends after that duration."""

    def __init__(self, clock: Clock, ledger: HasTime) -> None:
        self._clock = clock
        self._ledger = ledger
        self._base_ms: int | None = None  # ledger time minus monotonic time, while it is ahead of the clock

    def now_ms(self, wall: int | None = None) -> int:
        """`wall`: what the clock says, if the caller has just asked it."""
        if wall is None:
            wall = self._clock.now_ms()
        reached = self._ledger.time_ms  # by the newest commit
        base = self._base_ms
        if base is None and reached - wall <= LEDGER_AHEAD_MS_MAX:
            return wall
        monotonic = int(self._clock.monotonic() * 1000)
        running = reached if base is None else max(reached, base + monotonic)
        if running - wall <= LEDGER_AHEAD_MS_MAX:
            self._base_ms = None
            return wall
        self._base_ms = running - monotonic
        return running

    @property
    def ahead_ms(self) -> int:
        """How far ledger time is ahead of the clock."""
        return max(0, self._ledger.time_ms - self._clock.now_ms())


class Random(Protocol):
    def token(self, size: int) -> bytes: ...


class SystemRandom:
    def token(self, size: int) -> bytes:
        return os.urandom(size)

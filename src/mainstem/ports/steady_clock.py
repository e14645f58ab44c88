"""A wall clock that does not follow a jump ahead of the system clock.

A jump ahead, even for a moment, would expire every record with a time to live, and everything in the log that carries
the time would be ahead of the clock once that is set right. So the wall time of a process runs on at the pace of a
monotonic clock from its start. It follows the system clock back, and ahead by a bound at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem import events, limits
from mainstem.ports.clock import Clock

_log = events.named("clock")


class SteadyClock:
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
        wall, steady = self.source.now_ms(), self._base_ms + self._elapsed_ms()
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
        return wall  # also far back: a record kept too long is no loss

    @property
    def refused_ms(self) -> int:
        """How far the system clock is ahead of this one; 0 if this one follows it."""
        return max(0, self.source.now_ms() - self.now_ms())

    def accept(self) -> None:
        """Take the time of the system clock over: somebody vouches for it."""
        self._base_ms = self.source.now_ms() - self._elapsed_ms()

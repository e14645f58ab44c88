"""Whether this process may trust what it knows of the log's tail.

Where the store cannot check the floor as it takes a commit, a truncated position is free again. A writer that slept
through the truncation would get "yes" for a commit that nobody will read. So a writer without news of the tail for
`stale_s` writes nothing until it has caught up, and checks the floor after a put that took as long.
"""

from __future__ import annotations

from typing import NamedTuple

from mainstem.errors import Stale
from mainstem.ports.clock import Clock


class Mark(NamedTuple):
    """A moment by both clocks. The monotonic one stands still while a machine sleeps; the other one can be set."""

    monotonic_s: float
    wall_s: float


class Freshness:
    """When the tail was last seen. A machine that slept, or a clock that was set forward, counts as time passed."""

    def __init__(self, clock: Clock, stale_s: float) -> None:
        self._clock = clock
        self._stale_s = stale_s
        self._seen = self.mark()
        self._stale = False

    def seen(self) -> None:
        """The tail was just read. Does not end staleness: only `renew` does."""
        self.is_stale()
        self._seen = self.mark()

    def is_stale(self) -> bool:
        """Whether the tail was not seen for too long; stays true until `renew`."""
        self._stale = self._stale or self.passed(self._seen, self._stale_s)
        return self._stale

    def check(self) -> None:
        """Raises Stale."""
        if self.is_stale():
            raise Stale(
                f"this writer has not seen the log's tail for over {self._stale_s:g} s: "
                "rejoin with a new epoch, then append again"
            )

    def renew(self) -> None:
        """This process has caught up with the tail."""
        self._stale = False
        self._seen = self.mark()

    def spoil(self) -> None:
        """The tail turned out not to be where this process believed."""
        self._stale = True

    def mark(self) -> Mark:
        return Mark(self._clock.monotonic(), self._clock.now_ms() / 1000)

    def passed(self, mark: Mark, limit_s: float | None = None) -> bool:
        """Whether more than the limit has passed since, by either clock. Default: what makes a writer stale."""
        limit_s = self._stale_s if limit_s is None else limit_s
        return any(now - then > limit_s for now, then in zip(self.mark(), mark, strict=True))

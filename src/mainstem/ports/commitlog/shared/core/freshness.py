"""Whether this process may trust what it knows of the log's tail.

An entry is truncated an hour after it was written, and its key is then free again. Whoever slept that long and put
an entry where the tail was would be told "yes", and the commit would be lost. So a writer without news of the tail
for a minute writes nothing until it has caught up, and a put that took that long is checked against the floor.
"""

from __future__ import annotations

from mainstem import limits
from mainstem.errors import Stale
from mainstem.ports.clock import Clock


class Freshness:
    """When the tail was seen last. A clock that was set, or a machine that slept, counts as time that passed."""

    def __init__(self, clock: Clock, stale_s: float = limits.BUCKET_STALE_S) -> None:
        self._clock = clock
        self._stale_s = stale_s
        self._seen = self._now()
        self._stale = False

    def seen(self) -> None:
        """The tail was just read. Does not make good for a time without."""
        self.look()
        self._seen = self._now()

    def look(self) -> bool:
        """Whether too much time has passed since the tail was seen; from then on until `renew`."""
        self._stale = self._stale or self.passed(self._seen)
        return self._stale

    def check(self) -> None:
        """Raises Stale."""
        if self.look():
            raise Stale(
                f"this writer had no news of the log's tail for over {self._stale_s:g} s: "
                "rejoin with a new epoch, then append again"
            )

    def renew(self) -> None:
        self._stale = False
        self._seen = self._now()

    def mark(self) -> tuple[float, float]:
        return self._now()

    def passed(self, mark: tuple[float, float]) -> bool:
        """Whether it was too long ago, by either clock: the monotonic one stands still while a machine sleeps."""
        return any(now - then > self._stale_s for now, then in zip(self._now(), mark, strict=True))

    def spoil(self) -> None:
        """What happened shows that the tail is not where it was thought to be."""
        self._stale = True

    def _now(self) -> tuple[float, float]:
        return self._clock.monotonic(), self._clock.now_ms() / 1000

"""A clock for tests."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only when a test advances it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    def advance(self, ms: int) -> None:
        self._now_ms += ms

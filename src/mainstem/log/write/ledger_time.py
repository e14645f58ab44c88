"""Ledger time as the next commit carries it.

Ledger time never runs back. If it is ahead of the clock, because the clock was wrong once, it runs on at the pace of a
monotonic clock: what ends after a duration (leases, transactions, sessions) still ends after that duration.
"""

from __future__ import annotations

from mainstem import limits
from mainstem.ledger.ledger import Ledger
from mainstem.ports.clock import Clock


class LedgerTime:
    def __init__(self, clock: Clock, ledger: Ledger) -> None:
        self._clock = clock
        self._ledger = ledger
        self._base_ms: int | None = None  # ledger time minus monotonic time, while it is ahead of the clock

    def now_ms(self) -> int:
        wall, reached = self._clock.now_ms(), self._ledger.time_ms
        base = self._base_ms
        if base is None and reached - wall <= limits.LEDGER_AHEAD_MS_MAX:
            return wall
        monotonic = int(self._clock.monotonic() * 1000)
        running = reached if base is None else max(reached, base + monotonic)
        if running - wall <= limits.LEDGER_AHEAD_MS_MAX:
            self._base_ms = None
            return wall
        self._base_ms = running - monotonic
        return running

    @property
    def ahead_ms(self) -> int:
        """How far ledger time is ahead of the clock."""
        return max(0, self._ledger.time_ms - self._clock.now_ms())

"""The clock of a broker that shares its log."""

from __future__ import annotations

from mainstem.log.log import Log
from mainstem.ports.clock import Clock, SystemClock

__all__ = ["Clock", "LogClock", "SystemClock"]


class LogClock:
    """The broker's own clock while it agrees with the store's, otherwise the log's.

    A wrong clock would end records, leases and transactions early. The time of the newest commit never does, and the
    other brokers advance it at least every second."""

    def __init__(self, own: Clock, log: Log) -> None:
        self._own = own
        self._log = log

    def now_ms(self) -> int:
        sharing = self._log.sharing
        if sharing is None or sharing.clock_trusted:
            return self._own.now_ms()
        return self._log.ledger.time_ms

    def monotonic(self) -> float:
        return self._own.monotonic()

"""The clock of a broker that shares its log: its own, while that is in step with the store's, or else the log's."""

from __future__ import annotations

from mainstem.log.log import Log
from mainstem.ports.clock import Clock


class LogClock:
    """What this broker goes by. One that is off would take records, leases and transactions for over that are not,
    so it goes by the time of the newest commit instead, which the other brokers move on at least every second."""

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

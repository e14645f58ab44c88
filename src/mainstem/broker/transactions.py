"""Transactions: several partitions and group offsets change together, or not at all."""

from __future__ import annotations

from mainstem.log.log import Log
from mainstem.ports.clock import Clock


class Transactions:
    """What a transactional producer may do; the ledger decides, this proposes and times out."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock

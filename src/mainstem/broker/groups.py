"""Consumer groups: who is in them, who reads which partition, and how far they are."""

from __future__ import annotations

from mainstem.log.log import Log
from mainstem.ports.clock import Clock


class Groups:
    """Membership is volatile and lives here; committed offsets are the ledger's."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock

"""What was replaced and may still be read by whoever was sent there."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from mainstem.ledger.ledger import Ledger
from mainstem.ports.clock import Clock


class ReplacedObjects:
    """Remembers since when things are replaced, and which leases of the lake's jobs may name them."""

    def __init__(self, ledger: Ledger, clock: Clock, grace_s: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._grace_s = grace_s
        self._since: dict[Hashable, tuple[float, frozenset[int]]] = {}

    def over(self, what: Hashable) -> bool:
        """Whether nobody can be in the middle of reading it; the time runs from the first time this is asked."""
        now = self._clock.monotonic()
        leases = frozenset(lease.token for lease in self._ledger.tasks)
        since, named_by = self._since.setdefault(what, (now, leases))
        return now - since >= self._grace_s and named_by.isdisjoint(leases)

    def keep(self, there: Collection[Hashable]) -> None:
        """Forget all but these."""
        self._since = {what: seen for what, seen in self._since.items() if what in there}

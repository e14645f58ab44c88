"""Replaced objects that a reader may still be reading."""

from __future__ import annotations

from collections.abc import Collection, Hashable

from mainstem.ledger.ledger import Ledger
from mainstem.ports.clock import Clock


class ReplacedObjects:
    """Records since when objects are replaced, and which task leases may refer to them."""

    def __init__(self, ledger: Ledger, clock: Clock, grace_s: float) -> None:
        self._ledger = ledger
        self._clock = clock
        self._grace_s = grace_s
        self._since: dict[Hashable, tuple[float, frozenset[int]]] = {}

    def over(self, what: Hashable) -> bool:
        """Whether nobody can still be reading the object; the grace period starts at the first call."""
        now = self._clock.monotonic()
        leases = frozenset(lease.token for lease in self._ledger.tasks)
        since, named_by = self._since.setdefault(what, (now, leases))
        return now - since >= self._grace_s and named_by.isdisjoint(leases)

    def keep(self, there: Collection[Hashable]) -> None:
        """Forget all objects but these."""
        self._since = {what: seen for what, seen in self._since.items() if what in there}

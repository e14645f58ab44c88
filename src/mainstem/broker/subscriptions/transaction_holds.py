"""What open transactions acknowledge of a subscription: nobody else gets it, unless they abort."""

from __future__ import annotations

from mainstem.broker.subscriptions.entries import Delivery, MessageEntry
from mainstem.ledger.subscriptions import AckedRecords, Range, StoredSubscription, merged


class TransactionHolds:
    """Which entries open transactions hold. The ledger knows offsets; this knows their entries and slots."""

    def __init__(self, acked: AckedRecords, stored: StoredSubscription | None) -> None:
        self._acked = acked
        self._stored = stored  # None: it is not durable, and transactions cannot acknowledge it
        # Producer → base → (slot, what it holds of the entry).
        self._entries: dict[int, dict[int, tuple[int, list[Range]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._entries)

    def clear(self) -> None:
        self._entries.clear()

    def left(self, first: int, end: int) -> list[Range]:
        """What may be delivered of an entry."""
        if self._stored is None or not self._stored.held:
            return self._acked.unacked(first, end)
        return self._stored.left(first, end)

    def add(self, producer: int, base: int, slot: int, ranges: list[Range]) -> None:
        entries = self._entries.setdefault(producer, {})
        _, before = entries.get(base, (slot, []))
        entries[base] = slot, merged([*before, *ranges])

    def note(self, entry: Delivery, slot: int) -> None:
        """Remember which transactions hold a part of an entry, to deliver it if they abort."""
        if self._stored is None or not self._stored.held:
            return
        for producer in self._stored.held:
            ranges = self._stored.held_by(producer, entry.base, entry.end)
            if isinstance(entry, MessageEntry):
                if ranges:
                    self.add(producer, entry.base, slot, ranges)
                continue
            for offset in (one for first, end in ranges for one in range(first, end)):
                self.add(producer, offset, -1, [(offset, offset + 1)])

    def release(self) -> list[tuple[int, int]]:
        """Base and slot of the entries that ended transactions held and did not acknowledge."""
        open_ones = {} if self._stored is None else self._stored.held
        return [
            (base, slot)
            for producer in [one for one in self._entries if one not in open_ones]
            for base, (slot, ranges) in self._entries.pop(producer).items()
            if any(self._acked.unacked(first, end) for first, end in ranges)
        ]

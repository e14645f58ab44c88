"""Entries that are delivered again or later: returned ones, those whose consumer has no room, and delayed ones."""

from __future__ import annotations

import heapq

from mainstem import limits
from mainstem.broker.subscriptions.entries import MessageEntry

HELD_ENTRIES_MAX = 2_000  # read, and waiting for a consumer of their slot
HELD_BYTES_MAX = 16 * limits.MIB
DELAYED_ENTRIES_MAX = 100_000  # reading stops here until some of them are due


class WaitingEntries:
    """Entries of one subscription, by their first offset."""

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}  # base → slot
        self._held: dict[int, MessageEntry] = {}  # some of them, with their bytes
        self._held_bytes = 0
        self.added = 0  # entries, ever
        self._delayed: list[tuple[int, int, int]] = []  # (due ms, base, slot), a heap
        self._delayed_bases: set[int] = set()

    def __len__(self) -> int:
        """Entries that can be delivered now."""
        return len(self._slots)

    def __contains__(self, base: int) -> bool:
        return base in self._slots

    @property
    def delayed(self) -> int:
        """Entries that are not due yet."""
        return len(self._delayed)

    @property
    def full(self) -> bool:
        return len(self._slots) >= HELD_ENTRIES_MAX or len(self._delayed) >= DELAYED_ENTRIES_MAX

    def in_order(self) -> list[int]:
        return sorted(self._slots)

    def slot(self, base: int) -> int | None:
        return self._slots.get(base)

    def entry(self, base: int) -> MessageEntry | None:
        """With its bytes, if they are here."""
        return self._held.get(base)

    def add(self, base: int, slot: int, entry: MessageEntry | None = None) -> None:
        self._slots[base] = slot
        self.added += 1
        if entry is not None:
            self.keep(entry)

    def keep(self, entry: MessageEntry) -> None:
        """Spare a later read, as far as there is room."""
        if entry.base not in self._held and self._held_bytes + entry.size <= HELD_BYTES_MAX:
            self._held[entry.base] = entry
            self._held_bytes += entry.size

    def remove(self, base: int) -> None:
        del self._slots[base]
        held = self._held.pop(base, None)
        if held is not None:
            self._held_bytes -= held.size

    def delay(self, entry: MessageEntry, slot: int) -> None:
        """It can be delivered once it is due."""
        if entry.base not in self._delayed_bases:
            self._delayed_bases.add(entry.base)
            heapq.heappush(self._delayed, (entry.deliver_at_ms, entry.base, slot))

    @property
    def due_ms(self) -> int | None:
        """When the next delayed one is due."""
        return self._delayed[0][0] if self._delayed else None

    def release_due(self, now_ms: int) -> None:
        while self._delayed and self._delayed[0][0] <= now_ms:
            _, base, slot = heapq.heappop(self._delayed)
            self._delayed_bases.discard(base)
            self.add(base, slot)

    def clear(self) -> None:
        self._slots.clear()
        self._held.clear()
        self._held_bytes = 0
        self._delayed.clear()
        self._delayed_bases.clear()

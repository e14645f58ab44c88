"""What consumers of a subscription got and have not acknowledged: entries one by one, and runs of single records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import MessageEntry, MessageRun
from mainstem.ledger.subscriptions import Range


class PendingEntry:
    """An entry that a consumer got and has not acknowledged in full."""

    __slots__ = ("_left", "base", "consumer", "count", "left", "slot", "unacked")

    def __init__(
        self, entry: MessageEntry, consumer: SubscriptionConsumer, slot: int, left: list[Range]
    ) -> None:
        self.base = entry.base
        self.count = entry.count
        self.consumer = consumer
        self.slot = slot
        self.left = left  # not acknowledged when it was delivered
        self.unacked = min(entry.present, sum(end - first for first, end in left))  # messages
        self._left: set[int] | None = None

    @property
    def end(self) -> int:
        return self.base + self.count

    def settle(self, ranges: list[Range]) -> int:
        """Some of it is acknowledged. Returns how many messages that are."""
        if self._left is None:
            self._left = {offset for first, end in self.left for offset in range(first, end)}
        for first, last in ranges:
            self._left.difference_update(range(max(first, self.base), min(last, self.end)))
        settled = max(0, self.unacked - len(self._left))
        self.unacked -= settled
        return settled


class PendingRun:
    """Entries of one record each, at consecutive offsets, that a consumer got. Some of them may be settled."""

    __slots__ = ("base", "consumer", "count", "left")

    def __init__(self, base: int, count: int, consumer: SubscriptionConsumer) -> None:
        self.base = base
        self.count = count
        self.consumer = consumer
        self.left = (1 << count) - 1  # a bit for each that is not settled

    @property
    def unacked(self) -> int:
        return self.left.bit_count()

    @property
    def end(self) -> int:
        return self.base + self.count

    def part(self, first: int, end: int) -> int:
        """The bits of the offsets of [first, end) that are not settled."""
        low, high = max(first - self.base, 0), min(end - self.base, self.count)
        return self.left & ((1 << high) - (1 << low)) if low < high else 0

    def offsets(self) -> Iterator[int]:
        """Those that are not settled."""
        left = self.left
        while left:
            lowest = left & -left
            yield self.base + lowest.bit_length() - 1
            left ^= lowest


class PendingEntries:
    """Delivered entries of one subscription. Keeps the count of unacknowledged messages of its consumers."""

    def __init__(self) -> None:
        self._entries: dict[int, PendingEntry] = {}  # by base, in the order of delivery
        self._runs: dict[int, PendingRun] = {}  # by base
        self._bases: list[int] = []  # of the runs, sorted
        self._in_runs = 0  # offsets of runs that are not settled

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries) + self._in_runs

    def __contains__(self, base: int) -> bool:
        return base in self._entries or self.run_at(base) is not None

    def get(self, base: int) -> PendingEntry | None:
        """An entry that is not part of a run."""
        return self._entries.get(base)

    def run_at(self, offset: int) -> PendingRun | None:
        """The run that holds an offset which is not settled."""
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return None
        run = self._runs[self._bases[at]]
        return run if run.part(offset, offset + 1) else None

    def entries(self) -> list[PendingEntry]:
        """Those that are not part of a run, in the order of delivery."""
        return list(self._entries.values())

    def runs(self) -> list[PendingRun]:
        """In the order of offsets."""
        return [self._runs[base] for base in self._bases]

    def add(self, entry: MessageEntry, consumer: SubscriptionConsumer, slot: int, left: list[Range]) -> int:
        """Returns how many messages the consumer has to acknowledge."""
        pending = self._entries[entry.base] = PendingEntry(entry, consumer, slot, left)
        consumer.unacked += pending.unacked
        return pending.unacked

    def add_run(self, run: MessageRun, consumer: SubscriptionConsumer) -> None:
        self._runs[run.base] = PendingRun(run.base, run.count, consumer)
        if self._bases and run.base < self._bases[-1]:
            insort(self._bases, run.base)
        else:
            self._bases.append(run.base)
        self._in_runs += run.count
        consumer.unacked += run.count

    def holds_run(self, first: int, end: int) -> bool:
        """Whether all of these offsets are parts of runs, and not settled."""
        while first < end:
            run = self.run_at(first)
            if run is None:
                return False
            stop = min(end, run.end)
            if run.part(first, stop).bit_count() < stop - first:
                return False
            first = stop
        return True

    def settle_runs(self, first: int, end: int) -> None:
        """These offsets are no longer pending, as far as they are parts of runs."""
        at = max(bisect_right(self._bases, first) - 1, 0)
        stop = bisect_left(self._bases, end, at)
        found = self._bases[at:stop]
        gone = 0
        for base in found:
            run = self._runs[base]
            part = run.part(first, end)
            if part:
                run.left ^= part
                count = part.bit_count()
                run.consumer.unacked -= count
                self._in_runs -= count
            if not run.left:
                del self._runs[base]
                gone += 1
        if gone:
            self._bases[at:stop] = [base for base in found if base in self._runs]

    def drop(self, pending: PendingEntry) -> None:
        del self._entries[pending.base]
        pending.consumer.unacked -= pending.unacked

    def drop_first(self) -> PendingEntry | None:
        """Forget what was delivered first. An entry that is not part of a run is returned, to be dropped."""
        entry = next(iter(self._entries.values()), None)
        if self._bases and (entry is None or self._bases[0] < entry.base):
            run = self._runs[self._bases[0]]
            self.settle_runs(run.base, run.end)
            return None
        return entry

    def containing(self, offset: int) -> int | None:
        """The end of the entry that holds an offset; None if none does. For entries in the order of offsets."""
        if self.run_at(offset) is not None:
            return offset + 1
        for pending in self._entries.values():
            if offset < pending.end:
                return pending.end if offset >= pending.base else None
        return None

    def clear(self) -> None:
        for pending in self._entries.values():
            pending.consumer.unacked -= pending.unacked
        for run in self._runs.values():
            run.consumer.unacked -= run.unacked
        self._entries.clear()
        self._runs.clear()
        self._bases.clear()
        self._in_runs = 0

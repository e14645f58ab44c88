"""Holes: offsets of one stream that hold no live record, as half-open intervals with a reason."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from mainstem.ledger.digest import MASK, hash_fields, mix

# Reasons that readers skip silently; every other one is a loss.
DELETED = ""  # removed on request
ABORTED = "aborted"  # written by a transaction that was aborted
MARKER = "marker"  # the end of a transaction: an offset without a record

# Losses with a name of their own.
SOURCE_TRIM = "source_trim"  # a router's source deleted the record before it was copied
JUMPED = frozenset(("ephemeral", "unclean shutdown"))  # the stream continued at its ceiling: see Streams.jump

_SILENT = frozenset((DELETED, ABORTED, MARKER))
_COUNTLESS = {ABORTED: 1 << 40, MARKER: 1 << 41}  # hashed cheaply, under a number added to the stream's


def is_loss(reason: str) -> bool:
    return reason not in _SILENT


class Holes:
    """Disjoint intervals by offset, each with its first reason. Neighbours of one reason merge.

    `digest` is the sum of the intervals' hashes, kept as they change."""

    __slots__ = ("_deletions", "_ends", "_losses", "_reasons", "_starts", "digest", "stream")

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.digest = 0
        # Arrays, because a stream that is written in transactions has a hole for each of them.
        self._starts: array[int] = array("q")
        self._ends: array[int] = array("q")
        self._reasons: list[str] = []
        # The number of holes for these reasons: mostly 0, which saves a search.
        self._losses = 0
        self._deletions = 0

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int, str]]:
        return zip(self._starts, self._ends, self._reasons, strict=True)

    def add(self, start: int, end: int, reason: str) -> list[tuple[int, int]]:
        """Cover [start, end). Returns the parts that were not covered yet; the others keep their reason."""
        last = self._ends[-1] if self._ends else -1
        if start > last or (start == last and reason != self._reasons[-1]):
            self._append(start, end, reason)
            return [(start, end)]
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        fresh: list[tuple[int, int]] = []
        pieces: list[tuple[int, int, str]] = []
        at = start
        for index in range(low, high):
            if at < self._starts[index]:
                fresh.append((at, self._starts[index]))
                pieces.append((at, self._starts[index], reason))
            pieces.append((self._starts[index], self._ends[index], self._reasons[index]))
            at = self._ends[index]
        if at < end:
            fresh.append((at, end))
            pieces.append((at, end, reason))
        if fresh:
            self._replace(low, high, pieces)
        return fresh

    def _append(self, start: int, end: int, reason: str) -> None:
        self._starts.append(start)
        self._ends.append(end)
        self._reasons.append(reason)
        self._count(reason, 1)
        self.digest = (self.digest + self._hash(start, end, reason)) & MASK

    def _count(self, reason: str, change: int) -> None:
        if reason == DELETED:
            self._deletions += change
        elif is_loss(reason):
            self._losses += change

    def _replace(self, low: int, high: int, pieces: list[tuple[int, int, str]]) -> None:
        """Replace intervals low..high by `pieces`, merged with the neighbours they touch."""
        if low > 0 and self._ends[low - 1] == pieces[0][0]:
            low -= 1
            pieces.insert(0, (self._starts[low], self._ends[low], self._reasons[low]))
        if high < len(self._starts) and self._starts[high] == pieces[-1][1]:
            pieces.append((self._starts[high], self._ends[high], self._reasons[high]))
            high += 1
        merged = [pieces[0]]
        for start, end, reason in pieces[1:]:
            last_start, last_end, last_reason = merged[-1]
            if last_end == start and last_reason == reason:
                merged[-1] = (last_start, end, reason)
            else:
                merged.append((start, end, reason))
        for index in range(low, high):
            self.digest -= self._hash(self._starts[index], self._ends[index], self._reasons[index])
            self._count(self._reasons[index], -1)
        for start, end, reason in merged:
            self.digest += self._hash(start, end, reason)
            self._count(reason, 1)
        self.digest &= MASK
        self._starts[low:high] = array("q", [piece[0] for piece in merged])
        self._ends[low:high] = array("q", [piece[1] for piece in merged])
        self._reasons[low:high] = [piece[2] for piece in merged]

    def cut(self, floor: int) -> None:
        """Drop everything below `floor`."""
        gone = bisect_right(self._ends, floor)
        for index in range(gone):
            self.digest -= self._hash(self._starts[index], self._ends[index], self._reasons[index])
            self._count(self._reasons[index], -1)
        del self._starts[:gone], self._ends[:gone], self._reasons[:gone]
        if self._starts and self._starts[0] < floor:
            self.digest -= self._hash(self._starts[0], self._ends[0], self._reasons[0])
            self._starts[0] = floor
            self.digest += self._hash(floor, self._ends[0], self._reasons[0])
        self.digest &= MASK

    def deleted_prefix(self, start: int) -> int:
        """The end of the deleted records right after `start`, with markers and aborted records among them; `start`
        if there are none. An abort alone does not move it: a waiting reader would lose its position."""
        if not self._deletions:
            return start
        reached = at = start
        for first, last, reason in self:
            if first != at or is_loss(reason):
                break
            at = last
            if reason == DELETED:
                reached = last
        return reached

    def overlapping(self, start: int, end: int) -> Iterator[tuple[int, int, str]]:
        """The whole holes that overlap [start, end)."""
        for index in range(bisect_right(self._ends, start), bisect_left(self._starts, end)):
            yield self._starts[index], self._ends[index], self._reasons[index]

    def deleted(self, start: int, end: int) -> list[tuple[int, int]]:
        """Those of the overlapping holes that were made on request."""
        if not self._deletions:
            return []
        return [(first, last) for first, last, reason in self.overlapping(start, end) if reason == DELETED]

    def next_loss(self, offset: int) -> tuple[int, int, str] | None:
        """The first loss that ends after `offset`."""
        if not self._losses:
            return None
        for index in range(bisect_right(self._ends, offset), len(self._starts)):
            if is_loss(self._reasons[index]):
                return self._starts[index], self._ends[index], self._reasons[index]
        return None

    def covers(self, offset: int, *, aborted: bool = True) -> bool:
        """Whether an offset is in a hole; `aborted`: in one of an aborted transaction, too."""
        return any(aborted or reason != ABORTED for _, _, reason in self.overlapping(offset, offset + 1))

    def covered(self, start: int, end: int) -> int:
        """How many offsets of [start, end) are holes."""
        low = bisect_right(self._ends, start)
        high = bisect_left(self._starts, end)
        return sum(
            min(end, self._ends[index]) - max(start, self._starts[index]) for index in range(low, high)
        )

    def live(self, start: int, end: int, *, aborted: bool = False) -> Iterator[tuple[int, int]]:
        """The parts of [start, end) that are not holes; `aborted`: records of aborted transactions count as live."""
        at = start
        for index in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[index] >= end:
                break
            if aborted and self._reasons[index] == ABORTED:
                continue
            if at < self._starts[index]:
                yield at, self._starts[index]
            at = self._ends[index]
        if at < end:
            yield at, end

    def past(self, start: int, end: int, records: int) -> int:
        """The offset right after the `records`-th live one of [start, end); `end` if there are fewer."""
        for first, last in self.live(start, end):
            if records <= last - first:
                return first + records
            records -= last - first
        return end

    def _hash(self, start: int, end: int, reason: str) -> int:
        number = _COUNTLESS.get(reason)
        if number is None:
            return hash_fields("hole", self.stream, start, end, reason)
        return mix(number | self.stream, start, end, 0)

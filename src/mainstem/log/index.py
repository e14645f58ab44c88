"""The index over all log objects: where the bytes of (stream, offset) are.

Memory is bounded by the number of (object, stream) pairs, not by the number of slices: every object keeps one
span a stream, and only the growing object and the last few used ones keep their extents. A look-up that needs
another object's extents raises `NotLoaded`; the caller reads them off the loop, hands them to `load` and asks again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from itertools import repeat

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import invariant
from mainstem.log.extents import Extent, OpenExtents, Rows, SealedExtents

_NO_BOUND_MS = (1 << 63) - 1
_FEW_EXTENTS = 16  # looked up one by one; more of them as arrays
_ROWS_AT_ONCE = 1024
_COLUMNS = ("count", "base", "start", "length", "crc", "max_timestamp")  # of a row, as an Extent has them


class NotLoaded(Exception):
    """The extents of this object are on disk only."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _StreamObjects:
    """The finished objects that hold a stream, in order, and where the stream ends in each."""

    __slots__ = ("ends", "objects")

    def __init__(self) -> None:
        self.objects: array[int] = array("Q")
        self.ends: array[int] = array("q")


class ExtentIndex:
    def __init__(self, kept_in_memory: int) -> None:
        self._kept = kept_in_memory
        self._open: OpenExtents | None = None
        self._unsealed: dict[int, SealedExtents] = {}  # finished, but the object does not carry them yet
        self._loaded: OrderedDict[int, SealedExtents] = OrderedDict()
        self._spans: dict[int, Rows] = {}
        self._of_stream: dict[int, _StreamObjects] = {}

    # Growing

    def open_object(self, number: int) -> OpenExtents:
        """The extents of the object that commits go to now."""
        if self._open is None or self._open.number != number:
            invariant(self._open is None, "the previous object is finished before the next one opens")
            self._open = OpenExtents(number)
        return self._open

    @property
    def open_number(self) -> int | None:
        return None if self._open is None else self._open.number

    def finish(self) -> SealedExtents | None:
        """Close the growing object; its extents stay in memory until `mark_sealed`."""
        if self._open is None:
            return None
        extents = self._open.sealed()
        self._open = None
        self._unsealed[extents.number] = extents
        self._register(extents)
        return extents

    def unsealed_to(self, number: int) -> list[SealedExtents]:
        """Finished objects up to this one that do not carry their index yet, in order."""
        return [extents for extents in self._unsealed.values() if extents.number <= number]

    def unsealed(self) -> list[SealedExtents]:
        """Every finished object that does not carry its index yet, in order."""
        return list(self._unsealed.values())

    def sealed_numbers(self) -> list[int]:
        """Every finished object that carries its index."""
        return [number for number in self._spans if number not in self._unsealed]

    def mark_sealed(self, number: int) -> None:
        """The object carries its index now, so memory need not."""
        self._remember(self._unsealed.pop(number))

    def add_sealed(self, extents: SealedExtents) -> None:
        """Take in an object found on disk."""
        self._register(extents)
        self._remember(extents)

    def load(self, extents: SealedExtents) -> None:
        """Answer to `NotLoaded`."""
        self._remember(extents)

    def drop(self, number: int) -> None:
        """Forget an object that is deleted."""
        spans = self._spans.pop(number)
        self._loaded.pop(number, None)
        for stream in spans["stream"].tolist():
            held = self._of_stream[stream]
            at = bisect_left(held.objects, number)
            del held.objects[at], held.ends[at]
            if not held.objects:
                del self._of_stream[stream]

    def _register(self, extents: SealedExtents) -> None:
        spans = extents.spans.copy()  # a copy, so that it does not keep all of the index alive
        self._spans[extents.number] = spans
        for stream, end in zip(spans["stream"].tolist(), spans["end"].tolist(), strict=True):
            held = self._of_stream.get(stream)
            if held is None:
                held = self._of_stream[stream] = _StreamObjects()
            held.objects.append(extents.number)
            held.ends.append(end)

    def _remember(self, extents: SealedExtents) -> None:
        self._loaded[extents.number] = extents
        self._loaded.move_to_end(extents.number)
        while len(self._loaded) > self._kept:
            self._loaded.popitem(last=False)

    def spans(self, number: int) -> Rows | None:
        """One row a stream that an object holds; None if it grows and has too many extents to go through."""
        if self._open is not None and number == self._open.number:
            return self._open.spans() if len(self._open) <= limits.STORAGE_OPEN_EXTENTS_MAX else None
        return self._spans.get(number)

    def holds(self, number: int) -> bool:
        """Whether the object is known, and was not dropped."""
        return number in self._spans

    # Looking up

    def find(self, stream: int, offset: int, max_bytes: int, end: int) -> list[Extent]:
        """Consecutive extents of one object, from the one that holds `offset` (or the first after it).

        At least one if there is any below `end`, whatever its size; none beyond `end`."""
        found: list[Extent] = []
        total = 0
        for number in self.objects_from(stream, offset):
            extents = self.extents_of(number)
            for extent in extents.from_offset(stream, offset):
                if extent.end > end or (found and total + extent.length > max_bytes):
                    return found
                found.append(extent)
                total += extent.length
                if len(found) == _FEW_EXTENTS:
                    return found + _many(extents, stream, extent.end, max_bytes - total, end)
            if found:
                return found
        return found

    def extents_of(self, number: int) -> OpenExtents | SealedExtents:
        if self._open is not None and number == self._open.number:
            return self._open
        extents = self._unsealed.get(number) or self._loaded.get(number)
        if extents is None:
            raise NotLoaded(number)
        if number in self._loaded:
            self._loaded.move_to_end(number)
        return extents

    def objects_from(self, stream: int, offset: int) -> list[int]:
        """Objects that may hold the stream at or after `offset`, in order."""
        held = self._of_stream.get(stream)
        numbers = list(held.objects[bisect_right(held.ends, offset) :]) if held else []
        if self._open is not None:
            numbers.append(self._open.number)
        return numbers

    def first_at_time(self, stream: int, offset: int, time_ms: int) -> Extent | None:
        """The first extent at or after `offset` that may hold a record of `time_ms` or later."""
        for number in self.objects_from(stream, offset):
            if not self._reaches(number, stream, time_ms):
                continue
            for extent in self.extents_of(number).from_offset(stream, offset):
                if extent.max_timestamp >= time_ms:
                    return extent
        return None

    def objects_by_time(self, stream: int, offset: int) -> list[tuple[int, int]]:
        """Objects that may hold the stream at or after `offset`, each after the latest time it may hold;
        latest first."""
        found = []
        for number in self.objects_from(stream, offset):
            spans = self._spans.get(number)
            if spans is None:
                found.append((_NO_BOUND_MS, number))  # it still grows
                continue
            at = int(np.searchsorted(spans["stream"], stream))
            found.append((int(spans["max_timestamp"][at]), number))
        return sorted(found, reverse=True)

    def _reaches(self, number: int, stream: int, time_ms: int) -> bool:
        spans = self._spans.get(number)
        if spans is None:
            return True
        return bool(spans["max_timestamp"][np.searchsorted(spans["stream"], stream)] >= time_ms)

    def first_within_bytes(self, stream: int, start: int, max_bytes: int) -> tuple[int, int]:
        """The lowest offset from which on the stream stores no more than `max_bytes`, and how many those are."""
        kept = 0
        keep_from: int | None = None
        for number in reversed(self.objects_from(stream, start)):
            extents = list(self.extents_of(number).from_offset(stream, start))
            for extent in reversed(extents):
                if kept + extent.length > max_bytes:
                    return (extent.end if keep_from is None else keep_from), kept
                kept += extent.length
                keep_from = extent.base
        return start, kept

    def dead_objects(self, is_dead: Callable[[Rows], npt.NDArray[np.bool_]]) -> list[int]:
        """Sealed objects all of whose spans are dead, in order. `is_dead` takes span rows."""
        return [
            number
            for number, spans in self._spans.items()
            if number not in self._unsealed and bool(np.all(is_dead(spans)))
        ]


def _many(
    extents: OpenExtents | SealedExtents, stream: int, offset: int, max_bytes: int, end: int
) -> list[Extent]:
    """Further extents from `offset` on that fit, of a stream that was written to a little at a time."""
    found: list[Extent] = []
    while True:
        rows = extents.rows_from(stream, offset, _ROWS_AT_ONCE)
        totals = np.cumsum(rows["length"], dtype=np.int64)
        fitting = min(
            int(np.searchsorted(totals, max_bytes, side="right")),
            int(np.searchsorted(rows["base"] + rows["count"], end, side="right")),
        )
        columns = [rows[name][:fitting].tolist() for name in _COLUMNS]
        found += map(Extent._make, zip(repeat(extents.number), *columns))
        if fitting < _ROWS_AT_ONCE:
            return found
        offset, max_bytes = found[-1].end, max_bytes - int(totals[-1])

"""The tail cache: payloads of the last commits as they arrived, already stamped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from mainstem.log.read.extents import Extent
from mainstem.records.header import Slice

# Measured overhead of a slice: the buffer object, its list entry, its start.
_SLICE_OVERHEAD_BYTES = 120
_EVICTED_KEPT = 1024  # empty places at the front of a list before it is cut


class _Payload:
    """The slices of one commit, by the byte they start at."""

    __slots__ = ("bytes", "slices", "start", "starts")

    def __init__(self, start: int, slices: Sequence[Slice], size: int) -> None:
        self.start = start
        self.slices = slices
        self.bytes = size + len(slices) * _SLICE_OVERHEAD_BYTES
        self.starts: list[int] | None = None  # computed at the first read: most payloads are never read

    def all_starts(self) -> list[int]:
        """Where each slice starts, and where the last one ends."""
        if self.starts is None:
            self.starts = list(accumulate(map(len, self.slices), initial=self.start))
        return self.starts

    def slice_at(self, start: int) -> Slice | None:
        if start == self.start and self.slices:
            return self.slices[0]
        starts = self.all_starts()
        at = bisect_right(starts, start) - 1
        return self.slices[at] if 0 <= at < len(self.slices) and starts[at] == start else None


class _ObjectTail:
    """The cached payloads of one object, in order: those from `first` on, the others are evicted."""

    __slots__ = ("first", "payloads", "starts")

    def __init__(self) -> None:
        self.first = 0
        self.payloads: list[_Payload | None] = []
        self.starts: list[int] = []

    def place(self, start: int) -> int:
        """The place of the payload that may have the slice at `start`; less than `first` if it is evicted."""
        if start >= self.starts[-1]:
            return len(self.starts) - 1  # readers at the tail want the newest
        return bisect_right(self.starts, start, self.first) - 1

    def evict(self) -> int:
        """Evict the oldest payload. Returns its size."""
        payload = self.payloads[self.first]
        self.payloads[self.first] = None
        self.first += 1
        if self.first > _EVICTED_KEPT and 2 * self.first > len(self.payloads):
            del self.payloads[: self.first], self.starts[: self.first]
            self.first = 0
        return 0 if payload is None else payload.bytes


class TailCache:
    """Slices by (object, start), bounded in bytes; the oldest commits are evicted first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._held = 0
        self._objects: dict[int, _ObjectTail] = {}  # the oldest first, none of them empty

    @property
    def held_bytes(self) -> int:
        return self._held

    def put(self, object: int, start: int, slices: Sequence[Slice], size: int) -> None:
        """Keep the payload of a commit: `slices` one after another from byte `start`, `size` bytes in all. Commits come
        in log order."""
        payload = _Payload(start, slices, size)
        tail = self._objects.get(object)
        if tail is None:
            tail = self._objects[object] = _ObjectTail()
        tail.payloads.append(payload)
        tail.starts.append(start)
        self._held += payload.bytes
        while self._held > self._capacity:
            self._evict(next(iter(self._objects)))

    def _evict(self, object: int) -> None:
        tail = self._objects[object]
        self._held -= tail.evict()
        if tail.first == len(tail.payloads):
            del self._objects[object]

    def drop_to(self, object: int) -> None:
        """Drop the payloads of objects up to this one."""
        for number in [number for number in self._objects if number <= object]:
            while number in self._objects:
                self._evict(number)

    def read(self, extents: list[Extent]) -> list[memoryview] | None:
        """The bytes of all the extents; None unless all are cached."""
        if len(extents) > 1 and extents[0].object == extents[-1].object:
            slices = self.get_all(extents[0].object, [extent.start for extent in extents])
            return None if slices is None else [memoryview(slice).toreadonly() for slice in slices]
        found = []
        for extent in extents:
            slice = self.get(extent.object, extent.start)
            if slice is None:
                return None
            found.append(memoryview(slice).toreadonly())
        return found

    def read_joined(self, extents: list[Extent]) -> memoryview | None:
        """As `read`, for extents of one object, as one run of bytes."""
        slices = self.get_all(extents[0].object, [extent.start for extent in extents])
        return None if slices is None else memoryview(b"".join(slices))

    def get(self, object: int, start: int) -> Slice | None:
        tail = self._objects.get(object)
        if tail is None:
            return None
        at = tail.place(start)
        payload = tail.payloads[at] if at >= tail.first else None
        return None if payload is None else payload.slice_at(start)

    def get_all(self, object: int, starts: Sequence[int]) -> list[Slice] | None:
        """The slices at these rising starts; None unless all are cached."""
        tail = self._objects.get(object)
        if tail is None or not starts:
            return None
        place = tail.place(starts[0])
        if place < tail.first:
            return None
        found: list[Slice] = []
        wanted, newest = 0, len(tail.payloads) - 1
        while wanted < len(starts):
            payload = tail.payloads[place]
            if payload is None:
                return None
            slices, held = payload.slices, payload.all_starts()
            at = bisect_left(held, starts[wanted])
            while at < len(slices) and wanted < len(starts) and held[at] <= starts[wanted]:
                if held[at] == starts[wanted]:
                    found.append(slices[at])
                    wanted += 1
                at += 1
            if wanted < len(starts) and (place == newest or tail.starts[place + 1] > starts[wanted]):
                return None
            place += 1
        return found

"""The tail cache: payloads of the last commits as they arrived, already stamped."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate, islice

from mainstem.log.read.extents import Extent
from mainstem.records.header import Slice

# Measured overhead of a slice: the buffer object, its list entry, its start.
_SLICE_OVERHEAD_BYTES = 120


class _Payload:
    """The slices of one commit, by the byte they start at."""

    __slots__ = ("bytes", "slices", "start", "starts")

    def __init__(self, start: int, slices: list[Slice], size: int) -> None:
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
        starts = self.all_starts()
        at = bisect_right(starts, start) - 1
        return self.slices[at] if 0 <= at < len(self.slices) and starts[at] == start else None


class TailCache:
    """Slices by (object, start), bounded in bytes; the oldest commits are evicted first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._held = 0
        self._ages: deque[tuple[int, _Payload]] = deque()
        self._payloads: dict[int, deque[_Payload]] = {}  # by object; starts rise

    @property
    def held_bytes(self) -> int:
        return self._held

    def put(self, object: int, start: int, slices: list[Slice], size: int) -> None:
        """Keep the payload of a commit: `slices` one after another from byte `start`, `size` bytes in all."""
        payload = _Payload(start, slices, size)
        self._ages.append((object, payload))
        self._payloads.setdefault(object, deque()).append(payload)
        self._held += payload.bytes
        while self._held > self._capacity:
            self._evict()

    def _evict(self) -> None:
        object, payload = self._ages.popleft()
        payloads = self._payloads[object]
        payloads.popleft()
        if not payloads:
            del self._payloads[object]
        self._held -= payload.bytes

    def drop_to(self, object: int) -> None:
        """Drop the payloads of objects up to this one."""
        while self._ages and self._ages[0][0] <= object:
            self._evict()

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
        payloads = self._payloads.get(object)
        if payloads is None or start < payloads[0].start:
            return None
        return self._last_from(payloads, start).slice_at(start)

    def get_all(self, object: int, starts: Sequence[int]) -> list[Slice] | None:
        """The slices at these rising starts; None unless all are cached."""
        payloads = self._payloads.get(object)
        if payloads is None or not starts or starts[0] < payloads[0].start:
            return None
        following = iter(payloads)
        if len(payloads) > 1:
            at = bisect_right(payloads, starts[0], key=lambda payload: payload.start) - 1
            following = islice(payloads, at, None)
        payload = next(following)
        found: list[Slice] = []
        wanted = 0
        while wanted < len(starts):
            slices, held = payload.slices, payload.all_starts()
            at = bisect_left(held, starts[wanted])
            while at < len(slices) and wanted < len(starts) and held[at] <= starts[wanted]:
                if held[at] == starts[wanted]:
                    found.append(slices[at])
                    wanted += 1
                at += 1
            upcoming = next(following, None)
            if wanted < len(starts) and (upcoming is None or upcoming.start > starts[wanted]):
                return None
            payload = upcoming or payload
        return found

    @staticmethod
    def _last_from(payloads: deque[_Payload], start: int) -> _Payload:
        # Readers at the tail want the newest payload: check it first, then bisect.
        newest = payloads[-1]
        if newest.start <= start:
            return newest
        return payloads[bisect_right(payloads, start, key=lambda payload: payload.start) - 1]

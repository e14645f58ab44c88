"""Tracked records: the size and time of each record of one stream, as arrays that grow at the end."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mainstem.errors import invariant

_FIRST_ROWS = 16
_NEVER = np.iinfo(np.int64).max  # time of an erased row: it can no longer expire

Int64s = npt.NDArray[np.int64]


class TrackedRecords:
    """One row per record with offset >= `since`; rows below the stream's start are dropped.

    Each row has its offset, because a boot may move the stream's end past a gap of any size.
    Erased records (deleted or lost) keep a row of size 0."""

    __slots__ = ("_head", "_offsets", "_sizes", "_tail", "_times", "bytes", "since")

    def __init__(self, since: int) -> None:
        self.since = since  # the stream's end when tracking began
        self.bytes = 0  # live logical bytes of the rows
        self._head = 0
        self._tail = 0
        self._offsets = np.empty(_FIRST_ROWS, np.int64)
        self._sizes = np.empty(_FIRST_ROWS, np.uint32)
        self._times = np.empty(_FIRST_ROWS, np.int64)

    def __len__(self) -> int:
        return self._tail - self._head

    @property
    def offsets(self) -> Int64s:
        return self._offsets[self._head : self._tail]

    @property
    def sizes(self) -> npt.NDArray[np.uint32]:
        return self._sizes[self._head : self._tail]

    @property
    def times(self) -> Int64s:
        return self._times[self._head : self._tail]

    def append(
        self, offset: int, sizes: npt.NDArray[np.integer], times: npt.NDArray[np.integer] | int, size: int
    ) -> None:
        """Rows for consecutive offsets from `offset` on; `size` is the sum of `sizes`."""
        count = len(sizes)
        if self._tail + count > len(self._offsets):
            self._make_room(count)
        tail = self._tail
        invariant(tail == self._head or self._offsets[tail - 1] < offset, "tracked rows rise by offset")
        self._offsets[tail : tail + count] = (
            range(offset, offset + count) if count < 8 else np.arange(offset, offset + count)
        )
        self._sizes[tail : tail + count] = sizes
        self._times[tail : tail + count] = times
        self._tail = tail + count
        self.bytes += size

    def _make_room(self, count: int) -> None:
        """Move live rows to the front of arrays at least twice as large as needed."""
        live = len(self)
        capacity = max(_FIRST_ROWS, 2 * (live + count))
        for name in ("_offsets", "_sizes", "_times"):
            old = getattr(self, name)
            new = np.empty(capacity, old.dtype)
            new[:live] = old[self._head : self._tail]
            setattr(self, name, new)
        self._head, self._tail = 0, live

    def cut(self, floor: int) -> int:
        """Drop the rows below `floor`. Returns their live bytes."""
        stop = self._head + int(self.offsets.searchsorted(floor))
        removed = int(self._sizes[self._head : stop].sum(dtype=np.int64))
        self._head = stop
        self.bytes -= removed
        if self._head == self._tail:
            self._head = self._tail = 0
        return removed

    def erase(self, start: int, end: int) -> int:
        """Erase records [start, end). Returns the bytes they held."""
        low, high = np.searchsorted(self.offsets, (start, end))
        sizes = self.sizes[low:high]
        removed = int(sizes.sum(dtype=np.int64))
        sizes[:] = 0
        self.times[low:high] = _NEVER
        self.bytes -= removed
        return removed

    def floor_freeing(self, excess: int) -> int:
        """The lowest floor that frees at least `excess` (> 0) bytes."""
        invariant(0 < excess <= self.bytes, "no more is freed than the rows hold")
        if self._sizes[self._head] >= excess:
            return int(self._offsets[self._head]) + 1
        at, step = self._head, 64
        while True:
            freed = np.cumsum(self._sizes[at : min(at + step, self._tail)], dtype=np.int64)
            if freed[-1] >= excess:
                return int(self._offsets[at + int(np.searchsorted(freed, excess))]) + 1
            excess -= int(freed[-1])
            at += len(freed)
            step *= 4  # usually a few records are dropped at once, but a tighter cap may drop millions

    def expired(self, before_ms: int) -> list[tuple[int, int]]:
        """Offsets of live records older than `before_ms`, as half-open ranges."""
        offsets = self.offsets[self.times < before_ms]
        if not len(offsets):
            return []
        breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
        starts = offsets[np.concatenate(([0], breaks))]
        ends = offsets[np.concatenate((breaks - 1, [-1]))] + 1
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def expired_prefix(self, before_ms: int) -> int | None:
        """The offset after the last record older than `before_ms`, up to the first live record that is younger.

        Erased records do not count. Scans no more rows than needed."""
        times = self.times
        at, step, last = 0, 64, -1
        while at < len(times):
            window = times[at : at + step]
            young = np.flatnonzero((window >= before_ms) & (window != _NEVER))
            old = np.flatnonzero(window[: young[0] if len(young) else len(window)] < before_ms)
            if len(old):
                last = at + int(old[-1])
            if len(young):
                break
            at += len(window)
            step *= 4
        return None if last < 0 else int(self.offsets[last]) + 1

    def encode(self) -> tuple[int, bytes, bytes, bytes]:
        return self.since, self.offsets.tobytes(), self.sizes.tobytes(), self.times.tobytes()

    @classmethod
    def decode(cls, since: int, offsets: bytes, sizes: bytes, times: bytes) -> TrackedRecords:
        columns = cls(since)
        columns._offsets = np.frombuffer(offsets, np.int64).copy()
        columns._sizes = np.frombuffer(sizes, np.uint32).copy()
        columns._times = np.frombuffer(times, np.int64).copy()
        columns._tail = len(columns._offsets)
        invariant(
            columns._tail == len(columns._sizes) == len(columns._times), "tracked columns are of one length"
        )
        columns.bytes = int(columns._sizes.sum(dtype=np.int64))
        return columns

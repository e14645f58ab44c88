"""Extents: which bytes of which log object hold which offsets of a stream.

Extent row, 36 bytes, little-endian (`EXTENT`):

| field         | type | meaning                              |
|---------------|------|--------------------------------------|
| stream        | u4   | stream number                        |
| count         | u4   | offsets covered                      |
| base          | i8   | first offset                         |
| start         | u4   | byte in the object where it starts   |
| length        | u4   | bytes                                |
| crc           | u4   | CRC32C of those bytes as stored      |
| max_timestamp | i8   | latest record time, ms               |

An index (what a sealed object carries) is: u4 version, u4 spans, u4 extents, u4 zero, then the span rows, then
the extent rows sorted by stream and base. Span row, 40 bytes (`SPAN`), one a stream in the object:

| field         | type | meaning                              |
|---------------|------|--------------------------------------|
| stream        | u4   |                                      |
| first         | u4   | its first extent row                 |
| base          | i8   | first offset in the object           |
| end           | i8   | one past the last offset             |
| bytes         | i8   | stored bytes                         |
| max_timestamp | i8   |                                      |
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem.errors import LogDamaged, NewerVersion
from mainstem.ledger.appends import AppendOutcome
from mainstem.log.read.part_cache import PartChunk
from mainstem.records.header import walk
from mainstem.records.rewrite import without_ranges

EXTENT = np.dtype(
    [
        ("stream", "<u4"),
        ("count", "<u4"),
        ("base", "<i8"),
        ("start", "<u4"),
        ("length", "<u4"),
        ("crc", "<u4"),
        ("max_timestamp", "<i8"),
    ]
)
EXTENT_PACK = struct.Struct("<IIqIIIq")
_EXTENT_BYTES = EXTENT_PACK.size
SPAN = np.dtype(
    [
        ("stream", "<u4"),
        ("first", "<u4"),
        ("base", "<i8"),
        ("end", "<i8"),
        ("bytes", "<i8"),
        ("max_timestamp", "<i8"),
    ]
)
INDEX_VERSION = 1
_INDEX_HEAD = struct.Struct("<IIII")

Rows = npt.NDArray[Any]


class Extent(NamedTuple):
    object: int
    offsets: int  # how many it covers
    base: int
    start: int
    length: int
    crc: int
    max_timestamp: int

    @property
    def end(self) -> int:
        return self.base + self.offsets


class ObjectSpan(NamedTuple):
    """The part of a stream in an object."""

    base: int
    end: int
    bytes: int
    max_timestamp: int


class OpenExtents:
    """Extents of a growing object: rows in log order, and each stream's row numbers."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._rows = np.zeros(256, EXTENT)
        self._bytes = self._rows.view(np.uint8).data
        self._used = 0
        self._of_stream: dict[int, array[int]] = {}

    def __len__(self) -> int:
        return self._used

    def add(self, stream: int, count: int, base: int, start: int, length: int, crc: int, time: int) -> None:
        if self._used == len(self._rows):
            self._grow(1)
        EXTENT_PACK.pack_into(
            self._bytes, self._used * EXTENT.itemsize, stream, count, base, start, length, crc, time
        )
        rows = self._of_stream.get(stream)
        if rows is None:
            rows = self._of_stream[stream] = array("I")
        rows.append(self._used)
        self._used += 1

    def add_run(self, rows: Sequence[tuple[int, ...]], bases: Sequence[int], start: int) -> int:
        """Add the slices of a run that begins at byte `start`. Returns where it ends. `rows`: unpacked SLICE rows;
        `bases`: their first offsets."""
        if self._used + len(rows) > len(self._rows):
            self._grow(len(rows))
        octets, used, of_stream = self._bytes, self._used, self._of_stream
        for row, base in zip(rows, bases, strict=True):
            stream, count, length, crc, time = row[:5]
            EXTENT_PACK.pack_into(octets, used * _EXTENT_BYTES, stream, count, base, start, length, crc, time)
            numbers = of_stream.get(stream)
            if numbers is None:
                numbers = of_stream[stream] = array("I")
            numbers.append(used)
            used += 1
            start += length
        self._used = used
        return start

    def extend(self, rows: Rows) -> None:
        """Add many rows, given in log order."""
        if not len(rows):
            return
        if self._used + len(rows) > len(self._rows):
            self._grow(len(rows))
        self._rows[self._used : self._used + len(rows)] = rows
        order = np.argsort(rows["stream"], kind="stable")
        sorted_streams = rows["stream"][order]
        numbers = (order + self._used).astype(np.uint32)
        cuts = np.flatnonzero(np.diff(sorted_streams)) + 1
        for first, last in _pairs(cuts, len(rows)):
            stream = int(sorted_streams[first])
            self._of_stream.setdefault(stream, array("I")).frombytes(numbers[first:last].tobytes())
        self._used += len(rows)

    def _grow(self, wanted: int) -> None:
        size = max(2 * len(self._rows), self._used + wanted)
        rows = np.zeros(size, EXTENT)
        rows[: self._used] = self._rows[: self._used]
        self._rows = rows
        self._bytes = rows.view(np.uint8).data

    def _row(self, number: int) -> tuple[int, int, int, int, int, int, int]:
        return EXTENT_PACK.unpack_from(self._bytes, number * EXTENT.itemsize)

    def from_offset(self, stream: int, offset: int) -> Iterator[Extent]:
        """The stream's extents that end after `offset`, in order."""
        rows = self._of_stream.get(stream)
        if rows is None:
            return
        at = self._last_from(rows, offset)
        for place in range(at, len(rows)):  # not `rows[at:]`, which copies the rest for a reader of one
            _, count, base, start, length, crc, time = self._row(rows[place])
            if base + count > offset:
                yield Extent(self.number, count, base, start, length, crc, time)

    def _last_from(self, rows: array[int], offset: int) -> int:
        """The place of the last extent that begins at `offset` or before; 0 if none does."""
        end = len(rows) - 1
        last = self._base(rows[end])
        if offset >= last:
            return end  # most readers are there
        first = self._base(rows[0])
        if offset <= first:
            return 0
        # Extents of one stream often have about as many records each: search from there, in steps that double.
        guess, step = (offset - first) * end // (last - first), 1
        if self._base(rows[guess]) <= offset:
            low, high = guess, guess + 1
            while self._base(rows[high]) <= offset:
                low, high, step = high, min(high + step, end), 2 * step
        else:
            low, high = guess - 1, guess
            while self._base(rows[low]) > offset:
                low, high, step = max(low - step, 0), low, 2 * step
        if high - low == 1:
            return low
        return bisect_right(rows, offset, low, high, key=self._base) - 1

    def _base(self, number: int) -> int:
        return self._row(number)[2]

    def rows_from(self, stream: int, offset: int, count: int) -> Rows:
        """The stream's rows that begin at `offset` or later, in order: the first `count`, copied."""
        rows = self._of_stream.get(stream)
        if rows is None:
            return np.empty(0, EXTENT)
        at = bisect_left(rows, offset, key=lambda number: self._row(number)[2])
        return self._rows[np.frombuffer(rows[at : at + count], np.uint32)]

    def rows_of(self, stream: int, start: int, end: int) -> Rows:
        """The stream's rows that have an offset in [start, end), in order: a copy."""
        numbers = self._of_stream.get(stream)
        if numbers is None:
            return np.empty(0, EXTENT)
        return _within(self._rows[np.frombuffer(numbers, np.uint32).copy()], start, end)

    def lower(self, ends: npt.NDArray[np.int64]) -> None:
        """Set the end of each stream, by stream number, to where it begins in this object."""
        rows = self._rows[: self._used][::-1]
        ends[rows["stream"]] = rows["base"]  # the last assignment to a stream wins: its first row

    def slice_spans(self, streams: npt.NDArray[np.int64]) -> Rows:
        """One span for every slice of these streams, in log order."""
        rows = self._rows[: self._used]
        rows = rows[np.isin(rows["stream"], streams)]
        spans = np.zeros(len(rows), SPAN)
        for name in ("stream", "base", "max_timestamp"):
            spans[name] = rows[name]
        spans["bytes"], spans["end"] = rows["length"], rows["base"] + rows["count"]
        return spans

    def span(self, stream: int) -> None:
        """None: the object still grows."""

    def sealed(self) -> SealedExtents:
        """The same extents, sorted, as they will be stored."""
        rows = self._rows[: self._used]
        rows = rows[np.lexsort((rows["base"], rows["stream"]))]
        return SealedExtents(self.number, spans_of(rows), rows)

    def spans(self) -> Rows:
        return spans_of(self.sealed().rows)


class SealedExtents:
    """Extents of a complete object."""

    def __init__(self, number: int, spans: Rows, rows: Rows) -> None:
        self.number = number
        self.spans = spans
        self.rows = rows

    def encode(self) -> bytes:
        head = _INDEX_HEAD.pack(INDEX_VERSION, len(self.spans), len(self.rows), 0)
        return head + self.spans.tobytes() + self.rows.tobytes()

    @classmethod
    def decode(cls, number: int, data: bytes) -> SealedExtents:
        version, spans, extents, _ = _INDEX_HEAD.unpack_from(data)
        if version > INDEX_VERSION:
            raise NewerVersion(f"log object {number} has an index of version {version}: upgrade Mainstem")
        split = _INDEX_HEAD.size + spans * SPAN.itemsize
        if len(data) != split + extents * EXTENT.itemsize:
            raise LogDamaged(f"the index of log object {number} has the wrong length")
        return cls(
            number,
            np.frombuffer(data, SPAN, spans, _INDEX_HEAD.size),
            np.frombuffer(data, EXTENT, extents, split),
        )

    @property
    def memory_bytes(self) -> int:
        return self.spans.nbytes + self.rows.nbytes

    def span(self, stream: int) -> ObjectSpan | None:
        return span_of(self.spans, stream)

    def _range(self, stream: int) -> tuple[int, int]:
        at = int(np.searchsorted(self.spans["stream"], stream))
        if at == len(self.spans) or self.spans["stream"][at] != stream:
            return 0, 0
        last = int(self.spans["first"][at + 1]) if at + 1 < len(self.spans) else len(self.rows)
        return int(self.spans["first"][at]), last

    def rows_from(self, stream: int, offset: int, count: int) -> Rows:
        """The stream's rows that begin at `offset` or later, in order: the first `count`."""
        first, last = self._range(stream)
        at = first + int(np.searchsorted(self.rows["base"][first:last], offset))
        return self.rows[at : min(last, at + count)]

    def rows_of(self, stream: int, start: int, end: int) -> Rows:
        """The stream's rows that have an offset in [start, end), in order."""
        first, last = self._range(stream)
        return _within(self.rows[first:last], start, end)

    def from_offset(self, stream: int, offset: int) -> Iterator[Extent]:
        """The stream's extents that end after `offset`, in order."""
        first, last = self._range(stream)
        bases = self.rows["base"][first:last]
        at = max(int(np.searchsorted(bases, offset, side="right")) - 1, 0)
        for row in self.rows[first + at : last]:
            _, count, base, start, length, crc, time = row.item()
            if base + count > offset:
                yield Extent(self.number, count, base, start, length, crc, time)


def span_of(spans: Rows, stream: int) -> ObjectSpan | None:
    """The span of one stream, from span rows sorted by stream."""
    at = int(np.searchsorted(spans["stream"], stream))
    if at == len(spans) or spans["stream"][at] != stream:
        return None
    _, _, base, end, size, time = spans[at].item()
    return ObjectSpan(base, end, size, time)


def _within(rows: Rows, start: int, end: int) -> Rows:
    """The rows with an offset in [start, end), of one stream's rows in order."""
    ends = rows["base"] + rows["count"]
    return rows[int(np.searchsorted(ends, start, side="right")) : int(np.searchsorted(rows["base"], end))]


def extents_of(slices: Rows, outcome: AppendOutcome, starts: npt.NDArray[np.int64]) -> Rows:
    """The extents of the accepted slices, in log order. `starts`: where each slice begins in its object."""
    accepted = outcome.code == 0
    rows = slices[accepted]
    extents = np.empty(len(rows), EXTENT)
    for name in ("stream", "count", "length", "crc", "max_timestamp"):
        extents[name] = rows[name]
    extents["base"] = outcome.base[accepted]
    extents["start"] = starts[accepted]
    return extents


def spans_of(rows: Rows) -> Rows:
    """Summarise rows that are sorted by stream and base."""
    cuts = np.flatnonzero(np.diff(rows["stream"])) + 1
    firsts = np.concatenate(([0], cuts)) if len(rows) else np.empty(0, np.int64)
    spans = np.zeros(len(firsts), SPAN)
    if not len(rows):
        return spans
    lasts = np.concatenate((cuts, [len(rows)])) - 1
    spans["stream"] = rows["stream"][firsts]
    spans["first"] = firsts
    spans["base"] = rows["base"][firsts]
    spans["end"] = rows["base"][lasts] + rows["count"][lasts]
    spans["bytes"] = np.add.reduceat(rows["length"].astype(np.int64), firsts)
    spans["max_timestamp"] = np.maximum.reduceat(rows["max_timestamp"], firsts)
    return spans


def _pairs(cuts: npt.NDArray[np.int64], end: int) -> Iterator[tuple[int, int]]:
    edges = [0, *cuts.tolist(), end]
    return pairwise(edges)


# The result of a read


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Whole batches of one stream, stamped. The first may begin before the offset asked for."""

    batches: tuple[memoryview, ...]
    next_offset: int
    of_part: bool = False  # built from a part: without transaction markers and aborted records


def part_chunk(
    chunks: Sequence[PartChunk], offset: int, max_bytes: int, deleted: list[tuple[int, int]]
) -> ReadChunk:
    """The content of consecutive chunks of a part from `offset` on: at least one batch, if there is one."""
    taken: list[memoryview] = []
    size = 0
    next_offset = offset
    for chunk in chunks:
        for batch in chunk.batches:
            reach = next(walk(batch)).next_offset
            if reach <= offset:
                continue
            kept = without_ranges(batch, deleted) if deleted else batch
            if taken and size + len(kept) > max_bytes:
                return ReadChunk(tuple(taken), next_offset, of_part=True)
            if len(kept):
                taken.append(kept)
                size += len(kept)
            next_offset = reach
        next_offset = max(next_offset, chunk.end)
    return ReadChunk(tuple(taken), next_offset, of_part=True)


def extents_chunk(batches: list[memoryview], offset: int, extents: list[Extent]) -> ReadChunk:
    """The batches read from `extents` (at least from the first one), from the batch with `offset` on."""
    next_offset = extents[len(batches) - 1].end
    if extents[0].base < offset:
        batches = [from_batch_with(batches[0], offset), *batches[1:]]
    return ReadChunk(tuple(batch for batch in batches if len(batch)), next_offset)


def from_batch_with(slice: memoryview, offset: int) -> memoryview:
    """Leave out the batches that end before `offset`."""
    for header in walk(slice):
        if header.next_offset > offset:
            return slice[header.position :]
    return slice[len(slice) :]


def without(batches: list[memoryview], deleted: list[tuple[int, int]]) -> list[memoryview]:
    """Remove deleted records; batches with any are rebuilt."""
    return [without_ranges(batch, deleted) for batch in batches]

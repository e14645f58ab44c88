"""Transactions in the streams: the writes of open ones, and the markers of those that ended.

A marker takes one offset and is stored only here: 27 bytes, and 24 more if its transaction was aborted. It is
removed when the stream's start passes it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np

from mainstem.errors import invariant
from mainstem.ledger.digest import MASK, hash_fields, mix, mix_many

Ranges = tuple[tuple[int, int], ...]

_TAG = 1 << 42  # added to a stream's number, so that its markers hash differently from everything else


class Marker(NamedTuple):
    """The end of a transaction in a stream."""

    offset: int
    producer: int
    epoch: int
    committed: bool
    time_ms: int  # ledger time


class Aborted(NamedTuple):
    """An aborted transaction, whose records are not read."""

    producer: int
    first: int  # its first offset in the stream
    marker: int


class OpenWrites:
    """What an open transaction wrote to one stream: offset ranges in order, and logical bytes."""

    __slots__ = ("bytes", "ends", "starts")

    def __init__(self) -> None:
        self.starts: array[int] = array("q")
        self.ends: array[int] = array("q")
        self.bytes = 0

    @property
    def first(self) -> int:
        return self.starts[0]

    def add(self, base: int, count: int, size: int) -> None:
        if self.ends and self.ends[-1] == base:
            self.ends[-1] = base + count
        else:
            self.starts.append(base)
            self.ends.append(base + count)
        self.bytes += size

    def ranges(self) -> Ranges:
        return tuple(zip(self.starts, self.ends, strict=True))


class Markers:
    """The markers of one stream, by offset. `digest` is the sum of their hashes."""

    __slots__ = (
        "_aborted",
        "_committed",
        "_epochs",
        "_firsts",
        "_offsets",
        "_producers",
        "_times",
        "_zombies",
        "digest",
    )

    def __init__(self) -> None:
        self.digest = 0
        self._offsets: array[int] = array("q")
        self._producers: array[int] = array("q")
        self._epochs: array[int] = array("h")
        self._committed: array[int] = array("B")
        self._times: array[int] = array("q")
        # Aborted transactions that wrote something, by the offset of their marker.
        self._aborted: array[int] = array("q")
        self._firsts: array[int] = array("q")
        self._zombies: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, stream: int, marker: Marker, first: int) -> None:
        """Add the next marker. `first` is its transaction's first offset in the stream, -1 if it wrote nothing."""
        self._offsets.append(marker.offset)
        self._producers.append(marker.producer)
        self._epochs.append(marker.epoch)
        self._committed.append(marker.committed)
        self._times.append(marker.time_ms)
        if first >= 0 and not marker.committed:
            self._aborted.append(marker.offset)
            self._firsts.append(first)
            self._zombies.append(marker.producer)
        kind = marker.epoch << 1 | marker.committed
        self.digest = (self.digest + mix(_TAG | stream, marker.offset, marker.producer, kind)) & MASK

    def between(self, start: int, end: int) -> Iterator[Marker]:
        """The markers in [start, end), in order."""
        for at in range(bisect_left(self._offsets, start), bisect_left(self._offsets, end)):
            yield self._at(at)

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """Aborted transactions that may have records in [start, end), by where they began."""
        low = bisect_left(self._aborted, start)
        if low == len(self._aborted):
            return []
        firsts = np.frombuffer(self._firsts, np.int64)[low:]
        found = (np.flatnonzero(firsts < end) + low).tolist()
        return sorted(
            (Aborted(self._zombies[at], self._firsts[at], self._aborted[at]) for at in found),
            key=lambda aborted: aborted.first,
        )

    def cut(self, stream: int, floor: int) -> None:
        """Drop what is below `floor`."""
        gone = bisect_left(self._offsets, floor)
        if not gone:
            return
        self.digest = (self.digest - self._hash(stream, gone)) & MASK
        for column in (self._offsets, self._producers, self._epochs, self._committed, self._times):
            del column[:gone]
        gone = bisect_left(self._aborted, floor)
        for column in (self._aborted, self._firsts, self._zombies):
            del column[:gone]

    def _hash(self, stream: int, count: int) -> int:
        """The sum of the hashes of the first `count` markers."""
        offsets = np.frombuffer(self._offsets, np.uint64)[:count]
        producers = np.frombuffer(self._producers, np.uint64)[:count]
        epochs = np.frombuffer(self._epochs, np.int16)[:count].astype(np.uint64)
        kinds = epochs << np.uint64(1) | np.frombuffer(self._committed, np.uint8)[:count]
        return mix_many(_TAG | stream, offsets, producers, kinds)

    def _at(self, at: int) -> Marker:
        return Marker(
            self._offsets[at],
            self._producers[at],
            self._epochs[at],
            bool(self._committed[at]),
            self._times[at],
        )

    def encode(self) -> list[bytes]:
        return [column.tobytes() for column in self._columns()]

    def _columns(self) -> tuple[array[int], ...]:
        return (
            self._offsets,
            self._producers,
            self._epochs,
            self._committed,
            self._times,
            self._aborted,
            self._firsts,
            self._zombies,
        )

    @classmethod
    def decode(cls, stream: int, columns: list[bytes]) -> Markers:
        markers = cls()
        for column, body in zip(markers._columns(), columns, strict=True):
            column.frombytes(body)
        markers.digest = markers._hash(stream, len(markers))
        return markers


class StreamTransactionsState(msgspec.Struct, frozen=True, array_like=True):
    """For each stream that has any: open writes in the order they began, and markers."""

    # stream, then (producer, bytes, starts as i8, ends as i8, little-endian)
    open: list[tuple[int, list[tuple[int, int, bytes, bytes]]]]
    markers: list[tuple[int, list[bytes]]]  # stream, then the columns of `Markers`


class StreamTransactions:
    """The open writes and the markers of every stream."""

    def __init__(self) -> None:
        # stream → producer → writes. Writes begin at rising offsets, so the first of a dict began first.
        self._open: dict[int, dict[int, OpenWrites]] = {}
        self._markers: dict[int, Markers] = {}
        self.touched: set[int] = set()  # streams with either: their readers have to mind transactions

    # Reads

    def first_open(self, stream: int) -> int | None:
        """Where the oldest open transaction began to write."""
        writes = self._open.get(stream)
        return next(iter(writes.values())).first if writes else None

    def open_since(self, stream: int, producer: int) -> int:
        """Where this producer's open transaction began to write; -1 if it wrote nothing."""
        writes = self._open.get(stream, {}).get(producer)
        return -1 if writes is None else writes.first

    def markers(self, stream: int, start: int, end: int) -> Iterator[Marker]:
        markers = self._markers.get(stream)
        return iter(()) if markers is None else markers.between(start, end)

    def aborted(self, stream: int, start: int, end: int) -> list[Aborted]:
        markers = self._markers.get(stream)
        return [] if markers is None else markers.aborted(start, end)

    def is_open(self, stream: int, producer: int) -> bool:
        writes = self._open.get(stream)
        return writes is not None and producer in writes

    # Changes

    def wrote(self, stream: int, producer: int, base: int, count: int, size: int) -> None:
        """A slice of an open transaction was appended."""
        writes = self._open.setdefault(stream, {})
        self.touched.add(stream)
        one = writes.get(producer)
        if one is None:
            one = writes[producer] = OpenWrites()
        one.add(base, count, size)

    def close(self, stream: int, producer: int) -> OpenWrites | None:
        """End the producer's transaction in this stream. Returns what it wrote."""
        writes = self._open.get(stream)
        if writes is None:
            return None
        closed = writes.pop(producer, None)
        if not writes:
            del self._open[stream]
            self._untouch(stream)
        return closed

    def mark(self, stream: int, marker: Marker, first: int) -> None:
        self._markers.setdefault(stream, Markers()).add(stream, marker, first)
        self.touched.add(stream)

    def cut(self, stream: int, floor: int) -> None:
        """The stream starts at `floor` now."""
        markers = self._markers.get(stream)
        if markers is not None:
            markers.cut(stream, floor)
            if not markers:
                del self._markers[stream]
                self._untouch(stream)

    def forget(self, stream: int) -> None:
        """The stream is deleted."""
        self._open.pop(stream, None)
        self._markers.pop(stream, None)
        self.touched.discard(stream)

    def _untouch(self, stream: int) -> None:
        if stream not in self._open and stream not in self._markers:
            self.touched.discard(stream)

    # State as a whole

    def digest(self) -> int:
        total = sum(markers.digest for markers in self._markers.values())
        for stream, writes in self._open.items():
            for producer, one in writes.items():
                total += hash_fields("writes", stream, producer, one.bytes, one.ranges())
        return total & MASK

    def encode(self) -> StreamTransactionsState:
        return StreamTransactionsState(
            [
                (
                    stream,
                    [
                        (producer, one.bytes, one.starts.tobytes(), one.ends.tobytes())
                        for producer, one in writes.items()
                    ],
                )
                for stream, writes in sorted(self._open.items())
            ],
            [(stream, markers.encode()) for stream, markers in sorted(self._markers.items())],
        )

    @classmethod
    def decode(cls, state: StreamTransactionsState) -> StreamTransactions:
        found = cls()
        for stream, writes in state.open:
            firsts = []
            for producer, size, starts, ends in writes:
                one = found._open.setdefault(stream, {})[producer] = OpenWrites()
                one.starts.frombytes(starts)
                one.ends.frombytes(ends)
                one.bytes = size
                firsts.append(one.first)
            invariant(firsts == sorted(firsts), "open writes are kept in the order they began")
        for stream, columns in state.markers:
            found._markers[stream] = Markers.decode(stream, columns)
        found.touched.update(found._open, found._markers)
        return found

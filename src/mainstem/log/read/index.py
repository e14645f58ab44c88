"""The index over all objects: where the bytes of (stream, offset) are.

Memory is bounded whatever the history. Each of the log's own objects keeps one span a stream; these objects are few,
since older ones are repacked. Of repacked files memory holds only what the ledger records: where each begins; the rest
is in the files' own indexes. Whole indexes are kept of the growing object and of those used last, up to a size. A
look-up that needs another index raises `NotLoaded`; the caller reads it off the loop, passes it to `load` and retries.

In every repacked round each stream has an end, even where it has no bytes (see log/objects/repack/layout.py), and
the ends of a stream rise from round to round: bisection finds the first round that reaches past an offset.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import LogDamaged, invariant
from mainstem.ledger.repacked_objects import FIRST_NUMBER, RepackedObjects, RepackRound
from mainstem.log.read.extents import Extent, ObjectSpan, OpenExtents, Rows, SealedExtents, span_of

INDEX_MEMORY_BYTES = 16 * limits.MIB  # cache of the indexes of objects, and of repacked files …
INDEX_MEMORY_OBJECTS_MIN = 3  # … but at least this many of any size: a lookup may need two neighbours …
INDEX_MEMORY_FILES_MIN = 16  # … or bisect thousands of repacked rounds
STORAGE_OPEN_EXTENTS_MAX = 100_000  # of the open file; above it, they are not sorted for display

_NO_BOUND = (1 << 63) - 1
_FEW_EXTENTS = 16  # looked up one by one; more of them as arrays
_ROWS_AT_ONCE = 1024
_COLUMNS = ("count", "base", "start", "length", "crc", "max_timestamp")  # of a row, as an Extent has them


class NotLoaded(Exception):
    """The extents of this object are not in memory."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Unreadable(LogDamaged):
    """A repacked file is gone, or both copies of its index are damaged, so the records in it cannot be located.

    `end`: where other files continue the requested stream."""

    def __init__(self, number: int, key: str, end: int = _NO_BOUND, *, gone: bool = False) -> None:
        what = "is missing" if gone else "has two damaged indexes"
        super().__init__(f"the repacked file {key} {what}: restore it from a backup")
        self.number = number
        self.end = end
        self.gone = gone


class _StreamObjects:
    """The complete objects of the log that hold a stream, in order, and where the stream begins and ends in each."""

    __slots__ = ("bases", "ends", "objects")

    def __init__(self) -> None:
        self.objects: array[int] = array("Q")
        self.bases: array[int] = array("q")
        self.ends: array[int] = array("q")


class _Indexes:
    """Recently used indexes, up to a total size, but never fewer than `at_least`: one look-up may need
    several."""

    __slots__ = ("_at_least", "_bytes", "_held", "_room")

    def __init__(self, room_bytes: int, at_least: int) -> None:
        self._room = room_bytes
        self._at_least = at_least
        self._held: OrderedDict[int, SealedExtents] = OrderedDict()
        self._bytes = 0

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def get(self, number: int) -> SealedExtents | None:
        extents = self._held.get(number)
        if extents is not None:
            self._held.move_to_end(number)
        return extents

    def put(self, extents: SealedExtents) -> None:
        self.drop(extents.number)
        self._held[extents.number] = extents
        self._bytes += extents.memory_bytes
        while self._bytes > self._room and len(self._held) > self._at_least:
            self._bytes -= self._held.popitem(last=False)[1].memory_bytes

    def drop(self, number: int) -> None:
        known = self._held.pop(number, None)
        if known is not None:
            self._bytes -= known.memory_bytes


class ExtentIndex:
    def __init__(self, repacked: RepackedObjects | None = None) -> None:
        self._repacked = repacked or RepackedObjects()
        self._open: OpenExtents | None = None
        self.open_number: int | None = None  # of the object that takes commits now
        self._unsealed: dict[int, SealedExtents] = {}  # complete objects that do not carry their index yet
        self._loaded = _Indexes(INDEX_MEMORY_BYTES, INDEX_MEMORY_OBJECTS_MIN)
        self._loaded_files = _Indexes(INDEX_MEMORY_BYTES, INDEX_MEMORY_FILES_MIN)  # repacked
        self._spans: dict[int, Rows] = {}  # of the log's own objects
        self._of_stream: dict[int, _StreamObjects] = {}
        self._stale: list[Rows] = []  # streams whose `_of_stream` entry may still name repacked objects
        # Repacked files that were gone (True), or whose index was damaged, when they were last read.
        self._unreadable: dict[int, bool] = {}
        self.changes = 0  # how often an object was dropped: a search over several objects restarts then

    # Growing

    def open_object(self, number: int) -> OpenExtents:
        """The extents of the object that takes commits now."""
        if self._open is None or self._open.number != number:
            invariant(self._open is None, "the previous object is finished before the next one opens")
            self._open = OpenExtents(number)
            self.open_number = number
        return self._open

    @property
    def open_extents(self) -> int:
        """How many extents the growing object has."""
        return 0 if self._open is None else len(self._open)

    def finish(self) -> SealedExtents | None:
        """Close the growing object; its extents stay in memory until `mark_sealed`."""
        if self._open is None:
            return None
        extents = self._open.sealed()
        self._open = self.open_number = None
        self._unsealed[extents.number] = extents
        self._register(extents)
        return extents

    def unsealed_to(self, number: int) -> list[SealedExtents]:
        """Complete objects up to this one that do not carry their index yet, in order."""
        return [extents for extents in self._unsealed.values() if extents.number <= number]

    def unsealed(self) -> list[SealedExtents]:
        """All complete objects that do not carry their index yet, in order."""
        return list(self._unsealed.values())

    def sealed_numbers(self) -> list[int]:
        """All complete objects that carry their index."""
        return [number for number in self._spans if number not in self._unsealed]

    def mark_sealed(self, number: int) -> None:
        """The object carries its index now: its extents may be evicted from memory."""
        extents = self._unsealed.pop(number, None)
        if extents is not None:  # else other brokers sealed and repacked it meanwhile
            self._remember(extents)

    def add_sealed(self, extents: SealedExtents) -> None:
        """Add an object that was found on disk."""
        self._register(extents)
        self._remember(extents)

    def load(self, extents: SealedExtents) -> None:
        """Call after `NotLoaded`, or after `Unreadable` if the file was restored."""
        self._unreadable.pop(extents.number, None)
        self._remember(extents)

    def cannot_load(self, number: int, *, gone: bool = False) -> None:
        """Call after `NotLoaded` if a repacked file is gone or its index is damaged: look-ups avoid the file where
        they can."""
        self._unreadable[number] = gone

    def unreadable(self, made: RepackRound) -> bool:
        """Whether the index of a file of the round is unreadable."""
        return not self._unreadable.keys().isdisjoint(range(made.number, made.number + len(made.files)))

    def drop(self, number: int) -> None:
        """Forget an object of the log that was deleted or replaced."""
        spans = self._spans.pop(number)
        self._unsealed.pop(number, None)
        self._loaded.drop(number)
        self.changes += 1
        for stream in spans["stream"].tolist():
            held = self._of_stream[stream]
            at = bisect_left(held.objects, number)
            del held.objects[at], held.bases[at], held.ends[at]
            if not held.objects:
                del self._of_stream[stream]

    def follow_repack(self) -> None:
        """Forget the objects that the ledger says were repacked."""
        self.changes += 1
        frontier = self._repacked.frontier
        gone = [number for number in self._spans if number < frontier]
        for number in gone:
            self._unsealed.pop(number, None)
            self._loaded.drop(number)
        # They may hold many streams: each is updated when it is next looked up, or as further objects come.
        self._stale += [self._spans.pop(number)["stream"].copy() for number in gone]
        for number in [number for number in self._loaded_files if not self.holds(number)]:
            self._loaded_files.drop(number)
        self._unreadable = {number: gone for number, gone in self._unreadable.items() if self.holds(number)}

    def _sweep(self, count: int) -> None:
        """Forget repacked objects, of at least `count` stale streams."""
        while self._stale and count > 0:
            some = self._stale.pop()
            if len(some) > count:
                self._stale.append(some[:-count])
                some = some[-count:]
            for stream in some.tolist():
                self._held(stream)
            count -= len(some)

    def _held(self, stream: int) -> _StreamObjects | None:
        """The complete objects that hold a stream and were not repacked."""
        held, frontier = self._of_stream.get(stream), self._repacked.frontier
        if held is not None and held.objects[0] < frontier:
            count = bisect_left(held.objects, frontier)
            del held.objects[:count], held.bases[:count], held.ends[:count]
            if not held.objects:
                del self._of_stream[stream]
                return None
        return held

    def _register(self, extents: SealedExtents) -> None:
        spans = extents.spans.copy()  # a copy, so that it does not keep all of the index alive
        self._spans[extents.number] = spans
        for stream, base, end in zip(
            spans["stream"].tolist(), spans["base"].tolist(), spans["end"].tolist(), strict=True
        ):
            held = self._held(stream)
            if held is None:
                held = self._of_stream[stream] = _StreamObjects()
            held.objects.append(extents.number)
            held.bases.append(base)
            held.ends.append(end)
        self._sweep(len(spans))  # keeps `_stale` bounded by the number of streams in objects

    def _remember(self, extents: SealedExtents) -> None:
        self._indexes(extents.number).put(extents)

    def _indexes(self, number: int) -> _Indexes:
        return self._loaded if number < FIRST_NUMBER else self._loaded_files

    def spans(self, number: int) -> Rows | None:
        """One row for each stream of an object; None if the object grows and has too many extents."""
        if self._open is not None and number == self._open.number:
            return self._open.spans() if len(self._open) <= STORAGE_OPEN_EXTENTS_MAX else None
        return self._spans.get(number)

    def holds(self, number: int) -> bool:
        """Whether readers may use the object: it is known, and nothing replaces it."""
        return number in self._spans or self._repacked.file(number) is not None

    def indexed(self, number: int) -> bool:
        """Whether a complete object of the log was added, even if it was repacked since."""
        return number in self._spans or number < self._repacked.frontier

    def unrepacked(self, streams: npt.NDArray[np.int64]) -> list[tuple[int, Rows]]:
        """What the log's own objects, from the frontier on, hold of these streams: spans by object, in order."""
        found = [
            (number, spans[np.isin(spans["stream"], streams)])
            for number, spans in sorted(self._spans.items())
            if number >= self._repacked.frontier
        ]
        if self._open is not None:
            found.append((self._open.number, self._open.slice_spans(streams)))
        return [(number, rows) for number, rows in found if len(rows)]

    def begins_after(self, ends: npt.NDArray[np.int64], number: int) -> list[Rows]:
        """Lower the ends of streams, by stream, to where the growing object begins to hold them. Returns the spans of
        the complete objects from `number` on, the last first; the caller lowers the ends by these too."""
        if self._open is not None:
            self._open.lower(ends)
        return [self._spans[later] for later in sorted(self._spans, reverse=True) if later >= number]

    @property
    def unbroken(self) -> bool:
        """Whether no number is missing among the log's own objects that serve reads, so that no file is."""
        first, numbers = max(1, self._repacked.frontier), set(self._spans)
        if self._open is not None:
            numbers.add(self._open.number)
        return bool(numbers) and numbers.issuperset(range(first, max(numbers) + 1))

    def uncovered(self, ends: npt.NDArray[np.int64], count: int) -> Iterator[tuple[int, int, int]]:
        """Offsets of streams, from 0 to their ends, that no object of the log itself holds: (stream, start, end)."""
        reached = np.zeros(count, np.int64)
        objects = [self._spans[number] for number in sorted(self._spans)]
        if self._open is not None and len(self._open):
            objects.append(self._open.spans())
        for spans in objects:
            streams = spans["stream"].astype(np.int64)
            gaps = np.flatnonzero(spans["base"] > reached[streams])
            yield from zip(
                streams[gaps].tolist(),
                reached[streams[gaps]].tolist(),
                spans["base"][gaps].tolist(),
                strict=True,
            )
            reached[streams] = np.maximum(reached[streams], spans["end"])
        short = np.flatnonzero(reached < ends[:count])
        yield from zip(short.tolist(), reached[short].tolist(), ends[short].tolist(), strict=True)

    def repacked_end(self, stream: int) -> int:
        """One past the last offset of a stream in repacked files; 0 if they hold none of it. May raise NotLoaded."""
        rounds = self._repacked.rounds
        return self._end_in(rounds[-1], stream) if rounds else 0

    def held_to(self, number: int, stream: int) -> int:
        """The offset up to which an object may hold records of a stream. May raise NotLoaded."""
        if number >= FIRST_NUMBER:
            return self._share_end(number, stream)
        span = self.span(number, stream)
        return 0 if span is None else span.end

    # Looking up

    def find(self, stream: int, offset: int, max_bytes: int, end: int) -> list[Extent]:
        """Consecutive extents of one object, from the one that covers `offset` or the first after it.

        At least one if there is any below `end`, whatever its size; none beyond `end`."""
        found: list[Extent] = []
        total = 0
        for number in self.objects_from(stream, offset):
            if number in self._unreadable:
                if self._share_end(number, stream) > offset:
                    raise self._damaged(number, stream)
                continue
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
        """Raises NotLoaded, or FileNotFoundError if the object was dropped meanwhile."""
        if self._open is not None and number == self._open.number:
            return self._open
        extents = self._unsealed.get(number) or self._indexes(number).get(number)
        if extents is not None:
            return extents
        if not self.holds(number):
            raise FileNotFoundError(f"object {number} was deleted or replaced")
        if number in self._unreadable:
            raise self._damaged(number)
        raise NotLoaded(number)

    def objects_from(self, stream: int, offset: int) -> Iterator[int]:
        """Objects that may hold the stream at or after `offset`, in order. May raise NotLoaded."""
        held = self._held(stream)
        if self._repacked.rounds and offset < self._begins(stream, held):
            yield from self._repacked_from(stream, offset)
        if held is not None:
            yield from held.objects[bisect_right(held.ends, offset) :]
        if self._open is not None:
            yield self._open.number

    def _begins(self, stream: int, held: _StreamObjects | None) -> int:
        """Where the log's own objects begin to hold a stream; repacked files hold what is before."""
        if held is not None:
            return held.bases[0]
        first = None if self._open is None else next(self._open.from_offset(stream, 0), None)
        return _NO_BOUND if first is None else first.base

    def _repacked_from(self, stream: int, offset: int) -> Iterator[int]:
        rounds = self._repacked.rounds
        first = bisect_right(rounds, offset, key=lambda one: self._end_in(one, stream))
        for one in rounds[first:]:
            yield from one.covering(stream, offset)

    def _end_in(self, one: RepackRound, stream: int) -> int:
        number = one.covering(stream, limits.OFFSET_MAX)[-1]
        if number in self._unreadable:
            return self._begins_behind(one, stream)
        span = self.extents_of(number).span(stream)
        return 0 if span is None else span.end

    # Unreadable files

    def _damaged(self, number: int, stream: int | None = None) -> Unreadable:
        file = self._repacked.file(number)
        end = _NO_BOUND if stream is None else self._share_end(number, stream)
        return Unreadable(
            number, "" if file is None else file.key, end, gone=self._unreadable.get(number, False)
        )

    def _share_end(self, number: int, stream: int) -> int:
        """The offset up to which a file may have records of a stream: where the next file begins."""
        rounds = self._repacked.rounds
        one = next(one for one in rounds if one.number <= number < one.number + len(one.files))
        following = one.files[number - one.number + 1 :][:1]
        if following and following[0].stream == stream:
            return following[0].offset
        return self._begins_behind(one, stream)

    def _begins_behind(self, made: RepackRound, stream: int) -> int:
        """Where later rounds, or else the log's own objects, continue a stream."""
        for later in self._repacked.rounds[self._repacked.rounds.index(made) + 1 :]:
            number = later.covering(stream, 0)[0]
            span = None if number in self._unreadable else self.extents_of(number).span(stream)
            if span is not None:
                return span.base
        return self._begins(stream, self._held(stream))

    def span(self, number: int, stream: int) -> ObjectSpan | None:
        """What a complete object holds of a stream; None if nothing, or if the object still grows."""
        spans = self._spans.get(number)
        if spans is not None:
            return span_of(spans, stream)
        return self.extents_of(number).span(stream)

    def grows(self, number: int) -> bool:
        return self._open is not None and number == self._open.number

    def first_at_time(self, number: int, stream: int, offset: int, time_ms: int) -> Extent | None:
        """The first extent of an object, at or after `offset`, that may hold a record of `time_ms` or later."""
        if not self.grows(number):
            span = self.span(number, stream)
            if span is None or span.max_timestamp < time_ms:
                return None
        extents = self.extents_of(number).from_offset(stream, offset)
        return next((extent for extent in extents if extent.max_timestamp >= time_ms), None)

    def last_within_bytes(
        self, number: int, stream: int, start: int, max_bytes: int
    ) -> tuple[int, int, bool]:
        """How much of the tail of a stream in an object, from `start` on, fits into `max_bytes`: the lowest offset that
        fits, the number of bytes, and whether everything fits."""
        if not self.grows(number):
            span = self.span(number, stream)
            if span is None or (span.base >= start and span.bytes <= max_bytes):
                return (limits.OFFSET_MAX, 0, True) if span is None else (span.base, span.bytes, True)
        kept, floor = 0, limits.OFFSET_MAX
        for extent in reversed(list(self.extents_of(number).from_offset(stream, start))):
            if kept + extent.length > max_bytes:
                return (extent.end if floor == limits.OFFSET_MAX else floor), kept, False
            kept += extent.length
            floor = extent.base
        return floor, kept, True

    def dead_objects(self, all_dead: Callable[[Rows], bool]) -> list[int]:
        """Sealed objects all of whose spans are dead, in order. `all_dead` takes span rows."""
        return [
            number
            for number, spans in self._spans.items()
            if number not in self._unsealed and all_dead(spans)
        ]


def _many(
    extents: OpenExtents | SealedExtents, stream: int, offset: int, max_bytes: int, end: int
) -> list[Extent]:
    """Further extents from `offset` on that fit, of a stream with many small extents."""
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

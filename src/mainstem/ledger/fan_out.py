"""Fan-outs: what routers forwarded from a stream, stored once for all the streams that got it.

Streams that receive the same copies share a fan-out. A forward adds runs to the fan-out, and each member stream has an
open *segment* that grows with it, from some offset of the stream and some position of the fan-out. So a forward costs
the same few numbers for one stream and for a thousand. A segment closes when something else is appended to its stream;
the next forward begins another one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from mainstem.errors import invariant

GAP = -1  # origin of positions whose records were lost before they could be copied

Int64s = npt.NDArray[np.int64]


class AliasSegment(NamedTuple):
    """Offsets of a stream that are copies, and their positions in the fan-out."""

    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    fan_out: int
    position: int

    @property
    def end(self) -> int:
        return self.base + self.count


class FanOutRun(NamedTuple):
    """Positions whose records are contiguous in their origin."""

    position: int
    count: int  # type: ignore[assignment]
    origin: int  # the stream that has the bytes, or GAP
    base: int  # the first offset there
    time_ms: int  # of the copies


class FanOutState(msgspec.Struct, frozen=True, array_like=True):
    """A fan-out in a checkpoint; columns are little-endian i8."""

    number: int
    source: int
    cursor: int
    below: int
    end: int
    copies: int
    runs: list[bytes]  # positions, origins, bases, times
    members: list[bytes]  # partitions, destinations, first offsets and positions of open segments


class FanOut:
    def __init__(self, number: int, source: int, cursor: int, below: int) -> None:
        self.number = number
        self.source = source
        self.cursor = cursor  # the next offset of the source to forward
        self.below = below  # logical bytes of the source's live records below the cursor
        self.end = 0  # positions used: one per copy, and one per record that was lost before
        self.copies = 0  # positions that are not gaps
        self._positions: array[int] = array("q")
        self._origins: array[int] = array("q")
        self._bases: array[int] = array("q")
        self._times: array[int] = array("q")
        # One row per member.
        self.legs: Int64s = np.empty(0, np.int64)
        self.dests: Int64s = np.empty(0, np.int64)
        self._begun: Int64s = np.empty(0, np.int64)  # the first offset of its open segment
        self._since: Int64s = np.empty(0, np.int64)  # … and its first position

    # Members

    def reaches(self, dest: int) -> bool:
        return bool((self.dests == dest).any())

    def join(self, leg: int, dest: int, end: int) -> None:
        """Copy to a stream, whose end offset is `end`, from now on."""
        self.legs = np.append(self.legs, leg)
        self.dests = np.append(self.dests, dest)
        self._begun = np.append(self._begun, end)
        self._since = np.append(self._since, self.end)

    def leave(self, leg: int) -> AliasSegment | None:
        """Stop copying to this router partition's stream. Returns the segment that this closes."""
        (rows,) = np.nonzero(self.legs == leg)
        row = int(rows[0])
        segment = self._growing(row)
        for name in ("legs", "dests", "_begun", "_since"):
            setattr(self, name, np.delete(getattr(self, name), row))
        return segment if segment.count else None

    def growing(self, dest: int) -> AliasSegment | None:
        """The open segment of this stream, unless it is empty."""
        rows = np.flatnonzero(self.dests == dest)
        segment = self._growing(int(rows[0])) if len(rows) else None
        return segment if segment is not None and segment.count else None

    def _growing(self, row: int) -> AliasSegment:
        since = int(self._since[row])
        return AliasSegment(int(self._begun[row]), self.end - since, self.number, since)

    def begin(self, ends: Int64s) -> list[tuple[int, AliasSegment]]:
        """Prepare to grow: members whose streams got other records since then begin a new segment.

        `ends` are the end offsets of the members' streams. Returns the closed segments, by stream."""
        broken = np.flatnonzero(ends != self._begun + (self.end - self._since))
        over = [(int(self.dests[row]), self._growing(row)) for row in broken.tolist()]
        self._begun[broken] = ends[broken]
        self._since[broken] = self.end
        return [(dest, segment) for dest, segment in over if segment.count]

    # Runs

    def add(self, origin: int, base: int, count: int, time_ms: int) -> None:
        """Add the next positions."""
        at = self.end
        self.end += count
        if origin != GAP:
            self.copies += count
        if self._positions:
            goes_on = base == self._bases[-1] + (at - self._positions[-1]) or origin == GAP
            if origin == self._origins[-1] and time_ms == self._times[-1] and goes_on:
                return
        self._positions.append(at)
        self._origins.append(origin)
        self._bases.append(base)
        self._times.append(time_ms)

    def runs(self, start: int, end: int) -> Iterator[FanOutRun]:
        """The runs at positions [start, end), clipped to that range."""
        at = bisect_right(self._positions, start) - 1
        invariant(at >= 0 or start >= end, "a fan-out keeps the runs that its segments read")
        while start < end:
            last = self._positions[at + 1] if at + 1 < len(self._positions) else self.end
            stop = min(last, end)
            base = self._bases[at] + (start - self._positions[at])
            yield FanOutRun(start, stop - start, self._origins[at], base, self._times[at])
            start = stop
            at += 1

    @property
    def start(self) -> int:
        """The first position that is not pruned."""
        return self._positions[0] if self._positions else self.end

    def all_runs(self) -> Iterator[FanOutRun]:
        return self.runs(self.start, self.end)

    def origins(self) -> tuple[Int64s, Int64s, Int64s]:
        """Streams, starts and ends of what the runs read."""
        counts = np.diff(np.append(np.frombuffer(self._positions, np.int64), self.end))
        origins, bases = np.frombuffer(self._origins, np.int64), np.frombuffer(self._bases, np.int64)
        kept = origins != GAP
        return origins[kept], bases[kept], bases[kept] + counts[kept]

    def first_at_time(self, start: int, end: int, time_ms: int) -> int | None:
        """The first position in [start, end) that is not a gap and has this time or a later one."""
        low = max(bisect_right(self._positions, start) - 1, 0)
        times, origins = np.frombuffer(self._times, np.int64), np.frombuffer(self._origins, np.int64)
        late = np.flatnonzero((times[low:] >= time_ms) & (origins[low:] != GAP))
        position = max(start, self._positions[low + int(late[0])]) if len(late) else end
        return position if position < end else None

    def latest_time(self, start: int, end: int) -> int | None:
        """The latest time of the positions in [start, end) that are not gaps."""
        low, high = max(bisect_right(self._positions, start) - 1, 0), bisect_left(self._positions, end)
        times, origins = np.frombuffer(self._times, np.int64), np.frombuffer(self._origins, np.int64)
        copied = times[low:high][origins[low:high] != GAP]
        return int(copied.max()) if len(copied) else None

    def prune(self, floor: int) -> None:
        """Drop runs that end at or below a position."""
        gone = bisect_right(self._positions, floor) - 1
        if gone > 0:
            del self._positions[:gone], self._origins[:gone], self._bases[:gone], self._times[:gone]

    def members_floor(self, starts: Int64s) -> int:
        """The first position that an open segment still needs, if the members' streams start at `starts`."""
        if not len(self.dests):
            return self.end
        needed = self._since + np.maximum(starts - self._begun, 0)
        return min(self.end, int(needed.min()))

    # Checkpoints

    def encode(self) -> FanOutState:
        runs = (self._positions, self._origins, self._bases, self._times)
        members = (self.legs, self.dests, self._begun, self._since)
        return FanOutState(
            self.number,
            self.source,
            self.cursor,
            self.below,
            self.end,
            self.copies,
            [column.tobytes() for column in runs],
            [column.tobytes() for column in members],
        )

    @classmethod
    def decode(cls, state: FanOutState) -> FanOut:
        fan_out = cls(state.number, state.source, state.cursor, state.below)
        fan_out.end, fan_out.copies = state.end, state.copies
        runs = (fan_out._positions, fan_out._origins, fan_out._bases, fan_out._times)
        for column, body in zip(runs, state.runs, strict=True):
            column.frombytes(body)
        fan_out.legs, fan_out.dests, fan_out._begun, fan_out._since = (
            np.frombuffer(body, np.int64).copy() for body in state.members
        )
        return fan_out

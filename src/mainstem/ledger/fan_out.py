"""Feeds: what was forwarded from a stream, kept once for all the streams that got it.

Streams that are copied to in step share a feed. A forward adds runs to the feed, and each of those streams a *segment*
that goes on growing with it: from some offset of the stream and some position of the feed on. So a forward costs the
same few numbers whether it reaches one stream or a thousand. A segment ends where something else is appended to its
stream, and the next forward begins another one.
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
    """Offsets of a stream that are copies, and the positions of the feed they are copies of."""

    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    feed: int
    position: int

    @property
    def end(self) -> int:
        return self.base + self.count


class FanOutRun(NamedTuple):
    """Positions whose records lie one after another where they were written."""

    position: int
    count: int  # type: ignore[assignment]
    origin: int  # the stream that has the bytes, or GAP
    base: int  # the first offset there
    time_ms: int  # of the copies


class FanOutState(msgspec.Struct, frozen=True, array_like=True):
    """A feed as a checkpoint holds it; columns are little-endian i8."""

    number: int
    source: int
    cursor: int
    below: int
    end: int
    copies: int
    runs: list[bytes]  # positions, origins, bases, times
    members: list[bytes]  # legs, destinations, where their segments begin, and at which position


class FanOut:
    def __init__(self, number: int, source: int, cursor: int, below: int) -> None:
        self.number = number
        self.source = source
        self.cursor = cursor  # the next offset of the source to forward
        self.below = below  # logical bytes of the source's live records below the cursor
        self.end = 0  # positions taken: one a copy, and one a record that was lost before
        self.copies = 0  # positions that are no gap
        self._positions: array[int] = array("q")
        self._origins: array[int] = array("q")
        self._bases: array[int] = array("q")
        self._times: array[int] = array("q")
        # One row a member.
        self.legs: Int64s = np.empty(0, np.int64)
        self.dests: Int64s = np.empty(0, np.int64)
        self._begun: Int64s = np.empty(0, np.int64)  # the offset where its growing segment begins
        self._since: Int64s = np.empty(0, np.int64)  # … and the position

    # Members

    def reaches(self, dest: int) -> bool:
        return bool((self.dests == dest).any())

    def join(self, leg: int, dest: int, end: int) -> None:
        """Copy to a stream, which ends at `end`, from here on."""
        self.legs = np.append(self.legs, leg)
        self.dests = np.append(self.dests, dest)
        self._begun = np.append(self._begun, end)
        self._since = np.append(self._since, self.end)

    def leave(self, leg: int) -> AliasSegment | None:
        """Copy to this leg's stream no more. Returns the segment that ends with it."""
        (rows,) = np.nonzero(self.legs == leg)
        row = int(rows[0])
        segment = self._growing(row)
        for name in ("legs", "dests", "_begun", "_since"):
            setattr(self, name, np.delete(getattr(self, name), row))
        return segment if segment.count else None

    def growing(self, dest: int) -> AliasSegment | None:
        """The segment of this stream that still grows, if it holds anything."""
        rows = np.flatnonzero(self.dests == dest)
        segment = self._growing(int(rows[0])) if len(rows) else None
        return segment if segment is not None and segment.count else None

    def _growing(self, row: int) -> AliasSegment:
        since = int(self._since[row])
        return AliasSegment(int(self._begun[row]), self.end - since, self.number, since)

    def begin(self, ends: Int64s) -> list[tuple[int, AliasSegment]]:
        """Get ready to grow: members whose streams went on without the feed begin a new segment.

        `ends` are the ends of the members' streams. Returns the segments that are over, by stream."""
        broken = np.flatnonzero(ends != self._begun + (self.end - self._since))
        over = [(int(self.dests[row]), self._growing(row)) for row in broken.tolist()]
        self._begun[broken] = ends[broken]
        self._since[broken] = self.end
        return [(dest, segment) for dest, segment in over if segment.count]

    # Runs

    def add(self, origin: int, base: int, count: int, time_ms: int) -> None:
        """Take the next positions."""
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
        """What stands at positions [start, end), cut to them."""
        at = bisect_right(self._positions, start) - 1
        invariant(at >= 0 or start >= end, "a feed keeps the runs that its segments read")
        while start < end:
            last = self._positions[at + 1] if at + 1 < len(self._positions) else self.end
            stop = min(last, end)
            base = self._bases[at] + (start - self._positions[at])
            yield FanOutRun(start, stop - start, self._origins[at], base, self._times[at])
            start = stop
            at += 1

    @property
    def start(self) -> int:
        """The first position it still knows of."""
        return self._positions[0] if self._positions else self.end

    def all_runs(self) -> Iterator[FanOutRun]:
        return self.runs(self.start, self.end)

    def origins(self) -> tuple[Int64s, Int64s, Int64s]:
        """Streams, starts and ends of all that the runs read."""
        counts = np.diff(np.append(np.frombuffer(self._positions, np.int64), self.end))
        origins, bases = np.frombuffer(self._origins, np.int64), np.frombuffer(self._bases, np.int64)
        kept = origins != GAP
        return origins[kept], bases[kept], bases[kept] + counts[kept]

    def first_at_time(self, start: int, end: int, time_ms: int) -> int | None:
        """The first position in [start, end) that is no gap, of this time or later."""
        low = max(bisect_right(self._positions, start) - 1, 0)
        times, origins = np.frombuffer(self._times, np.int64), np.frombuffer(self._origins, np.int64)
        late = np.flatnonzero((times[low:] >= time_ms) & (origins[low:] != GAP))
        position = max(start, self._positions[low + int(late[0])]) if len(late) else end
        return position if position < end else None

    def latest_time(self, start: int, end: int) -> int | None:
        """Of the positions in [start, end) that are no gap."""
        low, high = max(bisect_right(self._positions, start) - 1, 0), bisect_left(self._positions, end)
        times, origins = np.frombuffer(self._times, np.int64), np.frombuffer(self._origins, np.int64)
        copied = times[low:high][origins[low:high] != GAP]
        return int(copied.max()) if len(copied) else None

    def prune(self, floor: int) -> None:
        """Forget runs that end at or below a position."""
        gone = bisect_right(self._positions, floor) - 1
        if gone > 0:
            del self._positions[:gone], self._origins[:gone], self._bases[:gone], self._times[:gone]

    def members_floor(self, starts: Int64s) -> int:
        """The first position some growing segment still needs, where its stream starts at `starts`."""
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
        feed = cls(state.number, state.source, state.cursor, state.below)
        feed.end, feed.copies = state.end, state.copies
        runs = (feed._positions, feed._origins, feed._bases, feed._times)
        for column, body in zip(runs, state.runs, strict=True):
            column.frombytes(body)
        feed.legs, feed.dests, feed._begun, feed._since = (
            np.frombuffer(body, np.int64).copy() for body in state.members
        )
        return feed

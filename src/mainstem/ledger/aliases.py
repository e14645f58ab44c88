"""Aliases: offset ranges of a stream whose bytes are stored in another stream.

An alias never points at another alias: a copy of a copy points at the stream that has the bytes. Copies may outlive the
original records, so the log keeps the objects that `reaching` names.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from mainstem.ledger.digest import MASK, mix
from mainstem.ledger.fan_out import GAP, AliasSegment, FanOut, FanOutState, Int64s

_TAG = 1 << 43  # added to a stream's number, so that segments hash differently from everything else


class AliasRun(NamedTuple):
    """Records at [base, base + count) of a stream, stored as [origin_base, …) of `origin`."""

    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    origin: int
    origin_base: int
    time_ms: int  # of every copy

    @property
    def end(self) -> int:
        return self.base + self.count


class AliasesState(msgspec.Struct, frozen=True, array_like=True):
    next_feed: int
    digest: int
    feeds: list[FanOutState]
    # stream, then its closed segments: bases, counts, fan-outs, positions, each little-endian i8
    segments: list[tuple[int, list[bytes]]]


class AliasSegments:
    """The closed segments of one stream, by offset."""

    __slots__ = ("bases", "counts", "feeds", "positions")

    def __init__(self) -> None:
        self.bases: array[int] = array("q")
        self.counts: array[int] = array("q")
        self.feeds: array[int] = array("q")
        self.positions: array[int] = array("q")

    def __len__(self) -> int:
        return len(self.bases)

    def columns(self) -> tuple[array[int], ...]:
        return self.bases, self.counts, self.feeds, self.positions

    def add(self, segment: AliasSegment) -> None:
        at = bisect_left(self.bases, segment.base)  # nearly always appended at the end
        for column, value in zip(self.columns(), segment, strict=True):
            column.insert(at, value)

    def between(self, start: int, end: int) -> Iterator[AliasSegment]:
        """The whole segments that overlap [start, end)."""
        at = max(bisect_right(self.bases, start) - 1, 0)
        while at < len(self.bases) and self.bases[at] < end:
            segment = AliasSegment(self.bases[at], self.counts[at], self.feeds[at], self.positions[at])
            if segment.end > start:
                yield segment
            at += 1

    def cut(self, floor: int) -> None:
        """Drop the segments that end at or below `floor`."""
        gone = max(bisect_right(self.bases, floor) - 1, 0)
        if gone < len(self.bases) and self.bases[gone] + self.counts[gone] <= floor:
            gone += 1
        for column in self.columns():
            del column[:gone]


class Aliases:
    def __init__(self) -> None:
        self.feeds: dict[int, FanOut] = {}
        # A sum over every segment and run ever started. Pruning does not change it.
        self.digest = 0
        self._next_feed = 1
        self._over: dict[int, AliasSegments] = {}
        self._growing: dict[int, list[int]] = {}  # stream → the fan-outs it is a member of
        self._reached: dict[int, tuple[Int64s, Int64s]] | None = None

    # Reads

    def has(self, stream: int) -> bool:
        """Whether some of the stream's records may be copies."""
        return stream in self._over or stream in self._growing

    def segments(self, stream: int, start: int, end: int) -> Iterator[AliasSegment]:
        """The whole segments that overlap [start, end), by offset."""
        growing = [self.feeds[number].growing(stream) for number in self._growing.get(stream, ())]
        found = sorted(one for one in growing if one is not None and one.base < end and one.end > start)
        over = self._over.get(stream)
        return merge(over.between(start, end), found) if over else iter(found)

    def between(self, stream: int, start: int, end: int) -> Iterator[AliasRun]:
        """The copies at offsets [start, end), in order and clipped to that range."""
        for segment in self.segments(stream, start, end):
            fan_out, shift = self.feeds[segment.fan_out], segment.base - segment.position
            # Runs that no stream refers to may be pruned already.
            first = max(start, segment.base, fan_out.start + shift)
            for run in fan_out.runs(first - shift, min(end, segment.end) - shift):
                if run.origin != GAP:
                    yield AliasRun(run.position + shift, run.count, run.origin, run.base, run.time_ms)

    def runs(self, stream: int) -> list[AliasRun]:
        """All copies of a stream, in order."""
        return list(self.between(stream, 0, 1 << 62))

    def next_after(self, stream: int, offset: int) -> AliasRun | None:
        """The first run that ends after `offset`."""
        return next(self.between(stream, offset, 1 << 62), None)

    def first_at_time(self, stream: int, start: int, time_ms: int) -> int | None:
        """The first copy at or after `start` whose time is `time_ms` or later."""
        for segment in self.segments(stream, start, 1 << 62):
            fan_out, shift = self.feeds[segment.fan_out], segment.base - segment.position
            first = max(start, segment.base, fan_out.start + shift)
            found = fan_out.first_at_time(first - shift, segment.end - shift, time_ms)
            if found is not None:
                return found + shift
        return None

    def latest_time(self, stream: int, start: int, end: int) -> int | None:
        """The latest time of the copies at [start, end)."""
        latest: int | None = None
        for segment in self.segments(stream, start, end):
            fan_out, shift = self.feeds[segment.fan_out], segment.base - segment.position
            first, last = max(start, segment.base, fan_out.start + shift), min(end, segment.end)
            found = fan_out.latest_time(first - shift, last - shift)
            latest = found if latest is None or (found is not None and found > latest) else latest
        return latest

    def resolve(self, stream: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Where the bytes of [start, end) are: (origin, base, count), in order. The range must not have a gap."""
        at = start
        if self.has(stream):
            for run in self.between(stream, start, end):
                if run.base > at:
                    yield stream, at, run.base - at
                yield run.origin, run.origin_base, run.count
                at = run.end
        if at < end:
            yield stream, at, end - at

    def reaching(self, stream: int, start: int, end: int) -> bool:
        """Whether some copy may be read from the bytes of [start, end) of a stream."""
        if not self.feeds:
            return False
        if self._reached is None:
            self._reached = self._origins()
        starts, ends = self._reached.get(stream, _NOWHERE)
        at = int(np.searchsorted(ends, start, side="right"))
        return at < len(starts) and bool(starts[at] < end)

    def copies_of(self, origin: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """The copies that are read from [start, end) of a stream: (stream, first, last). Scans all copies."""
        if not self.reaching(origin, start, end):
            return
        for stream in sorted({*self._over, *self._growing}):
            for run in self.runs(stream):
                first = max(start, run.origin_base)
                last = min(end, run.origin_base + run.count)
                if run.origin == origin and first < last:
                    shift = run.base - run.origin_base
                    yield stream, first + shift, last + shift

    def copies_from(self, origin: int) -> Iterator[tuple[int, AliasRun]]:
        """All copies that are read from a stream: the stream that has them, and each run. Scans all copies."""
        if not self.reaching(origin, 0, 1 << 62):
            return
        for stream in sorted({*self._over, *self._growing}):
            for run in self.runs(stream):
                if run.origin == origin:
                    yield stream, run

    def _origins(self) -> dict[int, tuple[Int64s, Int64s]]:
        """By stream, the ranges that copies are read from: starts and ends, merged where they touch."""
        columns = [fan_out.origins() for fan_out in self.feeds.values()]
        origins, starts, ends = (np.concatenate(parts) for parts in zip(*columns, strict=True))
        order = np.lexsort((starts, origins))
        origins, starts, ends = origins[order], starts[order], ends[order]
        cuts = np.flatnonzero(np.diff(origins)) + 1
        merged: dict[int, tuple[Int64s, Int64s]] = {}
        for first, last in pairwise([0, *cuts.tolist(), len(origins)]):
            if first < last:
                reached = np.maximum.accumulate(ends[first:last])
                apart = np.flatnonzero(starts[first + 1 : last] > reached[:-1])
                merged[int(origins[first])] = (
                    starts[first:last][np.concatenate(([0], apart + 1))],
                    reached[np.concatenate((apart, [last - first - 1]))],
                )
        return merged

    # Changes

    def open(self, source: int, cursor: int, below: int) -> FanOut:
        fan_out = self.feeds[self._next_feed] = FanOut(self._next_feed, source, cursor, below)
        self._next_feed += 1
        return fan_out

    def join(self, fan_out: FanOut, leg: int, dest: int, end: int) -> None:
        fan_out.join(leg, dest, end)
        self._growing.setdefault(dest, []).append(fan_out.number)

    def leave(self, fan_out: FanOut, leg: int, dest: int) -> None:
        segment = fan_out.leave(leg)
        if segment is not None:
            self._end(dest, segment)
        numbers = self._growing[dest]
        numbers.remove(fan_out.number)
        if not numbers:
            del self._growing[dest]

    def extend(
        self,
        fan_out: FanOut,
        ends: Int64s,
        pieces: list[tuple[int, int, int]],
        time_ms: int,
    ) -> None:
        """Forward pieces (origin, base, count) to every member. `ends` are the end offsets of the members' streams."""
        for dest, segment in fan_out.begin(ends):
            self._end(dest, segment)
        for origin, base, count in pieces:
            self.digest = (self.digest + mix(_TAG | fan_out.number, fan_out.end, origin + 1, base)) & MASK
            fan_out.add(origin, base, count, time_ms)
        self._reached = None

    def _end(self, dest: int, segment: AliasSegment) -> None:
        self._over.setdefault(dest, AliasSegments()).add(segment)
        self.digest = (self.digest + mix(_TAG | dest, segment.base, segment.position, segment.count)) & MASK

    def forget_streams(self, streams: tuple[int, ...]) -> None:
        """The topic of these streams and its routers are deleted."""
        for stream in streams:
            self._over.pop(stream, None)

    def prune(self, start_of: Callable[[int], int]) -> None:
        """Drop what nobody can read any more. This changes no result, so it may run at any time."""
        floors = {
            number: fan_out.members_floor(
                np.array([start_of(dest) for dest in fan_out.dests.tolist()], np.int64)
            )
            for number, fan_out in self.feeds.items()
        }
        for stream, segments in list(self._over.items()):
            start = start_of(stream)
            segments.cut(start)
            if not segments:
                del self._over[stream]
            for segment in segments.between(0, 1 << 62):
                needed = segment.position + max(0, start - segment.base)
                floors[segment.fan_out] = min(floors[segment.fan_out], needed)
        for number, floor in floors.items():
            fan_out = self.feeds[number]
            fan_out.prune(floor)
            if floor >= fan_out.end and not len(fan_out.dests):
                del self.feeds[number]
        self._reached = None

    # Checkpoints

    def encode(self, start_of: Callable[[int], int]) -> AliasesState:
        self.prune(start_of)
        return AliasesState(
            self._next_feed,
            self.digest,
            [fan_out.encode() for _, fan_out in sorted(self.feeds.items())],
            [
                (stream, [column.tobytes() for column in segments.columns()])
                for stream, segments in sorted(self._over.items())
            ],
        )

    @classmethod
    def decode(cls, state: AliasesState) -> Aliases:
        aliases = cls()
        aliases._next_feed, aliases.digest = state.next_feed, state.digest
        for one in state.feeds:
            fan_out = aliases.feeds[one.number] = FanOut.decode(one)
            for dest in fan_out.dests.tolist():
                aliases._growing.setdefault(dest, []).append(fan_out.number)
        for stream, columns in state.segments:
            segments = aliases._over[stream] = AliasSegments()
            for column, body in zip(segments.columns(), columns, strict=True):
                column.frombytes(body)
        return aliases


_NOWHERE: tuple[Int64s, Int64s] = (np.empty(0, np.int64), np.empty(0, np.int64))

"""Compaction: how far each stream is compacted, and which ranges of offsets lack records because of it.

The broker compacts what repacked files hold. Every removed record has a newer one with the same key, or is a tombstone
that was kept for `delete.retention.ms` after a compaction had first removed all older records of its key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from mainstem.errors import InvalidInput
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent

COMPACTION_TIMES_MAX = 16  # remembered a stream: they decide which tombstones may go


class CompactedStream(msgspec.Struct, frozen=True, array_like=True):
    """What one compaction of a stream reached."""

    stream: int
    end: int  # no record below it has a newer one with the same key below it
    tombstones: int  # that it kept
    forget_before_ms: int  # earlier times of compactions decide nothing any more


class FinishCompaction(Command, frozen=True, tag=142):
    """These streams were compacted up to these offsets, at this time."""

    time_ms: int
    streams: tuple[CompactedStream, ...]


class RecordsCompacted(NamedTuple):
    """An event: a repack left out live records of [base, end)."""

    stream: int
    base: int
    end: int
    records: int


class CompactionsFinished(NamedTuple):
    streams: int  # how many still exist


class SparseRange(NamedTuple):
    """Offsets of which some hold no record, because compaction removed it."""

    base: int
    end: int
    absent: int  # how many


class CompactionTime(NamedTuple):
    """When the stream was first compacted up to an offset."""

    end: int
    time_ms: int


class CompactionState(msgspec.Struct, frozen=True, array_like=True):
    """The state of one stream; also its form in a checkpoint."""

    stream: int
    end: int = 0  # compacted up to here
    tombstones: int = 0  # below `end`
    times: tuple[CompactionTime, ...] = ()  # rising in both fields
    sparse: tuple[SparseRange, ...] = ()  # disjoint, rising


class Compactions(Section[list[CompactionState]]):
    """The state of every stream that was compacted in the log."""

    requires = (Streams,)

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._states: Keyed[int, CompactionState] = Keyed(_state_hash)
        streams.count_absent(self.take_absent)

    # Reads

    def get(self, stream: int) -> CompactionState:
        return self._states.get(stream) or CompactionState(stream)

    def sparse(self, stream: int, base: int, end: int) -> bool:
        """Whether records of [base, end) were compacted away."""
        return any(one.base < end and one.end > base for one in self.get(stream).sparse)

    def absent(self, stream: int) -> int:
        """How many records were compacted away above the start."""
        return sum(one.absent for one in self.get(stream).sparse)

    def expired_tombstones_end(self, stream: int, before_ms: int) -> int:
        """Tombstones below this offset were compacted before `before_ms` for the first time."""
        return max((one.end for one in self.get(stream).times if one.time_ms < before_ms), default=0)

    # Changes

    @applies(FinishCompaction)
    def finish(self, command: FinishCompaction, now: Moment) -> CompactionsFinished | InvalidInput:
        if command.time_ms < 0 or any(one.end < 0 or one.tombstones < 0 for one in command.streams):
            return InvalidInput("a compaction has a negative time, offset or count")
        alive = [one for one in command.streams if self._streams.exists(one.stream)]
        for one in alive:
            state = self.get(one.stream)
            times = state.times
            if one.end > max((time.end for time in times), default=0):
                times = _pruned((*times, CompactionTime(one.end, command.time_ms)), one.forget_before_ms)
            self._put(
                CompactionState(one.stream, max(one.end, state.end), one.tombstones, times, state.sparse)
            )
        return CompactionsFinished(len(alive))

    @reacts(RecordsCompacted)
    def on_records_compacted(self, event: RecordsCompacted, now: Moment) -> None:
        """The range is sparse now, together with those that it overlaps."""
        stream, base, end, absent = event
        if not self._streams.exists(stream) or absent <= 0:
            return
        state = self.get(stream)
        apart = [one for one in state.sparse if one.end <= base or one.base >= end]
        for one in state.sparse:
            if one.end > base and one.base < end:
                base, end, absent = min(base, one.base), max(end, one.end), absent + one.absent
        sparse = tuple(sorted([*apart, SparseRange(base, end, absent)]))
        self._put(CompactionState(stream, state.end, state.tombstones, state.times, sparse))
        self._streams.compacted(stream, event.records)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for stream in event.topic.streams:
            self._states.pop(stream)

    def take_absent(self, stream: int, start: int, floor: int) -> int:
        """Nothing of [start, floor) counts here any more: how many of its records were compacted away. In a range that
        is split, they count as spread evenly."""
        state = self._states.get(stream)
        if state is None:
            return 0
        taken = 0
        left: list[SparseRange] = []
        for one in state.sparse:
            first, last = max(one.base, start), min(one.end, floor)
            if first >= last:
                left.append(one)
                continue
            share = one.absent * (last - first) // (one.end - one.base)
            taken += share
            left += _remainder(one, first, last, one.absent - share)
        if taken or len(left) != len(state.sparse):
            self._put(CompactionState(stream, state.end, state.tombstones, state.times, tuple(sorted(left))))
        return taken

    def _put(self, state: CompactionState) -> None:
        self._states.put(state.stream, state)

    # State as a whole

    @property
    def digest(self) -> int:
        return self._states.digest

    def encode(self) -> list[CompactionState]:
        return list(self._states)

    def load(self, state: list[CompactionState]) -> None:
        for one in state:
            self._put(one)


def _remainder(one: SparseRange, first: int, last: int, absent: int) -> Iterator[SparseRange]:
    """What is left of a range without [first, last)."""
    before, after = first - one.base, one.end - last
    if before:
        share = absent * before // (before + after)
        yield SparseRange(one.base, first, share)
        absent -= share
    if after:
        yield SparseRange(last, one.end, absent)


def _pruned(times: tuple[CompactionTime, ...], forget_before_ms: int) -> tuple[CompactionTime, ...]:
    """Without times that decide nothing. Of too many, the closest ones merge: their tombstones stay a bit longer."""
    past = [one for one in times if one.time_ms < forget_before_ms]
    kept = [*past[-1:], *(one for one in times if one.time_ms >= forget_before_ms)]
    while len(kept) > COMPACTION_TIMES_MAX:
        gaps = [kept[at + 1].time_ms - kept[at].time_ms for at in range(len(kept) - 1)]
        del kept[gaps.index(min(gaps))]
    return tuple(kept)


def _state_hash(state: CompactionState) -> int:
    return hash_fields("compaction", state)

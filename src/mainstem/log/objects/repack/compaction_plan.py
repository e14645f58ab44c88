"""Which streams to compact: how much of each was never compacted, and how old that is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.ledger.intervals import ABORTED, DELETED
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import RepackRound
from mainstem.log.read.extents import Rows, SealedExtents
from mainstem.log.read.index import ExtentIndex
from mainstem.ports.clock import Clock
from mainstem.records.compacting import StreamCompaction

COMPACTION_BACKLOG_BYTES = 32 * limits.MIB  # of a stream in sealed objects: repacked early, to compact it
COMPACTION_BACKLOG_BYTES_MAX = 512 * limits.MIB  # above it, compaction does not pause for writes
COMPACTION_STREAMS_MAX = 4_096  # compacted at once

Int64s = npt.NDArray[np.int64]
ReadIndex = Callable[[int], Awaitable[SealedExtents]]


class RoundSpan(NamedTuple):
    """The part of a stream in a file of a round."""

    base: int
    end: int
    bytes: int
    first_time: int  # latest record time of its first extent, ms
    max_timestamp: int
    number: int  # of the file


@dataclass(slots=True)
class _SeenRound:
    """What was looked up in one round."""

    streams_end: int  # streams from this number on are younger than the round
    looked_up: set[int] = field(default_factory=set)
    spans: dict[int, list[RoundSpan]] = field(default_factory=dict)  # by stream


class DirtyStream(NamedTuple):
    """What of a stream in repacked files could be compacted now."""

    stream: int
    base: int  # compacted below
    end: int  # may be compacted below
    clean_bytes: int
    dirty_bytes: int
    due: bool

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)


@dataclass(slots=True)
class _Unrepacked:
    """What the log's own objects hold of a stream."""

    base: int
    since_ms: int  # time of its first record
    sealed_bytes: int = 0
    open_bytes: int = 0


class CompactionPlanner:
    def __init__(self, ledger: Ledger, index: ExtentIndex, clock: Clock, read_index: ReadIndex) -> None:
        self._ledger = ledger
        self._index = index
        self._clock = clock
        self._read_index = read_index
        self._rounds: dict[int, _SeenRound] = {}  # by the number of their first file
        self._since: dict[int, tuple[int, int]] = {}  # stream → its first offset out of repacks, and its time
        self.dirty: list[DirtyStream] = []  # by the last look
        self._early: list[int] = []  # streams whose share of the log's own objects is due
        self._sealed_bytes = 0

    def streams(self) -> list[int]:
        """Those that the log compacts."""
        streams = self._ledger.streams
        found: list[int] = np.flatnonzero(
            streams.compacts[: streams.count] & streams.alive[: streams.count]
        ).tolist()
        return found

    @property
    def backlog_bytes(self) -> int:
        """Bytes that wait for compaction."""
        return self._sealed_bytes + sum(one.dirty_bytes for one in self.dirty if one.due)

    # Repacked files

    async def look(self) -> list[DirtyStream]:
        """What could be compacted now, of every stream."""
        streams = self.streams()
        if not streams:
            self.dirty = []
            return []
        await self._refresh(streams)
        found: list[DirtyStream] = []
        for at, stream in enumerate(streams):
            one = await self._dirty(stream)
            if one is not None:
                found.append(one)
            if at % limits.REPACK_STREAMS_AT_ONCE == limits.REPACK_STREAMS_AT_ONCE - 1:
                await asyncio.sleep(0)
        self.dirty = found
        return found

    def spans(self, made: RepackRound, stream: int) -> list[RoundSpan]:
        """Where a round holds a stream, as of the last look."""
        seen = self._rounds.get(made.number)
        return [] if seen is None else seen.spans.get(stream, [])

    async def _refresh(self, streams: list[int]) -> None:
        rounds = self._ledger.repacked.rounds
        self._rounds = {
            made.number: self._rounds[made.number] for made in rounds if made.number in self._rounds
        }
        for made in rounds:
            seen = self._rounds.get(made.number)
            if seen is None:
                seen = _SeenRound(self._ledger.streams.count)
            missing = [one for one in streams if one < seen.streams_end and one not in seen.looked_up]
            if missing:
                await self._look_up(made, missing, seen)
            self._rounds[made.number] = seen

    async def _look_up(self, made: RepackRound, streams: list[int], seen: _SeenRound) -> None:
        files = sorted({number for stream in streams for number in made.covering(stream, 0)})
        wanted = np.array(streams)
        for number in files:
            index = await self._read_index(number)
            there = index.spans[np.isin(index.spans["stream"], wanted) & (index.spans["bytes"] > 0)]
            for stream, first, base, end, size, newest in there.tolist():
                first_time = int(index.rows["max_timestamp"][first])
                seen.spans.setdefault(stream, []).append(
                    RoundSpan(base, end, size, first_time, newest, number)
                )
        seen.looked_up.update(streams)

    async def _dirty(self, stream: int) -> DirtyStream | None:
        ledger = self._ledger
        topic = ledger.topics.of_stream(stream)
        spans = [one for made in ledger.repacked.rounds for one in self.spans(made, stream)]
        if topic is None or not spans:
            return None
        config, state, now = topic.config, ledger.compactions.get(stream), self._clock.now_ms()
        floor = ledger.generations.frontier(stream)
        base = max(state.end, floor)
        end = min(ledger.streams.stable_end(stream), spans[-1].end)
        if config.min_compaction_lag_ms:
            end = await self._old_enough(stream, spans, base, end, now - config.min_compaction_lag_ms)
        end = max(base, end)
        if ledger.aliases.reaching(stream, floor, end):
            return None  # copies in other streams need every record
        clean = sum(_share(one, floor, base) for one in spans)
        dirty = sum(_share(one, base, end) for one in spans)
        found = DirtyStream(stream, base, end, clean, dirty, due=False)
        overdue = any(
            (one.first_time if one.base >= base else one.max_timestamp) <= now - config.max_compaction_lag_ms
            for one in spans
            if one.end > base and one.base < end
        )
        due = dirty > 0 and (found.ratio >= config.min_cleanable_dirty_ratio or overdue)
        return found._replace(due=due or self.tombstones_are_due(stream))

    def tombstones_are_due(self, stream: int) -> bool:
        """Whether all tombstones that compaction kept were kept long enough."""
        state, topic = self._ledger.compactions.get(stream), self._ledger.topics.of_stream(stream)
        if topic is None or not state.tombstones or not state.times or not self._may_drop_tombstones(stream):
            return False
        return state.times[-1].time_ms < self._clock.now_ms() - topic.config.delete_retention_ms

    def _may_drop_tombstones(self, stream: int) -> bool:
        """Whether no older record of their keys can be anywhere but in the log's own bytes of this stream."""
        return not self._ledger.generations.serves(stream) and not self._ledger.aliases.has(stream)

    async def _old_enough(
        self, stream: int, spans: list[RoundSpan], base: int, end: int, before_ms: int
    ) -> int:
        """The end of the first extent with a record of `before_ms` or later; `end` if there is none."""
        for one in spans:
            if one.end > base and one.max_timestamp >= before_ms:
                rows = (await self._read_index(one.number)).rows_of(stream, base, end)
                young = np.flatnonzero(rows["max_timestamp"] >= before_ms)
                if len(young):
                    return min(end, int(rows["base"][young[0]] + rows["count"][young[0]]))
        return end

    def compactions(self, dirty: list[DirtyStream]) -> list[StreamCompaction]:
        """What to remove of the streams that are due, the dirtiest first."""
        due = sorted((one for one in dirty if one.due), key=lambda one: -one.dirty_bytes)
        return [self._compaction(one) for one in due[:COMPACTION_STREAMS_MAX]]

    def _compaction(self, one: DirtyStream) -> StreamCompaction:
        ledger, stream = self._ledger, one.stream
        topic = ledger.topics.of_stream(stream)
        tombstones_end = 0
        if topic is not None and self._may_drop_tombstones(stream):
            before_ms = self._clock.now_ms() - topic.config.delete_retention_ms
            tombstones_end = ledger.compactions.expired_tombstones_end(stream, before_ms)
        lag_ms = 0 if topic is None else topic.config.min_compaction_lag_ms
        floor = ledger.streams.start(stream)
        holes = ledger.streams.holes(stream).overlapping(floor, one.end)
        return StreamCompaction(
            stream,
            one.base,
            one.end,
            before_ms=self._clock.now_ms() - lag_ms if lag_ms else None,
            floor=floor,
            tombstones_end=tombstones_end,
            holes=[(first, last) for first, last, reason in holes if reason in (DELETED, ABORTED)],
            last=int(ledger.streams.end[stream]),
            apart=stream in ledger.streams.transactions.touched,
        )

    # The log's own objects

    def wants_repack(self) -> tuple[bool, bool]:
        """Whether to repack sealed objects early, and whether to finish the open object first, because they hold
        records that are due for compaction."""
        streams = self.streams()
        if not streams:
            self._sealed_bytes, self._early = 0, []
            return False, False
        held = self._unrepacked(np.array(streams))
        self._sealed_bytes = sum(one.sealed_bytes for one in held.values())
        repacked = {one.stream: one for one in self.dirty}
        now, early, roll = self._clock.now_ms(), False, False
        self._early = []
        for stream, one in held.items():
            topic = self._ledger.topics.of_stream(stream)
            if topic is None:
                continue
            config, known = topic.config, repacked.get(stream)
            age = now - one.since_ms
            size = one.sealed_bytes + one.open_bytes
            old = age >= max(
                config.min_compaction_lag_ms, min(config.segment_ms, config.max_compaction_lag_ms)
            )
            full = size >= config.segment_bytes
            dirty = one.sealed_bytes + (0 if known is None else known.dirty_bytes)
            ratio = dirty / max(1, dirty + (0 if known is None else known.clean_bytes))
            much = one.sealed_bytes >= COMPACTION_BACKLOG_BYTES and ratio >= config.min_cleanable_dirty_ratio
            if one.sealed_bytes and (
                ratio >= config.min_cleanable_dirty_ratio or age >= config.max_compaction_lag_ms
            ):
                self._early.append(stream)
            early |= one.sealed_bytes > 0 and (old or full or much)
            roll |= one.open_bytes > 0 and (old or full)
        return early, roll

    def early(self, indexes: Sequence[SealedExtents]) -> list[StreamCompaction]:
        """What to remove of these objects while they are repacked."""
        ledger, found = self._ledger, []
        for stream in self._early[:COMPACTION_STREAMS_MAX]:
            topic, spans = ledger.topics.of_stream(stream), [one.span(stream) for one in indexes]
            there = [one for one in spans if one is not None]
            if topic is None or not there:
                continue
            base, end = there[0].base, min(there[-1].end, ledger.streams.stable_end(stream))
            before_ms = self._clock.now_ms() - topic.config.min_compaction_lag_ms
            young = topic.config.min_compaction_lag_ms and any(
                one.max_timestamp >= before_ms for one in there
            )
            if not young and not ledger.aliases.reaching(stream, base, end):
                found.append(self._compaction(DirtyStream(stream, base, end, 0, 0, due=True)))
        return found

    def _unrepacked(self, streams: Int64s) -> dict[int, _Unrepacked]:
        found: dict[int, _Unrepacked] = {}
        for number, rows in self._index.unrepacked(streams):
            opened = self._index.grows(number)
            firsts = _first_rows(rows)
            for stream, base, size, time in firsts:
                one = found.get(stream)
                if one is None:
                    since = self._since.get(stream)
                    if since is None or since[0] != base:
                        since = base, min(time, self._clock.now_ms())
                    one = found[stream] = _Unrepacked(base, since[1])
                if opened:
                    one.open_bytes += size
                else:
                    one.sealed_bytes += size
        self._since = {stream: (one.base, one.since_ms) for stream, one in found.items()}
        return found


def _share(span: RoundSpan, base: int, end: int) -> int:
    """Bytes of a span in [base, end), as if spread evenly over its offsets."""
    offsets = min(span.end, end) - max(span.base, base)
    return span.bytes * offsets // (span.end - span.base) if offsets > 0 else 0


def _first_rows(rows: Rows) -> list[tuple[int, int, int, int]]:
    """By stream: the first base, all bytes, and the time of the first row."""
    order = np.lexsort((rows["base"], rows["stream"]))
    rows = rows[order]
    if not len(rows):
        return []
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(rows["stream"].astype(np.int64))) + 1))
    sizes = np.add.reduceat(rows["bytes"], firsts)
    return list(
        zip(
            rows["stream"][firsts].tolist(),
            rows["base"][firsts].tolist(),
            sizes.tolist(),
            rows["max_timestamp"][firsts].tolist(),
            strict=True,
        )
    )

"""Ephemeral streams: records live in this process's memory only, under offsets that are never given out twice.

Nothing of them goes through the commit log but their ceilings. Each start of the broker continues at the ceiling,
and the offsets before it are gone. Caps, floors, deletes and idempotency keys follow the same rules as in the log,
because the same state machine keeps them: a `Streams` of this process's own.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import msgspec
import numpy as np

from mainstem import limits
from mainstem.errors import InvalidTransaction, NotFound, OffsetOutOfRange, RecordsLost, TopicFull, invariant
from mainstem.ledger.appends import RECORD
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.idempotency import IdempotencyKeys, key_number
from mainstem.ledger.intervals import DELETED
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.streams import FULL, RaiseCeilings, Streams
from mainstem.log.chunks import ReadChunk
from mainstem.log.committer import Committer
from mainstem.log.delivery import LEADER_EPOCH
from mainstem.log.offset_search import first_at
from mainstem.log.visibility import Visibility
from mainstem.log.waiters import Placed
from mainstem.ports.clock import Clock
from mainstem.records.header import Slice, SliceFacts, stamp, walk
from mainstem.records.rewrite import without_ranges


@dataclass(slots=True)
class _EphemeralStream:
    number: int  # of the stream in this process's own state
    config: TopicConfig
    bases: list[int] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    bytes: int = 0  # of the slices


class EphemeralStreams:
    def __init__(self, ledger: Ledger, committer: Committer, visibility: Visibility, clock: Clock) -> None:
        self._ledger = ledger
        self._committer = committer
        self._visibility = visibility
        self._clock = clock
        self._held: dict[int, _EphemeralStream] = {}
        self.state = Streams()
        self.keys = IdempotencyKeys()

    def number(self, stream: int) -> int:
        """The stream's number in `state`."""
        return self._stream(stream).number

    def _stream(self, stream: int) -> _EphemeralStream:
        topic = self._ledger.topics.of_stream(stream)
        if topic is None:
            raise NotFound("the topic was deleted")
        held = self._held.get(stream)
        if held is None:
            held = self._held[stream] = self._open(self._visibility.ends[stream], topic.config)
        elif held.config is not topic.config:
            held.config = topic.config
            self.state.configure(held.number, _in_memory(topic.config))
            self._drop(held)
        return held

    def _open(self, end: int, config: TopicConfig) -> _EphemeralStream:
        (number,) = self.state.open(1, _in_memory(config))
        # Whatever was there before this process is gone, as if it had given way to a cap.
        self.state.end[number] = self.state.evict_floor[number] = end
        return _EphemeralStream(number, config)

    async def append(self, stream: int, slice: Slice, facts: SliceFacts, size: int, records: bytes) -> Placed:
        """Keep a slice; the oldest give way past the stream's share of memory. Raises TopicFull."""
        if facts.transactional:
            raise InvalidTransaction("an ephemeral topic takes no part in transactions")
        base = await self._reserve(stream, facts.count)
        held = self._stream(stream)
        number, now = held.number, self._clock.now_ms()
        key = key_number(facts.producer, facts.base_sequence, facts.producer_epoch) if facts.keyed else -1
        if facts.keyed:
            original = self.keys.find(number, key, now, held.config.idempotency_window_ms)
            if original is not None:
                return original[0], True
        rows = np.frombuffer(records, RECORD) if records else None
        placed = self.state.append(number, facts.count, size, facts.max_timestamp, rows)
        if placed == FULL:
            raise TopicFull("the topic's cap is reached and it rejects what exceeds it")
        invariant(placed == base, "offsets of an ephemeral stream are those reserved for it")
        if facts.keyed:
            self.keys.record(number, key, base, facts.count, now, self.state.key_window_ms)
        stamp(slice, base, LEADER_EPOCH)
        held.bases.append(base)
        held.slices.append(slice)
        held.bytes += len(slice)
        if held.bytes > limits.EPHEMERAL_STREAM_BYTES_MAX:
            self._evict_oldest(held)
        self._drop(held)
        self._visibility.publish(stream, base + facts.count)
        return base, False

    async def skip(self, stream: int, count: int) -> None:
        """Let offsets stand for records that a router's source lost before they were copied here."""
        base = await self._reserve(stream, count)
        self.state.make_gap(self._stream(stream).number, base, base + count)
        self._visibility.publish(stream, base + count)

    async def _reserve(self, stream: int, count: int) -> int:
        """The base offset of the next `count` records, once a synced ceiling covers them."""
        while True:
            # Looked up anew each time round: other appends may have passed while this one waited.
            base = int(self.state.end[self._stream(stream).number])
            ceiling = self._visibility.next_ceiling(stream, base + count)
            if ceiling is None and self._visibility.below_ceiling(stream, base + count):
                return base
            await self._committer.propose(RaiseCeilings(((stream, ceiling or base + count),)))

    def _evict_oldest(self, held: _EphemeralStream) -> None:
        """Give up the oldest sixteenth at once, so that the lists shift seldom."""
        over = held.bytes - limits.EPHEMERAL_STREAM_BYTES_MAX * 15 // 16
        drop = 0
        while over > 0 and drop < len(held.slices) - 1:
            over -= len(held.slices[drop])
            drop += 1
        self.state.trim(held.number, held.bases[drop], "cap", 0)

    def _drop(self, held: _EphemeralStream) -> None:
        """Let go of the slices that end at or before the stream's start."""
        start = self.state.start(held.number)
        if not held.bases or held.bases[0] >= start:
            return
        drop = bisect_right(held.bases, start) - 1
        if start >= int(self.state.end[held.number]):
            drop = len(held.bases)
        held.bytes -= sum(map(len, held.slices[:drop]))
        del held.slices[:drop], held.bases[:drop]

    def let_go(self, stream: int) -> None:
        """Records were taken out of `state`: forget the slices that hold no other."""
        self._drop(self._stream(stream))

    def bounds(self, stream: int) -> tuple[int, int]:
        number = self._stream(stream).number
        return self.state.start(number), int(self.state.end[number])

    def held_bytes(self, stream: int) -> int:
        return self._stream(stream).bytes

    def trim(self, stream: int, offset: int, reason: str = "delete") -> int:
        """Forget the records below `offset`. Returns how many there were."""
        held = self._stream(stream)
        removed = self.state.trim(held.number, offset, reason, 0, keeps_losses=reason == "delete")
        self._drop(held)
        return removed[0]

    def delete(self, stream: int, ranges: tuple[tuple[int, int], ...], size: int) -> tuple[int, int]:
        """Forget single records, `size` bytes in all. Returns how many there were, and their bytes."""
        held = self._stream(stream)
        removed = self.state.punch(held.number, ranges, DELETED, size)
        self._drop(held)
        return removed

    def read(
        self, stream: int, offset: int, max_bytes: int, end: int = limits.OFFSET_MAX
    ) -> tuple[list[memoryview], int]:
        """Slices from the one that holds `offset` on, none that begins at `end`, and the offset after them."""
        held = self._stream(stream)
        at = max(bisect_right(held.bases, offset) - 1, 0)
        found: list[memoryview] = []
        total = 0
        while at < len(held.slices) and held.bases[at] < end:
            if found and total + len(held.slices[at]) > max_bytes:
                break
            found.append(memoryview(held.slices[at]).toreadonly())
            total += len(held.slices[at])
            at += 1
        deleted = self.state.deleted(held.number)
        if deleted:
            found = [kept for slice in found if len(kept := without_ranges(slice, deleted))]
        reached = held.bases[at] if at < len(held.bases) else int(self.state.end[held.number])
        return found, min(reached, end)

    async def chunk(self, stream: int, offset: int, max_bytes: int, max_wait_s: float) -> ReadChunk:
        """As `chunk_now`; at the end it waits for an append."""
        if max_wait_s > 0 and offset == self.bounds(stream)[1]:
            await self._visibility.changed(stream, max_wait_s)
        return self.chunk_now(stream, offset, max_bytes)

    def chunk_now(self, stream: int, offset: int, max_bytes: int) -> ReadChunk:
        """Whole batches from `offset` on. Raises OffsetOutOfRange, RecordsLost, NotFound."""
        start, end = self.bounds(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        loss = self.state.holes(self.number(stream)).next_loss(offset)
        if loss is not None and loss[0] <= offset < end:
            raise RecordsLost(offset, loss[1], loss[2])
        readable = limits.OFFSET_MAX if loss is None else loss[0]
        slices, next_offset = self.read(stream, offset, max_bytes, readable)
        return ReadChunk(tuple(slices), next_offset) if offset < end else ReadChunk((), offset)

    def offset_at(self, stream: int, time_ms: int) -> int:
        """The first offset whose record time is `time_ms` or later; the end if there is none."""
        start, end = self.bounds(stream)
        held, _ = self.read(stream, start, limits.EPHEMERAL_STREAM_BYTES_MAX)
        found = first_at(held, start, time_ms)
        return end if found is None else found

    def latest_time(self, stream: int) -> int | None:
        """The latest record time there is; None without any record."""
        held, _ = self.read(stream, self.bounds(stream)[0], limits.EPHEMERAL_STREAM_BYTES_MAX)
        return max((header.max_timestamp for slice in held for header in walk(slice)), default=None)

    def forget(self, stream: int) -> None:
        held = self._held.pop(stream, None)
        if held is not None:
            self.keys.forget_streams((held.number,))
            self.state.close(held.number)


def _in_memory(config: TopicConfig) -> TopicConfig:
    """To the state, an ephemeral stream is as good as any other."""
    return msgspec.structs.replace(config, durability="memory")

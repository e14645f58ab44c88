"""Ephemeral streams: records live in this process's memory only, under offsets that are never assigned twice.

Only their ceilings go through the commit log. Each start of the broker continues at the ceiling, and the offsets
before it are gone. Caps, floors, deletes, idempotency keys and leases follow the same rules as in the log, because
the same state machines keep them: a `Streams` and a `Queues` of this process's own, which apply commands at once.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from mainstem import limits
from mainstem.errors import (
    InvalidTransaction,
    MainstemError,
    NotFound,
    OffsetOutOfRange,
    RecordsLost,
    TopicFull,
    invariant,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.entry import RECORD
from mainstem.ledger.idempotency import IdempotencyKeys, key_number
from mainstem.ledger.intervals import DELETED
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.queues import Ack, Bury, Claim, ExpireLeases, Extend, Nack, Queues
from mainstem.ledger.section import Moment
from mainstem.ledger.streams import FULL, RaiseCeilings, Streams, TrimReason
from mainstem.ledger.topics import Topic
from mainstem.log.read.extents import ReadChunk
from mainstem.log.read.offset_search import first_at
from mainstem.log.read.views import View
from mainstem.log.read.visibility import Visibility
from mainstem.log.streams.stores import QueueCommand, Usage
from mainstem.log.write.append import AppendRequest, Placed, Waiter, notify
from mainstem.log.write.committer import Committer
from mainstem.log.write.delivery import LEADER_EPOCH
from mainstem.ports.clock import Clock
from mainstem.records.header import Slice, SliceFacts, stamp, walk
from mainstem.records.rewrite import without_ranges

EPHEMERAL_STREAM_BYTES_MAX = 16 * limits.MIB  # memory of one ephemeral stream; the oldest records are dropped


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
        self._state = Streams()
        self._keys = IdempotencyKeys()
        self._queues = _EphemeralQueues(ledger, self._state)

    def __contains__(self, stream: object) -> bool:
        """Whether records of the stream are in memory."""
        return stream in self._held

    def _stream(self, stream: int) -> _EphemeralStream:
        topic = self._ledger.topics.of_stream(stream)
        if topic is None:
            raise NotFound("the topic was deleted")
        held = self._held.get(stream)
        if held is None:
            held = self._held[stream] = self._open(self._visibility.ends[stream], topic.config)
        elif held.config is not topic.config:
            held.config = topic.config
            self._state.configure(held.number, _in_memory(topic.config))
            self._drop(held)
        return held

    def _open(self, end: int, config: TopicConfig) -> _EphemeralStream:
        (number,) = self._state.open(1, _in_memory(config))
        # Whatever was there before this process is gone, as if it had given way to a cap.
        self._state.end[number] = self._state.evict_floor[number] = end
        return _EphemeralStream(number, config)

    def append(self, request: AppendRequest, waiter: Waiter) -> None:
        """Keep a slice; past the stream's share of memory the oldest ones leave."""
        notify(waiter, self._append(request))

    async def _append(self, request: AppendRequest) -> Placed:
        stream, slice, facts = request.stream, request.batches, request.facts
        if facts.transactional:
            raise InvalidTransaction("an ephemeral topic takes no part in transactions")
        base = await self._reserve(stream, facts.count)
        held = self._stream(stream)
        number, now = held.number, self._clock.now_ms()
        key = key_number(facts.producer, facts.base_sequence, facts.producer_epoch) if facts.keyed else -1
        if facts.keyed:
            original = self._keys.find(number, key, now, held.config.idempotency_window_ms)
            if original is not None:
                return original[0], True
        rows = np.frombuffer(request.records, RECORD) if request.records else None
        placed = self._state.append(number, facts.count, request.size, facts.max_timestamp, rows)
        if placed == FULL:
            raise TopicFull("the topic's cap is reached and it rejects what exceeds it")
        invariant(placed == base, "offsets of an ephemeral stream are those reserved for it")
        if facts.keyed:
            self._keys.record(number, key, base, facts.count, now, self._state.key_window_ms)
        stamp(slice, base, LEADER_EPOCH)
        held.bases.append(base)
        held.slices.append(slice)
        held.bytes += len(slice)
        if held.bytes > EPHEMERAL_STREAM_BYTES_MAX:
            self._evict_oldest(held)
        self._drop(held)
        self._visibility.publish(stream, base + facts.count)
        return base, False

    async def skip(self, stream: int, count: int) -> None:
        """Let offsets stand for records that a router's source lost before they were copied here."""
        base = await self._reserve(stream, count)
        self._state.make_gap(self._stream(stream).number, base, base + count)
        self._visibility.publish(stream, base + count)

    async def _reserve(self, stream: int, count: int) -> int:
        """The base offset of the next `count` records, once a synced ceiling covers them."""
        while True:
            # Look it up again each time: other appends may have passed while this one waited.
            base = int(self._state.end[self._stream(stream).number])
            ceiling = self._visibility.next_ceiling(stream, base + count)
            if ceiling is None and self._visibility.below_ceiling(stream, base + count):
                return base
            await self._committer.propose(RaiseCeilings(((stream, ceiling or base + count),)))

    def _evict_oldest(self, held: _EphemeralStream) -> None:
        """Give up the oldest sixteenth at once, so that the lists shift seldom."""
        over = held.bytes - EPHEMERAL_STREAM_BYTES_MAX * 15 // 16
        drop = 0
        while over > 0 and drop < len(held.slices) - 1:
            over -= len(held.slices[drop])
            drop += 1
        self._state.trim(held.number, held.bases[drop], "cap", 0)

    def _drop(self, held: _EphemeralStream) -> None:
        """Let go of the slices that end at or before the stream's start."""
        start = self._state.start(held.number)
        if not held.bases or held.bases[0] >= start:
            return
        drop = bisect_right(held.bases, start) - 1
        if start >= int(self._state.end[held.number]):
            drop = len(held.bases)
        held.bytes -= sum(map(len, held.slices[:drop]))
        del held.slices[:drop], held.bases[:drop]

    def start(self, stream: int) -> int:
        return self._state.start(self._stream(stream).number)

    def bounds(self, stream: int) -> tuple[int, int]:
        number = self._stream(stream).number
        return self._state.start(number), int(self._state.end[number])

    def stable_end(self, stream: int) -> int:
        """The end: no transaction has records here."""
        return self.bounds(stream)[1]

    def usage(self, stream: int) -> Usage:
        start, end = self.bounds(stream)
        return Usage(end - start, self._stream(stream).bytes, -1)

    def keyed_count(self, stream: int, facts: SliceFacts, base: int) -> int | None:
        key = key_number(facts.producer, facts.base_sequence, facts.producer_epoch)
        return self._keys.count_of(self._stream(stream).number, key, base)

    def state(self, stream: int) -> tuple[Streams, int]:
        return self._state, self._stream(stream).number

    def queue(self, stream: int) -> tuple[Queues, int]:
        return self._queues.queues, self._queues.number(stream, self._stream(stream).number)

    async def change_queue(self, command: QueueCommand) -> Any:
        held = self._stream(command.stream)
        outcome = self._queues.apply(command, held.number, self._committer.now_ms())
        self._drop(held)  # jobs may have left the stream
        return outcome

    async def trim(self, stream: int, offset: int, reason: TrimReason = "delete", size: int = 0) -> int:
        held = self._stream(stream)
        removed = self._state.trim(held.number, offset, reason, 0, keeps_losses=reason == "delete")
        self._drop(held)
        return removed[0]

    async def delete(self, stream: int, ranges: tuple[tuple[int, int], ...], size: int) -> int:
        held = self._stream(stream)
        removed = self._state.punch(held.number, ranges, DELETED, size)
        self._drop(held)
        return removed[0]

    def _slices(
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
        deleted = self._state.deleted(held.number)
        if deleted:
            found = [kept for slice in found if len(kept := without_ranges(slice, deleted))]
        reached = held.bases[at] if at < len(held.bases) else int(self._state.end[held.number])
        return found, min(reached, end)

    async def read(
        self,
        stream: int,
        offset: int,
        max_bytes: int,
        max_wait_s: float = 0.0,
        view: View = View.COMMITTED,
    ) -> ReadChunk:
        if max_wait_s > 0 and offset == self.bounds(stream)[1]:
            await self._visibility.changed(stream, max_wait_s)
        return self.read_cached(stream, offset, max_bytes)

    async def stored(self, stream: int, offset: int, max_bytes: int) -> ReadChunk:
        return self.read_cached(stream, offset, max_bytes)

    def read_cached(self, stream: int, offset: int, max_bytes: int, view: View = View.COMMITTED) -> ReadChunk:
        start, end = self.bounds(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        loss = self._state.next_loss(self._stream(stream).number, offset)
        if loss is not None and loss[0] <= offset < end:
            raise RecordsLost(offset, loss[1], loss[2])
        readable = limits.OFFSET_MAX if loss is None else loss[0]
        slices, next_offset = self._slices(stream, offset, max_bytes, readable)
        return ReadChunk(tuple(slices), next_offset) if offset < end else ReadChunk((), offset)

    async def offset_at(self, stream: int, time_ms: int) -> int:
        start, end = self.bounds(stream)
        held, _ = self._slices(stream, start, EPHEMERAL_STREAM_BYTES_MAX)
        found = first_at(held, start, time_ms)
        return end if found is None else found

    async def latest_time(self, stream: int) -> int | None:
        held, _ = self._slices(stream, self.bounds(stream)[0], EPHEMERAL_STREAM_BYTES_MAX)
        return max((header.max_timestamp for slice in held for header in walk(slice)), default=None)

    def forget(self, stream: int) -> None:
        """Release what a deleted stream held."""
        self._queues.forget(stream)
        held = self._held.pop(stream, None)
        if held is not None:
            self._keys.forget_streams((held.number,))
            self._state.close(held.number)


def _in_memory(config: TopicConfig) -> TopicConfig:
    """The config as `_state` sees it: there an ephemeral stream is one like any other."""
    return msgspec.structs.replace(config, durability="memory")


class _EphemeralQueues:
    """Leases of jobs that are in memory only."""

    def __init__(self, ledger: Ledger, state: Streams) -> None:
        self._ledger = ledger
        self._now = Moment()
        self._streams: dict[int, int] = {}  # number in memory → stream
        self.queues = Queues(state, self)

    def of_stream(self, number: int) -> Topic | None:
        """The topic of a queue, as `Queues` asks for it."""
        return self._ledger.topics.of_stream(self._streams[number])

    def number(self, stream: int, number: int) -> int:
        """Note the stream's number in memory, and return it."""
        self._streams[number] = stream
        return number

    def apply(self, command: QueueCommand, number: int, now_ms: int) -> Any:
        """The result of the command; raises the reason if it is refused."""
        self.number(command.stream, number)
        self._now.time_ms = max(self._now.time_ms, now_ms)
        outcome = self._apply(msgspec.structs.replace(command, stream=number))
        if isinstance(outcome, MainstemError):
            raise outcome
        return outcome

    def _apply(self, command: QueueCommand) -> Any:
        match command:
            case Claim():
                return self.queues.claim(command, self._now)
            case Ack():
                return self.queues.ack(command, self._now)
            case Nack():
                return self.queues.nack(command, self._now)
            case Extend():
                return self.queues.extend(command, self._now)
            case ExpireLeases():
                return self.queues.expire(command, self._now)
            case Bury():
                return self.queues.bury(command, self._now)

    def forget(self, stream: int) -> None:
        gone = [number for number, held in self._streams.items() if held == stream]
        self.queues.forget_streams(tuple(gone))
        for number in gone:
            del self._streams[number]

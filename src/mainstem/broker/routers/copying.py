"""Copying: router partitions whose copies are appended, a bounded number of records per commit.

One entry holds the appended copies and the new cursor: both apply, or neither. If a crash damages the appended bytes of
an otherwise intact entry, recovery marks those offsets of the destination as lost, and the router partition makes these
copies again.
"""

from __future__ import annotations

import asyncio

import msgspec

from mainstem import events, limits
from mainstem.broker.append import AppendRequest, promise, record_rows
from mainstem.broker.queues.dead_letters import META, meta_object
from mainstem.broker.routers.record_copies import (
    CopyOptions,
    DestinationFull,
    DestinationRoom,
    RecordCopies,
    make_copies,
)
from mainstem.broker.routers.tag_matching import Match
from mainstem.broker.streams import StreamService, View
from mainstem.broker.topics.floors import expire
from mainstem.errors import OffsetOutOfRange, RecordsLost, Rejected, TopicFull
from mainstem.ledger.router import Router, RouterPartition
from mainstem.ledger.router_partitions import lost_below_start, lost_records
from mainstem.ledger.routers import NoteForwarded, PassOver
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.write.delivery import LEADER_EPOCH
from mainstem.ports.clock import Clock
from mainstem.records.decoding import Headers, StoredRecord
from mainstem.records.header import walk
from mainstem.records.undecodable import FAULTS, decodable

ROUTER_COPIED_BYTES_MAX = 1 * limits.MIB  # read for one commit, compressed …

_log = events.named("routers")

ROUTER_COPIED_RECORDS_MAX = 10_000  # appended by one commit
ROUTER_COPIED_INLINE_BYTES = 4 * limits.KIB  # copies up to this size are made on the event loop

_STAMP = "_topics_router"


class RouterCopier:
    def __init__(self, log: Log, clock: Clock, streams: StreamService) -> None:
        self._log = log
        self._clock = clock
        self._streams = streams

    async def advance(self, leg: RouterPartition) -> None:
        """Copy everything that is readable now, or as much as the destination accepts.

        No other task of this broker may advance it. Another broker may: the ledger accepts a copy once."""
        legs = self._log.ledger.routers.legs
        while legs.get(leg.number) is leg and not legs.aliased(leg):
            cursor, end = leg.cursor, self._log.streams.of(leg.source).stable_end(leg.source)
            if cursor >= end:
                return
            try:
                if not await self._step(leg, end):
                    return
            except Rejected:
                if leg.cursor == cursor:
                    raise  # unless another broker copied first

    async def _step(self, leg: RouterPartition, end: int) -> bool:
        """Advance the router partition. False if the destination is full."""
        cursor = leg.cursor
        skipped = self._skipped(leg, cursor, end)
        if skipped is not None:
            await self._pass(leg, *skipped)
            return True
        _, stop, hop = next(self._log.ledger.routers.legs.hops.pieces(leg.source, cursor, end))
        if hop + 1 >= limits.ROUTER_HOPS_MAX:
            await self._pass(leg, stop, 0)
            return True
        try:
            chunk = await self._streams.read(leg.source, cursor, ROUTER_COPIED_BYTES_MAX, view=View.COMMITTED)
        except OffsetOutOfRange:
            return self._skipped(leg, cursor, end) is not None  # the next step finds the reason
        except RecordsLost as loss:
            return await self._pass_lost(leg, loss, cursor, end)
        stop = min(stop, chunk.next_offset)
        if not chunk.batches:
            await self._pass(leg, stop, 0)
            return stop > cursor
        try:
            return await self._copy(leg, chunk.batches, cursor, stop)
        except FAULTS:
            try:
                batches, reached = await asyncio.to_thread(decodable, chunk.batches, cursor)
            except RecordsLost as loss:
                return await self._pass_lost(leg, loss, cursor, end)
            return await self._copy(leg, batches, cursor, min(stop, reached))

    async def _pass_lost(self, leg: RouterPartition, loss: RecordsLost, cursor: int, end: int) -> bool:
        """Continue after records that cannot be copied; the destination reports them as missing."""
        if self._skipped(leg, cursor, end) is None:  # else the next step says what it was
            reached = min(end, loss.end)
            streams, number = self._log.streams.of(leg.source).state(leg.source)
            live = sum(last - first for first, last in streams.holes(number).live(cursor, reached))
            _log.warning(
                "router skipped lost records",
                router=leg.router.name,
                stream=leg.source,
                start=cursor,
                end=reached,
                reason=loss.reason,
            )
            await self._pass(leg, reached, live)
        return True

    def _skipped(self, leg: RouterPartition, cursor: int, end: int) -> tuple[int, int] | None:
        """If the cursor is not at a record: where to continue, and how many records were lost in between."""
        streams, number = self._log.streams.of(leg.source).state(leg.source)
        start = min(end, streams.start(number))
        if cursor < start:
            return start, lost_below_start(streams, number, cursor, start)
        loss = streams.next_loss(number, cursor)
        if loss is not None and loss[0] <= cursor:
            reached = min(end, loss[1])
            return reached, lost_records(cursor, reached, loss[2])
        return None

    async def _pass(self, leg: RouterPartition, end: int, lost: int) -> None:
        if lost and self._log.ledger.streams.ephemeral(leg.dest):
            await self._log.ephemeral.skip(leg.dest, lost)
        await self._log.propose(PassOver(leg.number, leg.cursor, end, lost))

    async def _copy(
        self, leg: RouterPartition, batches: tuple[memoryview, ...], start: int, stop: int
    ) -> bool:
        dest = self._log.ledger.topics.of_stream(leg.dest)
        source = self._log.ledger.topics.of_stream(leg.source)
        if dest is None or source is None:
            return False
        room = await self._room(dest, leg.dest)
        recipe = _recipe(leg.router, source, leg.source)
        now_ms = self._clock.now_ms()
        try:
            small = sum(map(len, batches)) <= ROUTER_COPIED_INLINE_BYTES
            if small and not any(header.codec_id for batch in batches for header in walk(batch)):
                copies = make_copies(batches, start, stop, recipe, room, now_ms)
            else:
                copies = await asyncio.to_thread(make_copies, batches, start, stop, recipe, room, now_ms)
        except DestinationFull as refusal:
            if dest.config.cap_bytes and refusal.size > dest.config.cap_bytes:
                # It can never fit and must not block the others: the destination gets a gap instead.
                await self._pass(leg, refusal.offset + 1, 1)
                return True
            return False
        if copies is None:
            await self._pass(leg, stop, 0)
            return True
        return await self._append(leg, dest, copies)

    async def _room(self, dest: Topic, stream: int) -> DestinationRoom:
        config = dest.config
        records, size = ROUTER_COPIED_RECORDS_MAX, limits.OFFSET_MAX
        if config.discard == "reject" and (config.cap_records or config.cap_bytes):
            if config.ttl_ms:
                await expire(self._log, dest, stream, self._clock.now_ms())
            streams, number = self._log.streams.of(stream).state(stream)
            if config.cap_records:
                records = min(records, max(0, config.cap_records - int(streams.records[number])))
            if config.cap_bytes:
                size = max(0, config.cap_bytes - int(streams.bytes[number]))
        return DestinationRoom(records, size)

    async def _append(self, leg: RouterPartition, dest: Topic, copies: RecordCopies) -> bool:
        rows = record_rows(copies.sizes, copies.times) if dest.config.tracked else b""
        request = AppendRequest(leg.dest, copies.slice, copies.facts, int(copies.sizes.sum()), rows)
        start, count = leg.cursor, copies.facts.count
        try:
            if dest.config.durability == "ephemeral":
                # One commit is not needed: a crash loses an ephemeral topic anyway.
                placed = promise()
                self._log.streams.of(leg.dest).append(request, placed)
                base, _ = await placed
                await self._log.propose(PassOver(leg.number, start, copies.end, 0, count, base))
            else:
                noting = NoteForwarded(leg.number, start, copies.end, count, once=True)
                await self._log.append_then(request, noting)
        except TopicFull:
            return False
        return True


def _recipe(router: Router, source: Topic, stream: int) -> CopyOptions:
    match = None if router.match is None else Match(*router.match)
    stamp = None
    if router.guarantee == "exactly_once":
        partition = source.streams.index(stream)
        topic_id = source.topic_id.hex()

        def stamp(record: StoredRecord) -> Headers:
            seq = record.offset + 1
            origin = {
                "idempotency_key": f"{router.name}:{topic_id}:{partition}:{seq}",
                "router": router.name,
                "source_topic": source.name,
                "source_topic_id": topic_id,
                "source_epoch": LEADER_EPOCH,
                "source_seq": seq,
            }
            return _stamped(record.headers, origin)

    return CopyOptions(match, router.preserve_node, router.preserve_tag, stamp)


def _stamped(headers: Headers, origin: dict[str, object]) -> Headers:
    """Headers with the record's origin in the meta."""
    given = next((content for name, content in headers if name == META and content is not None), None)
    meta = {} if given is None else meta_object(given)
    meta[_STAMP] = origin
    others = tuple(header for header in headers if header[0] != META)
    return (*others, (META, msgspec.json.encode(meta)))

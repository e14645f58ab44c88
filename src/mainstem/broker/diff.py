"""Diffs: the records after a sequence number, and which of them were lost.

A page is the selected records plus at most one tombstone, for records that were lost: evicted by a cap, expired, or
damaged. Records that were deleted on request are skipped silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.broker.decoding import Decoding
from mainstem.broker.streams import StreamService, View, stream_of
from mainstem.broker.topics.floors import Floors, expire_due, expire_untracked, floors_of
from mainstem.errors import NotFound, OffsetOutOfRange, RecordsLost, TooLarge, TopicNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.intervals import SOURCE_TRIM
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records import kernels
from mainstem.records.decoding import StoredRecord, lone_record
from mainstem.records.index import RecordIndex, copied, index_slices
from mainstem.records.reserved_headers import ReservedHeaders, find_reserved_headers, nodes_among
from mainstem.records.undecodable import FAULTS, UNDECODABLE, decodable

RECREATED = "recreated"  # the reader was past the end
LOST = "lost"  # damaged, or not synced when the machine crashed

_MANY_SLICES = 16  # joined into one buffer, so that a kernel lists their batches
_STORED_OVERHEAD_BYTES = 40  # per record, an estimate; if it is too low, the rest needs another read
_READ_BYTES_MIN = 1024


class DiffQuery(NamedTuple):  # one for every read, where a frozen dataclass costs a microsecond more
    """A reader's request. The limits of limits.py are already applied."""

    from_seq: int = 0  # exclusive
    limit: int = limits.DIFF_RECORDS_DEFAULT
    max_bytes: int = limits.DIFF_BYTES_DEFAULT
    nodes: tuple[bytes, ...] = ()  # omit records of these nodes
    wait_ms: int = 0
    before_large: Callable[[], Awaitable[None]] | None = None  # awaited before a very large batch is decoded


@dataclass(frozen=True, slots=True)
class Tombstone:
    reason: str
    gap_from: int
    gap_to: int
    earliest_seq: int
    head_seq: int

    @property
    def missed_estimate(self) -> int:
        return max(0, self.gap_to - self.gap_from + 1)


@dataclass(frozen=True, slots=True)
class SelectedRecords:
    """Some records of an index, by column, with the positions of their node and meta."""

    index: RecordIndex
    reserved_headers: ReservedHeaders
    rows: npt.NDArray[np.int64]


@dataclass(slots=True)
class DiffPage:
    head_seq: int
    earliest_seq: int
    next_from_seq: int
    tombstone: Tombstone | None = None
    chosen: list[SelectedRecords | StoredRecord] = field(default_factory=list)  # single ones have no headers
    count: int = 0
    bytes: int = 0  # logical bytes of the selected records
    scanned: int = 0
    stored_each: int = 0  # stored bytes per record in the last read for this page

    @property
    def caught_up(self) -> bool:
        return self.next_from_seq == self.head_seq

    @property
    def empty(self) -> bool:
        """Whether it says nothing but that there is nothing new."""
        return self.caught_up and not self.count and self.tombstone is None

    @property
    def recreated(self) -> bool:
        """Whether the reader was past the end of the topic."""
        return self.tombstone is not None and self.tombstone.reason == RECREATED

    @property
    def lag(self) -> int:
        return self.head_seq - self.next_from_seq


class _ChangeWatcher:
    """Notes that one of several streams changed."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def changed(self) -> None:
        self._changed.set()

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True


class Diffs:
    def __init__(self, log: Log, clock: Clock, streams: StreamService, decoding: Decoding) -> None:
        self._log = log
        self._clock = clock
        self._streams = streams
        self._decoding = decoding
        self._waiting: dict[int, int] = {}  # readers by stream
        self._stopped = False
        self._first = 0  # of the partitions that the next read of several begins with

    async def read(self, topic: Topic, wanted: DiffQuery, partition: int = 0) -> DiffPage:
        """Raises PartitionNotFound, or TopicNotFound if the topic is deleted in the meantime."""
        stream = stream_of(topic, partition)
        try:
            page = await self._page(stream, topic.config, wanted)
            if page.empty and wanted.wait_ms and await self._changed(stream, wanted.wait_ms / 1000):
                page = await self._page(stream, topic.config, wanted)
            return page
        except NotFound:
            raise TopicNotFound(topic.name) from None

    async def read_all(
        self, topic: Topic, positions: Mapping[int, int], wanted: DiffQuery
    ) -> dict[int, DiffPage]:
        """Pages of several partitions, each after its position; together they keep the limits of `wanted`.

        Raises PartitionNotFound, or TopicNotFound if the topic is deleted in the meantime."""
        streams = [stream_of(topic, partition) for partition in positions]
        watcher = _ChangeWatcher()
        if wanted.wait_ms:  # before the first read, so that no record is missed between it and the wait
            self._streams.watch(streams, watcher)
        try:
            pages = await self._pages(topic, positions, wanted)
            if wanted.wait_ms and not self._stopped and all(page.empty for page in pages.values()):
                for stream in streams:
                    self._waiting[stream] = self._waiting.get(stream, 0) + 1
                try:
                    if await watcher.wait(wanted.wait_ms / 1000):
                        pages = await self._pages(topic, positions, wanted)
                finally:
                    for stream in streams:
                        self._waiting[stream] -= 1
                        if not self._waiting[stream]:
                            del self._waiting[stream]
            return pages
        except NotFound:
            raise TopicNotFound(topic.name) from None
        finally:
            if wanted.wait_ms:
                self._streams.unwatch(streams, watcher)

    async def _pages(
        self, topic: Topic, positions: Mapping[int, int], wanted: DiffQuery
    ) -> dict[int, DiffPage]:
        """Each partition gets a share of the limits; those that are read first change from call to call."""
        order = sorted(positions)
        self._first = (self._first + 1) % len(order)
        order = order[self._first :] + order[: self._first]
        records, size = wanted.limit, wanted.max_bytes
        pages: dict[int, DiffPage] = {}
        for done, partition in enumerate(order):
            left = len(order) - done
            share = wanted._replace(
                from_seq=positions[partition],
                limit=-(-records // left),
                max_bytes=max(1, size // left),
            )
            page = pages[partition] = await self._page(stream_of(topic, partition), topic.config, share)
            records, size = records - page.count, max(0, size - page.bytes)
        return {partition: pages[partition] for partition in sorted(pages)}

    @property
    def waiting(self) -> int:
        """How many readers wait for records."""
        return sum(self._waiting.values())

    def stop_waiting(self) -> None:
        """End all waits: readers return what they have, and no later read waits."""
        self._stopped = True
        for stream in self._waiting:
            self._log.visibility.wake(stream)

    async def _changed(self, stream: int, timeout_s: float) -> bool:
        if self._stopped:
            return False
        self._waiting[stream] = self._waiting.get(stream, 0) + 1
        try:
            return await self._log.visibility.changed(stream, timeout_s)
        finally:
            self._waiting[stream] -= 1
            if not self._waiting[stream]:
                del self._waiting[stream]

    async def _page(self, stream: int, config: TopicConfig, wanted: DiffQuery) -> DiffPage:
        now = self._clock.now_ms()
        await expire_due(self._log, stream)
        if config.ttl_ms:
            await expire_untracked(self._log, stream, config, now)
        floors = floors_of(self._log, stream, config, now)
        tombstone, at = _first_gap(floors, wanted.from_seq)
        page = DiffPage(floors.end, floors.start + 1, at, tombstone)
        nodes = wanted.nodes if config.dedupe_node else ()
        while page.count < wanted.limit and page.next_from_seq < floors.end:
            try:
                going_on = await self._fill(stream, page, floors, wanted, nodes)
            except RecordsLost as loss:
                # A gap before any record: report it and continue after it. A later gap: the next call begins with it.
                if page.tombstone is not None or page.next_from_seq > at:
                    break
                page.tombstone = _gap(
                    _reason(loss.reason), page.next_from_seq, min(loss.end, floors.end), floors
                )
                page.next_from_seq = min(loss.end, floors.end)
                at = page.next_from_seq
                continue
            except OffsetOutOfRange as moved:
                if moved.start <= page.next_from_seq:
                    raise
                break  # trimmed during the read: the next call begins with a tombstone
            if not going_on:
                break
        return page

    def _bytes_to_read(self, stream: int, records: int, room: int) -> int:
        """The approximate stored bytes of `records` records: over-reading wastes scan time."""
        streams, number = self._log.streams.of(stream).state(stream)
        if records == 1:
            return 1  # one batch, whatever its size
        held = int(streams.records[number])
        average = int(streams.bytes[number]) // held if held else 0
        overhead = records * _STORED_OVERHEAD_BYTES
        return min(records * average, room) + overhead + _READ_BYTES_MIN

    async def _fill(
        self, stream: int, page: DiffPage, floors: Floors, wanted: DiffQuery, nodes: Sequence[bytes]
    ) -> bool:
        """Add records at the end of the page. False once it is full."""
        at = page.next_from_seq
        left = wanted.limit - page.count
        if page.stored_each:
            asked = left * page.stored_each + _READ_BYTES_MIN
        else:
            asked = self._bytes_to_read(stream, left, wanted.max_bytes - page.bytes)
        chunk = self._streams.read_cached(stream, at, asked, View.COMMITTED)
        if chunk is None:
            chunk = await self._streams.read(stream, at, asked, view=View.COMMITTED)
        batches: Sequence[memoryview] = chunk.batches
        if len(batches) > _MANY_SLICES:
            batches = [memoryview(b"".join(batches))]
        reached = min(chunk.next_offset, floors.end)
        page.stored_each = sum(map(len, batches)) // max(1, reached - at)
        lone = lone_record(batches[0]) if len(batches) == 1 else None
        try:
            if lone is not None:
                full = not _choose_lone(lone, page, at, reached, floors, wanted)
            else:
                full = _choose_from(
                    batches, limits.DECODED_INLINE_BYTES_MAX, page, reached, floors, wanted, nodes
                )
        except FAULTS as fault:
            if isinstance(fault, TooLarge) and wanted.before_large is not None:
                await wanted.before_large()
            full, reached = await self._decoding.run(
                f"stream {stream}",
                partial(_choose_decodable, batches, page, reached, floors, wanted, nodes),
            )
        if full:
            return False
        if page.next_from_seq < reached:
            page.next_from_seq = reached  # deleted records, and markers
        return page.next_from_seq > at


def _choose_from(
    batches: Sequence[memoryview],
    decoded_max: int,
    page: DiffPage,
    end: int,
    floors: Floors,
    wanted: DiffQuery,
    nodes: Sequence[bytes],
) -> bool:
    """Choose records from where the page ends. True once the page is full. Raises FAULTS."""
    for index in index_slices(batches, decoded_max=decoded_max):
        if not _choose(index, page, page.next_from_seq, end, floors, wanted, nodes):
            return True
    return False


def _choose_compacted(
    batches: Sequence[memoryview],
    page: DiffPage,
    end: int,
    floors: Floors,
    wanted: DiffQuery,
    nodes: Sequence[bytes],
) -> bool:
    """The same for batches of any size, of which the page keeps no more than the records chosen."""
    before = len(page.chosen)
    try:
        return _choose_from(batches, limits.BATCH_DECODED_BYTES_MAX, page, end, floors, wanted, nodes)
    finally:
        page.chosen[before:] = map(_compacted, page.chosen[before:])


def _choose_decodable(
    batches: Sequence[memoryview],
    page: DiffPage,
    end: int,
    floors: Floors,
    wanted: DiffQuery,
    nodes: Sequence[bytes],
) -> tuple[bool, int]:
    """The same up to a batch that cannot be decoded, and the offset reached. Raises RecordsLost if it is the first."""
    try:
        return _choose_compacted(batches, page, end, floors, wanted, nodes), end
    except FAULTS:
        batches, reached = decodable(batches, page.next_from_seq)
        end = min(reached, floors.end)
        return _choose_compacted(batches, page, end, floors, wanted, nodes), end


def _compacted(selected: SelectedRecords | StoredRecord) -> SelectedRecords | StoredRecord:
    if isinstance(selected, StoredRecord):
        return selected
    fields = selected.index.fields[:, selected.rows]
    start, end = int(fields[kernels.START].min()), int(fields[kernels.END].max())
    for row in (kernels.START, kernels.END, kernels.KEY_AT, kernels.VALUE_AT, kernels.HEADERS_AT):
        fields[row] -= start
    index = RecordIndex(
        memoryview(copied(selected.index.data, start, end - start)), fields, selected.index.headers
    )
    return SelectedRecords(index, find_reserved_headers(index), np.arange(fields.shape[1]))


def _choose(
    index: RecordIndex,
    page: DiffPage,
    at: int,
    end: int,
    floors: Floors,
    wanted: DiffQuery,
    nodes: Sequence[bytes],
) -> bool:
    """Choose records of one index for the page. False once the page is full."""
    fields = index.fields
    offsets = fields[kernels.OFFSET]
    first, last = np.searchsorted(offsets, (at, end))
    if first == last:
        return True
    reserved_headers = find_reserved_headers(index)
    kept = np.ones(last - first, np.bool_)
    if floors.expires_before_ms is not None:
        kept &= fields[kernels.TIMESTAMP, first:last] >= floors.expires_before_ms
    if nodes and index.headers:
        kept &= ~nodes_among(index, reserved_headers, nodes)[first:last]
    rows = np.flatnonzero(kept) + first
    sizes = np.maximum(fields[kernels.VALUE_LENGTH, rows], 0)
    if index.headers:
        sizes = sizes + np.maximum(reserved_headers.meta_length[rows], 0)
    totals = np.cumsum(sizes) + page.bytes
    fitting = int(np.searchsorted(totals, wanted.max_bytes, side="right"))
    if not page.count and not fitting and len(rows):
        fitting = 1  # always at least one
    taken = min(fitting, wanted.limit - page.count, len(rows))
    full = taken < len(rows) or page.count + taken >= wanted.limit
    if taken:
        page.chosen.append(SelectedRecords(index, reserved_headers, rows[:taken]))
        page.count += taken
        page.bytes = int(totals[taken - 1])
    if full and taken < len(rows) and page.count < wanted.limit:
        # The byte limit stops before the record that does not fit; the records skipped before it count as examined.
        page.scanned += int(rows[taken] - first)
        page.next_from_seq = int(offsets[rows[taken]])
        return False
    # The record limit stops right after the last record.
    examined = rows[taken - 1] + 1 if full and taken else last
    page.scanned += int(examined - first)
    page.next_from_seq = int(offsets[examined - 1]) + 1 if examined > first else page.next_from_seq
    return not full


def _choose_lone(
    record: StoredRecord, page: DiffPage, at: int, end: int, floors: Floors, wanted: DiffQuery
) -> bool:
    """As `_choose`, of one record without headers: without arrays, which cost more than the record."""
    offset = record.offset
    if not at <= offset < end:
        return True
    if floors.expires_before_ms is None or record.timestamp_ms >= floors.expires_before_ms:
        total = page.bytes + len(record.value or b"")
        if page.count and total > wanted.max_bytes:
            page.next_from_seq = offset
            return False
        page.chosen.append(record)
        page.count += 1
        page.bytes = total
    page.scanned += 1
    page.next_from_seq = offset + 1
    return page.count < wanted.limit


def _first_gap(floors: Floors, from_seq: int) -> tuple[Tombstone | None, int]:
    """The tombstone for a reader at `from_seq`, if any, and where it continues."""
    if from_seq > floors.end:
        return _gap(RECREATED, 0, floors.end, floors), floors.start
    at = max(floors.start, from_seq)
    if from_seq >= floors.lost:
        return None, at
    return _gap(_reason_below(floors, from_seq), from_seq, floors.lost, floors), at


def _reason_below(floors: Floors, from_seq: int) -> str:
    capped, aged = floors.evicted > from_seq, floors.expired > from_seq
    if capped or aged:
        return "mixed" if capped and aged else "ttl" if aged else "cap"
    return LOST if floors.damaged > from_seq else SOURCE_TRIM


def _gap(reason: str, after: int, until: int, floors: Floors) -> Tombstone:
    return Tombstone(reason, after + 1, until, floors.start + 1, floors.end)


def _reason(hole: str) -> str:
    return hole if hole in (SOURCE_TRIM, UNDECODABLE) else LOST

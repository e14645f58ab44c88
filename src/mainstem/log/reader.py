"""The read path: tail cache, then the log object's bytes, checked and stamped off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import NotFound, OffsetOutOfRange, RecordsLost, Unavailable
from mainstem.ledger.commands import MarkLost
from mainstem.ledger.ledger import Ledger
from mainstem.log.committer import LEADER_EPOCH, Committer
from mainstem.log.extents import Extent, SealedExtents
from mainstem.log.index import ExtentIndex, NotLoaded
from mainstem.log.tail import TailCache
from mainstem.log.visibility import Visibility
from mainstem.ports.commitlog.port import CommitLog
from mainstem.records.header import stamp, walk
from mainstem.records.rewrite import without_offsets

_T = TypeVar("_T")
Ranges = list[tuple[int, int]]

# Extents closer together than this are fetched in one read: a system call costs more than the bytes between.
_COALESCE_GAP_BYTES = 8 * limits.KIB


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one stream, stamped. The first may begin before the offset asked for."""

    batches: tuple[memoryview, ...]
    next_offset: int


class _Damaged(Exception):
    """Stored bytes do not match their checksum."""

    def __init__(self, extent: Extent) -> None:
        super().__init__(extent)
        self.extent = extent


class Reader:
    def __init__(
        self,
        port: CommitLog,
        ledger: Ledger,
        index: ExtentIndex,
        tail: TailCache,
        visibility: Visibility,
        committer: Committer,
    ) -> None:
        self._port = port
        self._ledger = ledger
        self._index = index
        self._tail = tail
        self._visibility = visibility
        self._committer = committer

    async def read(self, stream: int, offset: int, max_bytes: int, max_wait_s: float = 0.0) -> Chunk:
        """Batches from `offset` on: at least one if there is any, else none after waiting up to `max_wait_s`.

        Raises OffsetOutOfRange, RecordsLost, or NotFound if the stream is deleted."""
        chunk = await self._read_now(stream, offset, max_bytes)
        if chunk.batches or max_wait_s <= 0 or chunk.next_offset != offset:
            return chunk
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_s
        while (left := deadline - loop.time()) > 0:
            if not await self._visibility.changed(stream, left):
                break
            chunk = await self._read_now(stream, offset, max_bytes)
            if chunk.batches or chunk.next_offset != offset:
                break
        return chunk

    async def _read_now(self, stream: int, offset: int, max_bytes: int) -> Chunk:
        while True:
            start, end = self.bounds(stream)
            if not start <= offset <= end:
                raise OffsetOutOfRange(offset, start, end)
            end = self._before_loss(stream, offset, end)
            try:
                extents = await self.resolving(lambda: self._index.find(stream, offset, max_bytes, end))  # noqa: B023
                if not extents:
                    return Chunk((), end)
                return await self._fetch(stream, offset, extents)
            except FileNotFoundError:
                # Retention dropped the object meanwhile: look again, at the new start.
                if self.bounds(stream)[0] <= offset:
                    raise
            except _Damaged as damage:
                await self._mark_lost(stream, offset, damage.extent)

    def bounds(self, stream: int) -> tuple[int, int]:
        """The first offset still there and the visible end."""
        streams = self._ledger.streams
        if not streams.exists(stream):
            raise NotFound("the topic was deleted")
        start = streams.start(stream)
        # A trim is applied before it is synced, so the start can be past what is visible for a moment.
        return start, max(start, self._visibility.ends[stream])

    def _before_loss(self, stream: int, offset: int, end: int) -> int:
        """Where readable offsets end; raises if `offset` itself is lost."""
        for first, last, reason in self._ledger.streams.lost(stream):
            if first <= offset < last:
                raise RecordsLost(offset, last, reason)
            if first > offset:
                return min(end, first)
        return end

    async def _mark_lost(self, stream: int, offset: int, extent: Extent) -> None:
        try:
            await self._committer.propose(MarkLost(stream, extent.base, extent.end))
        except Unavailable:
            # Reads go on where writes do not: tell the reader, and remember it when it is met again.
            raise RecordsLost(max(offset, extent.base), extent.end, "damaged") from None

    async def resolving(self, look_up: Callable[[], _T]) -> _T:
        """Run an index look-up, loading what it misses off the loop."""
        while True:
            try:
                return look_up()
            except NotLoaded as miss:
                number = miss.number
            data = await asyncio.to_thread(self._port.read_index, number)
            self._index.load(SealedExtents.decode(number, data))

    async def _fetch(self, stream: int, offset: int, extents: list[Extent]) -> Chunk:
        low, high = extents[0].base, extents[-1].end
        deleted = [
            (first, last)
            for first, last in self._ledger.streams.deleted(stream)
            if first < high and last > low
        ]
        cached = self._cached(extents)
        if cached is not None and not deleted:
            batches = cached
        else:
            batches = await asyncio.to_thread(self._fetch_off_loop, extents, cached, deleted)
        next_offset = extents[len(batches) - 1].end
        if extents[0].base < offset:
            batches = [_from_batch_with(batches[0], offset), *batches[1:]]
        return Chunk(tuple(batch for batch in batches if len(batch)), next_offset)

    def _cached(self, extents: list[Extent]) -> list[memoryview] | None:
        found = []
        for extent in extents:
            slice = self._tail.get(extent.object, extent.start)
            if slice is None:
                return None
            found.append(memoryview(slice).toreadonly())
        return found

    def _fetch_off_loop(
        self, extents: list[Extent], cached: list[memoryview] | None, deleted: Ranges
    ) -> list[memoryview]:
        batches = self._read_extents(extents) if cached is None else cached
        return [_without(batch, deleted) for batch in batches] if deleted else batches

    def _read_extents(self, extents: list[Extent]) -> list[memoryview]:
        found: list[memoryview] = []
        for run in _coalesced(extents):
            origin = run[0].start
            block = memoryview(
                self._port.read(run[0].object, origin, run[-1].start + run[-1].length - origin)
            )
            for extent in run:
                slice = block[extent.start - origin : extent.start - origin + extent.length]
                if len(slice) != extent.length or crc32c(slice) != extent.crc:
                    if found:
                        return found  # what is whole comes first; the next read meets the damage
                    raise _Damaged(extent)
                stamp(slice, extent.base, LEADER_EPOCH)
                found.append(slice.toreadonly())
        return found


def _coalesced(extents: list[Extent]) -> list[list[Extent]]:
    runs = [[extents[0]]]
    for extent in extents[1:]:
        last = runs[-1][-1]
        if 0 <= extent.start - (last.start + last.length) <= _COALESCE_GAP_BYTES:
            runs[-1].append(extent)
        else:
            runs.append([extent])
    return runs


def _from_batch_with(slice: memoryview, offset: int) -> memoryview:
    """Leave out the batches that end before `offset`."""
    for header in walk(slice):
        if header.next_offset > offset:
            return slice[header.position :]
    return slice[len(slice) :]


def _without(slice: memoryview, deleted: Ranges) -> memoryview:
    """Re-encode the batches that hold deleted records."""
    kept = bytearray()
    for header in walk(slice):
        batch = slice[header.position : header.end]
        if any(first < header.next_offset and last > header.base_offset for first, last in deleted):
            rewritten = without_offsets(batch, deleted)
            if rewritten is not None:
                kept += rewritten
        else:
            kept += batch
    return memoryview(kept).toreadonly()

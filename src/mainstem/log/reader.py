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
from mainstem.ledger.intervals import DELETED
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.markers import StreamTransactions
from mainstem.log.committer import Committer
from mainstem.log.delivery import LEADER_EPOCH
from mainstem.log.extents import Extent, SealedExtents
from mainstem.log.index import ExtentIndex, NotLoaded
from mainstem.log.tail import TailCache
from mainstem.log.views import View, committed_extents, with_markers
from mainstem.log.visibility import Visibility
from mainstem.ports.commitlog.port import CommitLog
from mainstem.records.header import stamp, walk
from mainstem.records.rewrite import without_ranges

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

    @property
    def _transactions(self) -> StreamTransactions:
        return self._ledger.streams.transactions

    async def read(
        self,
        stream: int,
        offset: int,
        max_bytes: int,
        max_wait_s: float = 0.0,
        view: View = View.COMMITTED,
    ) -> Chunk:
        """Batches from `offset` on: at least one if there is any, else none after waiting up to `max_wait_s`.

        Raises OffsetOutOfRange, RecordsLost, or NotFound if the stream is deleted."""
        chunk = await self._read_now(stream, offset, max_bytes, view)
        if chunk.batches or max_wait_s <= 0 or chunk.next_offset != offset:
            return chunk
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max_wait_s
        while (left := deadline - loop.time()) > 0:
            if not await self._visibility.changed(stream, left):
                break
            chunk = await self._read_now(stream, offset, max_bytes, view)
            if chunk.batches or chunk.next_offset != offset:
                break
        return chunk

    async def _read_now(self, stream: int, offset: int, max_bytes: int, view: View) -> Chunk:
        while True:
            end = self._readable_end(stream, offset, view)
            if offset == end:
                return Chunk((), end)
            try:
                extents = await self.resolving(lambda: self._index.find(stream, offset, max_bytes, end))  # noqa: B023
                if self._transactions.touched(stream):
                    return await self._fetch_among_transactions(stream, offset, extents, end, view)
                if not extents:
                    return Chunk((), end)
                return _chunk(await self._fetch(stream, extents), offset, extents)
            except FileNotFoundError:
                # Retention dropped the object meanwhile: look again, at the new start.
                if self.bounds(stream)[0] <= offset:
                    raise
            except _Damaged as damage:
                await self._mark_lost(stream, offset, damage.extent)
                if self._all_dead(stream, offset, damage.extent.end):
                    return Chunk((), damage.extent.end)  # nothing was lost with these bytes: pass them

    def _all_dead(self, stream: int, offset: int, end: int) -> bool:
        """Whether no record from `offset` to `end` is there or lost: all were deleted or aborted."""
        holes = self._ledger.streams.holes(stream)
        loss = holes.next_loss(offset)
        return not any(holes.live(offset, end)) and (loss is None or loss[0] >= end)

    def read_cached(
        self, stream: int, offset: int, max_bytes: int, view: View = View.COMMITTED
    ) -> Chunk | None:
        """What `read` would give without waiting, if it needs no file; None if it does."""
        end = self._readable_end(stream, offset, view)
        if offset == end:
            return Chunk((), end)
        try:
            found = extents = self._index.find(stream, offset, max_bytes, end)
        except NotLoaded:
            return None
        touched = self._transactions.touched(stream)
        if touched and view is View.COMMITTED:
            extents = committed_extents(self._ledger.streams, stream, found)
        batches = self._cached(extents)
        if batches is None or (extents and self._deleted(stream, extents)):
            return None
        if touched:
            return self._among_transactions(stream, offset, found, extents, batches, end, view)
        return _chunk(batches, offset, extents) if extents else Chunk((), end)

    async def stored(self, stream: int, offset: int, max_bytes: int) -> Chunk:
        """Batches from `offset` on as they were written, deleted records included.

        For a reader that knows which offsets are live. Raises OffsetOutOfRange, RecordsLost, NotFound."""
        start, end = self.bounds(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        extents = await self.resolving(lambda: self._index.find(stream, offset, max_bytes, end))
        if not extents:
            return Chunk((), end)
        batches = self._cached(extents)
        if batches is None:
            try:
                batches = await asyncio.to_thread(self._read_extents, extents)
            except FileNotFoundError:
                raise OffsetOutOfRange(offset, *self.bounds(stream)) from None
            except _Damaged as damage:
                await self._mark_lost(stream, offset, damage.extent)
                raise RecordsLost(damage.extent.base, damage.extent.end, "damaged") from None
        return _chunk(batches, offset, extents)

    def bounds(self, stream: int) -> tuple[int, int]:
        """The first offset still there and the visible end."""
        streams = self._ledger.streams
        if not streams.exists(stream):
            raise NotFound("the topic was deleted")
        start = streams.start(stream)
        # A trim is applied before it is synced, so the start can be past what is visible for a moment.
        return start, max(start, self._visibility.ends[stream])

    def stable_end(self, stream: int) -> int:
        """Where what open transactions wrote begins; the visible end if there are none.

        A transaction whose end is applied but not synced still counts as open: it might be lost."""
        start, end = self.bounds(stream)
        first = self._transactions.first_open(stream)
        if first is not None and first < end:
            end = first
        return max(start, self._visibility.before_ending(stream, end))

    def _readable_end(self, stream: int, offset: int, view: View) -> int:
        """Up to where a read from `offset` may go. Raises OffsetOutOfRange, RecordsLost."""
        start, end = self.bounds(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        if view is View.COMMITTED and self._transactions.touched(stream):
            end = max(offset, self.stable_end(stream))
        loss = self._ledger.streams.holes(stream).next_loss(offset)
        if loss is None:
            return end
        if loss[0] <= offset:
            raise RecordsLost(offset, loss[1], loss[2])
        return min(end, loss[0])

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

    async def _fetch(self, stream: int, extents: list[Extent]) -> list[memoryview]:
        """The bytes of the extents; of fewer of them if damage stands in the way."""
        deleted = self._deleted(stream, extents)
        cached = self._cached(extents)
        if cached is not None and not deleted:
            return cached
        return await asyncio.to_thread(self._fetch_off_loop, extents, cached, deleted)

    async def _fetch_among_transactions(
        self, stream: int, offset: int, found: list[Extent], end: int, view: View
    ) -> Chunk:
        extents = found
        if view is View.COMMITTED:
            extents = committed_extents(self._ledger.streams, stream, found)
        batches = await self._fetch(stream, extents) if extents else []
        return self._among_transactions(stream, offset, found, extents, batches, end, view)

    def _among_transactions(
        self,
        stream: int,
        offset: int,
        found: list[Extent],
        extents: list[Extent],
        batches: list[memoryview],
        end: int,
        view: View,
    ) -> Chunk:
        """What was read of a stream that has markers: of the `extents` left of those `found` below `end`."""
        whole = len(batches) == len(extents)
        if batches and extents[0].base < offset:
            batches = [_from_batch_with(batches[0], offset), *batches[1:]]
        if view is View.STORED:
            read = extents[: len(batches)]
            batches, next_offset = with_markers(
                self._ledger.streams, stream, offset, read, batches, end, LEADER_EPOCH
            )
            next_offset = next_offset if found else end
        elif whole:
            next_offset = found[-1].end if found else end
        else:
            next_offset = extents[len(batches) - 1].end
        return Chunk(tuple(batch for batch in batches if len(batch)), next_offset)

    def _deleted(self, stream: int, extents: list[Extent]) -> Ranges:
        holes = self._ledger.streams.holes(stream).overlapping(extents[0].base, extents[-1].end)
        return [(first, last) for first, last, reason in holes if reason == DELETED]

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
        return [without_ranges(batch, deleted) for batch in batches] if deleted else batches

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


def _chunk(batches: list[memoryview], offset: int, extents: list[Extent]) -> Chunk:
    """What was read of `extents`, which is the first of them at least, from the batch with `offset` on."""
    next_offset = extents[len(batches) - 1].end
    if extents[0].base < offset:
        batches = [_from_batch_with(batches[0], offset), *batches[1:]]
    return Chunk(tuple(batch for batch in batches if len(batch)), next_offset)


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

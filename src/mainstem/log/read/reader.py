"""The read path: find the extents, parts or copies that serve an offset, and return what a reader may see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from mainstem import limits
from mainstem.api.lake import Part
from mainstem.errors import NotFound, OffsetOutOfRange, RecordsLost, Unavailable
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.markers import StreamTransactions
from mainstem.ledger.repacked_objects import FIRST_NUMBER
from mainstem.log.objects.repack.read_ahead import PlannedRead, ReadAhead
from mainstem.log.read.extent_bytes import ChecksumMismatch, ExtentBytes, StoredBytesMissing
from mainstem.log.read.extents import Extent, ReadChunk, extents_chunk, from_batch_with, part_chunk, without
from mainstem.log.read.index import ExtentIndex, NotLoaded, Unreadable
from mainstem.log.read.index_lookups import IndexLookups, ObjectGone
from mainstem.log.read.losses import Losses, missing, unreadable
from mainstem.log.read.missing import MISSING, MissingRecords
from mainstem.log.read.parts import PartReader
from mainstem.log.read.views import View, committed_extents, control_batch, with_markers
from mainstem.log.read.visibility import Visibility
from mainstem.log.streams.copies import CopyReader
from mainstem.log.write.delivery import LEADER_EPOCH

_MANY_SLICES = 16


class RecordReader:
    def __init__(
        self,
        ledger: Ledger,
        index: ExtentIndex,
        lookups: IndexLookups,
        extent_bytes: ExtentBytes,
        losses: Losses,
        parts: PartReader,
        visibility: Visibility,
        missing_records: MissingRecords,
        barrier: Callable[[], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._lookups = lookups
        self._bytes = extent_bytes
        self._losses = losses
        self._parts = parts
        self._copies = CopyReader(ledger, index, lookups, extent_bytes)
        self._ahead = ReadAhead(self._find_repacked, extent_bytes.load)
        self._visibility = visibility
        self._missing = missing_records
        self._barrier = barrier

    def close(self) -> None:
        """Stop reading ahead."""
        self._ahead.close()

    def bounds(self, stream: int) -> tuple[int, int]:
        """The start offset and the visible end. Raises NotFound."""
        streams = self._ledger.streams
        if not streams.exists(stream):
            raise NotFound("the topic was deleted")
        start = streams.start(stream)
        # A trim is applied before it is synced, so the start can be past what is visible for a moment.
        return start, max(start, self._visibility.ends[stream])

    def stable_end(self, stream: int) -> int:
        """The first offset that an open transaction wrote; the visible end if there is none.

        A transaction whose end is applied but not synced still counts as open: a crash may undo its end."""
        start, end = self.bounds(stream)
        if stream not in self._transactions.touched:
            return end
        first = self._transactions.first_open(stream)
        if first is not None and first < end:
            end = first
        return max(start, self._visibility.before_ending(stream, end))

    def _readable_end(self, stream: int, offset: int, view: View) -> int:
        """Up to where a read from `offset` may go. Raises OffsetOutOfRange, RecordsLost."""
        start, end = self.bounds(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        if view is View.COMMITTED and stream in self._transactions.touched:
            end = max(offset, self.stable_end(stream))
        loss = self._ledger.streams.next_loss(stream, offset)
        if loss is None:
            return end
        if loss[0] <= offset:
            raise RecordsLost(offset, loss[1], loss[2])
        return min(end, loss[0])

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
    ) -> ReadChunk:
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

    async def _read_now(self, stream: int, offset: int, max_bytes: int, view: View) -> ReadChunk:
        while True:
            changes = self._index.changes
            end = self._readable_end(stream, offset, view)
            if offset == end:
                return ReadChunk((), end)
            part = self._ledger.generations.part_at(stream, offset)
            if part is not None:
                chunk = await self._read_part(stream, part, offset, max_bytes, end, view)
                if chunk is not None:
                    return chunk
                continue
            try:
                copied, end = self._copies.at(stream, offset, end)
                if copied:
                    return await self._copies.read(stream, offset, max_bytes, end)
                extents = await self._lookups.find(stream, offset, max_bytes, end)
                if not extents or extents[0].base > offset:
                    gap = await self._missing_from(stream, offset, extents, end)
                    if gap is not None:
                        if gap[0] <= offset:
                            if changes == self._index.changes:
                                raise RecordsLost(offset, min(gap[1], end), MISSING)
                            continue
                        extents, end = [], gap[0]
                if stream in self._transactions.touched:
                    return await self._fetch_among_transactions(stream, offset, extents, end, view)
                if not extents:
                    return await self._losses.read_before(stream, offset, end)
                if extents[0].object >= FIRST_NUMBER:
                    return await self._read_repacked(PlannedRead(stream, offset, max_bytes), extents)
                return extents_chunk(await self._fetch(stream, extents), offset, extents)
            except FileNotFoundError as gone_file:
                # The object was dropped meanwhile: look again, at the new start, in the parts that took over, or in
                # the files that it was repacked into.
                if self._index.changes == changes and not self._moved(stream, offset):
                    await (
                        self._barrier()
                    )  # another broker may have dropped it, and its commit is on the way here
                    if self._index.changes != changes or self._moved(stream, offset):
                        raise Unavailable(
                            f"another broker moved the records at {offset}: try again"
                        ) from None
                    raise await self._lost_with(gone_file, stream, offset, end) from None
            except Unreadable as unread:
                if unread.gone:
                    await self._barrier()  # another broker may have replaced it
                    if self._index.changes != changes:
                        continue
                raise unreadable(unread, offset, end) from None
            except StoredBytesMissing as gone:
                raise missing(gone, offset) from None
            except ChecksumMismatch as damage:
                if self._index.changes != changes:
                    continue  # the file it was repacked into is intact
                if damage.whole is not None and stream not in self._transactions.touched:
                    chunk = await self._losses.read_around(stream, offset, damage.extent, damage.whole)
                    if chunk is not None:
                        return chunk
                    continue
                await self._losses.mark(stream, offset, damage.extent)
                if self._losses.all_dead(stream, offset, damage.extent.end):
                    return ReadChunk(
                        (), damage.extent.end
                    )  # no live records were lost with these bytes: skip them

    async def _missing_from(
        self, stream: int, offset: int, extents: list[Extent], end: int
    ) -> tuple[int, int] | None:
        """The first range that no file holds, before the first of the extents at or after `offset`."""
        extents = extents or await self._lookups.find(stream, offset, 1, limits.OFFSET_MAX)
        gap_end = min(end, extents[0].base) if extents else end
        if gap_end <= offset or not await self._missing.between(stream, offset, gap_end):
            return None
        await self._barrier()
        found = next(iter(await self._missing.between(stream, offset, gap_end)), None)
        if found is not None:
            self._missing.add(stream, *found)
        return found

    async def _lost_with(
        self, gone: FileNotFoundError, stream: int, offset: int, end: int
    ) -> RecordsLost | Unavailable:
        """The error of a read from `offset` whose file is gone although nothing dropped it."""
        try:
            if isinstance(gone, ObjectGone):
                number = gone.number
            else:
                number = (await self._lookups.find(stream, offset, 1, limits.OFFSET_MAX))[0].object
            reach = min(end, self._index.held_to(number, stream))
        except (FileNotFoundError, IndexError, NotLoaded, Unreadable):
            reach = offset
        if reach <= offset:
            return Unavailable(f"the file with the records at {offset} is gone: try again")
        for first, last in self._ledger.streams.holes(stream).live(offset, reach):
            self._missing.add(stream, first, last)
        return RecordsLost(offset, reach, MISSING)

    async def _read_repacked(self, place: PlannedRead, extents: list[Extent]) -> ReadChunk:
        ready = await self._ahead.take(place, extents[-1].end)
        # Compared, since the file may have been replaced after it was read.
        batches = ready.batches if ready and ready.extents == extents else await self._bytes.load(extents)
        deleted = self._deleted(place.stream, extents)
        if deleted:
            batches = await asyncio.to_thread(without, batches, deleted)
        return extents_chunk(batches, place.offset, extents)

    async def _find_repacked(self, place: PlannedRead) -> list[Extent]:
        """The extents that a read will ask for, if it will find them in a repacked file."""
        stream, offset, max_bytes = place
        end = self._readable_end(stream, offset, View.COMMITTED)
        copied, end = self._copies.at(stream, offset, end)
        if offset >= end or copied or self._ledger.generations.part_at(stream, offset) is not None:
            return []
        extents = await self._lookups.find(stream, offset, max_bytes, end)
        return extents if extents and extents[0].object >= FIRST_NUMBER else []

    def _moved(self, stream: int, offset: int) -> bool:
        """Whether the log's own bytes do not serve an offset any more."""
        start, _ = self.bounds(stream)
        return start > offset or self._ledger.generations.part_at(stream, offset) is not None

    def read_cached(
        self, stream: int, offset: int, max_bytes: int, view: View = View.COMMITTED
    ) -> ReadChunk | None:
        """The result of `read` without waiting, if it needs no file; None if it does."""
        end = self._readable_end(stream, offset, view)
        if offset == end:
            return ReadChunk((), end)
        ledger = self._ledger
        if stream in ledger.generations.served:
            part = ledger.generations.part_at(stream, offset)
            if part is not None:
                return self._cached_part(stream, part, offset, max_bytes, end, view)
        if ledger.routers.legs.aliases.feeds:
            copied, end = self._copies.at(stream, offset, end)
            if copied:
                return self._copies.cached(stream, offset, max_bytes, end)
        return self._cached_extents(stream, offset, max_bytes, end, view)

    def _cached_extents(
        self, stream: int, offset: int, max_bytes: int, end: int, view: View
    ) -> ReadChunk | None:
        """The log's own bytes from the tail cache; None if a file must be read."""
        try:
            found = extents = self._index.find(stream, offset, max_bytes, end)
        except (NotLoaded, Unreadable):
            return None
        if not found and self._losses.begin_at(stream, offset, end):
            return None
        if self._may_miss(stream, offset, found, end):
            return None
        touched = stream in self._transactions.touched
        if len(found) > _MANY_SLICES and not touched:
            return self._cached_joined(stream, offset, found)
        if touched and view is View.COMMITTED:
            extents = committed_extents(self._ledger.streams, stream, found)
        batches = self._bytes.tail.read(extents)
        if batches is None or (extents and self._deleted(stream, extents)):
            return None
        if touched:
            return self._among_transactions(stream, offset, found, extents, batches, end, view)
        return extents_chunk(batches, offset, extents) if extents else ReadChunk((), end)

    def _may_miss(self, stream: int, offset: int, found: list[Extent], end: int) -> bool:
        """Whether records before the first of the extents may be missing."""
        gap_end = found[0].base if found else end
        return gap_end > offset and any(self._ledger.streams.holes(stream).live(offset, gap_end))

    def _cached_joined(self, stream: int, offset: int, extents: list[Extent]) -> ReadChunk | None:
        """Join many small slices: copying them costs less than one buffer each."""
        batches = self._bytes.tail.read_joined(extents)
        if batches is None or self._deleted(stream, extents):
            return None
        return extents_chunk([batches], offset, [_joined(extents)])

    async def stored(self, stream: int, offset: int, max_bytes: int) -> ReadChunk:
        """Batches from `offset` on as they were written, deleted records included.

        For a reader that knows which offsets are live. Raises OffsetOutOfRange, RecordsLost, NotFound."""
        start, end = self.bounds(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        copied, end = self._copies.at(stream, offset, end)
        if copied or self._ledger.generations.part_at(stream, offset):
            return await self._read_now(stream, offset, max_bytes, View.STORED)
        changes = self._index.changes
        try:
            extents = await self._lookups.find(stream, offset, max_bytes, end)
        except Unreadable as unread:
            raise unreadable(unread, offset, end) from None
        if self._may_miss(stream, offset, extents, end):
            gap = await self._missing_from(stream, offset, extents, end)
            if gap is not None:
                if gap[0] > offset:
                    return ReadChunk((), gap[0])
                raise RecordsLost(offset, min(gap[1], end), MISSING)
        if not extents:
            return ReadChunk((), end)
        batches = self._bytes.tail.read(extents)
        if batches is None:
            try:
                batches = await self._bytes.load(extents)
            except FileNotFoundError as gone_file:
                await self._barrier()
                if self._index.changes != changes or self._moved(stream, offset):
                    return await self.stored(stream, offset, max_bytes)  # something else serves it now
                raise await self._lost_with(gone_file, stream, offset, end) from None
            except StoredBytesMissing as gone:
                raise missing(gone, offset) from None
            except ChecksumMismatch as damage:
                if self._index.changes != changes:
                    return await self.stored(stream, offset, max_bytes)
                if damage.whole is not None and stream not in self._transactions.touched:
                    chunk = await self._losses.read_around(stream, offset, damage.extent, damage.whole)
                    if chunk is not None:
                        return chunk
                    raise RecordsLost(damage.whole.first, damage.whole.end, "damaged") from None
                await self._losses.mark(stream, offset, damage.extent)
                raise RecordsLost(damage.extent.base, damage.extent.end, "damaged") from None
        return extents_chunk(batches, offset, extents)

    async def _fetch(self, stream: int, extents: list[Extent]) -> list[memoryview]:
        """The bytes of the extents, or only of those before damaged ones."""
        deleted = self._deleted(stream, extents)
        cached = self._bytes.tail.read(extents)
        if cached is not None and not deleted:
            return cached
        batches = await self._bytes.load(extents) if cached is None else cached
        return await asyncio.to_thread(without, batches, deleted) if deleted else batches

    async def _fetch_among_transactions(
        self, stream: int, offset: int, found: list[Extent], end: int, view: View
    ) -> ReadChunk:
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
    ) -> ReadChunk:
        """The result of a read of a stream with markers: `extents` are those of `found` to return, below `end`."""
        whole = len(batches) == len(extents)
        if batches and extents[0].base < offset:
            batches = [from_batch_with(batches[0], offset), *batches[1:]]
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
        return ReadChunk(tuple(batch for batch in batches if len(batch)), next_offset)

    def _deleted(self, stream: int, extents: list[Extent]) -> list[tuple[int, int]]:
        return self._deleted_between(stream, extents[0].base, extents[-1].end)

    def _deleted_between(self, stream: int, start: int, end: int) -> list[tuple[int, int]]:
        return self._ledger.streams.deleted_between(stream, start, end)

    # Parts

    async def _read_part(
        self, stream: int, part: Part, offset: int, max_bytes: int, end: int, view: View
    ) -> ReadChunk | None:
        """Read from the files of a part; None if something else serves the offset now. Raises RecordsLost."""
        chunk = self._cached_part(stream, part, offset, max_bytes, end, view)
        if chunk is not None:
            return chunk
        try:
            chunks = await self._parts.read(stream, part, offset, max_bytes, end)
        except RecordsLost:
            if self._ledger.generations.part_at(stream, offset) != part:
                return None
            raise
        deleted = self._deleted_between(stream, chunks[0].base, chunks[-1].end)
        if deleted:
            chunk = await asyncio.to_thread(part_chunk, chunks, offset, max_bytes, deleted)
        else:
            chunk = part_chunk(chunks, offset, max_bytes, deleted)
        return self._passable(stream, offset, chunk, view)

    def _cached_part(
        self, stream: int, part: Part, offset: int, max_bytes: int, end: int, view: View
    ) -> ReadChunk | None:
        found = self._parts.cached(stream, part, offset, end)
        if found is None:
            return self._still_hot(stream, part, offset, max_bytes, min(end, part.end), view)
        if self._deleted_between(stream, found.base, found.end):
            return None
        return self._passable(stream, offset, part_chunk([found], offset, max_bytes, []), view)

    def _passable(self, stream: int, offset: int, chunk: ReadChunk, view: View) -> ReadChunk:
        """A part has no aborted records, but a client that filters transactions itself advances only over batches that
        it gets: where a range has only aborted records, return the last of their markers."""
        if view is not View.STORED or chunk.batches:
            return chunk
        *_, last = (None, *self._transactions.markers(stream, offset, chunk.next_offset))
        return chunk if last is None else replace(chunk, batches=(control_batch(last, LEADER_EPOCH),))

    def _still_hot(
        self, stream: int, part: Part, offset: int, max_bytes: int, end: int, view: View
    ) -> ReadChunk | None:
        """Records of a new part that the tail cache still has, as they were written."""
        if part.generation != 1:
            return None
        try:
            first = next(iter(self._index.find(stream, offset, 1, end)), None)
        except (NotLoaded, Unreadable):
            return None
        if first is None or first.base > offset or self._bytes.tail.read([first]) is None:
            return None
        return self._cached_extents(stream, offset, max_bytes, end, view)


def _joined(extents: list[Extent]) -> Extent:
    """One extent that covers the offsets of all."""
    first = extents[0]
    return first._replace(offsets=extents[-1].end - first.base)

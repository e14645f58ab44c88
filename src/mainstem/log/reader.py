"""The read path: tail cache, then the log object's bytes, checked and stamped off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import (
    LogDamaged,
    NotFound,
    ObjectMissing,
    OffsetOutOfRange,
    RecordsLost,
    Throttled,
    Unavailable,
)
from mainstem.ledger.commands import MarkLost
from mainstem.ledger.intervals import DELETED
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.markers import StreamTransactions
from mainstem.ledger.parts import Part
from mainstem.ledger.repacked import FIRST_NUMBER
from mainstem.log.aliases import BytesGone, Source, restamped, sources
from mainstem.log.chunks import Chunk, part_chunk
from mainstem.log.committer import Committer
from mainstem.log.delivery import LEADER_EPOCH
from mainstem.log.extents import Extent, SealedExtents
from mainstem.log.index import ExtentIndex, NotLoaded, Unreadable
from mainstem.log.parts import PartReader
from mainstem.log.repack.ahead import Place, ReadAhead
from mainstem.log.repack.files import RepackedFiles
from mainstem.log.tail import TailCache
from mainstem.log.views import View, committed_extents, with_markers
from mainstem.log.visibility import Visibility
from mainstem.ports.commitlog.port import CommitLog
from mainstem.records.header import stamp, walk
from mainstem.records.rewrite import without_ranges
from mainstem.records.salvage import salvage

_T = TypeVar("_T")
Ranges = list[tuple[int, int]]

# Extents closer together than this are fetched in one read: a system call costs more than the bytes between.
_COALESCE_GAP_BYTES = 8 * limits.KIB
# Copies up to this size are stamped on the loop: a thread costs more.
_COPIES_INLINE_BYTES = 64 * limits.KIB
_COPIES_INLINE_SLICES = 16
_MANY_SLICES = 16

UNREADABLE = "unreadable"  # why records are lost whose file may be restored: the ledger does not note it


class _Whole(NamedTuple):
    """What is whole of a damaged extent, checked and stamped, and which offsets are lost between."""

    before: memoryview
    after: memoryview
    first: int
    end: int


class _Damaged(Exception):
    """Stored bytes do not match their checksum."""

    def __init__(self, extent: Extent, whole: _Whole | None = None) -> None:
        super().__init__(extent)
        self.extent = extent
        self.whole = whole  # of slices that were joined: most of them


class _Missing(_Damaged):
    """The object store no longer has the stored bytes."""


class Reader:
    def __init__(
        self,
        port: CommitLog,
        ledger: Ledger,
        index: ExtentIndex,
        tail: TailCache,
        visibility: Visibility,
        committer: Committer,
        parts: PartReader,
        repacked: RepackedFiles,
    ) -> None:
        self._port = port
        self._repacked = repacked
        self._ahead = ReadAhead(self._find_repacked, self._load)
        self._parts = parts
        self._ledger = ledger
        self._index = index
        self._tail = tail
        self._visibility = visibility
        self._committer = committer
        self._store_reads = 0  # under way, or waiting for a thread
        self._store_threads = ThreadPoolExecutor(limits.STORE_READ_THREADS, "mainstem-store-reads")

    def close(self) -> None:
        """Let go of threads. A read under way may fail."""
        self._ahead.close()
        self._store_threads.shutdown(wait=False, cancel_futures=True)

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
            changes = self._index.changes
            end = self._readable_end(stream, offset, view)
            if offset == end:
                return Chunk((), end)
            part = self._ledger.generations.part_at(stream, offset)
            if part is not None:
                chunk = await self._read_part(stream, part, offset, max_bytes, end, view)
                if chunk is not None:
                    return chunk
                continue
            try:
                copied, end = self._copies_at(stream, offset, end)
                if copied:
                    return await self._read_copies(stream, offset, max_bytes, end)
                extents = await self.resolving(lambda: self._index.find(stream, offset, max_bytes, end))  # noqa: B023
                if self._transactions.touched(stream):
                    return await self._fetch_among_transactions(stream, offset, extents, end, view)
                if not extents:
                    return await self._before_loss(stream, offset, end)
                if extents[0].object >= FIRST_NUMBER:
                    return await self._read_repacked(Place(stream, offset, max_bytes), extents)
                return _chunk(await self._fetch(stream, extents), offset, extents)
            except FileNotFoundError:
                # The object was dropped meanwhile: look again, at the new start, in the parts that took over, or in
                # the files that it was repacked into.
                if self._index.changes == changes and not self._moved(stream, offset):
                    raise
            except Unreadable as unread:
                raise RecordsLost(offset, min(unread.end, end), UNREADABLE) from None
            except _Missing as missing:
                raise _lost(missing.extent, offset) from None
            except _Damaged as damage:
                if self._index.changes != changes:
                    continue  # what it was repacked into is whole
                if damage.whole is not None and not self._transactions.touched(stream):
                    chunk = await self._read_around(stream, offset, damage.extent, damage.whole)
                    if chunk is not None:
                        return chunk
                    continue
                await self._mark_lost(stream, offset, damage.extent)
                if self._all_dead(stream, offset, damage.extent.end):
                    return Chunk((), damage.extent.end)  # nothing was lost with these bytes: pass them

    async def _before_loss(self, stream: int, offset: int, end: int) -> Chunk:
        """What no extent ends before `end` of: nothing, unless a loss begins there in the middle of one. That is so
        where slices were joined, and one of them was found damaged where it was before."""
        if not self._loss_begins(stream, offset, end):
            return Chunk((), end)
        extents = await self.resolving(lambda: self._index.find(stream, offset, 1, limits.OFFSET_MAX))
        if not extents or extents[0].base >= end:
            return Chunk((), end)
        try:
            (batches,) = await self._load(extents[:1])
        except _Damaged as damage:
            if damage.whole is None or offset >= damage.whole.first:
                return Chunk((), end)  # so that is what was lost, and the rest of it was deleted before
            batches = damage.whole.before
        kept = [(end, extents[0].end), *self._deleted(stream, extents[:1])]
        (before,) = await asyncio.to_thread(_without, [batches], sorted(kept))
        return Chunk(_chunk([before], offset, extents[:1]).batches, end)

    async def _read_around(self, stream: int, offset: int, extent: Extent, whole: _Whole) -> Chunk | None:
        """What is whole of a damaged extent at `offset`, once what is lost of it is known. None if that is lost."""
        inside = whole.first <= offset < whole.end
        if any(self._ledger.streams.holes(stream).live(whole.first, whole.end)):
            lost = extent._replace(base=whole.first, offsets=whole.end - whole.first)
            try:
                await self._mark_lost(stream, offset, lost)
            except RecordsLost:
                if inside:
                    raise
            if inside:
                return None
        elif inside:
            return Chunk((), whole.end)  # all of it was deleted before: pass it
        batches, end = (whole.before, whole.first) if offset < whole.first else (whole.after, extent.end)
        deleted = self._deleted_between(stream, extent.base, extent.end)
        (left,) = await asyncio.to_thread(_without, [batches], deleted)
        return Chunk(_chunk([left], offset, [extent]).batches, end)

    def _loss_begins(self, stream: int, offset: int, end: int) -> bool:
        """Whether the next loss after `offset` begins at `end`."""
        loss = self._ledger.streams.holes(stream).next_loss(offset)
        return loss is not None and loss[0] == end

    async def _read_repacked(self, place: Place, extents: list[Extent]) -> Chunk:
        ready = await self._ahead.take(place, extents[-1].end)
        # Compared, since the file may have been replaced after it was read.
        batches = ready.batches if ready and ready.extents == extents else await self._load(extents)
        deleted = self._deleted(place.stream, extents)
        if deleted:
            batches = await asyncio.to_thread(_without, batches, deleted)
        return _chunk(batches, place.offset, extents)

    async def _find_repacked(self, place: Place) -> list[Extent]:
        """The extents that a read will ask for, if it will find them in a repacked file."""
        stream, offset, max_bytes = place
        end = self._readable_end(stream, offset, View.COMMITTED)
        copied, end = self._copies_at(stream, offset, end)
        if offset >= end or copied or self._ledger.generations.part_at(stream, offset) is not None:
            return []
        extents = await self.resolving(lambda: self._index.find(stream, offset, max_bytes, end))
        return extents if extents and extents[0].object >= FIRST_NUMBER else []

    def _moved(self, stream: int, offset: int) -> bool:
        """Whether the log's own bytes do not serve an offset any more."""
        return self.bounds(stream)[0] > offset or self._ledger.generations.part_at(stream, offset) is not None

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
        part = self._ledger.generations.part_at(stream, offset)
        if part is not None:
            return self._cached_part(stream, part, offset, max_bytes, end, view)
        copied, end = self._copies_at(stream, offset, end)
        if copied:
            return self._cached_copies(stream, offset, max_bytes, end)
        return self._cached_extents(stream, offset, max_bytes, end, view)

    def _cached_extents(self, stream: int, offset: int, max_bytes: int, end: int, view: View) -> Chunk | None:
        """What the tail cache has of the log's own bytes; None if a file has to be asked."""
        try:
            found = extents = self._index.find(stream, offset, max_bytes, end)
        except (NotLoaded, Unreadable):
            return None
        if not found and self._loss_begins(stream, offset, end):
            return None
        touched = self._transactions.touched(stream)
        if len(found) > _MANY_SLICES and not touched:
            return self._cached_joined(stream, offset, found)
        if touched and view is View.COMMITTED:
            extents = committed_extents(self._ledger.streams, stream, found)
        batches = self._cached(extents)
        if batches is None or (extents and self._deleted(stream, extents)):
            return None
        if touched:
            return self._among_transactions(stream, offset, found, extents, batches, end, view)
        return _chunk(batches, offset, extents) if extents else Chunk((), end)

    def _cached_joined(self, stream: int, offset: int, extents: list[Extent]) -> Chunk | None:
        """Many small slices as one: to copy them costs less than to hand out a buffer for each."""
        slices = self._tail.get_all(extents[0].object, [extent.start for extent in extents])
        if slices is None or self._deleted(stream, extents):
            return None
        return _chunk([memoryview(b"".join(slices))], offset, [_joined(extents)])

    async def stored(self, stream: int, offset: int, max_bytes: int) -> Chunk:
        """Batches from `offset` on as they were written, deleted records included.

        For a reader that knows which offsets are live. Raises OffsetOutOfRange, RecordsLost, NotFound."""
        start, end = self.bounds(stream)
        if not start <= offset <= end:
            raise OffsetOutOfRange(offset, start, end)
        copied, end = self._copies_at(stream, offset, end)
        if copied or self._ledger.generations.part_at(stream, offset):
            return await self._read_now(stream, offset, max_bytes, View.STORED)
        changes = self._index.changes
        try:
            extents = await self.resolving(lambda: self._index.find(stream, offset, max_bytes, end))
        except Unreadable as unread:
            raise RecordsLost(offset, min(unread.end, end), UNREADABLE) from None
        if not extents:
            return Chunk((), end)
        batches = self._cached(extents)
        if batches is None:
            try:
                batches = await self._load(extents)
            except FileNotFoundError:
                if self._index.changes != changes or self._ledger.generations.part_at(stream, offset):
                    return await self.stored(stream, offset, max_bytes)  # something else serves it by now
                raise OffsetOutOfRange(offset, *self.bounds(stream)) from None
            except _Missing as missing:
                raise _lost(missing.extent, offset) from None
            except _Damaged as damage:
                if self._index.changes != changes:
                    return await self.stored(stream, offset, max_bytes)
                if damage.whole is not None and not self._transactions.touched(stream):
                    chunk = await self._read_around(stream, offset, damage.extent, damage.whole)
                    if chunk is not None:
                        return chunk
                    raise RecordsLost(damage.whole.first, damage.whole.end, "damaged") from None
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
            except (NotLoaded, Unreadable) as miss:
                number, before = miss.number, miss
            try:
                extents = await self._read_index(number)
            except FileNotFoundError:
                if self._index.holds(number):
                    raise
                continue  # dropped meanwhile: the look-up goes another way now
            except LogDamaged:
                if number < FIRST_NUMBER:
                    raise
                if isinstance(before, Unreadable):
                    raise before from None
                self._index.cannot_load(number)
                continue
            if self._index.holds(number):
                self._index.load(extents)

    async def _read_index(self, number: int) -> SealedExtents:
        if number >= FIRST_NUMBER:
            return await self._repacked.read_index(number)
        return SealedExtents.decode(number, await self._off_loop(number, self._port.read_index, number))

    async def _fetch(self, stream: int, extents: list[Extent]) -> list[memoryview]:
        """The bytes of the extents; of fewer of them if damage stands in the way."""
        deleted = self._deleted(stream, extents)
        cached = self._cached(extents)
        if cached is not None and not deleted:
            return cached
        batches = await self._load(extents) if cached is None else cached
        return await asyncio.to_thread(_without, batches, deleted) if deleted else batches

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
        return self._deleted_between(stream, extents[0].base, extents[-1].end)

    def _deleted_between(self, stream: int, start: int, end: int) -> Ranges:
        holes = self._ledger.streams.holes(stream).overlapping(start, end)
        return [(first, last) for first, last, reason in holes if reason == DELETED]

    # Parts

    async def _read_part(
        self, stream: int, part: Part, offset: int, max_bytes: int, end: int, view: View
    ) -> Chunk | None:
        """From the files of a part; None if others serve the offset by now. Raises RecordsLost."""
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
            return await asyncio.to_thread(part_chunk, chunks, offset, max_bytes, deleted)
        return part_chunk(chunks, offset, max_bytes, deleted)

    def _cached_part(
        self, stream: int, part: Part, offset: int, max_bytes: int, end: int, view: View
    ) -> Chunk | None:
        found = self._parts.cached(stream, part, offset, end)
        if found is None:
            return self._still_hot(stream, part, offset, max_bytes, min(end, part.end), view)
        if self._deleted_between(stream, found.base, found.end):
            return None
        return part_chunk([found], offset, max_bytes, [])

    def _still_hot(
        self, stream: int, part: Part, offset: int, max_bytes: int, end: int, view: View
    ) -> Chunk | None:
        """What the tail cache has of records that were made into a part a moment ago: the same, as they came."""
        if part.generation != 1:
            return None
        try:
            first = next(iter(self._index.find(stream, offset, 1, end)), None)
        except (NotLoaded, Unreadable):
            return None
        if first is None or first.base > offset or self._tail.get(first.object, first.start) is None:
            return None
        return self._cached_extents(stream, offset, max_bytes, end, view)

    # Copies

    def _copies_at(self, stream: int, offset: int, end: int) -> tuple[bool, int]:
        """Whether a copy stands at `offset`, and where such a stretch or one without copies ends."""
        aliases = self._ledger.aliases
        run = aliases.next_after(stream, offset) if aliases.has(stream) else None
        if run is None:
            return False, end
        return (True, end) if run.base <= offset else (False, min(end, run.base))

    def _sources(self, stream: int, offset: int, max_bytes: int, end: int) -> list[Source]:
        try:
            return sources(self._index, self._ledger.aliases, stream, offset, max_bytes, end)
        except BytesGone as gone:
            raise _Damaged(Extent(0, gone.end - gone.first, gone.first, 0, 0, 0, 0)) from None

    async def _read_copies(self, stream: int, offset: int, max_bytes: int, end: int) -> Chunk:
        try:
            found = await self.resolving(lambda: self._sources(stream, offset, max_bytes, end))
        except Unreadable as unread:
            raise LogDamaged(str(unread)) from None  # of the source, whose offsets are not the copy's
        deleted = self._deleted_between(stream, found[0].first, found[-1].end)
        slices = self._cached([source.extent for source in found])
        if slices is not None and not deleted and _few(found):
            return _copied(_restamped(found, slices, deleted), offset, found)
        slices = slices or await self._load_sources(found)
        return _copied(await asyncio.to_thread(_restamped, found, slices, deleted), offset, found)

    async def _load_sources(self, found: list[Source]) -> list[memoryview]:
        try:
            return await self._load([source.extent for source in found])
        except _Damaged as damage:
            first, whole = found[0], damage.whole
            begin, end, shift = first.first, first.end, first.run.base - first.run.origin_base
            if whole is not None:
                if end <= whole.first + shift:
                    return [whole.before]
                if begin >= whole.end + shift:
                    return [whole.after]
                begin, end = max(begin, whole.first + shift), min(end, whole.end + shift)
            lost = damage.extent._replace(base=begin, offsets=end - begin)
            raise type(damage)(lost) from None

    def _cached_copies(self, stream: int, offset: int, max_bytes: int, end: int) -> Chunk | None:
        try:
            found = self._sources(stream, offset, max_bytes, end)
        except (NotLoaded, Unreadable, _Damaged):
            return None
        cached = self._cached([source.extent for source in found])
        if cached is None or not _few(found):
            return None
        if self._deleted_between(stream, found[0].first, found[-1].end):
            return None
        return _copied(_restamped(found, cached, []), offset, found)

    def _cached(self, extents: list[Extent]) -> list[memoryview] | None:
        if len(extents) > 1 and extents[0].object == extents[-1].object:
            slices = self._tail.get_all(extents[0].object, [extent.start for extent in extents])
            return None if slices is None else [memoryview(slice).toreadonly() for slice in slices]
        found = []
        for extent in extents:
            slice = self._tail.get(extent.object, extent.start)
            if slice is None:
                return None
            found.append(memoryview(slice).toreadonly())
        return found

    async def _load(self, extents: list[Extent]) -> list[memoryview]:
        """The stored bytes of extents of one object, checked and stamped; of fewer if damage stands in the way."""
        if extents[0].object < FIRST_NUMBER:
            return await self._off_loop(extents[0].object, self._read_extents, extents)
        runs = _coalesced(extents)
        blocks = await self._repacked.read(extents[0].object, [_range(run) for run in runs])
        return await asyncio.to_thread(_checked, runs, map(bytearray, blocks), joined=True)

    async def _off_loop(self, object: int, call: Callable[..., _T], *arguments: Any) -> _T:
        """Run it on a thread. Whoever waits for an object store does so apart from those who read the disk."""
        if self._port.url(object) is not None:
            return await asyncio.to_thread(call, *arguments)
        if self._store_reads >= limits.STORE_READS_MAX:
            raise Throttled(
                "reads of the object store", limits.STORE_READS_MAX, "it does not keep up: try again soon"
            )
        self._store_reads += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._store_threads, call, *arguments)
        finally:
            self._store_reads -= 1

    def _read_extents(self, extents: list[Extent]) -> list[memoryview]:
        runs = _coalesced(extents)
        try:
            return _checked(runs, (self._port.read(run[0].object, *_range(run)) for run in runs))
        except ObjectMissing:
            if len(extents) == 1:
                raise _Missing(extents[0]) from None
            return self._read_extents(extents[: len(extents) // 2])  # what is there comes first


def _range(run: list[Extent]) -> tuple[int, int]:
    """Start and length of what extents lie in."""
    return run[0].start, run[-1].start + run[-1].length - run[0].start


def _checked(
    runs: list[list[Extent]], blocks: Iterable[bytearray], *, joined: bool = False
) -> list[memoryview]:
    """`joined`: an extent may be many slices, of which only the damaged ones shall be lost."""
    found: list[memoryview] = []
    for run, data in zip(runs, blocks, strict=True):
        origin = run[0].start
        block = memoryview(data)
        for extent in run:
            slice = block[extent.start - origin : extent.start - origin + extent.length]
            if len(slice) != extent.length or crc32c(slice) != extent.crc:
                whole = _whole_of(slice, extent) if joined else None
                if whole is None or whole.first != extent.end:
                    if found:
                        return found  # what is whole comes first; the next read meets the damage
                    raise _Damaged(extent, whole)
            stamp(slice, extent.base, LEADER_EPOCH)
            found.append(slice.toreadonly())
    return found


def _whole_of(slice: memoryview, extent: Extent) -> _Whole | None:
    """What is left of damaged bytes; all of it, if only what is stamped anyway is damaged; None if nothing is."""
    found = salvage(slice, extent.offsets)
    if not found.front_bytes and not found.back_bytes:
        return None
    before, after = slice[: found.front_bytes], slice[len(slice) - found.back_bytes :]
    first, end = extent.base + found.front_offsets, extent.end - found.back_offsets
    stamp(before, extent.base, LEADER_EPOCH)
    stamp(after, end, LEADER_EPOCH)
    return _Whole(before.toreadonly(), after.toreadonly(), first, end)


def _without(batches: list[memoryview], deleted: Ranges) -> list[memoryview]:
    return [without_ranges(batch, deleted) for batch in batches]


def _restamped(found: list[Source], slices: list[memoryview], deleted: Ranges) -> list[memoryview]:
    batches = [
        restamped(source, slice, LEADER_EPOCH)
        for source, slice in zip(found, slices, strict=False)  # fewer slices if one is damaged
    ]
    return _without(batches, deleted) if deleted else batches


def _lost(extent: Extent, offset: int) -> RecordsLost:
    """Not noted in the ledger: should the object come back, so do its records."""
    return RecordsLost(max(offset, extent.base), extent.end, "missing")


def _chunk(batches: list[memoryview], offset: int, extents: list[Extent]) -> Chunk:
    """What was read of `extents`, which is the first of them at least, from the batch with `offset` on."""
    next_offset = extents[len(batches) - 1].end
    if extents[0].base < offset:
        batches = [_from_batch_with(batches[0], offset), *batches[1:]]
    return Chunk(tuple(batch for batch in batches if len(batch)), next_offset)


def _joined(extents: list[Extent]) -> Extent:
    """All of them as one that covers the same offsets."""
    first = extents[0]
    return first._replace(offsets=extents[-1].end - first.base)


def _copied(batches: list[memoryview], offset: int, found: list[Source]) -> Chunk:
    next_offset = found[len(batches) - 1].end
    batches = [_from_batch_with(batches[0], offset), *batches[1:]]
    return Chunk(tuple(batch for batch in batches if len(batch)), next_offset)


def _few(found: list[Source]) -> bool:
    return (
        len(found) <= _COPIES_INLINE_SLICES
        and sum(source.extent.length for source in found) <= _COPIES_INLINE_BYTES
    )


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

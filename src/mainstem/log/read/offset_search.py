"""Search offsets by time and by size, in parts, in the log's own bytes and in aliases."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from mainstem import limits
from mainstem.api.lake import Part
from mainstem.errors import OffsetOutOfRange, RecordsLost
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extents import Extent
from mainstem.log.read.index import ExtentIndex
from mainstem.log.read.index_lookups import IndexLookups
from mainstem.log.read.reader import RecordReader
from mainstem.log.read.views import View
from mainstem.records.decoding import decode_records
from mainstem.records.lookup import first_offset_at
from mainstem.records.undecodable import decoded

_T = TypeVar("_T")


class OffsetSearch:
    """Searches durable streams; ephemeral streams are searched in memory."""

    def __init__(
        self, ledger: Ledger, index: ExtentIndex, lookups: IndexLookups, reader: RecordReader
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._lookups = lookups
        self._reader = reader

    async def offset_at(self, stream: int, time_ms: int) -> int:
        """The first offset whose record time is `time_ms` or later; the end if there is none."""
        offset, end = self._reader.bounds(stream)
        while True:
            parts = self._ledger.generations.parts(stream, offset)
            place = _first_part_at_time(parts, offset, time_ms)
            if place is None:
                offset = max(offset, parts[-1].end) if parts else offset
                extent = await self._first_extent_at(stream, offset, time_ms)
                copy = self._ledger.aliases.first_at_time(stream, offset, time_ms)
                if copy is not None and copy < end and (extent is None or copy < max(offset, extent.base)):
                    return copy
                if extent is None or extent.base >= end:
                    return end
                place = max(offset, extent.base)
            found, offset = await self._first_at_or_after(stream, place, time_ms)
            if found is not None:
                return found

    async def _first_at_or_after(self, stream: int, offset: int, time_ms: int) -> tuple[int | None, int]:
        """The first record of `time_ms` or later in one read from `offset`, and where to read next."""
        try:
            chunk = await self._reader.read(stream, offset, max_bytes=1, view=View.STORED)
        except RecordsLost as loss:
            return None, loss.end
        except OffsetOutOfRange as moved:
            if moved.start <= offset:
                raise
            return None, moved.start  # truncated meanwhile
        try:
            return decoded(
                chunk.batches, offset, chunk.next_offset, lambda batches: first_at(batches, offset, time_ms)
            )
        except RecordsLost as loss:
            return None, loss.end

    async def latest_time(self, stream: int) -> int | None:
        """The latest record time of the stream, to the precision of a slice; None if the stream is empty."""
        start, end = self._reader.bounds(stream)
        latest = _latest_part_time(self._ledger.generations.parts(stream, start), start)
        start = self._ledger.generations.frontier(stream)
        latest = await self._retry_search(lambda: self._latest_of_objects(stream, start, end, latest))
        copied = self._ledger.aliases.latest_time(stream, start, end)
        return latest if copied is None else copied if latest is None else max(latest, copied)

    async def _latest_of_objects(self, stream: int, start: int, end: int, latest: int | None) -> int | None:
        """The latest time of an extent in [start, end), if it is later than `latest`."""
        for number in reversed(await self._objects_from(stream, start)):
            if not self._index.grows(number):
                span = await self._lookups.resolve(lambda: self._index.span(number, stream))  # noqa: B023
                if span is None or not span.bytes or (latest is not None and span.max_timestamp <= latest):
                    continue
            extents = await self._lookups.resolve(lambda: self._index.extents_of(number))  # noqa: B023
            times = [
                extent.max_timestamp for extent in extents.from_offset(stream, start) if extent.base < end
            ]
            latest = max(times, default=latest) if latest is None else max([latest, *times])
        return latest

    async def _first_extent_at(self, stream: int, offset: int, time_ms: int) -> Extent | None:
        """The first extent at or after `offset` that may hold a record of `time_ms` or later."""

        async def search() -> Extent | None:
            for number in await self._objects_from(stream, offset):
                extent = await self._lookups.resolve(
                    lambda: self._index.first_at_time(number, stream, offset, time_ms)  # noqa: B023
                )
                if extent is not None:
                    return extent
            return None

        return await self._retry_search(search)

    async def _objects_from(self, stream: int, offset: int) -> list[int]:
        return await self._lookups.resolve(lambda: list(self._index.objects_from(stream, offset)))

    async def _retry_search(self, search: Callable[[], Awaitable[_T]]) -> _T:
        """Run a search over several objects; restart it if an object was dropped meanwhile."""
        while True:
            changes = self._index.changes
            try:
                return await search()
            except FileNotFoundError:
                if self._index.changes == changes:
                    raise

    async def retention_floor(self, stream: int, *, keep_after_ms: int | None, keep_bytes: int | None) -> int:
        """The offset below which time and size retention delete records."""
        start, end = self._reader.bounds(stream)
        floor = start
        if keep_after_ms is not None:
            floor = max(floor, await self._first_kept(stream, start, end, keep_after_ms))
        if keep_bytes is not None and self._ledger.aliases.has(stream):
            floor = max(floor, self._average_floor(stream, start, end, keep_bytes))
        elif keep_bytes is not None:
            floor = max(floor, await self._first_within_bytes(stream, start, keep_bytes))
        return min(floor, end)

    async def _first_kept(self, stream: int, start: int, end: int, keep_after_ms: int) -> int:
        """The base of the first part or slice with a record of this time or later."""
        kept = _first_part_kept(self._ledger.generations.parts(stream, start), keep_after_ms)
        if kept is not None:
            return kept
        frontier = self._ledger.generations.frontier(stream)
        extent = await self._first_extent_at(stream, frontier, keep_after_ms)
        copy = self._ledger.aliases.first_at_time(stream, frontier, keep_after_ms)
        logged = end if extent is None else extent.base
        return logged if copy is None else min(logged, copy)

    async def _first_within_bytes(self, stream: int, start: int, keep_bytes: int) -> int:
        """The lowest offset from which on the stream stores at most `keep_bytes`."""
        frontier = self._ledger.generations.frontier(stream)
        logged, size = await self._retry_search(
            lambda: self._last_extents_within(stream, frontier, keep_bytes)
        )
        if logged > frontier:
            return logged
        parts = self._ledger.generations.parts(stream, start)
        kept = _first_part_within_bytes(parts, keep_bytes - size)
        return frontier if kept is None else max(start, kept)

    async def _last_extents_within(self, stream: int, start: int, max_bytes: int) -> tuple[int, int]:
        """The lowest offset from which on the log's own bytes are at most `max_bytes`, and how many they are."""
        kept, floor = 0, limits.OFFSET_MAX
        for number in reversed(await self._objects_from(stream, start)):
            low, size, all_of_it = await self._lookups.resolve(
                lambda: self._index.last_within_bytes(number, stream, start, max_bytes - kept)  # noqa: B023
            )
            if not all_of_it:
                return (low if size or floor == limits.OFFSET_MAX else floor), kept + size
            kept += size
            floor = min(floor, low) if size else floor
        return start, kept

    def _average_floor(self, stream: int, start: int, end: int, keep_bytes: int) -> int:
        """The offset from which on a stream holds at most `keep_bytes`, if all its records have the same size: aliases
        are stored in other streams, so their sizes cannot be added up."""
        streams = self._ledger.streams
        size, records = int(streams.bytes[stream]), int(streams.records[stream])
        if size <= keep_bytes or not records:
            return start
        return streams.holes(stream).past(start, end, -(-(size - keep_bytes) * records // size))


def first_at(slices: Iterable[memoryview], offset: int, time_ms: int) -> int | None:
    """The first record at or after `offset` whose time is `time_ms` or later."""
    for slice in slices:
        found = first_offset_at(slice, time_ms)
        if found is not None and found < offset:  # deleted; a later record may be late enough too
            late = (
                record.offset for record in decode_records(slice, offset) if record.timestamp_ms >= time_ms
            )
            found = next(late, None)
        if found is not None:
            return found
    return None


# Parts, from what the ledger records of their files


def _first_part_at_time(parts: Sequence[Part], offset: int, time_ms: int) -> int | None:
    """The lowest offset, from `offset` on, at which a record of `time_ms` or later may be."""
    for part in parts:
        late = [file.base for file in part.files if file.end > offset and file.max_timestamp >= time_ms]
        if late:
            return max(offset, min(late))
    return None


def _latest_part_time(parts: Sequence[Part], offset: int) -> int | None:
    """The latest time of a file that has records at or after `offset`."""
    times = [file.max_timestamp for part in parts for file in part.files if file.end > offset]
    return max(times, default=None)


def _first_part_kept(parts: Sequence[Part], keep_after_ms: int) -> int | None:
    """The base of the first part with a record of this time or later: parts are deleted whole."""
    for part in parts:
        if any(file.max_timestamp >= keep_after_ms for file in part.files):
            return part.base
    return None


def _first_part_within_bytes(parts: Sequence[Part], max_bytes: int) -> int | None:
    """The base of the longest tail of parts whose files have at most `max_bytes`; None if the last part has more."""
    kept: int | None = None
    size = 0
    for part in reversed(parts):
        size += part.bytes
        if size > max_bytes:
            break
        kept = part.base
    return kept

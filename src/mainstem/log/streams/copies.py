"""Reading copies: which bytes of their sources they need, and what is lost of them with those."""

from __future__ import annotations

import asyncio

from mainstem import limits
from mainstem.errors import LogDamaged
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extent_bytes import ChecksumMismatch, ExtentBytes, StoredBytesMissing
from mainstem.log.read.extents import Extent, ReadChunk, from_batch_with, without
from mainstem.log.read.index import ExtentIndex, NotLoaded, Unreadable
from mainstem.log.read.index_lookups import IndexLookups
from mainstem.log.streams.aliases import CopyBytesMissing, CopySource, restamped, sources
from mainstem.log.write.delivery import LEADER_EPOCH

# Copies up to this size are stamped on the loop: a thread costs more.
_INLINE_BYTES = 64 * limits.KIB
_INLINE_SLICES = 16


class CopyReader:
    """Reads streams that a router fills. Errors about damage name the offsets of the copies."""

    def __init__(
        self, ledger: Ledger, index: ExtentIndex, lookups: IndexLookups, extent_bytes: ExtentBytes
    ) -> None:
        self._ledger = ledger
        self._index = index
        self._lookups = lookups
        self._bytes = extent_bytes

    def at(self, stream: int, offset: int, end: int) -> tuple[bool, int]:
        """Whether a copy stands at `offset`, and where such a stretch or one without copies ends."""
        aliases = self._ledger.aliases
        run = aliases.next_after(stream, offset) if aliases.has(stream) else None
        if run is None:
            return False, end
        return (True, end) if run.base <= offset else (False, min(end, run.base))

    async def read(self, stream: int, offset: int, max_bytes: int, end: int) -> ReadChunk:
        """Copies from `offset` on, where there is one. Raises Damaged, Missing, LogDamaged."""
        live = self._first_live(stream, offset, end)
        if live > offset:
            return ReadChunk((), live)
        try:
            found = await self._lookups.resolve(lambda: self._sources(stream, offset, max_bytes, end))
        except Unreadable as unread:
            raise LogDamaged(str(unread)) from None  # of the source, whose offsets are not the copy's
        deleted = self._deleted(stream, found)
        slices = self._bytes.tail.read([source.extent for source in found])
        if slices is not None and not deleted and _fits_inline(found):
            return _chunk(_restamped(found, slices, deleted), offset, found)
        slices = slices or await self._load(found)
        return _chunk(await asyncio.to_thread(_restamped, found, slices, deleted), offset, found)

    def cached(self, stream: int, offset: int, max_bytes: int, end: int) -> ReadChunk | None:
        """The same, if memory has the bytes and they are few."""
        live = self._first_live(stream, offset, end)
        if live > offset:
            return ReadChunk((), live)
        try:
            found = self._sources(stream, offset, max_bytes, end)
        except (NotLoaded, Unreadable, ChecksumMismatch):
            return None
        slices = self._bytes.tail.read([source.extent for source in found])
        if slices is None or not _fits_inline(found) or self._deleted(stream, found):
            return None
        return _chunk(_restamped(found, slices, []), offset, found)

    def _first_live(self, stream: int, offset: int, end: int) -> int:
        """The first copy that was not deleted: the source may lack the bytes of the others."""
        return next((first for first, _ in self._ledger.streams.holes(stream).live(offset, end)), end)

    def _sources(self, stream: int, offset: int, max_bytes: int, end: int) -> list[CopySource]:
        try:
            return sources(self._index, self._ledger.aliases, stream, offset, max_bytes, end)
        except CopyBytesMissing as gone:
            raise StoredBytesMissing(Extent(0, gone.end - gone.first, gone.first, 0, 0, 0, 0)) from None

    def _deleted(self, stream: int, found: list[CopySource]) -> list[tuple[int, int]]:
        return self._ledger.streams.deleted_between(stream, found[0].first, found[-1].end)

    async def _load(self, found: list[CopySource]) -> list[memoryview]:
        try:
            return await self._bytes.load([source.extent for source in found])
        except ChecksumMismatch as damage:
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


def _restamped(
    found: list[CopySource], slices: list[memoryview], deleted: list[tuple[int, int]]
) -> list[memoryview]:
    batches = [
        restamped(source, slice, LEADER_EPOCH)
        for source, slice in zip(found, slices, strict=False)  # fewer slices if one is damaged
    ]
    return without(batches, deleted) if deleted else batches


def _chunk(batches: list[memoryview], offset: int, found: list[CopySource]) -> ReadChunk:
    next_offset = found[len(batches) - 1].end
    batches = [from_batch_with(batches[0], offset), *batches[1:]]
    return ReadChunk(tuple(batch for batch in batches if len(batch)), next_offset)


def _fits_inline(found: list[CopySource]) -> bool:
    return len(found) <= _INLINE_SLICES and sum(source.extent.length for source in found) <= _INLINE_BYTES

"""Losses: a read of damaged bytes records the lost offsets in the ledger and returns the intact batches around them."""

from __future__ import annotations

import asyncio

from mainstem import limits
from mainstem.errors import RecordsLost, Unavailable
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.streams import MarkLost
from mainstem.log.read.extent_bytes import ChecksumMismatch, ExtentBytes, StoredBytesMissing
from mainstem.log.read.extents import Extent, ReadChunk, extents_chunk, without
from mainstem.log.read.index import Unreadable
from mainstem.log.read.index_lookups import IndexLookups
from mainstem.log.read.missing import MISSING
from mainstem.log.write.committer import Committer
from mainstem.records.slices import Salvaged

# The reason of losses that, like MISSING, the ledger does not record: restoring the file brings the records back.
UNREADABLE = "unreadable"


class Losses:
    def __init__(
        self,
        ledger: Ledger,
        lookups: IndexLookups,
        extent_bytes: ExtentBytes,
        committer: Committer,
    ) -> None:
        self._ledger = ledger
        self._lookups = lookups
        self._bytes = extent_bytes
        self._committer = committer

    async def mark(self, stream: int, offset: int, extent: Extent) -> None:
        """Record that the extent's records are lost. Raises RecordsLost, for a read from `offset`, if that fails."""
        try:
            await self._committer.propose(MarkLost(stream, extent.base, extent.end))
        except Unavailable:
            # Reads work where writes do not: report the loss now, and record it on a later read.
            raise RecordsLost(max(offset, extent.base), extent.end, "damaged") from None

    def begin_at(self, stream: int, offset: int, end: int) -> bool:
        """Whether the next loss after `offset` begins at `end`."""
        loss = self._ledger.streams.next_loss(stream, offset)
        return loss is not None and loss[0] == end

    def all_dead(self, stream: int, offset: int, end: int) -> bool:
        """Whether every record from `offset` to `end` was deleted or aborted; none exists or is lost."""
        holes = self._ledger.streams.holes(stream)
        loss = holes.next_loss(offset)
        return not any(holes.live(offset, end)) and (loss is None or loss[0] >= end)

    async def read_before(self, stream: int, offset: int, end: int) -> ReadChunk:
        """Read up to `end` where no extent ends before it: nothing, unless a loss begins at `end` in the middle of an
        extent. That happens where slices were joined, and one of them was damaged before."""
        if not self.begin_at(stream, offset, end):
            return ReadChunk((), end)
        extents = (await self._lookups.find(stream, offset, 1, limits.OFFSET_MAX))[:1]
        if not extents or extents[0].base >= end:
            return ReadChunk((), end)
        try:
            (batches,) = await self._bytes.load(extents)
        except ChecksumMismatch as damage:
            if damage.whole is None or offset >= damage.whole.first:
                return ReadChunk((), end)  # the damage is the known loss, and the rest was deleted before
            batches = damage.whole.before
        kept = [(end, extents[0].end), *self._deleted(stream, extents[0])]
        (before,) = await asyncio.to_thread(without, [batches], sorted(kept))
        return ReadChunk(extents_chunk([before], offset, extents).batches, end)

    async def read_around(
        self, stream: int, offset: int, extent: Extent, whole: Salvaged
    ) -> ReadChunk | None:
        """The intact part of a damaged extent at `offset`, once the loss is recorded. None if `offset` is lost."""
        inside = whole.first <= offset < whole.end
        if any(self._ledger.streams.holes(stream).live(whole.first, whole.end)):
            lost = extent._replace(base=whole.first, offsets=whole.end - whole.first)
            try:
                await self.mark(stream, offset, lost)
            except RecordsLost:
                if inside:
                    raise
            if inside:
                return None
        elif inside:
            return ReadChunk((), whole.end)  # every record of it was deleted before: skip it
        batches, end = (whole.before, whole.first) if offset < whole.first else (whole.after, extent.end)
        (left,) = await asyncio.to_thread(without, [batches], self._deleted(stream, extent))
        return ReadChunk(extents_chunk([left], offset, [extent]).batches, end)

    def _deleted(self, stream: int, extent: Extent) -> list[tuple[int, int]]:
        return self._ledger.streams.deleted_between(stream, extent.base, extent.end)


def missing(found: StoredBytesMissing, offset: int) -> RecordsLost:
    """The error of a read from `offset` where the object store no longer has the bytes."""
    return RecordsLost(max(offset, found.extent.base), found.extent.end, MISSING)


def unreadable(found: Unreadable, offset: int, end: int) -> RecordsLost:
    """The error of a read from `offset` to `end` where a repacked file is gone, or its index unreadable."""
    return RecordsLost(offset, min(found.end, end), MISSING if found.gone else UNREADABLE)

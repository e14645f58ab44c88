"""The bytes of extents: from the tail cache, or from storage, checked and stamped on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mainstem import limits
from mainstem.errors import LogDamaged, ObjectMissing
from mainstem.ledger.repacked_objects import FIRST_NUMBER
from mainstem.log.objects.repack.files import RepackedFiles
from mainstem.log.read.extents import Extent
from mainstem.log.read.object_reads import ObjectReads
from mainstem.log.read.tail import TailCache
from mainstem.log.write.delivery import LEADER_EPOCH
from mainstem.ports.commitlog.port import CommitLog
from mainstem.records.header import stamp
from mainstem.records.slices import Salvaged, coalesce, cut, is_intact, salvage

# One read covers extents closer than this: a system call costs more than the bytes between them.
_COALESCE_GAP_BYTES = 8 * limits.KIB


class ChecksumMismatch(Exception):
    """Stored bytes do not match their checksum."""

    def __init__(self, extent: Extent, whole: Salvaged | None = None) -> None:
        super().__init__(extent)
        self.extent = extent
        self.whole = whole  # the intact batches of an extent of joined slices


class StoredBytesMissing(ChecksumMismatch):
    """The object store no longer has the stored bytes."""


class ExtentBytes:
    def __init__(
        self, port: CommitLog, tail: TailCache, repacked: RepackedFiles, object_reads: ObjectReads
    ) -> None:
        self._port = port
        self.tail = tail
        self._repacked = repacked
        self._object_reads = object_reads

    async def load(self, extents: list[Extent]) -> list[memoryview]:
        """The stored bytes of extents of one object, checked and stamped; only of those before the first damaged one.

        Raises ChecksumMismatch, StoredBytesMissing; FileNotFoundError if the object was deleted; Unavailable."""
        try:
            return await self._load(extents)
        except StoredBytesMissing:
            raise
        except ChecksumMismatch as damage:
            number, damaged = extents[0].object, damage.extent
            if number < FIRST_NUMBER:
                if self._port.url(number) is not None:
                    raise  # read from this machine's own disk
                await self._port.distrust(number, damaged.start, damaged.length)
            # The bytes may be intact in the store, and damaged in transit or in a cache. A loss is permanent, so read
            # them again first.
            return await self._load(extents)

    async def _load(self, extents: list[Extent]) -> list[memoryview]:
        if extents[0].object < FIRST_NUMBER:
            return await self._object_reads.run(extents[0].object, self._read, extents)
        places = [(extent.start, extent.length) for extent in extents]
        runs = coalesce(places, _COALESCE_GAP_BYTES)
        blocks = await self._repacked.read(extents[0].object, [(run.start, run.length) for run in runs])
        slices = cut(runs, map(bytearray, blocks), places)
        return await asyncio.to_thread(_verified, extents, slices, joined=True)

    def _read(self, extents: list[Extent]) -> list[memoryview]:
        places = [(extent.start, extent.length) for extent in extents]
        runs = coalesce(places, _COALESCE_GAP_BYTES)
        blocks = (self._port.read(extents[0].object, run.start, run.length) for run in runs)
        try:
            return _verified(extents, cut(runs, blocks, places))
        except (ObjectMissing, LogDamaged) as error:  # LogDamaged: the file ends before them
            if len(extents) > 1:
                return self._read(extents[: len(extents) // 2])  # what is there comes first
            if isinstance(error, ObjectMissing):
                raise StoredBytesMissing(extents[0]) from None
            raise ChecksumMismatch(extents[0]) from None


def _verified(
    extents: list[Extent], slices: Iterable[memoryview], *, joined: bool = False
) -> list[memoryview]:
    """The extents' bytes, checked and stamped. `joined`: an extent may be many slices, of which only the damaged ones
    are lost."""
    found: list[memoryview] = []
    for extent, slice in zip(extents, slices, strict=True):
        if not is_intact(slice, extent.length, extent.crc):
            whole = _salvaged(slice, extent) if joined else None
            if whole is None or whole.first != extent.end:
                if found:
                    return found  # the intact extents first; the next read finds the damage
                raise ChecksumMismatch(extent, whole)
        stamp(slice, extent.base, LEADER_EPOCH)
        found.append(slice.toreadonly())
    return found


def _salvaged(slice: memoryview, extent: Extent) -> Salvaged | None:
    """The intact batches, stamped: all of them if only fields that are stamped anyway are damaged; None if none is
    intact."""
    found = salvage(slice, extent.base, extent.offsets)
    if not found.before and not found.after:
        return None
    stamp(found.before, extent.base, LEADER_EPOCH)
    stamp(found.after, found.end, LEADER_EPOCH)
    return Salvaged(found.before.toreadonly(), found.after.toreadonly(), found.first, found.end)

"""The bytes of extents: from the tail cache, or from where they are stored, checked and stamped off the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import ObjectMissing
from mainstem.ledger.repacked_objects import FIRST_NUMBER
from mainstem.log.objects.repack.files import RepackedFiles
from mainstem.log.read.extents import Extent
from mainstem.log.read.object_reads import ObjectReads
from mainstem.log.read.tail import TailCache
from mainstem.log.write.delivery import LEADER_EPOCH
from mainstem.ports.commitlog.port import CommitLog
from mainstem.records.header import stamp
from mainstem.records.salvage import salvage

# Extents closer together than this are fetched in one read: a system call costs more than the bytes between.
_COALESCE_GAP_BYTES = 8 * limits.KIB


class SalvagedExtent(NamedTuple):
    """What is whole of a damaged extent, checked and stamped, and which offsets are lost between."""

    before: memoryview
    after: memoryview
    first: int
    end: int


class ChecksumMismatch(Exception):
    """Stored bytes do not match their checksum."""

    def __init__(self, extent: Extent, whole: SalvagedExtent | None = None) -> None:
        super().__init__(extent)
        self.extent = extent
        self.whole = whole  # of slices that were joined: most of them


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
        """The stored bytes of extents of one object, checked and stamped; of fewer if damage stands in the way.

        Raises Damaged, Missing; FileNotFoundError if the object is gone; Unavailable."""
        try:
            return await self._load(extents)
        except StoredBytesMissing:
            raise
        except ChecksumMismatch as damage:
            number, damaged = extents[0].object, damage.extent
            if number < FIRST_NUMBER:
                if self._port.url(number) is not None:
                    raise  # this machine's own disk said so
                await self._port.distrust(number, damaged.start, damaged.length)
            # On the way from a store, or in a cache, bytes may be damaged that are whole where they are stored. What
            # comes of the answer is for good: it is worth asking twice.
            return await self._load(extents)

    async def _load(self, extents: list[Extent]) -> list[memoryview]:
        if extents[0].object < FIRST_NUMBER:
            return await self._object_reads.run(extents[0].object, self._read, extents)
        runs = _coalesced(extents)
        blocks = await self._repacked.read(extents[0].object, [_range(run) for run in runs])
        return await asyncio.to_thread(_verify_runs, runs, map(bytearray, blocks), joined=True)

    def _read(self, extents: list[Extent]) -> list[memoryview]:
        runs = _coalesced(extents)
        try:
            return _verify_runs(runs, (self._port.read(run[0].object, *_range(run)) for run in runs))
        except ObjectMissing:
            if len(extents) == 1:
                raise StoredBytesMissing(extents[0]) from None
            return self._read(extents[: len(extents) // 2])  # what is there comes first


def _coalesced(extents: list[Extent]) -> list[list[Extent]]:
    runs = [[extents[0]]]
    for extent in extents[1:]:
        last = runs[-1][-1]
        if 0 <= extent.start - (last.start + last.length) <= _COALESCE_GAP_BYTES:
            runs[-1].append(extent)
        else:
            runs.append([extent])
    return runs


def _range(run: list[Extent]) -> tuple[int, int]:
    """Start and length of what extents lie in."""
    return run[0].start, run[-1].start + run[-1].length - run[0].start


def _verify_runs(
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
                    raise ChecksumMismatch(extent, whole)
            stamp(slice, extent.base, LEADER_EPOCH)
            found.append(slice.toreadonly())
    return found


def _whole_of(slice: memoryview, extent: Extent) -> SalvagedExtent | None:
    """What is left of damaged bytes; all of it, if only what is stamped anyway is damaged; None if nothing is."""
    found = salvage(slice, extent.offsets)
    if not found.front_bytes and not found.back_bytes:
        return None
    before, after = slice[: found.front_bytes], slice[len(slice) - found.back_bytes :]
    first, end = extent.base + found.front_offsets, extent.end - found.back_offsets
    stamp(before, extent.base, LEADER_EPOCH)
    stamp(after, end, LEADER_EPOCH)
    return SalvagedExtent(before.toreadonly(), after.toreadonly(), first, end)

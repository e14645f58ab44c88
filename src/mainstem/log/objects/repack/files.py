"""Reading repacked files in the object store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mainstem.errors import NotFound
from mainstem.ledger.repacked_objects import RepackedFile, RepackedObjects
from mainstem.log.objects.repack import layout
from mainstem.log.read.extents import SealedExtents
from mainstem.ports.commitlog.port import Piece
from mainstem.ports.objectstore.port import ObjectStore


class RepackedFiles:
    """The files that the ledger names, by their numbers."""

    def __init__(self, repacked: RepackedObjects, store: ObjectStore | None) -> None:
        self._repacked = repacked
        self._store = store

    async def read(self, number: int, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Bytes as (start, length), shorter where the file ends. Raises FileNotFoundError, Unavailable."""
        store, file = self._find(number)
        try:
            return await store.get_ranges(file.key, ranges)
        except NotFound as error:
            raise FileNotFoundError(str(error)) from error

    async def read_index(self, number: int) -> SealedExtents:
        """From either intact copy. Raises FileNotFoundError, LogDamaged, NewerVersion, Unavailable."""
        _, file = self._find(number)
        (block,) = await self.read(number, [(0, layout.FIRST_READ_BYTES)])
        extents = await self._index_behind(number, file, block[: layout.HEAD.size], layout.HEAD.size, block)
        if extents is not None:
            return extents
        end = file.bytes - layout.HEAD.size
        (tail,) = await self.read(number, [(end, layout.HEAD.size)])
        extents = await self._index_behind(number, file, tail, None, b"")
        if extents is None:
            layout.check_version(block[: layout.HEAD.size], tail, file.key)
            extents = await self._repaired_index(number, file, block[: layout.HEAD.size], tail)
        if extents is None:
            raise layout.damaged(file.key)
        return extents

    async def _repaired_index(
        self, number: int, file: RepackedFile, head: bytes, tail: bytes
    ) -> SealedExtents | None:
        """Combine both copies, neither of which is intact."""
        for places in layout.copies_to_mend(head, tail, file.bytes):
            first, second = await self.read(number, places)
            found = await asyncio.to_thread(layout.mended_index, number, (head, first), (tail, second))
            if found is not None:
                return found
        return None

    async def _index_behind(
        self, number: int, file: RepackedFile, head: bytes, start: int | None, block: bytes
    ) -> SealedExtents | None:
        """The index that `head` describes, at `start` or before the tail; from `block` where that has it."""
        facts = layout.index_facts(head)
        if facts is None or facts[0] > file.bytes - 2 * layout.HEAD.size:
            return None
        length, crc = facts
        at = file.bytes - layout.HEAD.size - length if start is None else start
        index = block[at : at + length]
        if len(index) < length:
            (index,) = await self.read(number, [(at, length)])
        return await asyncio.to_thread(layout.whole_index, number, head, index, crc)

    def pieces(self, number: int) -> list[Piece]:
        """Where a reader without the broker finds the file. Raises FileNotFoundError."""
        _, file = self._find(number)
        return [Piece(0, file.bytes, file.key, 0)]

    def _find(self, number: int) -> tuple[ObjectStore, RepackedFile]:
        file = self._repacked.file(number)
        if file is None or self._store is None:
            raise FileNotFoundError(f"the repacked file {number} was replaced or never existed")
        return self._store, file

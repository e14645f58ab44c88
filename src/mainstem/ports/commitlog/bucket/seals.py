"""Seals: the payload of a finished object packed into few large objects, and its index. Version 1, little-endian.

A seal object:

| field   | type | meaning                                         |
|---------|------|-------------------------------------------------|
| magic   | s8   | `MNSTMSEA`                                      |
| version | u4   | 1                                               |
| crc     | u4   | CRC32C of the index                             |
| index   |      | up to the end of the object                     |

Commits are small and many; what a cold reader wants is large and few. So sealing copies the payload, and the
entries may be truncated from then on. Every writer may seal: all of them put the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from mainstem.errors import LogDamaged, NewerVersion, NotFound, invariant
from mainstem.ports.commitlog.bucket.keys import Keys, SealName, seal_in
from mainstem.ports.commitlog.bucket.objects import ObjectTable
from mainstem.ports.commitlog.bucket.parts import Parts
from mainstem.ports.commitlog.bucket.reading import EntryReader
from mainstem.ports.commitlog.port import Piece
from mainstem.ports.objectstore.port import ObjectStore

HEAD = struct.Struct("<8sII")
MAGIC = b"MNSTMSEA"
VERSION = 1


class Seals:
    """The sealed objects of one log. `reads` is the same store, maybe with a cache in front."""

    def __init__(
        self, store: ObjectStore, reads: ObjectStore, keys: Keys, reader: EntryReader, table: ObjectTable
    ) -> None:
        self._store = store
        self._keys = keys
        self._reader = reader
        self._table = table
        self._parts = Parts(store)
        self._cached_parts = Parts(reads)

    async def listed(self) -> tuple[list[SealName], list[SealName]]:
        """Every object that is sealed, and every one that is gone."""
        seals: list[SealName] = []
        gone: list[SealName] = []
        async for one in self._store.list(self._keys.seals):
            name, is_gone = seal_in(one.key)
            (gone if is_gone else seals).append(name)
        dropped = set(gone)
        return [seal for seal in seals if seal not in dropped], gone

    async def seal(self, number: int, index: bytes) -> None:
        """Copy the payload, then put the index: from then on the object is sealed."""
        run = self._table.run(number)
        name = self._table.seal(number) or (run.name if run is not None else None)
        if name is None:
            raise FileNotFoundError(f"object {number} was dropped or never was")
        if not await self._is_sealed(name):
            invariant(run is not None, "what is not sealed is known commit by commit")
            for part, start, length in self._parts.spans(name.size):
                await self._copy(name, part, start, length)
            await self._store.put(self._keys.seal(name), packed_seal(index), if_absent=True)
        invariant(await self.index(name) == index, "a sealed object keeps its index")
        if name == (run.name if run is not None else name):  # else it grew meanwhile
            self._table.learn_seal(name)

    async def _is_sealed(self, name: SealName) -> bool:
        try:
            await self._store.get_ranges(self._keys.seal(name), [(0, HEAD.size)])
        except NotFound:
            return False
        return True

    async def _copy(self, name: SealName, part: int, start: int, length: int) -> None:
        run = self._table.run(name.number)
        if run is None:
            raise FileNotFoundError(f"object {name.number} was dropped while it was being sealed")
        content = await self._reader.payload(run, start, length, once=True)
        if len(content) != length:
            raise LogDamaged(
                f"object {name.number} has lost payload before it was sealed: restore its WAL objects"
            )
        await self._parts.put_one(lambda number: self._keys.object_part(name, number), part, content)

    async def index(self, name: SealName) -> bytes:
        """Raises NotFound if the object is dropped, LogDamaged or NewerVersion."""
        stored = await self._store.get(self._keys.seal(name))
        if len(stored) < HEAD.size or stored[:8] != MAGIC:
            raise _damaged(name)
        _, version, crc = HEAD.unpack_from(stored)
        if version > VERSION:
            raise NewerVersion(
                f"object {name.number} is of version {version}: upgrade this Mainstem to read it"
            )
        if crc32c(memoryview(stored)[HEAD.size :]) != crc:
            raise _damaged(name)
        return stored[HEAD.size :]

    async def payload(self, name: SealName, start: int, length: int) -> bytes:
        """Raises NotFound if the object is dropped."""
        length = max(0, min(length, name.size - start))
        return await self._cached_parts.read(lambda part: self._keys.object_part(name, part), start, length)

    def pieces(self, name: SealName, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """The parts that hold these ranges of it."""
        found = {
            Piece(first, size, self._keys.object_part(name, part), 0)
            for start, length in ranges
            for part, first, size in self._parts.covering(name.size, start, length)
        }
        return sorted(found)

    async def drop(self, number: int) -> None:
        """Say that it is gone, then delete it: a drop that was cut short is finished by `sweep`."""
        name = self._table.seal(number)
        if name is None:
            invariant(self._table.run(number) is None, "only a sealed object is dropped")
            return
        await self._store.put(self._keys.gone(name), b"")
        await self.sweep(name)
        self._table.learn_drop(name)

    async def sweep(self, name: SealName) -> None:
        """Delete all a dropped object has but the word that it is gone. Idempotent."""
        await self._parts.delete(lambda part: self._keys.object_part(name, part), name.size)
        await self._store.delete(self._keys.seal(name))

    async def forget(self, name: SealName) -> None:
        """Its commits are truncated: nobody asks what became of it."""
        await self.sweep(name)
        await self._store.delete(self._keys.gone(name))
        self._table.forget_drop(name)


def packed_seal(index: bytes) -> list[bytes]:
    """What a seal object holds."""
    return [HEAD.pack(MAGIC, VERSION, crc32c(index)), index]


def _damaged(name: SealName) -> LogDamaged:
    return LogDamaged(f"the index of object {name.number} is damaged: restore it from the bucket's versions")

"""Seals: the index of a finished object, and where its payload is. Little-endian.

A seal object, version 1, of an object whose whole payload is packed into parts:

| field   | type | meaning                                         |
|---------|------|-------------------------------------------------|
| magic   | s8   | `MNSTMSEA`                                      |
| version | u4   | 1                                               |
| crc     | u4   | CRC32C of the index                             |
| index   |      | up to the end of the object                     |

Version 2, of one that refers to WAL objects, has between crc and index:

| field      | type | meaning                                      |
|------------|------|----------------------------------------------|
| rows       | u4   | how many references                          |
| rows_crc   | u4   | CRC32C of them                               |
| references |      | see references.py; the rest of it is packed  |

Commits are mostly small and many; a cold reader wants few large objects. So sealing copies small payloads, and the
entries may be truncated from then on. A large payload stays where it is, stored once: its WAL objects belong to the
sealed object from then on. Every writer may seal: all of them put the same bytes.
"""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Container, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from mainstem.errors import LogDamaged, NewerVersion, NotFound
from mainstem.ports.commitlog.port import Piece
from mainstem.ports.commitlog.shared.bucket.entries import EntryHead
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys, SealName, seal_in
from mainstem.ports.commitlog.shared.bucket.parts import Names, Parts
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader
from mainstem.ports.commitlog.shared.bucket.references import REFERENCE_ROW, References, Stretch
from mainstem.ports.commitlog.shared.core.backend import Floor, SealedListing
from mainstem.ports.commitlog.shared.core.objects import ObjectTable, OpenObject
from mainstem.ports.objectstore.port import ObjectStore

BUCKET_REFERENCES_IN_MEMORY = 256  # sealed objects whose payload locations are cached

HEAD = struct.Struct("<8sII")
ROWS = struct.Struct("<II")
MAGIC = b"MNSTMSEA"
PACKED, REFERRING = 1, 2  # versions
_FIRST_BYTES = 4096  # read of a seal for its references: an object seldom has more


class SealNames(NamedTuple):
    """The seals that the store lists."""

    sealed: dict[int, SealName]  # by object: the seal that counts
    dropped: dict[int, SealName]
    all: dict[int, list[SealName]]  # with those that a later seal replaced


class BucketObjects:
    """The sealed objects of one log. `reads` is the same store, maybe behind a cache."""

    def __init__(
        self,
        store: ObjectStore,
        reads: ObjectStore,
        keys: BucketKeys,
        reader: EntryReader,
        table: ObjectTable[EntryHead, SealName],
    ) -> None:
        self._store = store
        self._keys = keys
        self._reader = reader
        self._table = table
        self._parts = Parts(store)  # of packed payloads, and of WAL objects
        self._cached_parts = Parts(reads)
        self._references: OrderedDict[SealName, References] = OrderedDict()

    async def refresh(self) -> SealedListing[SealName]:
        found = await self.listed()
        return SealedListing(found.sealed, found.dropped, await self._reader.floor())

    async def listed(self) -> SealNames:
        all: dict[int, list[SealName]] = {}
        all_dropped: dict[int, list[SealName]] = {}
        async for one in self._store.list(self._keys.seals):
            name, is_dropped = seal_in(one.key)
            (all_dropped if is_dropped else all).setdefault(name.number, []).append(name)
        dropped = {number: max(names, key=_coverage) for number, names in all_dropped.items()}
        sealed = {number: max(names, key=_coverage) for number, names in all.items()}
        for number in dropped.keys() & sealed.keys():
            if sealed[number].end <= dropped[number].end:  # else it grew after it was dropped
                del sealed[number]
        return SealNames(sealed, dropped, all)

    async def seal(self, unsealed: OpenObject[EntryHead], index: bytes) -> tuple[SealName, bool]:
        """Pack the small payloads, then put the index: from then on the object is sealed."""
        references = References.among(unsealed.size, unsealed.payloads.holders)
        name = SealName(unsealed.number, unsealed.first, unsealed.end, unsealed.size, references.bytes)
        if await self._is_sealed(name):
            return name, False
        for part, start, length in self._parts.spans(name.packed):
            await self._pack(name, references, part, start, length)
        return name, await self._store.put(
            self._keys.seal(name), packed_seal(index, references), if_absent=True
        )

    async def _is_sealed(self, name: SealName) -> bool:
        try:
            await self._store.get_ranges(self._keys.seal(name), [(0, HEAD.size)])
        except NotFound:
            return False
        return True

    async def _pack(self, name: SealName, references: References, part: int, start: int, length: int) -> None:
        """Copy one part of the packed payload."""
        source = self._table.open_object(name.number)
        if source is None:
            raise FileNotFoundError(f"object {name.number} was dropped while it was being sealed")
        content = b"".join(
            [await self._reader.payload(source, *one, once=True) for one in references.packed(start, length)]
        )
        if len(content) != length:
            raise LogDamaged(
                f"object {name.number} lost payload before it was sealed: restore its WAL objects from the "
                "bucket's versions"
            )
        await self._parts.put_one(partial(self._keys.object_part, name), part, content)

    async def index(self, name: SealName) -> bytes:
        """Raises NotFound if the object is dropped, LogDamaged or NewerVersion."""
        stored = await self._store.get(self._keys.seal(name))
        version, crc = _head(name, stored)
        at = HEAD.size
        if version == REFERRING:
            at += ROWS.size + _rows(name, stored)[0] * REFERENCE_ROW.size
        if crc32c(memoryview(stored)[at:]) != crc:
            raise _damaged(name)
        return stored[at:]

    async def references(self, name: SealName) -> References:
        """Which WAL objects belong to the object. Raises NotFound if it is dropped, LogDamaged or NewerVersion."""
        if not name.referenced:
            return References(name.size)
        known = self._references.get(name)
        if known is None:
            known = self._references[name] = await self._read_references(name)
            while len(self._references) > BUCKET_REFERENCES_IN_MEMORY:
                self._references.popitem(last=False)
        return known

    async def _read_references(self, name: SealName) -> References:
        key = self._keys.seal(name)
        (stored,) = await self._store.get_ranges(key, [(0, _FIRST_BYTES)])
        version, _ = _head(name, stored)
        if version != REFERRING:
            raise _damaged(name)
        count, crc = _rows(name, stored)
        at, length = HEAD.size + ROWS.size, count * REFERENCE_ROW.size
        if at + length > len(stored):
            (stored,) = await self._store.get_ranges(key, [(0, at + length)])
        rows = stored[at : at + length]
        if len(rows) != length or crc32c(rows) != crc:
            raise _damaged(name)
        try:
            found = References.unpack(name.size, rows)
        except ValueError as error:
            raise _damaged(name) from error
        if found.bytes != name.referenced:
            raise _damaged(name)
        return found

    async def read(self, source: OpenObject[EntryHead] | SealName, start: int, length: int) -> bytearray:
        if isinstance(source, OpenObject):
            return await self._reader.payload(source, start, length)
        references = await self.references(source)
        end = min(start + length, source.size)
        found = await asyncio.gather(
            *(self._read(source, one, start, end) for one in references.stretches(start, length))
        )
        return bytearray().join(found)

    async def is_lost(self, source: OpenObject[EntryHead] | SealName) -> bool:
        """A source that is an open object has no seal: if there is one now, the payload was packed meanwhile."""
        expected = source if isinstance(source, SealName) else None
        listing = await self.listed()
        return source.number not in listing.dropped and listing.sealed.get(source.number) == expected

    async def _read(self, name: SealName, stretch: Stretch, start: int, end: int) -> bytes:
        """The bytes of a range of the object that a stretch holds."""
        skipped = max(0, start - stretch.start)
        taken = min(end - stretch.start, stretch.length) - skipped
        return await self._cached_parts.read(self._names(name, stretch), stretch.packed_at + skipped, taken)

    def _names(self, name: SealName, stretch: Stretch) -> Names:
        """Keys of the parts that hold a stretch; parts of the packed payload hold others too."""
        if stretch.commit is None:
            return partial(self._keys.object_part, name)
        return partial(self._keys.wal_part, stretch.commit)

    async def pieces(
        self, source: OpenObject[EntryHead] | SealName, ranges: Sequence[tuple[int, int]]
    ) -> list[Piece]:
        if isinstance(source, OpenObject):
            return self._reader.pieces(source, ranges)
        references = await self.references(source)
        found: set[Piece] = set()
        for start, length in ranges:
            end = min(start + length, source.size)
            for one in references.stretches(start, length):
                first = max(start, one.start)
                found.update(self._pieces(source, one, first, min(end, one.start + one.length) - first))
        return sorted(found)

    def _pieces(self, name: SealName, stretch: Stretch, start: int, length: int) -> Iterator[Piece]:
        """For a range of a stretch: what each part that it touches holds of the stretch."""
        key = self._names(name, stretch)
        parts_bytes = name.packed if stretch.commit is None else stretch.length
        base = stretch.packed_at
        for part, first, size in self._parts.covering(parts_bytes, base + start - stretch.start, length):
            begin, end = max(first, base), min(first + size, base + stretch.length)
            yield Piece(stretch.start + begin - base, end - begin, key(part), begin - first)

    async def unneeded_uploads(self, heads: Sequence[EntryHead], listing: SealNames) -> list[EntryHead]:
        """Which of these truncated commits have WAL objects that may go: their object was packed or dropped.

        `listing` was made once the floor was past them, so it has their objects. If it does not tell, the collection of
        orphans decides: the object may have been dropped and forgotten since the heads were read."""
        found: list[EntryHead] = []
        for head in heads:
            sealed = listing.sealed.get(head.object)
            name = sealed or listing.dropped.get(head.object)
            if not head.apart_bytes or name is None or not name.first <= head.position < name.end:
                continue
            if sealed is None or head.id not in await self.references(sealed):
                found.append(head)
        return found

    async def referenced(self) -> AsyncIterator[bytes]:
        """The commits whose WAL objects some sealed object needs."""
        for name in (await self.listed()).sealed.values():
            try:
                references = await self.references(name)
            except NotFound:
                continue  # dropped since
            for id, _ in references.items():
                yield id

    async def drop(self, sealed: SealName) -> None:
        """`forget` deletes what this leaves, or what a call that was cut short leaves.

        Until its commits are truncated, the object may turn out to have grown under another writer, and a seal of all
        of it may refer to the same WAL objects. Those stay until then."""
        await self._store.put(self._keys.dropped(sealed), b"")
        floor = await self._reader.floor() if sealed.referenced else Floor()
        if not sealed.referenced or sealed.end <= floor.position <= self._table.end:
            await self._delete(sealed, needed=())

    async def forget(self, dropped: Sequence[SealName]) -> None:
        listing = await self.listed()
        for one in dropped:
            again = listing.sealed.get(one.number)  # it grew after it was dropped
            needed = () if again is None else await self.references(again)
            for name in listing.all.get(one.number, ()):
                if name.end <= one.end:
                    await self._delete(name, needed)
            await self._store.delete(self._keys.dropped(one))

    async def _delete(self, name: SealName, needed: Container[bytes]) -> None:
        """Delete the payload, then the seal: only seals list the WAL objects. Idempotent."""
        try:
            references = await self.references(name)
        except (NotFound, LogDamaged):  # already deleted; or damaged, then the WAL objects become orphans
            references = References(name.size)
        for id, length in references.items():
            if id not in needed:
                await self._parts.delete(partial(self._keys.wal_part, id), length)
        await self._parts.delete(partial(self._keys.object_part, name), name.packed)
        await self._store.delete(self._keys.seal(name))
        self._references.pop(name, None)


def packed_seal(index: bytes, references: References | None = None) -> list[bytes]:
    """The content of a seal object."""
    if not references:
        return [HEAD.pack(MAGIC, PACKED, crc32c(index)), index]
    rows = references.pack()
    return [HEAD.pack(MAGIC, REFERRING, crc32c(index)), ROWS.pack(len(references), crc32c(rows)), rows, index]


def _coverage(name: SealName) -> tuple[int, int]:
    """How much a seal covers: of two seals of one object, the one that covers more commits counts."""
    return name.end, name.referenced


def _head(name: SealName, stored: bytes) -> tuple[int, int]:
    """Version and CRC of the index. Raises LogDamaged or NewerVersion."""
    if len(stored) < HEAD.size or stored[:8] != MAGIC:
        raise _damaged(name)
    _, version, crc = HEAD.unpack_from(stored)
    if version > REFERRING:
        raise NewerVersion(f"object {name.number} has version {version}: upgrade this Mainstem to read it")
    return version, crc


def _rows(name: SealName, stored: bytes) -> tuple[int, int]:
    """How many references there are, and their CRC. Raises LogDamaged."""
    if len(stored) < HEAD.size + ROWS.size:
        raise _damaged(name)
    count, crc = ROWS.unpack_from(stored, HEAD.size)
    return count, crc


def _damaged(name: SealName) -> LogDamaged:
    return LogDamaged(f"the seal of object {name.number} is damaged: restore it from the bucket's versions")

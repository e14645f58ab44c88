"""Seals: the index of a finished object, and where its payload is from then on. Little-endian.

A seal object, version 1, of an object whose payload is packed into parts, all of it:

| field   | type | meaning                                         |
|---------|------|-------------------------------------------------|
| magic   | s8   | `MNSTMSEA`                                      |
| version | u4   | 1                                               |
| crc     | u4   | CRC32C of the index                             |
| index   |      | up to the end of the object                     |

Version 2, of one that refers to WAL objects: between crc and index stand

| field      | type | meaning                                      |
|------------|------|----------------------------------------------|
| rows       | u4   | how many references                          |
| rows_crc   | u4   | CRC32C of them                               |
| references |      | see references.py; the rest of it is packed  |

Commits are mostly small and many; what a cold reader wants is large and few. So sealing copies what is small, and the
entries may be truncated from then on. What is large already stays where it is: the payload is stored once, and its
WAL objects are the sealed object's own from then on. Every writer may seal: all of them put the same bytes.
"""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict
from collections.abc import AsyncIterator, Container, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import LogDamaged, NewerVersion, NotFound, invariant
from mainstem.ports.commitlog.port import Piece
from mainstem.ports.commitlog.shared.bucket.entries import Commit
from mainstem.ports.commitlog.shared.bucket.keys import Keys, SealName, seal_in
from mainstem.ports.commitlog.shared.bucket.objects import ObjectTable
from mainstem.ports.commitlog.shared.bucket.parts import Names, Parts
from mainstem.ports.commitlog.shared.bucket.reading import EntryReader
from mainstem.ports.commitlog.shared.bucket.references import REFERENCE_ROW, References, Stretch
from mainstem.ports.objectstore.port import ObjectStore

HEAD = struct.Struct("<8sII")
ROWS = struct.Struct("<II")
MAGIC = b"MNSTMSEA"
PACKED, REFERRING = 1, 2  # versions
_FIRST_BYTES = 4096  # read of a seal to learn its references: an object seldom has more of them


class Listing(NamedTuple):
    """What the store says of sealed objects."""

    sealed: dict[int, SealName]  # by object: the seal that counts
    gone: dict[int, SealName]
    all: dict[int, list[SealName]]  # with those that another one outdid


class Seals:
    """The sealed objects of one log. `reads` is the same store, maybe with a cache in front."""

    def __init__(
        self, store: ObjectStore, reads: ObjectStore, keys: Keys, reader: EntryReader, table: ObjectTable
    ) -> None:
        self._store = store
        self._keys = keys
        self._reader = reader
        self._table = table
        self._parts = Parts(store)  # of packed payloads, and of WAL objects
        self._cached_parts = Parts(reads)
        self._references: OrderedDict[SealName, References] = OrderedDict()

    async def listed(self) -> Listing:
        """Every object that is sealed, and every one that is gone."""
        all: dict[int, list[SealName]] = {}
        all_gone: dict[int, list[SealName]] = {}
        async for one in self._store.list(self._keys.seals):
            name, is_gone = seal_in(one.key)
            (all_gone if is_gone else all).setdefault(name.number, []).append(name)
        gone = {number: max(names, key=_knowing) for number, names in all_gone.items()}
        sealed = {number: max(names, key=_knowing) for number, names in all.items()}
        for number in gone.keys() & sealed.keys():
            if sealed[number].end <= gone[number].end:  # else it grew after it was dropped
                del sealed[number]
        return Listing(sealed, gone, all)

    async def seal(self, number: int, index: bytes) -> None:
        """Copy what is small of the payload, then put the index: from then on the object is sealed."""
        name = self._table.seal(number)
        if name is None or not await self._is_sealed(name):
            run = self._table.run(number)
            if run is None:
                raise FileNotFoundError(f"object {number} was dropped or never was")
            name, references = run.sealed()
            if not await self._is_sealed(name):
                for part, start, length in self._parts.spans(name.packed):
                    await self._copy(name, references, part, start, length)
                await self._store.put(self._keys.seal(name), packed_seal(index, references), if_absent=True)
        invariant(await self.index(name) == index, "a sealed object keeps its index")
        run = self._table.run(number)
        if run is None or run.end == name.end:  # else it grew meanwhile
            self._table.learn_seal(name)

    async def _is_sealed(self, name: SealName) -> bool:
        try:
            await self._store.get_ranges(self._keys.seal(name), [(0, HEAD.size)])
        except NotFound:
            return False
        return True

    async def _copy(self, name: SealName, references: References, part: int, start: int, length: int) -> None:
        """One part of what is packed."""
        run = self._table.run(name.number)
        if run is None:
            raise FileNotFoundError(f"object {name.number} was dropped while it was being sealed")
        content = b"".join(
            [await self._reader.payload(run, *one, once=True) for one in references.packed(start, length)]
        )
        if len(content) != length:
            raise LogDamaged(
                f"object {name.number} has lost payload before it was sealed: restore its WAL objects"
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
        """Which WAL objects are the object's own. Raises NotFound if it is dropped, LogDamaged or NewerVersion."""
        if not name.referenced:
            return References(name.size)
        known = self._references.get(name)
        if known is None:
            known = self._references[name] = await self._read_references(name)
            while len(self._references) > limits.BUCKET_REFERENCES_IN_MEMORY:
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

    async def payload(self, name: SealName, start: int, length: int) -> bytes:
        """Raises NotFound if the object is dropped."""
        references = await self.references(name)
        end = min(start + length, name.size)
        found = await asyncio.gather(
            *(self._read(name, one, start, end) for one in references.stretches(start, length))
        )
        return b"".join(found)

    async def _read(self, name: SealName, stretch: Stretch, start: int, end: int) -> bytes:
        """What a stretch has of a range of the object."""
        skipped = max(0, start - stretch.start)
        taken = min(end - stretch.start, stretch.length) - skipped
        return await self._cached_parts.read(self._names(name, stretch), stretch.packed_at + skipped, taken)

    def _names(self, name: SealName, stretch: Stretch) -> Names:
        """Of the parts that hold a stretch, among others if it is packed."""
        if stretch.commit is None:
            return partial(self._keys.object_part, name)
        return partial(self._keys.wal_part, stretch.commit)

    async def pieces(self, name: SealName, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        """What holds these ranges of it. Raises NotFound if the object is dropped."""
        references = await self.references(name)
        found: set[Piece] = set()
        for start, length in ranges:
            end = min(start + length, name.size)
            for one in references.stretches(start, length):
                first = max(start, one.start)
                found.update(self._pieces(name, one, first, min(end, one.start + one.length) - first))
        return sorted(found)

    def _pieces(self, name: SealName, stretch: Stretch, start: int, length: int) -> Iterator[Piece]:
        """Of a range of a stretch: what each part that it touches has of the stretch."""
        key = self._names(name, stretch)
        parts_bytes = name.packed if stretch.commit is None else stretch.length
        base = stretch.packed_at
        for part, first, size in self._parts.covering(parts_bytes, base + start - stretch.start, length):
            begin, end = max(first, base), min(first + size, base + stretch.length)
            yield Piece(stretch.start + begin - base, end - begin, key(part), begin - first)

    async def spent(self, heads: Sequence[Commit], listing: Listing) -> list[Commit]:
        """Which of these truncated commits have WAL objects that may go with them: their object was packed or dropped.

        `listing` was made once the floor was past them, so it has their objects. What it does not tell is left to the
        collection of orphans: an object may have been dropped and forgotten since they were read."""
        found: list[Commit] = []
        for head in heads:
            sealed = listing.sealed.get(head.object)
            name = sealed or listing.gone.get(head.object)
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
                continue  # it was dropped since
            for id, _ in references.items():
                yield id

    async def drop(self, number: int) -> None:
        """Say that it is gone, then delete it. What is left then, or by a drop that was cut short, goes by `forget`.

        Until its commits are truncated it may turn out to have grown under another writer, and a seal of all of it to
        refer to the same WAL objects: those wait for that."""
        name = self._table.seal(number)
        if name is None:
            invariant(self._table.run(number) is None, "only a sealed object is dropped")
            return
        await self._store.put(self._keys.gone(name), b"")
        if not name.referenced or name.end <= (await self._reader.floor()).position <= self._table.end:
            await self._delete(name, needed=())
        self._table.learn_drop(name)

    async def forget(self, names: Sequence[SealName]) -> None:
        """Dropped objects whose commits are truncated: nobody asks what became of them."""
        if not names:
            return
        listing = await self.listed()
        for gone in names:
            again = listing.sealed.get(gone.number)  # it grew after it was dropped
            needed = () if again is None else await self.references(again)
            for name in listing.all.get(gone.number, ()):
                if name.end <= gone.end:
                    await self._delete(name, needed)
            await self._store.delete(self._keys.gone(gone))
            self._table.forget_drop(gone)

    async def _delete(self, name: SealName, needed: Container[bytes]) -> None:
        """All that is stored under a seal. Idempotent. It goes last: it alone tells which WAL objects there are."""
        try:
            references = await self.references(name)
        except (NotFound, LogDamaged):  # gone already; or they are nobody's, which makes orphans of them
            references = References(name.size)
        for id, length in references.items():
            if id not in needed:
                await self._parts.delete(partial(self._keys.wal_part, id), length)
        await self._parts.delete(partial(self._keys.object_part, name), name.packed)
        await self._store.delete(self._keys.seal(name))
        self._references.pop(name, None)


def packed_seal(index: bytes, references: References | None = None) -> list[bytes]:
    """What a seal object holds."""
    if not references:
        return [HEAD.pack(MAGIC, PACKED, crc32c(index)), index]
    rows = references.pack()
    return [HEAD.pack(MAGIC, REFERRING, crc32c(index)), ROWS.pack(len(references), crc32c(rows)), rows, index]


def _knowing(name: SealName) -> tuple[int, int]:
    """Of two seals of one object, the later one counts, which was made knowing more of its commits."""
    return name.end, name.referenced


def _head(name: SealName, stored: bytes) -> tuple[int, int]:
    """Version and CRC of the index. Raises LogDamaged or NewerVersion."""
    if len(stored) < HEAD.size or stored[:8] != MAGIC:
        raise _damaged(name)
    _, version, crc = HEAD.unpack_from(stored)
    if version > REFERRING:
        raise NewerVersion(f"object {name.number} is of version {version}: upgrade this Mainstem to read it")
    return version, crc


def _rows(name: SealName, stored: bytes) -> tuple[int, int]:
    """How many references there are, and their CRC. Raises LogDamaged."""
    if len(stored) < HEAD.size + ROWS.size:
        raise _damaged(name)
    count, crc = ROWS.unpack_from(stored, HEAD.size)
    return count, crc


def _damaged(name: SealName) -> LogDamaged:
    return LogDamaged(f"the index of object {name.number} is damaged: restore it from the bucket's versions")

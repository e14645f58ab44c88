"""The log's objects in the store: payloads, and the directories and indexes of sealed objects."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from crc32c import crc32c

from mainstem.errors import LogDamaged, NotFound
from mainstem.ports.commitlog.port import Buffer, Piece
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.keys import StoreKeys
from mainstem.ports.commitlog.shared.etcd.records import CommitRecord, Seal
from mainstem.ports.objectstore.port import ObjectStore, store_now_ms

ETCD_DIRECTORIES_IN_MEMORY = 64  # sealed objects whose list of commits is cached

_AT_ONCE = 16  # parallel requests to the store


class Payloads:
    """The objects of one log in its store."""

    def __init__(self, store: ObjectStore, keys: StoreKeys) -> None:
        self._store = store
        self._keys = keys
        self._directories: OrderedDict[bytes, Directory] = OrderedDict()

    async def put(self, id: bytes, content: Sequence[Buffer]) -> None:
        """A payload or several, then the entry if that is too large for etcd."""
        await self._store.put(self._keys.payload(id), [part for part in content if len(part)])

    async def entry(self, record: CommitRecord) -> bytes:
        """An entry that was too large for etcd. Raises LogDamaged."""
        start = 0 if record.payload_in_etcd else record.payload_length
        asked = [(start, record.entry_length)]
        try:
            (entry,) = await self._store.get_ranges(self._keys.payload(record.id), asked)
        except NotFound as error:
            raise LogDamaged(
                f"the store has lost the entry of the commit at position {record.position}: {error}"
            ) from error
        return entry

    async def read(self, pieces: Iterable[tuple[bytes, int, int]]) -> bytearray:
        """Bytes of payloads, each as (commit id, start, length), joined. Raises NotFound."""
        asked = list(pieces)
        found = bytearray()
        for at in range(0, len(asked), _AT_ONCE):
            for piece in await asyncio.gather(*(self._piece(*one) for one in asked[at : at + _AT_ONCE])):
                found += piece
        return found

    async def _piece(self, id: bytes, skipped: int, taken: int) -> bytes:
        (found,) = await self._store.get_ranges(self._keys.payload(id), [(skipped, taken)])
        return found

    def pieces(self, ranges: Iterable[tuple[int, Iterable[tuple[bytes, int, int]]]]) -> list[Piece]:
        """The payloads that hold ranges of an object: each its start, and the pieces as `read` takes them."""
        found: dict[bytes, Piece] = {}
        for start, pieces in ranges:
            at = start
            for id, skipped, taken in pieces:
                before = found.get(id)
                reach = max(skipped + taken, before.length if before else 0)
                found[id] = Piece(at - skipped, reach, self._keys.payload(id), 0)
                at += taken
        return sorted(found.values())

    def piece(self, start: int, length: int, name: bytes) -> Piece:
        """A payload, or several in one object of the store, that starts there in the log object."""
        return Piece(start, length, self._keys.payload(name), 0)

    async def put_seal(self, seal: Seal, directory: bytes, index: bytes) -> None:
        await self._store.put(self._keys.seal(seal.number, seal.token), [directory, index])

    async def directory(self, seal: Seal) -> Directory:
        """Raises NotFound if the object is dropped, LogDamaged."""
        known = self._directories.get(seal.token)
        if known is None:
            known = Directory.unpack(await self._sealed(seal, index=False))
            self._directories[seal.token] = known
            while len(self._directories) > ETCD_DIRECTORIES_IN_MEMORY:
                self._directories.popitem(last=False)
        return known

    async def index(self, seal: Seal) -> bytes:
        """Raises NotFound if the object is dropped, LogDamaged."""
        return await self._sealed(seal, index=True)

    async def drop(self, seal: Seal) -> None:
        """Delete a sealed object from the store. Idempotent, also after a partial delete."""
        try:
            directory = await self.directory(seal)
        except NotFound:
            return  # the directory goes last, so nothing else is left
        await self._delete([self._keys.payload(id) for id in directory.ids])
        await self._store.delete(self._keys.seal(seal.number, seal.token))
        self._directories.pop(seal.token, None)

    async def drop_seal(self, seal: Seal) -> None:
        """Delete a seal that lost to another."""
        await self._store.delete(self._keys.seal(seal.number, seal.token))

    async def now_ms(self, token: bytes) -> int:
        """The store's time. An id contains only the time of its writer's clock."""
        return await store_now_ms(self._store, self._keys.clock(token))

    async def uploads_before(self, before_ms: int) -> set[bytes]:
        """Uploads older than that by the store's clock."""
        return {
            bytes.fromhex(stored.key.rpartition("/")[2])
            async for stored in self._store.list(self._keys.payloads)
            if stored.modified_ms < before_ms
        }

    async def delete(self, ids: Sequence[bytes]) -> None:
        await self._delete([self._keys.payload(id) for id in ids])

    async def _delete(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _AT_ONCE):
            await asyncio.gather(*map(self._store.delete, keys[at : at + _AT_ONCE]))

    async def _sealed(self, seal: Seal, *, index: bool) -> bytes:
        body = await self._store.get(self._keys.seal(seal.number, seal.token))
        if crc32c(body) != seal.body:
            raise LogDamaged(
                f"the stored index of object {seal.number} fails its checksum: restore it from the store's versions"
            )
        split = len(body) - seal.index_length
        return body[split:] if index else body[:split]

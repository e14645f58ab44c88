"""Import a log into etcd; keys.py lists keys and objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from crc32c import crc32c

from mainstem import limits
from mainstem.errors import InvalidInput, NotFound
from mainstem.ports.clock import SystemClock, SystemRandom
from mainstem.ports.commitlog.port import Checkpoint, LogObject
from mainstem.ports.commitlog.shared.core.backend import CheckpointName, Floor
from mainstem.ports.commitlog.shared.core.checkpoints import compressed
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, EtcdOptions, absent, put
from mainstem.ports.commitlog.shared.etcd.commits import TokenSource
from mainstem.ports.commitlog.shared.etcd.directory import Directory
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, StoreKeys
from mainstem.ports.commitlog.shared.etcd.payloads import Payloads
from mainstem.ports.commitlog.shared.etcd.records import Pointer, Seal, pack_floor
from mainstem.ports.commitlog.shared.importing import Read
from mainstem.ports.objectstore.port import ObjectStore


class EtcdImporter:
    def __init__(
        self, client: EtcdClient, store: ObjectStore, *, prefix: str = "mainstem/", folder: str = "log"
    ) -> None:
        self._client = client
        self._store = store
        self._keys = EtcdKeys.under(prefix)
        self._names = StoreKeys(folder)
        self._payloads = Payloads(store, self._names)
        self._tokens = TokenSource(SystemClock(), SystemRandom())

    @classmethod
    def connect(cls, members: tuple[str, ...], store: ObjectStore) -> EtcdImporter:
        return cls(EtcdClient(EtcdOptions(members), None), store)

    async def check_free(self) -> None:
        if (await self._client.range(self._keys.id)).kvs:
            raise InvalidInput("this etcd already holds a log: name another one")

    async def resume(self, wanted: Sequence[LogObject]) -> set[int]:
        expected = {(one.number, one.first_position, one.end_position, one.size_bytes) for one in wanted}
        whole = set()
        named: set[str] = set()  # keys of complete objects
        for held in (await self._client.range(self._keys.object(0), self._keys.objects_end)).kvs:
            seal = Seal.unpack(held.value)
            if (seal.number, seal.first, seal.end, seal.size) in expected:
                try:
                    directory = await self._payloads.directory(seal)
                except NotFound:
                    pass  # it is in another store
                else:
                    whole.add(seal.number)
                    named |= {self._names.payload(id) for id in directory.ids}
                    named.add(self._names.seal(seal.number, seal.token))
                    continue
            await self._client.delete(held.key)
        async for found in self._store.list(f"{self._names.folder}/"):
            if found.key not in named:
                await self._store.delete(found.key)
        return whole

    async def put_object(self, imported: LogObject, index: bytes, read: Read) -> None:
        directory = Directory()
        for start in range(0, imported.size_bytes, limits.STORE_OBJECT_BYTES_MAX):
            content = await read(start, min(limits.STORE_OBJECT_BYTES_MAX, imported.size_bytes - start))
            id = self._tokens.new()
            await self._payloads.put(id, [content])
            directory.add(start, len(content), id)
        packed, token = directory.pack(), self._tokens.new()
        seal = Seal.new(imported, packed, index, now_ms=self._tokens.now_ms(), token=token)
        await self._payloads.put_seal(seal, packed, index)
        await self._client.txn([], [put(self._keys.object(seal.number), seal.pack())])

    async def finish(self, identity: bytes, checkpoint: Checkpoint, last_object: int) -> None:
        state = await asyncio.to_thread(compressed, checkpoint.state)
        name = CheckpointName(checkpoint.position, self._tokens.new())
        pointer = Pointer(0, name.position, state.size, crc32c(state.content), name.token)
        await self._store.put(self._names.checkpoint(name), state.content)
        made = await self._client.txn(
            [absent(self._keys.id)],
            [
                put(self._keys.id, identity),
                put(self._keys.floor, pack_floor(Floor(checkpoint.position, last_object))),
                put(self._keys.checkpoint(checkpoint.position), pointer.pack()),
            ],
        )
        if not made.succeeded:
            raise InvalidInput("another process made a log there meanwhile: name another etcd")

    async def close(self) -> None:
        await self._client.close()

"""Checkpoints: the state in the object store, a pointer to it in etcd."""

from __future__ import annotations

from crc32c import crc32c

from mainstem.errors import NotFound
from mainstem.ports.commitlog.shared.core.backend import CheckpointName, StoredState
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, absent, put
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, StoreKeys
from mainstem.ports.commitlog.shared.etcd.records import Pointer
from mainstem.ports.objectstore.port import ObjectStore


class EtcdCheckpoints:
    """The checkpoints of one log."""

    def __init__(self, client: EtcdClient, keys: EtcdKeys, store: ObjectStore, names: StoreKeys) -> None:
        self._client = client
        self._keys = keys
        self._store = store
        self._names = names
        self._pointers: dict[CheckpointName, Pointer] = {}  # as listed last, by rising position

    @property
    def newest_position(self) -> int:
        return max((name.position for name in self._pointers), default=0)

    async def names(self) -> list[CheckpointName]:
        found = await self._client.range(self._keys.checkpoint(0), self._keys.checkpoints_end)
        pointers = [Pointer.unpack(pair.value) for pair in found.kvs]
        self._pointers = {CheckpointName(one.position, one.token): one for one in pointers}
        return [*self._pointers]

    async def known_names(self) -> list[CheckpointName]:
        return [*self._pointers]

    async def put(self, name: CheckpointName, state: StoredState) -> None:
        pointer = Pointer(0, name.position, state.size, crc32c(state.content), name.token)
        await self._store.put(self._names.checkpoint(name), state.content)
        key = self._keys.checkpoint(name.position)
        await self._client.txn([absent(key)], [put(key, pointer.pack())])
        if name not in await self.names():
            await self._store.delete(self._names.checkpoint(name))

    async def get(self, name: CheckpointName) -> StoredState | None:
        pointer = self._pointers.get(name)
        try:
            stored = await self._store.get(self._names.checkpoint(name))
        except NotFound:  # deleted since it was listed
            return None
        return StoredState(pointer.size, stored) if pointer and crc32c(stored) == pointer.body else None

    async def delete(self, name: CheckpointName) -> None:
        await self._client.delete(self._keys.checkpoint(name.position))
        await self._store.delete(self._names.checkpoint(name))
        self._pointers.pop(name, None)

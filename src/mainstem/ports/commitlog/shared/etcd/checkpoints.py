"""Checkpoints: the state in the object store, a pointer to it in etcd."""

from __future__ import annotations

import asyncio

import zstandard
from crc32c import crc32c

from mainstem.errors import NotFound
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, absent, put
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys, StoreKeys
from mainstem.ports.commitlog.shared.etcd.records import Pointer
from mainstem.ports.objectstore.port import ObjectStore

_LEVEL = 1  # the state is mostly arrays: level 1 takes nearly all there is to gain


class StoredCheckpoints:
    """The checkpoints of one log, as of the last look."""

    def __init__(
        self, client: EtcdClient, keys: EtcdKeys, store: ObjectStore, names: StoreKeys, keep: int
    ) -> None:
        self._client = client
        self._keys = keys
        self._store = store
        self._names = names
        self._keep = keep
        self._pointers: list[Pointer] = []  # by rising position

    @property
    def oldest_position(self) -> int:
        """What is before it is in every checkpoint that may be loaded; 0 if there are fewer than shall be kept."""
        return self._pointers[0].position if len(self._pointers) >= self._keep else 0

    @property
    def positions(self) -> list[int]:
        return [pointer.position for pointer in self._pointers[-self._keep :]]

    @property
    def newest_position(self) -> int:
        return self._pointers[-1].position if self._pointers else 0

    async def refresh(self) -> None:
        """Look again: others save checkpoints as well."""
        found = await self._client.range(self._keys.checkpoint(0), self._keys.checkpoints_end)
        self._pointers = [Pointer.unpack(pair.value) for pair in found.kvs]

    async def save(self, checkpoint: Checkpoint, token: bytes) -> None:
        """Store durably, then forget all but the newest few. No-op if there is one of that position."""
        stored = await asyncio.to_thread(zstandard.ZstdCompressor(level=_LEVEL).compress, checkpoint.state)
        pointer = Pointer(0, checkpoint.position, len(checkpoint.state), crc32c(stored), token)
        name = self._names.checkpoint(checkpoint.position, token)
        await self._store.put(name, stored)
        key = self._keys.checkpoint(checkpoint.position)
        await self._client.txn([absent(key)], [put(key, pointer.pack())])
        await self.refresh()
        if pointer not in self._pointers:
            await self._store.delete(name)
        for old in self._pointers[: -self._keep]:
            await self._client.delete(self._keys.checkpoint(old.position))
            await self._store.delete(self._names.checkpoint(old.position, old.token))
        del self._pointers[: -self._keep]

    async def load(self) -> Checkpoint | None:
        """The newest one that is whole, of those known. Needs the object store only."""
        for pointer in reversed(self._pointers.copy()):
            try:
                stored = await self._store.get(self._names.checkpoint(pointer.position, pointer.token))
            except NotFound:  # a newer one took its place
                continue
            if crc32c(stored) == pointer.body:
                state = zstandard.ZstdDecompressor().decompress(stored, max_output_size=pointer.size)
                return Checkpoint(pointer.position, state)
        return None

"""Checkpoints in the bucket. The state is put first, then the object that names it. Version 1, little-endian.

| field    | type | meaning                                        |
|----------|------|------------------------------------------------|
| magic    | s8   | `MNSTMCPB`                                     |
| version  | u4   | 1                                              |
| position | u8   | the state holds every commit before this       |
| size     | u8   | bytes of the state                             |
| length   | u8   | bytes of the state as stored, zstd             |
| body     | u4   | CRC32C of the state as stored                  |
| crc      | u4   | CRC32C of the bytes before                     |
"""

from __future__ import annotations

import struct
from functools import partial

from crc32c import crc32c

from mainstem.errors import NewerVersion, NotFound
from mainstem.ports.commitlog.shared.bucket.keys import BucketKeys, checkpoint_in
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.commitlog.shared.core.backend import CheckpointName, StoredState
from mainstem.ports.objectstore.port import ObjectStore

HEAD = struct.Struct("<8sIQQQII")
MAGIC = b"MNSTMCPB"
VERSION = 1


class BucketCheckpoints:
    """The checkpoints of one log."""

    newest_position = 0  # not tracked

    def __init__(self, store: ObjectStore, keys: BucketKeys) -> None:
        self._store = store
        self._keys = keys
        self._parts = Parts(store)

    async def names(self) -> list[CheckpointName]:
        return [checkpoint_in(one.key) async for one in self._store.list(self._keys.checkpoints)]

    async def known_names(self) -> list[CheckpointName]:
        return await self.names()

    async def put(self, name: CheckpointName, state: StoredState) -> None:
        stored = state.content
        await self._parts.put(partial(self._keys.state_part, name.token), [stored])
        facts = HEAD.pack(MAGIC, VERSION, name.position, state.size, len(stored), crc32c(stored), 0)[:-4]
        await self._store.put(self._keys.checkpoint(name), facts + crc32c(facts).to_bytes(4, "little"))

    async def get(self, name: CheckpointName) -> StoredState | None:
        try:
            head = await self._store.get(self._keys.checkpoint(name))
            if not _is_whole(head):
                return None
            _, version, position, size, length, body, _ = HEAD.unpack(head)
            if version > VERSION:
                raise NewerVersion(
                    f"the checkpoint at position {position} has version {version}: upgrade this Mainstem"
                )
            stored = await self._parts.read(partial(self._keys.state_part, name.token), 0, length)
        except NotFound:  # deleted since it was listed
            return None
        if position != name.position or len(stored) != length or crc32c(stored) != body:
            return None
        return StoredState(size, stored)

    async def delete(self, name: CheckpointName) -> None:
        key = self._keys.checkpoint(name)
        try:
            head = await self._store.get(key)
        except NotFound:
            return
        length = int(HEAD.unpack(head)[4]) if _is_whole(head) else 0
        await self._store.delete(key)
        await self._parts.delete(partial(self._keys.state_part, name.token), length)


def _is_whole(head: bytes) -> bool:
    return (
        len(head) == HEAD.size
        and head[:8] == MAGIC
        and crc32c(head[:-4]) == int.from_bytes(head[-4:], "little")
    )

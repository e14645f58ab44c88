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

A checkpoint stands where one object ends and the next begins. Another writer may yet go on with an object that this
one thought finished: then the checkpoint is passed over, as if it had never been saved.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import zstandard
from crc32c import crc32c

from mainstem.errors import NewerVersion, NotFound
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.bucket.keys import Keys, checkpoint_in
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.objectstore.port import ObjectStore

HEAD = struct.Struct("<8sIQQQII")
MAGIC = b"MNSTMCPB"
VERSION = 1
_LEVEL = 1  # the state is mostly arrays: level 1 takes nearly all there is to gain

Boundary = Callable[[int], Awaitable[bool | None]]
"""Whether an object starts at a position; None where no commit is yet."""


class Named(NamedTuple):
    position: int
    token: bytes


class BucketCheckpoints:
    """The checkpoints of one log."""

    def __init__(self, store: ObjectStore, keys: Keys, keep: int, boundary: Boundary) -> None:
        self._store = store
        self._keys = keys
        self._keep = keep
        self._parts = Parts(store)
        self._boundary = boundary

    async def save(self, checkpoint: Checkpoint, token: bytes) -> None:
        """Store durably, then forget all but the newest few of those that stand."""
        stored = await asyncio.to_thread(zstandard.ZstdCompressor(level=_LEVEL).compress, checkpoint.state)
        await self._parts.put(lambda part: self._keys.state_part(token, part), [stored])
        said = HEAD.pack(
            MAGIC, VERSION, checkpoint.position, len(checkpoint.state), len(stored), crc32c(stored), 0
        )[:-4]
        head = said + crc32c(said).to_bytes(4, "little")
        await self._store.put(self._keys.checkpoint(checkpoint.position, token), head)
        await self._forget_old()

    async def load(self) -> Checkpoint | None:
        """The newest one that stands and is whole. Raises NewerVersion."""
        for named in reversed(await self._listed()):
            if await self._boundary(named.position) is not False:
                found = await self._read(named)
                if found is not None:
                    return found
        return None

    async def positions(self) -> list[int]:
        """Of those that stand and are kept, rising."""
        return [named.position for named in reversed(await self._standing(await self._listed()))]

    async def covered(self) -> int:
        """All before this is held by every checkpoint that shall be kept; 0 while there are fewer."""
        kept = await self.positions()
        return kept[0] if len(kept) == self._keep else 0

    async def _forget_old(self) -> None:
        listed = await self._listed()
        kept = (await self._standing(listed))[: self._keep]
        if len(kept) < self._keep:
            return
        for old in listed:
            if old.position < kept[-1].position:
                await self._forget(old)

    async def _standing(self, listed: list[Named]) -> list[Named]:
        """Those that no later commit can make void, newest first, one a position."""
        found: list[Named] = []
        for named in reversed(listed):
            if found and found[-1].position == named.position:
                continue
            if await self._boundary(named.position):
                found.append(named)
                if len(found) == self._keep:
                    break
        return found

    async def _forget(self, named: Named) -> None:
        key = self._keys.checkpoint(named.position, named.token)
        length = await self._length(key)
        await self._store.delete(key)
        await self._parts.delete(lambda part: self._keys.state_part(named.token, part), length)

    async def _length(self, key: str) -> int:
        try:
            head = await self._store.get(key)
        except NotFound:
            return 0
        return int(HEAD.unpack(head)[4]) if _whole(head) else 0

    async def _listed(self) -> list[Named]:
        return [Named(*checkpoint_in(one.key)) async for one in self._store.list(self._keys.checkpoints)]

    async def _read(self, named: Named) -> Checkpoint | None:
        try:
            head = await self._store.get(self._keys.checkpoint(*named))
            if not _whole(head):
                return None
            _, version, position, size, length, body, _ = HEAD.unpack(head)
            if version > VERSION:
                raise NewerVersion(
                    f"the checkpoint at {position} is of version {version}: upgrade this Mainstem"
                )
            stored = await self._parts.read(lambda part: self._keys.state_part(named.token, part), 0, length)
        except NotFound:  # a newer one took its place since it was listed
            return None
        if position != named.position or len(stored) != length or crc32c(stored) != body:
            return None
        return Checkpoint(position, zstandard.ZstdDecompressor().decompress(stored, max_output_size=size))


def _whole(head: bytes) -> bool:
    return (
        len(head) == HEAD.size
        and head[:8] == MAGIC
        and crc32c(head[:-4]) == int.from_bytes(head[-4:], "little")
    )

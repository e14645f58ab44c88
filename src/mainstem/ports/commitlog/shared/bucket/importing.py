"""Import a log into a bucket; keys.py lists the objects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from mainstem.errors import InvalidInput, NotFound
from mainstem.ports.clock import Random, SystemRandom
from mainstem.ports.commitlog.port import Checkpoint, LogObject
from mainstem.ports.commitlog.shared.bucket import identity
from mainstem.ports.commitlog.shared.bucket.checkpoints import BucketCheckpoints
from mainstem.ports.commitlog.shared.bucket.keys import LOG_FOLDER, TOKEN_BYTES, BucketKeys, SealName
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.commitlog.shared.bucket.seals import packed_seal
from mainstem.ports.commitlog.shared.core.backend import CheckpointName, Floor
from mainstem.ports.commitlog.shared.core.checkpoints import compressed
from mainstem.ports.commitlog.shared.importing import Read
from mainstem.ports.objectstore.port import ObjectStore


class BucketImporter:
    def __init__(self, store: ObjectStore, *, folder: str = LOG_FOLDER, random: Random | None = None) -> None:
        self._store = store
        self._keys = BucketKeys(folder)
        self._parts = Parts(store)
        self._random = random or SystemRandom()

    async def check_free(self) -> None:
        try:
            await self._store.get(self._keys.id)
        except NotFound:
            return
        raise InvalidInput("the store already holds a log: name another place")

    async def resume(self, wanted: Sequence[LogObject]) -> set[int]:
        names = {str(_name(one)): one.number for one in wanted}
        whole = set()
        async for found in self._store.list(f"{self._keys.folder}/"):
            kind, _, rest = found.key.removeprefix(f"{self._keys.folder}/").partition("/")
            name = rest.partition("/")[0]
            if kind not in ("seals", "objects") or name not in names:
                await self._store.delete(found.key)
            elif kind == "seals":  # put last, so the object is complete
                whole.add(names[name])
        return whole

    async def put_object(self, imported: LogObject, index: bytes, read: Read) -> None:
        name = _name(imported)
        for part, start, length in self._parts.spans(name.size):
            content = await read(start, length)
            await self._parts.put_one(partial(self._keys.object_part, name), part, content)
        await self._store.put(self._keys.seal(name), packed_seal(index))

    async def finish(self, identity_bytes: bytes, checkpoint: Checkpoint, last_object: int) -> None:
        await identity.check_conditions(self._store, self._keys.probe(self._random.token(TOKEN_BYTES)))
        floor = Floor(checkpoint.position, last_object)
        await self._store.put(self._keys.floor(floor), b"")
        name = CheckpointName(checkpoint.position, self._random.token(TOKEN_BYTES))
        state = await asyncio.to_thread(compressed, checkpoint.state)
        await BucketCheckpoints(self._store, self._keys).put(name, state)
        if not await self._store.put(self._keys.id, identity.pack(identity_bytes), if_absent=True):
            raise InvalidInput("another process made a log there meanwhile: name another place")

    async def close(self) -> None:
        """Nothing to close."""


def _name(imported: LogObject) -> SealName:
    return SealName(imported.number, imported.first_position, imported.end_position, imported.size_bytes)

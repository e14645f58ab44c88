"""A log in a bucket that begins with what another log holds: see keys.py for what stands where."""

from __future__ import annotations

from mainstem.errors import InvalidInput
from mainstem.ports.clock import Random, SystemRandom
from mainstem.ports.commitlog.adoption import Read
from mainstem.ports.commitlog.bucket import identity
from mainstem.ports.commitlog.bucket.checkpoints import BucketCheckpoints
from mainstem.ports.commitlog.bucket.keys import TOKEN_BYTES, Floor, Keys, SealName
from mainstem.ports.commitlog.bucket.parts import Parts
from mainstem.ports.commitlog.bucket.seals import packed_seal
from mainstem.ports.commitlog.port import Checkpoint, LogObject
from mainstem.ports.objectstore.port import ObjectStore


class BucketAdoption:
    def __init__(self, store: ObjectStore, *, folder: str = "log", random: Random | None = None) -> None:
        self._store = store
        self._keys = Keys(folder)
        self._parts = Parts(store)
        self._random = random or SystemRandom()

    async def check_empty(self) -> None:
        async for found in self._store.list():
            raise InvalidInput(
                f"the store is not empty, it holds {found.key!r}: name another place, or empty this one"
            )

    async def put_object(self, adopted: LogObject, index: bytes, read: Read) -> None:
        name = SealName(adopted.number, adopted.first_position, adopted.end_position, adopted.size_bytes)
        for part, start, length in self._parts.spans(name.size):
            content = await read(start, length)
            await self._parts.put_one(lambda number: self._keys.object_part(name, number), part, content)
        await self._store.put(self._keys.seal(name), packed_seal(index))

    async def finish(self, identity_bytes: bytes, checkpoint: Checkpoint, last_object: int) -> None:
        await identity.check_conditions(self._store, self._keys.probe(self._random.token(TOKEN_BYTES)))
        floor = Floor(checkpoint.position, last_object)
        await self._store.put(self._keys.floor(floor), b"")
        checkpoints = BucketCheckpoints(self._store, self._keys, 1, _stands)
        await checkpoints.save(checkpoint, self._random.token(TOKEN_BYTES))
        if not await self._store.put(self._keys.id, identity.pack(identity_bytes), if_absent=True):
            raise InvalidInput("somebody else made a log there meanwhile: name another place")

    async def close(self) -> None:
        """Nothing is held."""


async def _stands(position: int) -> bool:
    return True  # nobody else has written yet

"""Which checkpoints of a shared log are kept, and which may be loaded.

A checkpoint stands where one object ends and the next begins. If the backend lets another writer go on with an object
that this one thought finished, the checkpoint is void: it is passed over as if it had never been saved.
"""

from __future__ import annotations

import asyncio

import zstandard

from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.core.backend import (
    CheckpointBackend,
    CheckpointName,
    CommitBackend,
    H,
    StoredState,
)

_LEVEL = 1  # the state is mostly arrays: higher levels gain little


def compressed(state: bytes) -> StoredState:
    return StoredState(len(state), zstandard.ZstdCompressor(level=_LEVEL).compress(state))


class SharedCheckpoints:
    """The checkpoints of one log."""

    def __init__(self, store: CheckpointBackend, commits: CommitBackend[H], keep: int) -> None:
        self._store = store
        self._starts_object = commits.starts_object
        self._keep = keep

    @property
    def newest_position(self) -> int:
        return self._store.newest_position

    async def save(self, checkpoint: Checkpoint, token: bytes) -> None:
        """Store durably, then delete all but the newest few valid ones."""
        state = await asyncio.to_thread(compressed, checkpoint.state)
        await self._store.put(CheckpointName(checkpoint.position, token), state)
        listed = await self._store.names()
        valid = await self._valid(listed)
        if len(valid) == self._keep:
            for old in listed:
                if old.position < valid[-1].position:
                    await self._store.delete(old)

    async def load(self) -> Checkpoint | None:
        """The newest one that is intact and not void. Uses only the object store. Raises NewerVersion."""
        for name in reversed(await self._store.known_names()):
            if await self._starts_object(name.position) is not False:
                state = await self._store.get(name)
                if state is not None:
                    content = zstandard.ZstdDecompressor().decompress(
                        state.content, max_output_size=state.size
                    )
                    return Checkpoint(name.position, content)
        return None

    async def positions(self) -> list[int]:
        """The positions of the valid checkpoints, in rising order."""
        return [name.position for name in reversed(await self._valid(await self._store.names()))]

    async def covered(self) -> int:
        """Every kept checkpoint holds all before this position; 0 while there are fewer checkpoints than are kept."""
        kept = await self.positions()
        return kept[0] if len(kept) == self._keep else 0

    async def _valid(self, listed: list[CheckpointName]) -> list[CheckpointName]:
        """The newest that no later commit can make void: newest first, one a position."""
        found: list[CheckpointName] = []
        for name in reversed(listed):
            if found and found[-1].position == name.position:
                continue
            if await self._starts_object(name.position):
                found.append(name)
                if len(found) == self._keep:
                    break
        return found

"""Maintenance of a shared log: one broker seals, checkpoints and deletes objects for all brokers.

The other brokers learn of it, and drop what sealed objects hold from memory. The maintaining broker may change at any
time, even in the middle: sealing an object twice stores the same bytes, and a checkpoint is valid wherever it is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mainstem import events, limits
from mainstem.errors import Closed, MainstemError
from mainstem.log.host import LogHost
from mainstem.log.objects.finished_objects import FinishedObjects
from mainstem.log.read.index import ExtentIndex
from mainstem.ports.commitlog.port import LogObject, Overtaken, SharedCommitLog

# Checkpoint interval of a shared log whose objects wait only for a checkpoint to be deleted.
CHECKPOINT_HURRIED_S = 300.0
REPLAYED_COMMIT_BYTES = 32 * limits.KIB  # bytes that a commit of a shared log counts as: each is a request
UPKEEP_EVERY_S = 5.0  # maintenance interval of a shared log: seal, checkpoint, delete objects …
UPKEEP_QUIET_S = 20.0  # … and while no object is sealed

_log = events.named("maintenance")


class LogMaintenance:
    """Runs on every broker, but only the one that maintains the log changes anything."""

    def __init__(
        self,
        host: LogHost,
        port: SharedCommitLog,
        index: ExtentIndex,
        finished: FinishedObjects,
        save_at: Callable[[int], Awaitable[None]] | None,
        *,
        checkpoint_every_bytes: int,
    ) -> None:
        self._host = host
        self._port = port
        self._index = index
        self._finished = finished
        self._save_at = save_at  # stores a checkpoint of the state at a position
        self._every_bytes = checkpoint_every_bytes
        self._rounds = 0
        self._hurried_at = asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Run until cancelled or the log is closed."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(UPKEEP_EVERY_S)
            if not self._index.unsealed() and loop.time() - last < UPKEEP_QUIET_S:
                continue  # no object is complete: other work can wait, and each listing costs requests
            last = loop.time()
            try:
                await self.round()
            except Closed:
                return
            except (MainstemError, FileNotFoundError) as error:
                _log.warning("maintenance failed", error=str(error))

    async def round(self) -> None:
        await self._port.refresh()
        self._learn()
        if not self._host.maintains():
            return
        await self._seal()
        self._rounds += 1
        if not self._rounds % _ORPHANS_EVERY_ROUNDS:
            await self._port.collect_orphans()
        kept = await self._port.checkpoints()
        hurried = self._checkpoint_is_due_early()
        position = self.due_boundary(kept[-1] if kept else 0, 1 if hurried else self._every_bytes)
        if position is not None and self._save_at is not None:
            await self._save_at(position)
            kept = await self._port.checkpoints()
            self._hurried_at = asyncio.get_running_loop().time()
        elif hurried:
            await self._port.roll()  # a checkpoint needs an object boundary
        await self._finished.collect_behind(kept)

    def _checkpoint_is_due_early(self) -> bool:
        """Whether to make a checkpoint although little was written. A quiet log would otherwise keep paying for objects
        that retention has released."""
        waited_s = asyncio.get_running_loop().time() - self._hurried_at
        return self._finished.held_up > 0 and waited_s >= CHECKPOINT_HURRIED_S

    def _learn(self) -> None:
        """Learn which objects other brokers sealed and deleted."""
        listed = {one.number: one for one in self._port.objects()}
        for extents in self._index.unsealed():
            known = listed.get(extents.number)
            if known is not None and known.sealed:
                self._index.mark_sealed(extents.number)
        for number in self._index.sealed_numbers():
            if number not in listed:
                self._index.drop(number)

    async def _seal(self) -> None:
        for extents in self._index.unsealed():
            try:
                await self._port.seal(extents.number, await asyncio.to_thread(extents.encode))
            except Overtaken:
                return  # another broker appended to it: the next round sees that
            self._index.mark_sealed(extents.number)

    def due_boundary(self, at: int, every_bytes: int) -> int | None:
        """Where the next checkpoint after position `at` is due: the end of contiguous sealed objects. None: not due."""
        size = 0
        for one in self.following_sealed():
            if one.first_position > at:
                break
            if one.end_position > at:
                at = one.end_position
                size += one.size_bytes + (one.end_position - one.first_position) * REPLAYED_COMMIT_BYTES
        return at if size >= every_bytes else None

    def following_sealed(self) -> list[LogObject]:
        return [one for one in self._port.objects() if one.sealed and self._index.indexed(one.number)]


_ORPHANS_EVERY_ROUNDS = 360  # orphans are rare, and finding them lists every object

"""Finished objects: they are sealed, a checkpoint is made at the end of some, and they go when nothing needs them.

Objects of a shared log are sealed and checkpointed by one broker for all (maintenance.py), and go by the same rule.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from mainstem import limits
from mainstem.ledger.ledger import Ledger
from mainstem.log.background import Background
from mainstem.log.host import LogHost
from mainstem.log.objects.checkpoints import Checkpointer, InlineCheckpointer
from mainstem.log.objects.dead_spans import all_dead
from mainstem.log.objects.repack.repacker import Repacker
from mainstem.log.objects.tiering import Tiering
from mainstem.log.read.extents import SealedExtents
from mainstem.log.read.index import ExtentIndex
from mainstem.log.recovery import RecoveredLog
from mainstem.ports.commitlog.port import CommitLog


class FinishedObjects:
    def __init__(
        self,
        host: LogHost,
        port: CommitLog,
        recovered: RecoveredLog,
        checkpoints: Checkpointer,
        background: Background,
        *,
        checkpoint_every_bytes: int,
    ) -> None:
        self._host = host
        self._port = port
        self._ledger: Ledger = recovered.ledger
        self._index: ExtentIndex = recovered.index
        self._checkpoints = checkpoints
        self._background = background
        self._every_bytes = checkpoint_every_bytes
        self.repacker: Repacker | None = None
        self.tiering: Tiering | None = None  # of a local log whose older objects go to an object store
        # Positions of the newest checkpoints, any of which may be started from.
        self._kept = deque([recovered.checkpoint_position], maxlen=limits.CHECKPOINTS_KEPT)
        self._checkpoint_pending = False
        self._checkpoint_due_at = -recovered.replayed_bytes
        self.held_up = 0  # objects that nothing needs but a replay from the oldest checkpoint
        self._sealing = asyncio.Lock()
        self._collecting = asyncio.Lock()

    @property
    def replayable_from(self) -> int:
        """Replay may have to start at the oldest checkpoint kept, should the newer ones be damaged."""
        return self._kept[0] if len(self._kept) == limits.CHECKPOINTS_KEPT else 0

    # Sealing

    def add(self, extents: SealedExtents) -> None:
        """An object takes no more commits. Runs while the ledger stands at the boundary between two objects."""
        written = self._host.written_bytes - self._checkpoint_due_at
        # One at a time: a checkpoint waits for its object's seal, and must not take in a later object's end.
        due = not self._checkpoint_pending and written >= self._every_bytes
        if due:
            self._checkpoint_pending = True
            self._checkpoint_due_at = self._host.written_bytes
            self._checkpoints.reached(self._ledger)
        self.seal(extents, then_checkpoint=due)

    @property
    def checkpoint_pending(self) -> bool:
        return self._checkpoint_pending

    def hurry(self) -> None:
        """Make a checkpoint at the end of the open object, however little was written."""
        self._checkpoint_due_at = self._host.written_bytes - self._every_bytes

    def seal(self, extents: SealedExtents, *, then_checkpoint: bool = False) -> None:
        """Soon, and before the log closes."""
        self._background.start(self._seal(extents, then_checkpoint=then_checkpoint), needed=True)

    async def _seal(self, extents: SealedExtents, *, then_checkpoint: bool) -> None:
        try:
            async with self._sealing:
                # Also those that could not be sealed because the disk was full: a checkpoint covers sealed objects
                # only.
                for unsealed in self._index.unsealed_to(extents.number):
                    await self._port.seal(unsealed.number, await asyncio.to_thread(unsealed.encode))
                    self._index.mark_sealed(unsealed.number)
            if self.repacker is not None:
                self.repacker.wake()
        except BaseException:
            self._checkpoint_pending &= not then_checkpoint
            raise
        self._wake_tiering()
        if then_checkpoint:
            self._background.start(self._checkpoint())

    async def _checkpoint(self) -> None:
        try:
            self._kept.append(await self._checkpoints.save())
        finally:
            self._checkpoint_pending = False
        await self.collect()
        self._wake_tiering()

    async def leave_checkpoint(self) -> None:
        """As the last thing, once nothing is written any more."""
        if all(object.sealed for object in self._port.objects()):  # what a checkpoint covers is not replayed
            final = InlineCheckpointer(self._port)
            final.reached(self._ledger)
            self._kept.append(await final.save())
            await self.collect()

    def _wake_tiering(self) -> None:
        if self.tiering is not None:
            self.tiering.wake()

    # Going

    async def collect_behind(self, checkpoints: Sequence[int]) -> int:
        """As `collect`, where these are the checkpoints there are."""
        self._kept.clear()
        self._kept.extend(checkpoints)
        return await self.collect()

    async def collect(self) -> int:
        """Delete objects that nothing needs: every record trimmed, and not needed for replay."""
        if not self._host.maintains():
            return 0
        replayable_from = self.replayable_from
        self._ledger.aliases.prune(self._ledger.generations.frontier)
        async with self._collecting:
            sealed = [object for object in self._port.objects() if object.sealed]
            ends = {object.number: object.end_position for object in sealed}
            frontier = self._ledger.repacked.frontier
            replayed = {number for number, end in ends.items() if end <= replayable_from}
            dead = self._index.dead_objects(lambda spans: all_dead(self._ledger, spans))
            useless = {*dead, *(number for number in ends if number < frontier)} - replayed
            self.held_up = sum(object.number in useless for object in sealed if object.size_bytes)
            dead = [number for number in dead if number in replayed]
            if self.tiering is not None:
                dead = await self.tiering.leave(dead)
            for number in dead:
                self._index.drop(number)
                await self._port.drop(number)
            repacked = sorted(number for number in replayed if number < frontier)
            if repacked and self.repacker is not None:
                repacked = self.repacker.may_go(repacked)
                if self.tiering is not None:
                    repacked = await self.tiering.leave(repacked)
                await self._host.sync()  # that files stand for them must be so after a crash as well
                for number in repacked:
                    await self._port.drop(number)
            return len(dead) + len(repacked)

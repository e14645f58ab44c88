"""Remove every byte of deleted records of some streams from the files of the log: one step after another.

1. Seal the open object, if it may hold such records.
2. Repack the log's objects and rewrite repacked files without the records (repack/erasing.py).
3. Drop the old objects. A checkpoint must cover them first, and current readers get their time.
4. Delete the old repacked files and the copies of objects in an object store.

Each step looks at what there is, so that the work resumes wherever a process stopped.
"""

from __future__ import annotations

from collections.abc import Sequence

from mainstem.ledger.compactions import FinishCompaction
from mainstem.ledger.ledger import Ledger
from mainstem.log.host import LogHost
from mainstem.log.objects.finished_objects import FinishedObjects
from mainstem.log.read.tail import TailCache
from mainstem.ports.commitlog.port import CommitLog, LogObject


class LogErasure:
    """Erases records of these streams from the log's objects up to the number `through`."""

    def __init__(
        self,
        host: LogHost,
        port: CommitLog,
        ledger: Ledger,
        finished: FinishedObjects,
        tail: TailCache,
        streams: Sequence[int],
        through: int,
    ) -> None:
        self._host = host
        self._port = port
        self._ledger = ledger
        self._finished = finished
        self._tail = tail
        self._streams = streams
        self._through = through
        self._clean: dict[int, int] = {}  # repacked files without the records → slices that cannot be decoded
        self._replaced: set[str] | None = None  # keys of repacked files that may hold the records
        self.rewritten = 0  # rounds, in this process

    @property
    def opaque_slices(self) -> int:
        """Slices among the records that could not be decoded, and were not rewritten."""
        return sum(self._clean.get(number, 0) for number in self._ledger.repacked.numbers())

    async def step(self) -> str:
        """Go on. Returns what it waits for, or nothing once no file has the records any more."""
        repacker = self._finished.repacker
        if repacker is None:
            return "the log has no object store for repacked files"
        if repacker.waits():
            return "files of the log are missing: restore them, or accept the loss"
        if any(not one.sealed for one in self._old_objects()):
            if self._port.objects()[-1].number <= self._through:
                await self._roll()
            return "the newest file of the log is being sealed"
        while await repacker.erase(self._streams, self._through, self._clean):
            self.rewritten += 1
        if self._replaced is None:
            self._replaced = set(self._ledger.repacked.garbage())
        return await self._drop_objects() or await self._drop_files()

    async def _drop_objects(self) -> str:
        old = self._old_objects()
        if old and self._finished.replayable_from < old[-1].end_position:
            if not self._finished.checkpoint_pending:
                self._finished.hurry()
                await self._roll()
            return "a checkpoint must cover the old files of the log"
        await self._host.collect()
        if self._old_objects():
            return "current readers may still use the old files of the log"
        self._tail.drop_to(self._through)
        return ""

    async def _drop_files(self) -> str:
        repacker, tiering = self._finished.repacker, self._finished.tiering
        if self._host.store_copies:
            return "a backup is being made"
        if repacker is not None:
            await repacker.clean()
        if self._replaced is not None and not self._replaced.isdisjoint(self._ledger.repacked.garbage()):
            return "current readers may still use the old repacked files"
        if repacker is not None and await repacker.has_orphans():
            return "repacked files that were never published must be deleted: a restart deletes them"
        if any(tier.object <= self._through for tier in self._ledger.tiers):
            if tiering is not None:
                tiering.wake()
            return "current readers may still use the copies of old files in the object store"
        return ""

    def _old_objects(self) -> list[LogObject]:
        return [one for one in self._port.objects() if one.number <= self._through]

    async def _roll(self) -> None:
        await self._port.roll()
        await self._host.propose(FinishCompaction(0, ()))  # a commit of the next object ends this one

"""The writer: the one worker whose process has the files open. It orders, writes and syncs the commits of all workers.

What is published is durable: one sync covers everything that was written while the sync before it ran.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from mainstem import events
from mainstem.errors import Closed, MainstemError, NoSpace, ReadOnly, TooLarge
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.port import Buffer, Committed, Placement

OBJECT_COMMITS_MAX = 1 << 18  # commits in one file, which bounds the memory for the index of an open one

_log = events.named("writer")


class PendingCommit:
    """A commit that waits to be written."""

    __slots__ = ("abandoned", "crc", "done", "entry", "slices")

    def __init__(
        self, entry: Buffer, slices: Sequence[Buffer], crc: int | None, done: asyncio.Future[Placement]
    ) -> None:
        self.entry = entry
        self.slices = slices
        self.crc = crc
        self.done = done
        self.abandoned = False  # its follower is gone: do not write it


class CommitPublisher(Protocol):
    def publish(self, commits: list[Committed]) -> None:
        """Make durable commits known, in order, before those who sent them are answered."""
        ...


class HostWriter:
    """Owned by one event loop."""

    def __init__(self, log: LocalCommitLog, publisher: CommitPublisher) -> None:
        self.log = log
        self._publisher = publisher
        self._queue: deque[PendingCommit] = deque()
        self._unsynced: deque[tuple[PendingCommit, Placement]] = deque()
        self._writable = asyncio.Event()
        self._syncable = asyncio.Event()
        self._idle = asyncio.Event()  # everything that was submitted is settled
        self._idle.set()
        self._refusal: MainstemError | None = None
        self._in_object = 0
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(work, name="mainstem-host-writer") for work in (self._write(), self._sync())
        ]

    def submit(self, entry: Buffer, slices: Sequence[Buffer], crc: int | None) -> PendingCommit:
        """Queue a commit; `done` resolves once it is durable. Raises NoSpace, TooLarge (not written) or ReadOnly there.

        The slices must not change until then."""
        pending = PendingCommit(entry, slices, crc, asyncio.get_running_loop().create_future())
        if self._refusal is not None:
            pending.done.set_exception(self._refusal)
            return pending
        self._queue.append(pending)
        self._idle.clear()
        self._writable.set()
        return pending

    async def settled(self) -> None:
        """Wait until everything that was submitted so far is durable or refused."""
        await self._idle.wait()

    async def close(self) -> None:
        """Refuse new commits, and finish those that were submitted."""
        self._refusal = self._refusal or Closed("the log is closed")
        await self._idle.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        while True:
            await self._writable.wait()
            self._writable.clear()
            while self._queue:
                pending = self._queue[0]  # stays in the queue while it is written, for `_settle`
                if not pending.abandoned:
                    await self._write_one(pending)
                self._queue.popleft()
            self._settle()

    async def _write_one(self, pending: PendingCommit) -> None:
        try:
            if self._in_object >= OBJECT_COMMITS_MAX:
                await self.log.roll()
                self._in_object = 0
            placement = await self.log.append(pending.entry, pending.slices, pending.crc)
        except (NoSpace, TooLarge) as error:
            _fail(pending, error)
        except Exception as error:  # noqa: BLE001 - what was written is unknown: nothing more is
            self._stop(error)
            _fail(pending, self._refusal or error)
        else:
            self._in_object += 1
            self._unsynced.append((pending, placement))
            self._syncable.set()

    async def _sync(self) -> None:
        while True:
            await self._syncable.wait()
            self._syncable.clear()
            if not self._unsynced:
                continue
            try:
                synced = await self._sync_written()
            except Exception as error:  # noqa: BLE001 - a failed sync is final, whatever its kind
                self._stop(error)
                while self._unsynced:
                    _fail(self._unsynced.popleft()[0], self._refusal or error)
            else:
                self._publish_below(synced)
                if self._unsynced:
                    self._syncable.set()
            self._settle()

    async def _sync_written(self) -> int:
        if not self._queue and len(self._unsynced) == 1 and self.log.syncs_now():
            self.log.sync_now(self._unsynced[0][1].position)  # a lone commit: cheaper than a thread
            return self.log.synced
        return await self.log.sync()

    def _publish_below(self, synced: int) -> None:
        durable: list[tuple[PendingCommit, Placement]] = []
        while self._unsynced and self._unsynced[0][1].position < synced:
            durable.append(self._unsynced.popleft())
        self._publisher.publish(
            [
                Committed(placement, bytes(one.entry), sum(map(len, one.slices)), payload_intact=True)
                for one, placement in durable
            ]
        )
        for one, placement in durable:
            if not one.done.done():
                one.done.set_result(placement)

    def _stop(self, error: Exception) -> None:
        """Write nothing more, but keep the lock: another process could not tell what is durable."""
        if self._refusal is None or isinstance(self._refusal, Closed):
            _log.error("writing stopped", error=repr(error))
            self._refusal = (
                error if isinstance(error, ReadOnly) else ReadOnly(f"writing to the log failed: {error!r}")
            )

    def _settle(self) -> None:
        if not self._queue and not self._unsynced:
            self._idle.set()


def _fail(pending: PendingCommit, error: Exception) -> None:
    if not pending.done.done():
        pending.done.set_exception(error)
        pending.done.exception()  # its follower may be gone

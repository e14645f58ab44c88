"""Following: apply other brokers' commits to a shared log in log order, between this broker's own commits.

A commit is applied only at the ledger's next position, and applying never yields to the loop, so no lock is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mainstem import events
from mainstem.errors import Closed, NoSpace, OutcomeUnknown, ReadOnly, Stale, Unavailable, invariant
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.index import ExtentIndex
from mainstem.log.write.delivery import Delivery
from mainstem.ports.commitlog.port import Buffer, Committed, Overtaken, Placement, SharedCommitLog

FOLLOW_RETRY_S = 0.5  # between two attempts to read other brokers' commits while the store is unavailable …
FOLLOW_TOLD_S = 10.0  # … which is logged this often

_log = events.named("following")


class Follower:
    def __init__(
        self,
        port: SharedCommitLog,
        ledger: Ledger,
        index: ExtentIndex,
        delivery: Delivery,
        finish_object: Callable[[], None],
    ) -> None:
        self._port = port
        self._ledger = ledger
        self._index = index
        self._delivery = delivery
        self._finish_object = finish_object
        # The whole entry being appended: two entries for the same position differ in little else.
        self._in_flight: bytes | None = None
        self._moved = asyncio.Event()
        self._barrier: asyncio.Task[None] | None = None
        self._next_barrier: asyncio.Task[None] | None = None

    @property
    def inline_bytes(self) -> int:
        """A payload up to this size needs no upload."""
        return self._port.inline_bytes

    async def prepare(
        self, encoded: bytes, slices: Sequence[Buffer], *, by_reference: bool = False
    ) -> object:
        """Upload a commit's large payloads ahead of its turn."""
        return await self._port.prepare(encoded, slices, by_reference=by_reference)

    async def append(self, encoded: bytes, slices: Sequence[Buffer], prepared: object = None) -> Placement:
        """Write a commit. On return everything before it is applied, and the caller applies it at once.

        Raises OutcomeUnknown; or Unavailable or TooLarge, if it was not written and never will be."""
        self._in_flight = encoded
        try:
            while True:
                try:
                    placement = await self._port.append(encoded, slices, prepared)
                except Overtaken as others:
                    # The port may be ahead of the ledger: earlier commits could not be read at the time.
                    await self._reach(others.commits[0].placement.position)
                    self._apply(others.commits)
                except (Stale, Closed, NoSpace, ReadOnly):
                    raise  # it was not written, and never will be; or nothing more is, and what was will be found
                except Unavailable as error:
                    raise OutcomeUnknown(f"whether this was written is unknown: {error}") from error
                else:
                    await self._reach_written(placement.position)
                    return placement
        finally:
            self._in_flight = None
            self._moved.set()  # in any case others may apply it now

    async def _reach_written(self, position: int) -> None:
        """Apply everything before a commit of this broker. If that fails, the commit is in the log nevertheless."""
        try:
            await self._reach(position)
        except Unavailable as error:
            raise OutcomeUnknown(f"the commit was written, but its outcome is unknown: {error}") from error

    def applied(self) -> None:
        """The ledger applied a commit of this broker."""
        self._moved.set()

    async def run(self) -> None:
        """Apply other brokers' commits as they arrive, until cancelled. Raises StorageError, which is final."""
        told_at = -FOLLOW_TOLD_S
        while True:
            try:
                await self._run()
            except Closed:
                return
            except Unavailable as error:
                if (now := asyncio.get_running_loop().time()) - told_at >= FOLLOW_TOLD_S:
                    told_at = now
                    _log.warning("commits of other brokers not readable", error=str(error))
            await asyncio.sleep(FOLLOW_RETRY_S)

    async def _run(self) -> None:
        async for commits in self._port.follow(self._ledger.position, wait=True):
            left = commits
            while left := left[self._apply(left) :]:
                # This broker is appending the next commit, and completes its callers when it applies it.
                self._moved.clear()
                await self._moved.wait()

    async def barrier(self) -> None:
        """Wait until everything is applied that any broker had committed before this call.

        Calls during a running barrier share the next one, which reads the tail after all of them."""
        if self._next_barrier is None:
            self._next_barrier = asyncio.ensure_future(self._pass_barrier(self._barrier))
        await asyncio.shield(self._next_barrier)

    async def _pass_barrier(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._barrier, self._next_barrier = self._next_barrier, None
        await self._reach(await self._port.tail())

    async def reached(self, position: int) -> None:
        """Wait until the commit before `position` is applied."""
        while self._ledger.position < position:
            self._moved.clear()
            await self._moved.wait()

    async def rejoin(self) -> None:
        """Read up to the tail again, after the port lost it."""
        await self._port.rejoin()
        await self.catch_up()

    async def catch_up(self) -> None:
        """Apply what can be read now."""
        async for commits in self._port.follow(self._ledger.position):
            if self._apply(commits) < len(commits):
                return

    async def _reach(self, position: int) -> None:
        while self._ledger.position < position:
            stopped = False
            async for commits in self._port.follow(self._ledger.position):
                stopped = self._apply(commits) < len(commits)
                if stopped or self._ledger.position >= position:
                    break
            if stopped and self._ledger.position < position:
                # This broker's own commit is next: its response is on the way.
                self._moved.clear()
                await self._moved.wait()

    def _apply(self, commits: list[Committed]) -> int:
        """Apply the next commits; stop before the one this broker is appending. Returns how many were applied."""
        for number, commit in enumerate(commits):
            position = commit.placement.position
            if position < self._ledger.position:
                continue
            invariant(position == self._ledger.position, "others' commits come without a gap")
            if commit.entry == self._in_flight:  # which names this broker
                return number
            entry = Entry.decode(commit.entry)
            placement = commit.placement
            if self._index.open_number not in (None, placement.object):
                self._finish_object()
            self._index.open_object(placement.object)
            self._delivery.observe(entry, placement, self._ledger.apply(entry))
            self._moved.set()
        return len(commits)

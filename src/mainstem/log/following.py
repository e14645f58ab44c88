"""Following: what other brokers commit to a shared log, applied in log order between this broker's own commits.

Own commits and others' are applied by whoever holds the next position, so nothing is locked: a commit is applied only
when it is the one the ledger waits for, and applying never gives up the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mainstem.errors import invariant
from mainstem.ledger.entry import Entry
from mainstem.ledger.ledger import Ledger
from mainstem.log.delivery import Delivery
from mainstem.log.index import ExtentIndex
from mainstem.ports.commitlog.port import Buffer, Committed, Overtaken, Placement, SharedCommitLog


class Following:
    def __init__(
        self,
        port: SharedCommitLog,
        ledger: Ledger,
        index: ExtentIndex,
        delivery: Delivery,
        broker: int,
        finish_object: Callable[[], None],
    ) -> None:
        self._port = port
        self._ledger = ledger
        self._index = index
        self._delivery = delivery
        self._broker = broker
        self._finish_object = finish_object
        self._in_flight: tuple[int, int] | None = None  # epoch and commit id of what is being appended
        self._moved = asyncio.Event()

    async def append(self, entry: Entry, slices: Sequence[Buffer]) -> Placement:
        """Write a commit. When this returns everything before it is applied, and the caller applies it at once."""
        encoded = entry.encode()
        self._in_flight = (entry.broker_epoch, entry.commit_id)
        try:
            while True:
                try:
                    placement = await self._port.append(encoded, slices)
                except Overtaken as others:
                    self._apply(others.commits)
                else:
                    await self._reach(placement.position)
                    return placement
        finally:
            self._in_flight = None

    def applied(self) -> None:
        """The ledger went on by a commit of this broker."""
        self._moved.set()

    async def run(self) -> None:
        """Apply others' commits as they come, until cancelled."""
        async for commits in self._port.follow(self._ledger.position, wait=True):
            left = commits
            while left := left[self._apply(left) :]:
                # What comes next is being appended by this broker, which answers its callers when it applies it.
                self._moved.clear()
                await self._moved.wait()

    async def barrier(self) -> None:
        """Wait until all is applied that anybody had committed when this was called."""
        await self._reach(await self._port.tail())

    async def catch_up(self) -> None:
        """Apply what can be read now."""
        async for commits in self._port.follow(self._ledger.position):
            self._apply(commits)

    async def _reach(self, position: int) -> None:
        while self._ledger.position < position:
            before = self._ledger.position
            async for commits in self._port.follow(before):
                self._apply(commits)
                if self._ledger.position >= position:
                    return
            if self._ledger.position == before:
                # This broker's own commit is the next: its answer is on the way.
                self._moved.clear()
                await self._moved.wait()

    def _apply(self, commits: list[Committed]) -> int:
        """Apply what the ledger waits for; stop before what this broker is appending. Returns how many are done."""
        for number, commit in enumerate(commits):
            position = commit.placement.position
            if position < self._ledger.position:
                continue
            invariant(position == self._ledger.position, "others' commits come without a gap")
            entry = Entry.decode(commit.entry)
            if entry.broker == self._broker and (entry.broker_epoch, entry.commit_id) == self._in_flight:
                return number
            placement = commit.placement
            if self._index.open_number not in (None, placement.object):
                self._finish_object()
            self._index.open_object(placement.object)
            self._delivery.observe(entry, placement, self._ledger.apply(entry))
            self._moved.set()
        return len(commits)

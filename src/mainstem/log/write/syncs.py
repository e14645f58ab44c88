"""Sync the log, then complete callers and publish what readers may see only once it is durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from mainstem.errors import MainstemError, ReadOnly
from mainstem.ledger.streams import RaiseCeilings
from mainstem.ledger.transactions import Marked
from mainstem.log.read.visibility import Visibility
from mainstem.log.write.append import Placed, Waiter
from mainstem.log.write.commit_metrics import CommitMetrics
from mainstem.ports.clock import Clock
from mainstem.ports.commitlog.port import CommitLog


class Syncs:
    """One sync at a time; work that arrives meanwhile waits for the next one."""

    def __init__(
        self,
        port: CommitLog,
        on_failure: Callable[[ReadOnly], None],
        clock: Clock,
        commit_metrics: CommitMetrics,
    ) -> None:
        self._port = port
        self._on_failure = on_failure
        self._clock = clock
        self._commit_metrics = commit_metrics
        self._began = 0.0  # when the sync that `_start` started did
        self.waiting: deque[tuple[int, WhenSynced]] = deque()  # for a sync; only this class changes it
        self._wanted = asyncio.Event()
        self._syncing = False
        # Start no sync before `release`: more is about to be written, which one sync covers.
        self.held = False
        self.deferred = False  # the committing thread also syncs

    def covers(self, position: int) -> bool:
        """Whether the commit at `position` is durable, and nothing before it waits to be published."""
        return not self.waiting and position < self._port.synced

    def after(self, position: int, action: WhenSynced) -> None:
        """Run `action` once the commit at `position` is durable. Positions must rise."""
        if self.covers(position):
            action()  # it was synced as it was written
        else:
            self.waiting.append((position, action))
            if not self.deferred and not self.held and not self._wanted.is_set():
                self._wanted.set()

    def release(self) -> None:
        """Sync what waits, without waking the task where the log can do so. On the event loop."""
        self.held = False
        if self.waiting and not self._syncing and not self._wanted.is_set():
            self._start()

    def _start(self) -> None:
        self._began = self._clock.monotonic()
        try:
            self._syncing = self._port.sync_soon(self._ended)
        except Exception as error:  # noqa: BLE001 - final, as in `run`
            self.failed(error)
            return
        if not self._syncing:
            self._wanted.set()

    def _ended(self, synced: int, error: Exception | None) -> None:
        """A sync that `_start` started is over."""
        self._syncing = False
        if error is not None:
            self.failed(error)
            return
        self._commit_metrics.synced(self._clock.monotonic() - self._began)
        self._run_actions(synced)
        if self.waiting and not self._wanted.is_set():
            self._start()

    def publish(self) -> None:
        """Run the actions of everything that is durable."""
        self._run_actions(self._port.synced)

    def want(self) -> None:
        """Wake `run` to sync."""
        self._wanted.set()

    def failed(self, error: Exception) -> None:
        """A sync failed, which is final."""
        refusal = error if isinstance(error, ReadOnly) else ReadOnly(f"fsync failed: {error!r}")
        self._on_failure(refusal)
        self.fail(refusal)

    async def all_written(self) -> None:
        """Wait until everything written so far is durable."""
        if self._port.end == self._port.synced and not self.waiting:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.after(self._port.end - 1, AnswerCaller(waiter, None))
        await waiter

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            self._run_actions(self._port.synced)
            if not self.waiting or self._syncing:
                continue
            began = self._clock.monotonic()
            self._syncing = True
            try:
                synced = await self._port.sync()
            except Exception as error:  # noqa: BLE001 - a failed fsync is final, whatever its kind
                self.failed(error)
                continue
            finally:
                self._syncing = False
            self._commit_metrics.synced(self._clock.monotonic() - began)
            self._run_actions(synced)
            if self.waiting:
                self._wanted.set()

    def _run_actions(self, synced: int) -> None:
        while self.waiting and self.waiting[0][0] < synced:
            self.waiting.popleft()[1]()

    def fail(self, error: MainstemError) -> None:
        """Fail everything that waits: it will never be durable."""
        while self.waiting:
            self.waiting.popleft()[1].fail(error)


class WhenSynced(Protocol):
    """What to do once a commit is durable."""

    def __call__(self) -> None: ...

    def fail(self, error: MainstemError) -> None:
        """The sync failed: the commit will never be durable."""
        ...


class AnswerCaller:
    """Completes a caller."""

    __slots__ = ("value", "waiter")

    def __init__(self, waiter: asyncio.Future[Any], value: Any) -> None:
        self.waiter = waiter
        self.value = value

    def __call__(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(self.value)

    def fail(self, error: MainstemError) -> None:
        if not self.waiter.done():
            self.waiter.set_exception(error)


class PublishAppends:
    """Publishes appends to readers, and completes their callers."""

    __slots__ = ("_answers", "_ends", "_visibility")

    def __init__(
        self,
        visibility: Visibility,
        ends: dict[int, int],
        answers: list[tuple[Waiter, Placed]],
    ) -> None:
        self._visibility = visibility
        self._ends = ends
        self._answers = answers

    def __call__(self) -> None:
        for stream, end in self._ends.items():
            self._visibility.publish(stream, end)
        for waiter, placed in self._answers:
            if not waiter.done():
                waiter.set_result(placed)

    def fail(self, error: MainstemError) -> None:
        for waiter, _ in self._answers:
            if not waiter.done():
                waiter.set_exception(error)


class PublishTransactionEnds:
    """Publishes the ends of transactions."""

    __slots__ = ("_marked", "_visibility")

    def __init__(self, visibility: Visibility, marked: tuple[Marked, ...]) -> None:
        self._visibility = visibility
        self._marked = marked
        for stream, first, _ in marked:
            if first >= 0:
                visibility.ending(stream, first)

    def __call__(self) -> None:
        for stream, first, marker in self._marked:
            self._visibility.ended(stream, first, marker + 1)

    def fail(self, error: MainstemError) -> None:
        """The transactions stay open to readers: their ends may be lost."""


class PublishRaisedCeilings:
    __slots__ = ("command", "visibility")

    def __init__(self, visibility: Visibility, command: RaiseCeilings) -> None:
        self.visibility = visibility
        self.command = command

    def __call__(self) -> None:
        for stream, ceiling in self.command.ceilings:
            self.visibility.raise_ceiling(stream, ceiling)

    def fail(self, error: MainstemError) -> None:
        """Nothing waits for a ceiling itself."""

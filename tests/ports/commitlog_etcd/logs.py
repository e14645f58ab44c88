"""What the tests of the commit log in etcd share."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

import pytest

from mainstem.ports.commitlog.port import Overtaken, Placement
from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, put
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog, EtcdOptions
from mainstem.ports.objectstore.port import ObjectStore
from tests.support.etcd import EtcdCluster
from tests.support.memory_store import MemoryObjectStore

_numbers = itertools.count()


class Ground:
    """One log, that any number of brokers open."""

    def __init__(
        self,
        cluster: EtcdCluster,
        store: ObjectStore | None = None,
        *,
        retry_s: float = 30.0,
        call_s: float = 5.0,
    ) -> None:
        self.cluster = cluster
        self.store = store or MemoryObjectStore()
        self.options = EtcdOptions(cluster.endpoints, retry_s=retry_s, call_s=call_s)
        self.prefix = f"test-{next(_numbers)}/"
        self._opened: list[EtcdCommitLog] = []

    async def open(self, broker: str | None = "b", **options: Any) -> EtcdCommitLog:
        options.setdefault("object_bytes", 4096)
        options.setdefault("positions_tried", 1)  # so that a writer hears of others before it writes
        log = await EtcdCommitLog.open(self.options, self.store, broker=broker, prefix=self.prefix, **options)
        self._opened.append(log)
        return log

    @property
    def keys(self) -> EtcdKeys:
        return EtcdKeys.under(self.prefix)

    async def put(self, client: EtcdClient, pairs: dict[bytes, bytes]) -> None:
        """Behind the log's back."""
        await client.txn([], [put(key, value) for key, value in pairs.items()])

    async def close(self) -> None:
        for log in self._opened:
            await log.close()


class Tail:
    """Follows a log in a task and notes what it sees."""

    def __init__(self, log: EtcdCommitLog, position: int) -> None:
        self.seen: list[tuple[int, bytes]] = []
        self._log = log
        self._at = position
        self._moved = asyncio.Condition()
        self._task = asyncio.ensure_future(self._follow())

    async def __aenter__(self) -> Tail:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def reaches(self, position: int) -> None:
        """Until all before the position was seen."""
        arrived = asyncio.ensure_future(self._arrive(position))
        await asyncio.wait([arrived, self._task], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        if not arrived.done():
            arrived.cancel()
            self.result()
            raise TimeoutError(f"the follower is at {self._at}, not yet at {position}")

    def ended(self) -> bool:
        return self._task.done()

    def result(self) -> None:
        if self._task.done():
            self._task.result()

    async def _arrive(self, position: int) -> None:
        async with self._moved:
            await self._moved.wait_for(lambda: self._at >= position)

    async def _follow(self) -> None:
        async for chunk in self._log.follow(self._at, wait=True):
            async with self._moved:
                self.seen += [(commit.placement.position, bytes(commit.entry)) for commit in chunk]
                self._at = self.seen[-1][0] + 1
                self._moved.notify_all()


def etcd_log_opener(request: pytest.FixtureRequest) -> Callable[[], Awaitable[EtcdCommitLog]]:
    """Opens the same log each time."""
    return Ground(request.getfixturevalue("etcd")).open


async def append_after_all(log: EtcdCommitLog, entry: bytes, slices: Sequence[bytes]) -> Placement:
    """Append, after whatever others were first with."""
    while True:
        try:
            return await log.append(entry, slices)
        except Overtaken:
            continue


async def stored_keys(store: ObjectStore) -> list[str]:
    return [stored.key async for stored in store.list()]

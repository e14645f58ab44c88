"""A broker in the test's own process, whose tables are published from a thread, by a clock that stands still."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from pyiceberg.table import StaticTable

from mainstem.api.lake import PlanRequest, TableCommitRequest, TableWorkPage, TaskKind
from mainstem.broker.broker import Broker
from mainstem.ledger.streams import DeleteRecords
from mainstem.tables.garbage import LAKE_GARBAGE_GRACE_MS
from mainstem.tables.parts.materialise import materialise
from mainstem.tables.publishing.publisher import Publisher, PublishReport
from tests.support.clock import ManualClock

T = TypeVar("T")


class Inside:
    """A broker in this process, published from a thread, by a clock that stands still until told."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self._loop = asyncio.get_running_loop()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def settle_tables(self) -> None:
        self._call(self.broker.topic_tables.maintain())

    def tables(self) -> TableWorkPage:
        return self._call(self._tables())

    async def _tables(self) -> TableWorkPage:
        return self.broker.topic_tables.works()

    def commit_tables(self, commits: Sequence[TableCommitRequest]) -> list[Any]:
        return self._call(self.broker.topic_tables.commit_all(commits))

    async def work(self, *kinds: TaskKind) -> int:
        plan = await self.broker.lake.plan(PlanRequest("tests", kinds=kinds))
        for task in plan.tasks:
            await self.broker.lake.publish(await asyncio.to_thread(materialise, task))
        return len(plan.tasks)

    async def publish(self) -> PublishReport:
        return await asyncio.to_thread(Publisher(self, now_ms=self.clock.now_ms).run)

    async def collect(self) -> int:
        """What is garbage is noted, stays for its grace, and is collected."""
        before = await self.broker.lake.collect()
        self.clock.advance(LAKE_GARBAGE_GRACE_MS)
        return before.files + (await self.broker.lake.collect()).files

    async def snapshots(self) -> dict[int, list[int]]:
        """What each snapshot reads as, all of its files being there."""
        table = self.broker.log.ledger.tables.get("default", "t")
        assert table is not None
        return await asyncio.to_thread(_read, table.location)

    def files(self) -> set[str]:
        folder = self.broker.options.data_dir / "objects" / "parts"
        return {str(path) for path in folder.rglob("*.parquet")}


def _read(location: str) -> dict[int, list[int]]:
    table = StaticTable.from_metadata(location)
    found = {}
    for number, snapshot in enumerate(table.metadata.snapshots):
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        found[number] = sorted(json.loads(row["_value"]) for row in rows)
    return found


async def append(broker: Broker, *values: int) -> None:
    await broker.append_values("t", [b"%d" % value for value in values])


async def rewritten(inside: Inside, offset: int) -> None:
    """Delete a record, and rewrite its part."""
    stream = inside.broker.topic("t").streams[0]
    await inside.broker.log.propose(DeleteRecords(stream, ((offset, offset + 1),)))
    assert await inside.work("rewrite") >= 1

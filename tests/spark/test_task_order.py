"""Tasks of a round begin with the largest, and what became of them is told in the order they were given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.spark.jobs import SparkRunner

Worker = Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class OneByOne:
    """A session as far as tasks need one: does the places of a range in order, and notes what each of them gave."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._places = 0

    def range(self, start: int, end: int, step: int, *, numPartitions: int) -> OneByOne:
        assert (start, end, step, numPartitions) == (0, end, 1, end)
        self._places = end
        return self

    def mapInArrow(self, worker: Worker, schema: str) -> OneByOne:
        for place in range(self._places):
            for batch in worker(iter([pa.record_batch({"id": [place]})])):
                self.rows += [tuple(row.values()) for row in batch.to_pylist()]
        return self

    def collect(self) -> list[tuple[Any, ...]]:
        return self.rows


async def test_the_largest_tasks_begin_first(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", lake_topics="all"))
    sizes = {"a": 300, "b": 20_000, "c": 10, "d": 5_000}
    for name, size in sizes.items():
        await broker.create_topic(name)
        await broker.append_values(name, [b"." * size])
    tasks = (await broker.lake.plan(PlanRequest("test"))).tasks
    session: Any = OneByOne()
    outcomes = SparkRunner(session)(tasks)
    await broker.close()
    assert sorted(task.topic for task in tasks) == sorted(sizes)
    begun = [tasks[row[0]].topic for row in session.rows]
    assert begun == sorted(sizes, key=lambda name: -sizes[name])
    assert [outcome.task for outcome in outcomes] == list(tasks)
    assert [outcome.error for outcome in outcomes] == [""] * len(tasks)

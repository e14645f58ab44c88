"""The largest tasks start first, and their results are returned in the given order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.spark.driver.jobs import SparkRunner, run_task

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


class Deadly(OneByOne):
    """A session whose job fails if one task is in it, as when that task kills its workers."""

    def __init__(self, poisoned: bytes) -> None:
        super().__init__()
        self.jobs = 0
        self._poisoned = poisoned
        self.sparkContext = MagicMock()
        self.sparkContext._jsc.sc().isStopped.return_value = False

    def mapInArrow(self, worker: Any, schema: str) -> OneByOne:
        self.jobs += 1
        self.rows = []
        if any(self._poisoned in encoded for _, encoded in worker._tasks):
            raise OSError("Python worker exited unexpectedly (crashed)")
        return super().mapInArrow(worker, schema)


async def test_a_task_that_kills_its_workers_fails_alone(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", lake_topics="all"))
    for name in ("a", "poisoned", "z"):
        await broker.create_topic(name)
        await broker.append_values(name, [b"."])
    tasks = (await broker.lake.plan(PlanRequest("test"))).tasks
    session: Any = Deadly(b"poisoned")
    outcomes = SparkRunner(session)(tasks)
    assert [(outcome.task.topic, bool(outcome.error)) for outcome in outcomes] == [
        ("a", False),
        ("poisoned", True),
        ("z", False),
    ]
    assert "crashed" in outcomes[1].error
    assert session.jobs == 4
    runner = SparkRunner(session)
    runner.cancel()
    assert all(outcome.error for outcome in runner(tasks))  # a driver that ends begins nothing again
    assert session.jobs == 5
    await broker.close()


def test_a_task_that_is_no_task_is_a_failure_of_its_own() -> None:
    done = run_task(b"\xc1")
    assert done.publication is None
    assert "DecodeError" in (done.error or "")

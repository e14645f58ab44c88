"""How tasks are distributed: the largest first, small ones together, and results in the given order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyarrow as pa

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.spark.driver.jobs import LAKE_BIN_BYTES, SparkRunner, bins, run_task

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


async def test_many_small_topics_are_one_job_with_few_tasks(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", lake_topics="all"))
    for number in range(100):
        await broker.create_topic(f"t{number}")
        await broker.append_values(f"t{number}", [b"1", b"2", b"3"])
    await broker.create_topic("large")
    for _ in range(36):
        await broker.append_values("large", [b"." * 900_000])
    tasks = (await broker.lake.plan(PlanRequest("test", tasks_max=1000))).tasks
    groups = bins(tasks, LAKE_BIN_BYTES)
    await broker.close()
    assert len(tasks) == 101
    assert tasks[groups[0][0]].topic == "large"
    assert sorted(number for group in groups for number in group) == list(range(101))
    assert len(groups) == 3


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
        if any(self._poisoned in encoded for group in worker.groups for _, encoded in group):
            raise OSError("Python worker exited unexpectedly (crashed)")
        return super().mapInArrow(worker, schema)


async def test_a_task_that_kills_its_workers_fails_alone(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data", lake_topics="all"))
    names = [
        *(f"a{number:02}" for number in range(15)),
        "poisoned",
        *(f"z{number:02}" for number in range(16)),
    ]
    for name in names:
        await broker.create_topic(name)
        await broker.append_values(name, [b"."])
    tasks = (await broker.lake.plan(PlanRequest("test", tasks_max=100))).tasks
    session: Any = Deadly(b"poisoned")
    outcomes = SparkRunner(session)(tasks)
    assert [(outcome.task.topic, bool(outcome.error)) for outcome in outcomes] == [
        (name, name == "poisoned") for name in names
    ]
    assert "crashed" in outcomes[15].error
    assert session.jobs == 11  # halves of 32 tasks, not one job a task
    runner = SparkRunner(session)
    runner.cancel()
    assert all(outcome.error for outcome in runner(tasks))  # a driver that ends begins nothing again
    assert session.jobs == 12
    await broker.close()


def test_a_task_that_is_no_task_is_a_failure_of_its_own() -> None:
    done = run_task(b"\xc1")
    assert done.publication is None
    assert "DecodeError" in (done.error or "")

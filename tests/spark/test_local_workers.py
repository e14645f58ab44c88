"""Small passes run in processes of the driver, larger ones and those that kill a worker on Spark."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import psutil
import pytest

from mainstem.api.lake import Task
from mainstem.client.broker import BrokerClient
from mainstem.spark.driver.driver import Driver, DriverOptions
from mainstem.spark.driver.jobs import TaskOutcome
from mainstem.spark.driver.local_workers import LocalWorkers
from mainstem.spark.driver.progress import JsonProgress
from mainstem.tables.publishing.publisher import publish_tables
from mainstem.testing.server import ServerProcess
from tests.support.driver import done_here

from .conftest import Broker

TOPICS = 70  # more than one call publishes


class OnSpark:
    """Notes what would run on Spark."""

    def __init__(self) -> None:
        self.passes: list[list[str]] = []

    def __call__(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        self.passes.append([task.topic for task in tasks])
        return done_here(tasks)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with ServerProcess(tmp_path_factory.mktemp("lake") / "data", "--text", "off") as process:
        found = Broker(process)
        with found.client:
            for number in range(TOPICS):
                found.create(f"t{number}")
                found.ask("PUT", f"/v0/topics/t{number}/table", {"enabled": True})
            yield found


def _rows(lake: Broker) -> list[Any]:
    """The records that each table shows."""
    topics = [f"t{number}" for number in range(TOPICS)]
    return [lake.ask("GET", f"/v0/topics/{topic}/table")["records"] for topic in topics]


def test_many_small_topics_are_published_without_a_job_and_a_dead_worker_costs_nothing(lake: Broker) -> None:
    spark = OnSpark()
    with BrokerClient(lake.url) as broker:
        workers = LocalWorkers(spark, broker, max_bytes=1 << 20)
        publish = partial(publish_tables, publish_chunk=workers.publish_chunk)
        progress = JsonProgress(io.StringIO())
        driver = Driver(broker, workers, DriverOptions(holder="test"), progress, publish_tables=publish)
        try:
            for number in range(TOPICS):
                lake.write(f"t{number}", b"1", b"2", b"3")
            assert driver.run_once().tasks == TOPICS
            assert spark.passes == []
            assert _rows(lake) == [3] * TOPICS
            assert lake.ask("GET", "/v0/lake/status")["tasks"] == []  # no lease is left

            for process in psutil.Process().children():
                if any("spawn_main" in part for part in process.cmdline()):
                    process.kill()
            for number in range(TOPICS):
                lake.write(f"t{number}", b"4")
            driver.run_once()
            assert _rows(lake) == [4] * TOPICS

            done = len(spark.passes)
            for _ in range(2):
                lake.write("t0", *(b"." * 10_000 for _ in range(90)))
            driver.run_once()
            assert spark.passes[done:] == [["t0"]]
        finally:
            workers.close()

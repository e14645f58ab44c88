"""The lake's driver with its tasks done in this process instead of on Spark: for tests that need tables, not a JVM."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec

from mainstem.api.lake import Publication, Task
from mainstem.client.broker import BrokerClient
from mainstem.spark.driver.driver import Driver, DriverOptions
from mainstem.spark.driver.jobs import TaskOutcome, run_task
from mainstem.spark.driver.progress import JsonProgress
from mainstem.tables.publishing.publisher import publish_tables


def done_here(tasks: Sequence[Task]) -> list[TaskOutcome]:
    """What Spark would do."""
    outcomes = []
    for task in tasks:
        done = run_task(msgspec.msgpack.encode(task))
        made = (
            None if done.publication is None else msgspec.msgpack.decode(done.publication, type=Publication)
        )
        outcomes.append(TaskOutcome(task, made, done.error or "", done.seconds, done.damaged_at))
    return outcomes


def lake_pass(url: str) -> None:
    """One pass over all that is due: records into files, files into tables. Raises MainstemError."""
    with BrokerClient(url) as broker:
        options = DriverOptions(holder="lake-pass")
        driver = Driver(
            broker, done_here, options, JsonProgress(io.StringIO()), publish_tables=publish_tables
        )
        driver.run_once()

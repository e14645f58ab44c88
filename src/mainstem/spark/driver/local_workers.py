"""Worker processes of the driver. They run small passes, which take less time than the start of a Spark job, and they
publish tables if there are many.

A worker may be killed by the records of a task. Spark then runs the tasks and finds out which one it is.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing.connection import wait
from typing import TypeVar

import msgspec

from mainstem import limits
from mainstem.api.lake import TableWork, Task
from mainstem.client.broker import BrokerClient
from mainstem.errors import Unreachable
from mainstem.spark.driver.jobs import TaskOutcome, TaskResult, bins, outcome, run_task, source_bytes
from mainstem.tables.publishing.publisher import Publisher, TableOutcome

LAKE_LOCAL_BYTES = 32 * limits.MIB  # a pass that reads less needs no Spark job
LAKE_LOCAL_WORKERS = 2  # processes of a driver that run such passes …
LAKE_LOCAL_BIN_BYTES = 4 * limits.MIB  # … and what each takes at a time

T = TypeVar("T")
RunTasks = Callable[[Sequence[Task]], list[TaskOutcome]]


class LocalWorkers:
    """Runs a pass of few bytes in its own processes, and passes a larger one to `spark`."""

    def __init__(self, spark: RunTasks, broker: BrokerClient, *, max_bytes: int = LAKE_LOCAL_BYTES) -> None:
        self._spark = spark
        self._broker = broker
        self._max_bytes = max_bytes
        self._pool: ProcessPoolExecutor | None = None
        self._starting = threading.Lock()  # several threads publish tables

    def start(self) -> None:
        """Start the workers, which takes seconds, in the background."""
        for _ in range(LAKE_LOCAL_WORKERS):
            self._submit(_run, [])

    def close(self) -> None:
        """Stop the workers after their tasks."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def publish_chunk(self, works: Sequence[TableWork]) -> list[TableOutcome]:
        """Publish tables in a worker. Raises Unreachable."""
        try:
            outcomes, reason = self._submit(_publish_chunk, self._broker.url, list(works)).result()
        except BrokenProcessPool:
            self._pool = None
            return Publisher(self._broker).publish_chunk(works)
        if reason:
            raise Unreachable(self._broker.url, reason)
        return outcomes

    def __call__(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """The outcome of each task, in order. Raises SparkLost."""
        if sum(map(source_bytes, tasks)) > self._max_bytes:
            return self._spark(tasks)
        outcomes: dict[int, TaskOutcome] = {}
        unknown: list[int] = []
        groups = bins(tasks, LAKE_LOCAL_BIN_BYTES)
        futures = [
            self._submit(_run, [msgspec.msgpack.encode(tasks[number]) for number in numbers])
            for numbers in groups
        ]
        for numbers, future in zip(groups, futures, strict=True):
            try:
                for number, result in zip(numbers, future.result(), strict=True):
                    outcomes[number] = outcome(tasks[number], result)
            except BrokenProcessPool:
                unknown += numbers
        if unknown:
            self._pool = None
            for number, found in zip(unknown, self._spark([tasks[at] for at in unknown]), strict=True):
                outcomes[number] = found
        return [outcomes[number] for number in range(len(tasks))]

    def _submit(self, work: Callable[..., T], *arguments: object) -> Future[T]:
        with self._starting:
            if self._pool is None:
                # Not forked: the JVM's threads would leave locks behind that nobody releases.
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(LAKE_LOCAL_WORKERS, context, _prepare)
            pool = self._pool
        try:
            return pool.submit(work, *arguments)
        except BrokenProcessPool as broken:
            failed: Future[T] = Future()
            failed.set_exception(broken)
            return failed


def _prepare() -> None:
    """Import what tasks need, and exit with the driver, however it ends."""
    import mainstem.tables.parts.materialise  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the driver, which waits for its workers
    parent = multiprocessing.parent_process()
    if parent is not None:
        sentinel = parent.sentinel
        threading.Thread(target=lambda: (wait([sentinel]), os._exit(1)), daemon=True).start()


@cache
def _broker(url: str) -> BrokerClient:
    return BrokerClient(url)


def _publish_chunk(url: str, works: list[TableWork]) -> tuple[list[TableOutcome], str]:
    """The outcomes, and why the broker did not respond: exceptions of ours cannot be sent to another process."""
    try:
        return Publisher(_broker(url)).publish_chunk(works), ""
    except Unreachable as error:
        return [], error.reason


def _run(encoded: list[bytes]) -> list[TaskResult]:
    return [run_task(task) for task in encoded]

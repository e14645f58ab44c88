"""Run tasks on Spark: one job, one partition for as many tasks as make up enough bytes. Workers return publications,
not rows."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from mainstem import limits
from mainstem.api.lake import Publication, Task
from mainstem.errors import SliceDamaged, described
from mainstem.log.read.extents import EXTENT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

LAKE_BIN_BYTES = 32 * limits.MIB  # that one Spark task reads, unless one range has more
LAKE_RANGE_BYTES = 512 * limits.KIB  # a small range takes as long as this many bytes of a large one

_RESULT = "number long, publication binary, error string, seconds double, damaged_at long"


class TaskOutcome(NamedTuple):
    """The result of one task."""

    task: Task
    publication: Publication | None
    error: str  # if there is no publication
    seconds: float
    damaged_at: int | None = None  # first offset of damaged stored bytes, if the task found some


class SparkLost(Exception):
    """The JVM ended, and the session with it. Only a new process can start another."""


class SparkRunner:
    """Runs tasks in parallel in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._busy = False
        self._cancelled = False

    def __call__(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """The outcome of each task, in order. A failed task does not stop the others.

        Raises SparkLost. If workers die more often than Spark retries, each half of the tasks runs in its own job, and
        so on, until the task is found that kills the workers."""
        self._busy = True
        try:
            return self._run_or_isolate(tasks)
        finally:
            self._busy = False

    def _run_or_isolate(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        started = time.monotonic()
        try:
            return self._run(tasks)
        except Exception as error:  # py4j and PySpark have their own exception classes
            if not self._alive():
                raise SparkLost(_first_line(error)) from error
            if len(tasks) > 1 and not self._cancelled:
                half = len(tasks) // 2
                return self._run_or_isolate(tasks[:half]) + self._run_or_isolate(tasks[half:])
            seconds = time.monotonic() - started
            return [TaskOutcome(task, None, f"Spark: {_first_line(error)}", seconds) for task in tasks]

    def cancel(self) -> None:
        """Cancel the jobs of a call on another thread, if there is one.

        Call it repeatedly: it does not cancel a job that Spark has not started yet."""
        self._cancelled = True
        if self._busy and self._alive():
            self._spark.sparkContext.cancelAllJobs()

    def _run(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        groups = [
            [(number, msgspec.msgpack.encode(tasks[number])) for number in numbers]
            for numbers in bins(tasks, LAKE_BIN_BYTES)
        ]
        # Spark distributes row numbers, one a partition; the tasks are in the function that it sends to workers.
        rows = self._spark.range(0, len(groups), 1, numPartitions=len(groups))
        results = rows.mapInArrow(_Worker(groups), _RESULT).collect()
        ordered = sorted(results, key=lambda row: row[0])
        return [outcome(tasks[number], TaskResult(*result)) for number, *result in ordered]

    def _alive(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - a JVM that does not respond is dead
            return False


def source_bytes(task: Task) -> int:
    """Bytes of the log and of parts that a task reads."""
    sources = task.sources
    wal_bytes = sum(int(np.frombuffer(extents.rows, EXTENT)["length"].sum()) for extents in sources.wal)
    return wal_bytes + sum(part.bytes for part in sources.parts)


def bins(tasks: Sequence[Task], bin_bytes: int) -> list[list[int]]:
    """The numbers of the tasks in groups of about as many bytes. The largest come first, so that none runs long after
    the others."""
    sizes = [source_bytes(task) for task in tasks]
    groups: list[list[int]] = []
    room = 0
    for number in sorted(range(len(tasks)), key=lambda number: sizes[number], reverse=True):
        cost = sizes[number] + LAKE_RANGE_BYTES
        if not groups or cost > room:
            groups.append([])
            room = bin_bytes
        groups[-1].append(number)
        room -= cost
    return groups


def outcome(task: Task, result: TaskResult) -> TaskOutcome:
    made = result.publication
    publication = None if made is None else msgspec.msgpack.decode(bytes(made), type=Publication)
    return TaskOutcome(task, publication, result.error or "", result.seconds, result.damaged_at)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500] if lines else '(no message)'}"


class _Worker:
    """Runs in a Spark Python worker: row numbers in, task results out."""

    def __init__(self, groups: list[list[tuple[int, bytes]]]) -> None:
        self.groups = groups  # of tasks, with their numbers in the caller's order

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            tasks = [task for row in batch.column(0).to_pylist() for task in self.groups[row]]
            for number, encoded in tasks:
                result = run_task(encoded)
                _freeze_loaded_modules()
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([number], pa.int64()),
                        "publication": pa.array([result.publication], pa.binary()),
                        "error": pa.array([result.error], pa.string()),
                        "seconds": pa.array([result.seconds], pa.float64()),
                        "damaged_at": pa.array([result.damaged_at], pa.int64()),
                    }
                )


@cache
def _freeze_loaded_modules() -> None:
    """Exempt the loaded modules from garbage collection, which Spark runs in its workers after every task: a collection
    over them takes as long as writing a hundred thousand records."""
    gc.collect()
    gc.freeze()


class TaskResult(NamedTuple):
    """The result of a task as a worker returns it."""

    publication: bytes | None
    error: str | None
    seconds: float
    damaged_at: int | None = None


def run_task(encoded: bytes) -> TaskResult:
    """Run one task in this process."""
    from mainstem.tables.parts.materialise import materialise

    started = time.monotonic()
    try:
        task = msgspec.msgpack.decode(encoded, type=Task)
        publication = msgspec.msgpack.encode(materialise(task))
    except Exception as error:  # noqa: BLE001 - any error is the failure of this task
        damaged_at = error.start if isinstance(error, SliceDamaged) else None
        return TaskResult(None, described(error), time.monotonic() - started, damaged_at)
    return TaskResult(publication, None, time.monotonic() - started)

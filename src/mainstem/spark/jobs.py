"""Tasks on Spark: one job, a worker a task; only what to publish comes back."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np

from mainstem.broker.plans import Publication, Task
from mainstem.errors import SliceDamaged, described
from mainstem.log.extents import EXTENT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_RESULT = "number long, publication binary, error string, seconds double, damaged_at long"


class TaskOutcome(NamedTuple):
    """What became of one task."""

    task: Task
    publication: Publication | None
    error: str  # why there is none
    seconds: float
    damaged_at: int | None = None  # the offset at which stored bytes were found damaged


class SparkLost(Exception):
    """The JVM is gone, and with it the session: only a new process gets another."""


class SparkRunner:
    """Does tasks side by side in one session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._busy = False
        self._cancelled = False

    def __call__(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        """What became of each task, in their order. One that fails says why, and the others go on.

        Raises SparkLost. If workers die more often than Spark tries, each task gets a job of its own: maybe one of
        them is what kills the workers."""
        self._busy = True
        try:
            return self._together(tasks)
        finally:
            self._busy = False

    def _together(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        started = time.monotonic()
        try:
            return self._run(tasks)
        except Exception as error:  # py4j and PySpark raise kinds of their own
            if not self._alive():
                raise SparkLost(_first_line(error)) from error
            if len(tasks) > 1 and not self._cancelled:
                return [outcome for task in tasks for outcome in self._together([task])]
            seconds = time.monotonic() - started
            return [TaskOutcome(task, None, f"Spark: {_first_line(error)}", seconds) for task in tasks]

    def cancel(self) -> None:
        """Have a call that runs on another thread fail, if there is one.

        To be repeated: a job that Spark is only about to start is not cancelled."""
        self._cancelled = True
        if self._busy and self._alive():
            self._spark.sparkContext.cancelAllJobs()

    def _run(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        # The largest begin first, so that none is still under way long after the others.
        order = sorted(range(len(tasks)), key=lambda number: _source_bytes(tasks[number]), reverse=True)
        encoded = [(number, msgspec.msgpack.encode(tasks[number])) for number in order]
        # Spark spreads places in that order, one a partition; what they stand for travels with the function.
        places = self._spark.range(0, len(tasks), 1, numPartitions=len(tasks))
        results = places.mapInArrow(_Worker(encoded), _RESULT)
        return [
            TaskOutcome(
                tasks[number],
                None if made is None else msgspec.msgpack.decode(bytes(made), type=Publication),
                error or "",
                seconds,
                damaged_at,
            )
            for number, made, error, seconds, damaged_at in sorted(results.collect(), key=lambda row: row[0])
        ]

    def _alive(self) -> bool:
        try:
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - a JVM that does not answer is dead
            return False


def _source_bytes(task: Task) -> int:
    """How much of the log and of parts a task reads."""
    sources = task.sources
    logged = sum(int(np.frombuffer(extents.rows, EXTENT)["length"].sum()) for extents in sources.wal)
    return logged + sum(part.bytes for part in sources.parts)


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:500] if lines else 'no more was said'}"


class _Worker:
    """Runs in a Python worker of Spark: places of tasks in, what they made out."""

    def __init__(self, tasks: list[tuple[int, bytes]]) -> None:
        self._tasks = tasks  # each with its number

    def __call__(self, places: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in places:
            for place in batch.column(0).to_pylist():
                number, encoded = self._tasks[place]
                done = run_task(encoded)
                _freeze_loaded_modules()
                yield pa.RecordBatch.from_pydict(
                    {
                        "number": pa.array([number], pa.int64()),
                        "publication": pa.array([done.publication], pa.binary()),
                        "error": pa.array([done.error], pa.string()),
                        "seconds": pa.array([done.seconds], pa.float64()),
                        "damaged_at": pa.array([done.damaged_at], pa.int64()),
                    }
                )


@cache
def _freeze_loaded_modules() -> None:
    """Exempt the modules that a first task loaded from the search for garbage, which Spark has its workers do after
    every task: it takes as long as writing a hundred thousand records."""
    gc.collect()
    gc.freeze()


class TaskResult(NamedTuple):
    """What a worker sends back of a task."""

    publication: bytes | None
    error: str | None
    seconds: float
    damaged_at: int | None = None


def run_task(encoded: bytes) -> TaskResult:
    """Do one task, in this process."""
    from mainstem.lake.materialise import materialise

    started = time.monotonic()
    try:
        task = msgspec.msgpack.decode(encoded, type=Task)
        publication = msgspec.msgpack.encode(materialise(task))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this task's own failure
        damaged_at = error.start if isinstance(error, SliceDamaged) else None
        return TaskResult(None, described(error), time.monotonic() - started, damaged_at)
    return TaskResult(publication, None, time.monotonic() - started)

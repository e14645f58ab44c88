"""Materialise a task: read its sources, write Parquet files, return the parts. Does not use Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from mainstem import limits
from mainstem.api.lake import Part, Publication, Task
from mainstem.errors import Unavailable
from mainstem.records.rows import days, only_day
from mainstem.tables.columns import decode_columns
from mainstem.tables.parts.compaction import Compaction
from mainstem.tables.parts.day_files import DayFiles
from mainstem.tables.parts.outputs import Outputs, open_outputs
from mainstem.tables.parts.source_rows import source_rows
from mainstem.tables.parts.typed_columns import with_columns

if TYPE_CHECKING:
    import pyarrow as pa

LAKE_PART_BYTES = 1 * limits.GIB  # rows in memory for one part; a task with more makes several parts
LAKE_DAYS_PER_TASK_MAX = 2_000  # a task whose records span more days ends early


def materialise(task: Task, outputs: Outputs | None = None) -> Publication:
    """Write the task's files and return the parts to publish. Deletes the files of a task that fails.

    A task may end early: what it wrote is a part, and the broker plans the rest as a new task. Raises LogDamaged with
    the offsets, NotFound if a source object is missing, Unavailable."""
    sources = task.sources
    if sources.unreachable:
        first, last = sources.unreachable[0]
        raise Unavailable(f"topic {task.topic!r}: offsets [{first}, {last}) are not in an object yet")
    compaction = _prepare_compaction(task)
    columns = decode_columns(task.schema)
    writer = _PartWriter(task, outputs or open_outputs(sources.store))
    removed = 0
    end = sources.end
    undecodable: list[tuple[int, int]] = []
    try:
        for rows in _rows(task, undecodable):
            kept = rows if compaction is None else compaction.keep(rows)
            removed += rows.num_rows - kept.num_rows
            if not kept.num_rows:
                continue
            stopped_at = writer.add(with_columns(kept, columns))
            if stopped_at is not None:
                end = stopped_at
                break
        parts = writer.finish(end)
    except BaseException:
        writer.discard()
        raise
    replaced = tuple((part.base, part.end, part.generation) for part in sources.parts)
    passed = tuple(found for found in undecodable if found[0] < end)
    return Publication(task.stream, task.token, replaced, parts, removed, passed)


def _prepare_compaction(task: Task) -> Compaction | None:
    """Run the first of a compaction's two passes, which collects the keys; None for another kind of task."""
    if task.kind != "compact":
        return None
    compaction = Compaction(task.compact_before_ms, task.tombstones_before_ms)
    for rows in _rows(task, []):
        compaction.add_keys(rows)
    return compaction


def _rows(task: Task, undecodable: list[tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    return source_rows(task.sources, task.topic, task.partition, undecodable=undecodable)


class _PartWriter:
    """Writes rows, in offset order, as parts: data files by day, and a new part once the current one is large."""

    def __init__(self, task: Task, outputs: Outputs) -> None:
        self._task = task
        self._outputs = outputs
        self._base = task.sources.base
        self._bytes = 0
        self._parts: list[Part] = []
        self._files = self._new_files()
        self._started = [self._files]

    def add(self, rows: pa.RecordBatch) -> int | None:
        """Add rows. If they span too many days for one task, adds only the first and returns the next offset."""
        taken = self._within_days(rows)
        if taken.num_rows:
            self._files.add(taken)
            self._bytes += taken.nbytes
        if taken.num_rows < rows.num_rows:
            return int(rows.column("_offset")[taken.num_rows].as_py())
        if self._bytes >= LAKE_PART_BYTES:
            self._cut(int(rows.column("_offset")[-1].as_py()) + 1)
        return None

    def finish(self, end: int) -> tuple[Part, ...]:
        """The parts, which cover the task's range up to `end`. Their files are durable."""
        if self._base < end:
            self._cut(end)
        return tuple(self._parts)

    def discard(self) -> None:
        """Delete every file created so far."""
        for files in self._started:
            files.discard()

    def _cut(self, end: int) -> None:
        files = self._files.finish()
        records = sum(file.records for file in files)
        self._parts.append(Part(self._base, end, self._task.generation, files, records))
        self._base, self._bytes = end, 0
        self._files = self._new_files()
        self._started.append(self._files)

    def _new_files(self) -> DayFiles:
        task = self._task
        return DayFiles(self._outputs, task.prefix, topic_id=task.topic_id, partition=task.partition)

    def _within_days(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The first of the rows, up to the limit of days in one task.

        Producers choose timestamps; without a limit, a task could write one file a record. A task that reads parts
        has no more days than those parts."""
        if self._task.kind != "materialise":
            return rows
        day = only_day(rows)
        if day is not None and day in self._files.days:
            return rows
        earlier = np.array(sorted(self._files.days), np.int64)
        found, first_at = np.unique(days(rows), return_index=True)
        new_days = np.sort(first_at[~np.isin(found, earlier)])
        allowed = max(LAKE_DAYS_PER_TASK_MAX - len(earlier), 0)
        return rows if len(new_days) <= allowed else rows.slice(0, int(new_days[allowed]))

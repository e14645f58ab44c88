"""Write rows as parts: data files by day, and a new part when the current one is large enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mainstem import limits
from mainstem.api.lake import Part, Task
from mainstem.records.rows import days, only_day
from mainstem.tables.parts.day_files import DayFiles
from mainstem.tables.parts.outputs import Outputs

if TYPE_CHECKING:
    import pyarrow as pa


class PartWriter:
    """Takes the rows of a task in offset order."""

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
        if self._bytes >= limits.LAKE_PART_BYTES:
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
        allowed = max(limits.LAKE_DAYS_PER_TASK_MAX - len(earlier), 0)
        return rows if len(new_days) <= allowed else rows.slice(0, int(new_days[allowed]))

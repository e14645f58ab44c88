"""Write rows to Parquet files by UTC day, in bounded memory for any number of days."""

from __future__ import annotations

import contextlib
import secrets
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, TYPE_CHECKING

import numpy as np

from mainstem import limits
from mainstem.api.lake import DataFile
from mainstem.records.parquet import RowFileWriter, stored_schema
from mainstem.records.rows import days, only_day, times_ms
from mainstem.tables.parts.outputs import Outputs

if TYPE_CHECKING:
    import pyarrow as pa

# rows in memory; what a reader decompresses at once and a writer buffers
PARQUET_ROW_GROUP_BYTES = 64 * limits.MIB
PARQUET_ROW_GROUP_ROWS_MAX = 1_000_000
LAKE_FILES_OPEN_MAX = 64  # files that a task has open; each day has its own


@dataclass(slots=True)
class _PendingRows:
    """Rows of one day that wait for a full row group."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes

    @property
    def full(self) -> bool:
        return self.bytes >= PARQUET_ROW_GROUP_BYTES or self.rows >= PARQUET_ROW_GROUP_ROWS_MAX


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written."""

    key: str
    sink: IO[bytes]
    writer: RowFileWriter
    latest_ms: int = -(1 << 63)


class DayFiles:
    """Takes rows in offset order and writes them to files by day."""

    def __init__(self, outputs: Outputs, prefix: str, *, topic_id: bytes, partition: int) -> None:
        self._outputs = outputs
        # A retry of the task must not write to the files of the first attempt, which may still run.
        separator = "" if prefix.endswith(("-", "/")) else "-"
        self._prefix = f"{prefix}{separator}{secrets.token_hex(4)}"
        self._topic_id = topic_id
        self._partition = partition
        self._pending: dict[int, _PendingRows] = {}
        self._pending_bytes = 0
        self._open: dict[int, _OpenFile] = {}  # by day, least recently written first
        self._created_keys: list[str] = []
        self._sealed: list[DataFile] = []

    @property
    def days(self) -> set[int]:
        """The days of all rows so far."""
        return self._pending.keys() | self._open.keys() | {file.day for file in self._sealed}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows. Their offsets are higher than all before."""
        import pyarrow as pa

        day = only_day(rows)
        if day is not None:
            self._add_to(day, rows)
        else:
            row_days = days(rows)
            order = np.argsort(row_days, kind="stable")
            sorted_rows, sorted_days = rows.take(pa.array(order)), row_days[order]
            cuts = (np.flatnonzero(np.diff(sorted_days)) + 1).tolist()
            for first, last in pairwise([0, *cuts, len(order)]):
                self._add_to(int(sorted_days[first]), sorted_rows.slice(first, last - first))
        while self._pending_bytes > 2 * PARQUET_ROW_GROUP_BYTES:
            self._write(max(self._pending, key=lambda day: self._pending[day].bytes))

    def finish(self) -> tuple[DataFile, ...]:
        """Write the pending rows and seal the files. Returns the files, which are durable, by first offset."""
        for day in list(self._pending):
            self._write(day)
            self._seal(day)
        for day in list(self._open):
            self._seal(day)
        return tuple(sorted(self._sealed, key=lambda file: (file.base, file.day)))

    def discard(self) -> None:
        """Delete every file created so far."""
        for file in self._open.values():
            file.writer.abandon()
            _close_discarded(file.sink)
        for key in self._created_keys:
            self._outputs.discard(key)

    def _add_to(self, day: int, rows: pa.RecordBatch) -> None:
        pending = self._pending.setdefault(day, _PendingRows())
        before = pending.bytes
        pending.add(rows)
        self._pending_bytes += pending.bytes - before
        if pending.full:
            self._write(day)

    def _write(self, day: int) -> None:
        """Write a day's pending rows as a row group."""
        import pyarrow as pa

        pending = self._pending.pop(day)
        self._pending_bytes -= pending.bytes
        rows = pa.concat_tables(
            [pa.Table.from_batches([batch]) for batch in pending.batches], promote_options="default"
        )
        file = self._file_for(day, rows)
        file.writer.write(rows)
        file.latest_ms = max(
            file.latest_ms, int(times_ms(rows.column("_timestamp"), rows.column("_timestamp_ms")).max())
        )

    def _file_for(self, day: int, rows: pa.Table) -> _OpenFile:
        """The day's open file, or a new one if that file lacks a column of these rows."""
        file = self._open.pop(day, None)
        schema = stored_schema(rows, file.writer.schema if file else None)
        if file is not None and file.writer.schema.names != schema.names:
            self._open[day] = file
            self._seal(day)
            file = None
        if file is None:
            file = self._create(day, schema)
        self._open[day] = file
        if len(self._open) > LAKE_FILES_OPEN_MAX:
            self._seal(next(iter(self._open)))
        return file

    def _create(self, day: int, schema: pa.Schema) -> _OpenFile:
        key = f"{self._prefix}-{len(self._created_keys)}-{day}.parquet"
        self._created_keys.append(key)
        sink = self._outputs.create(key)
        try:
            writer = RowFileWriter(sink, schema, topic_id=self._topic_id, partition=self._partition)
        except BaseException:
            _close_discarded(sink)
            raise
        return _OpenFile(key, sink, writer)

    def _seal(self, day: int) -> None:
        file = self._open[day]
        writer = file.writer
        writer.close()
        size = self._outputs.seal(file.key, file.sink)
        self._sealed.append(
            DataFile(file.key, day, writer.base, writer.end, writer.records, size, file.latest_ms)
        )
        del self._open[day]


def _close_discarded(sink: IO[bytes]) -> None:
    """Close a file that will be deleted."""
    with contextlib.suppress(OSError):  # on a full disk, flushing the buffer fails too
        sink.close()

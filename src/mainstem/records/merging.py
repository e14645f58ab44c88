"""Rows of several files in one order: files of different days hold offsets of the same range."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


class RowRun(NamedTuple):
    """Rows in offset order, read only once they are needed."""

    base: int  # no row of it is before this offset
    open: Callable[[], Iterator[pa.RecordBatch]]


def merged_rows(runs: Iterable[RowRun]) -> Iterator[pa.RecordBatch]:
    """The rows of all runs in offset order, a few batches of them in memory at a time."""
    waiting = sorted(runs, key=lambda run: run.base, reverse=True)  # the next one last
    reading: list[_RunReader] = []
    while waiting or reading:
        while waiting and (not reading or waiting[-1].base <= min(one.first for one in reading)):
            started = _RunReader(waiting.pop().open())
            if started.advance():
                reading.append(started)
        if not reading:
            continue
        until = min(one.last for one in reading)
        if waiting:
            until = min(until, waiting[-1].base - 1)
        yield _in_order([rows for one in reading if (rows := one.take(until)).num_rows])
        reading = [one for one in reading if one.rows.num_rows or one.advance()]


class _RunReader:
    """A run being read: the rows at hand, and where the others come from."""

    rows: pa.RecordBatch

    def __init__(self, source: Iterator[pa.RecordBatch]) -> None:
        self._source = source

    @property
    def first(self) -> int:
        return int(self.rows.column("_offset")[0].as_py())

    @property
    def last(self) -> int:
        return int(self.rows.column("_offset")[-1].as_py())

    def advance(self) -> bool:
        """Get the next rows. False at the end."""
        for rows in self._source:
            if rows.num_rows:
                self.rows = rows
                return True
        return False

    def take(self, until: int) -> pa.RecordBatch:
        """The rows up to this offset, which are then no longer at hand."""
        count = int(np.searchsorted(self.rows.column("_offset").to_numpy(), until, side="right"))
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken


def _in_order(pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(pieces) == 1:
        return pieces[0]
    # Columns that only some of the files have are null in the rows of the others.
    together = pa.concat_tables(
        [pa.Table.from_batches([piece]) for piece in pieces], promote_options="default"
    )
    joined = together.combine_chunks().to_batches()[0]
    order = np.argsort(joined.column("_offset").to_numpy(), kind="stable")
    return joined.take(pa.array(order))

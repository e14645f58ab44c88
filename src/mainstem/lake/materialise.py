"""Materialise a task: read its sources, write Parquet files, return the parts. Does not use Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mainstem.api.lake import Publication, Task
from mainstem.broker.tables.table_columns import decode_columns
from mainstem.errors import Unavailable
from mainstem.lake.columns import with_columns
from mainstem.lake.compaction import Compaction
from mainstem.lake.objects import source_rows
from mainstem.lake.outputs import Outputs, open_outputs
from mainstem.lake.part_writer import PartWriter

if TYPE_CHECKING:
    import pyarrow as pa


def materialise(task: Task, outputs: Outputs | None = None) -> Publication:
    """Write the task's files and return the parts to publish. Deletes the files of a task that fails.

    A task may end early: what it wrote is a part, and the broker plans the rest as a new task. Raises LogDamaged with
    the offsets, NotFound if a source object is missing, Unavailable."""
    sources = task.sources
    if sources.unreachable:
        first, last = sources.unreachable[0]
        raise Unavailable(f"topic {task.topic!r}: offsets [{first}, {last}) are not in an object yet")
    compaction = _prepare_compaction(task)
    columns = decode_columns(task.schema) if task.schema else []
    writer = PartWriter(task, outputs or open_outputs(sources.store))
    removed = 0
    end = sources.end
    undecodable: list[tuple[int, int]] = []
    try:
        for rows in _rows(task, undecodable):
            kept = rows if compaction is None else compaction.keep(rows)
            removed += rows.num_rows - kept.num_rows
            if not kept.num_rows:
                continue
            stopped_at = writer.add(with_columns(kept, columns) if columns else kept)
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

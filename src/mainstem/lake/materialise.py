"""A task to parts: read its sources, write Parquet files, say what they hold. No Spark in here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mainstem.api.lake import Publication, Task
from mainstem.broker.table_columns import decode_columns
from mainstem.errors import Unavailable
from mainstem.lake.columns import with_columns
from mainstem.lake.compaction import Compaction
from mainstem.lake.objects import source_rows
from mainstem.lake.outputs import Outputs, open_outputs
from mainstem.lake.part_writer import PartWriter

if TYPE_CHECKING:
    import pyarrow as pa


def materialise(task: Task, outputs: Outputs | None = None) -> Publication:
    """Write the task's files and say what to publish. Files of a task that fails are deleted.

    A task may end early; what it did is a part then, and the rest is planned anew. Raises LogDamaged, naming
    the offsets, NotFound if a source is gone, Unavailable."""
    sources = task.sources
    if sources.unreachable:
        first, last = sources.unreachable[0]
        raise Unavailable(f"topic {task.topic!r}: offsets [{first}, {last}) are in no object yet")
    compaction = _seen_by_compaction(task)
    columns = decode_columns(task.schema) if task.schema else []
    writer = PartWriter(task, outputs or open_outputs(sources.store))
    removed = 0
    end = sources.end
    try:
        for rows in _rows(task):
            kept = rows if compaction is None else compaction.kept(rows)
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
    return Publication(task.stream, task.token, replaced, parts, removed)


def _seen_by_compaction(task: Task) -> Compaction | None:
    """Of a compaction, the first of its two passes, in which keys are seen."""
    if task.kind != "compact":
        return None
    compaction = Compaction(task.compact_before_ms, task.tombstones_before_ms)
    for rows in _rows(task):
        compaction.see(rows)
    return compaction


def _rows(task: Task) -> Iterator[pa.RecordBatch]:
    return source_rows(task.sources, task.topic, task.partition)

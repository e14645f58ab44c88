"""The lake's work done in this process, step by step: for tests that look at what comes before, between and after."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pyarrow as pa

from mainstem.api.lake import DataFile, Part, PlanRequest, Publication, Sources, Task, TaskKind
from mainstem.broker.broker import Broker
from mainstem.ledger.generations import name_of
from mainstem.log.read.extents import EXTENT
from mainstem.ports.commitlog.port import CommitLog
from mainstem.records.header import stamp
from mainstem.records.parquet import RowFile, RowFileWriter, stored_schema
from mainstem.records.rows import days, decode_rows, row_schema, times_ms


class Worker:
    """Does what a plan asks for, by the broker's own ports."""

    def __init__(self, broker: Broker, port: CommitLog) -> None:
        self._broker = broker
        self._port = port

    async def run(self, *kinds: TaskKind, topics: tuple[str, ...] = ()) -> list[Task]:
        """Plan, work and publish until nothing is due. Returns what was done."""
        done: list[Task] = []
        while tasks := await self.plan(*kinds, topics=topics):
            for task in tasks:
                await self._broker.lake.publish(await self.work(task))
            done += tasks
        return done

    async def plan(self, *kinds: TaskKind, topics: tuple[str, ...] = ()) -> tuple[Task, ...]:
        asked = kinds or ("materialise", "rewrite", "merge", "compact")
        return (await self._broker.lake.plan(PlanRequest("test", topics, asked))).tasks

    async def work(self, task: Task, *, split_at: Iterable[int] = ()) -> Publication:
        """Make the parts of a task and store their files; `split_at` begins a new part at these offsets."""
        rows = await self.rows(task.sources, task.partition)
        if task.kind == "compact":
            rows = _newest(rows, task.compact_before_ms)
        edges = [task.sources.base, *sorted(split_at), task.sources.end]
        parts = [await self._part(task, rows, base, end) for base, end in pairwise(edges)]
        return Publication(
            task.stream, task.token, tuple(name_of(part) for part in task.sources.parts), tuple(parts)
        )

    async def rows(self, sources: Sources, partition: int) -> pa.Table:
        """The records that sources name, in offset order."""
        batches: list[pa.RecordBatch] = []
        for extents in sources.wal:
            found = re.search(r"(\d+)\.wal$", extents.url)
            number = int(found[1]) if found else -1
            for row in np.frombuffer(extents.rows, EXTENT).tolist():
                base = row[2] + extents.shift
                if any(start <= base and base + row[1] <= end for start, end, _ in sources.lost):
                    continue  # known to be damaged
                slice = self._port.read(number, row[3], row[4])
                stamp(slice, base, 0)
                for rows in decode_rows([slice], partition, timestamp_ms=extents.timestamp_ms):
                    low, high = rows.column("_offset").to_numpy().searchsorted((extents.first, extents.last))
                    batches.append(rows.slice(int(low), int(high - low)))
        for part in sources.parts:
            for file in part.files:
                stored = RowFile(io.BytesIO(await self._broker.objects.get(file.key)))
                batches += stored.rows()
                stored.close()
        rows = pa.Table.from_batches(batches, row_schema()).sort_by("_offset")
        offsets = rows.column("_offset").to_numpy()
        kept = (offsets >= sources.base) & (offsets < sources.end)
        for first, end in (*sources.leave_out, *((lost[0], lost[1]) for lost in sources.lost)):
            kept &= (offsets < first) | (offsets >= end)
        return rows.filter(pa.array(kept))

    async def _part(self, task: Task, rows: pa.Table, base: int, end: int) -> Part:
        offsets = rows.column("_offset").to_numpy()
        rows = rows.filter(pa.array((offsets >= base) & (offsets < end)))
        files = []
        for day in np.unique(days(rows)).tolist():
            files.append(await self._file(task, rows.filter(pa.array(days(rows) == day)), base, day))
        return Part(base, end, task.generation, tuple(files), rows.num_rows)

    async def _file(self, task: Task, rows: pa.Table, base: int, day: int) -> DataFile:
        buffer = io.BytesIO()
        writer = RowFileWriter(buffer, stored_schema(rows), topic_id=task.topic_id, partition=task.partition)
        writer.write(rows.select(writer.schema.names))
        writer.close()
        key = f"{task.prefix}{base}-{day}.parquet"
        await self._broker.objects.put(key, buffer.getvalue())
        exact = rows.column("_timestamp_ms") if "_timestamp_ms" in rows.column_names else None
        latest = int(times_ms(rows.column("_timestamp"), exact).max())
        offsets = rows.column("_offset").to_numpy()
        size = len(buffer.getvalue())
        return DataFile(key, day, int(offsets[0]), int(offsets[-1]) + 1, rows.num_rows, size, latest)


def _newest(rows: pa.Table, before_ms: int) -> pa.Table:
    """Of each key the newest record; records without a key, and young ones, stay."""
    keys = rows.column("_key").to_pylist()
    times = times_ms(rows.column("_timestamp"), None).tolist()
    last = {key: number for number, key in enumerate(keys)}
    kept = [
        key is None or last[key] == number or times[number] >= before_ms for number, key in enumerate(keys)
    ]
    return rows.filter(pa.array(kept))

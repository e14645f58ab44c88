"""The rows of a range of offsets: out of the objects themselves, and through the broker what is not in one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from mainstem import limits
from mainstem.broker.plans import Sources
from mainstem.errors import (
    InvalidConfig,
    LogDamaged,
    NotFound,
    OffsetOutOfRange,
    RecordsLost,
    StoreRefused,
)
from mainstem.lake.objects import source_rows
from mainstem.log.extents import EXTENT
from mainstem.records.rows import decode_rows
from mainstem.spark.broker import FetchedBatches, RemoteBroker
from mainstem.spark.source import losses
from mainstem.spark.source.offsets import PartitionRange
from mainstem.spark.source.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

_PAGE_BYTES = 8 * limits.MIB


class RangeRows:
    """Reads one range, in offset order. Goes on through the broker where an object cannot be read."""

    def __init__(self, broker: RemoteBroker, range: PartitionRange, options: SourceOptions) -> None:
        self._broker = broker
        self._range = range
        self._options = options
        self._at = range.start  # everything before is handed out, or not there
        self._via_broker = options.via_broker or not options.committed_only

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._at < self._range.end:
            before = self._at, self._via_broker
            try:
                yield from self._paged(self._range.end) if self._via_broker else self._from_objects()
            except OffsetOutOfRange as moved:
                self._pass_trimmed(moved)
            except RecordsLost as loss:
                self._pass_loss(loss.start, loss.end, loss.reason)
            if (self._at, self._via_broker) == before:
                # Nothing moved: what is asked for lies past the end, so the topic is not the one it was.
                self._pass_loss(self._at, self._range.end, "the topic ends before them")

    # Objects

    def _from_objects(self) -> Iterator[pa.RecordBatch]:
        one = self._range
        sources = self._broker.sources(one.topic, one.partition, self._at, one.end)
        for start, end, reason in sources.lost:
            self._report(max(start, self._at), min(end, one.end), reason)
        reachable = min((start for start, _ in sources.unreachable), default=sources.end)
        try:
            yield from self._rows_of(_before(sources, reachable))
            self._at = max(self._at, reachable)
        except (NotFound, LogDamaged, InvalidConfig, StoreRefused):
            # Collected or replaced meanwhile, damaged, or in a place this worker does not reach. The broker knows
            # where the records are by now, and names exactly what is lost.
            self._via_broker = True
            return
        if reachable < sources.end:
            yield from self._paged(sources.end)

    def _rows_of(self, sources: Sources) -> Iterator[pa.RecordBatch]:
        for rows in source_rows(sources, self._range.topic, self._range.partition):
            yield rows
            self._at = int(rows.column("_offset")[-1].as_py()) + 1

    # Broker

    def _paged(self, end: int) -> Iterator[pa.RecordBatch]:
        """Batches page by page; the next one is under way while one is decoded."""
        coming = self._fetching(self._at) if self._at < end else None
        while coming is not None:
            page = coming.result()
            coming = None
            if page.next_offset == self._at:
                return
            if page.next_offset < end:
                coming = self._fetching(page.next_offset)
            for rows in decode_rows([page.data], self._range.partition) if page.data else ():
                inside = _within(rows, self._at, end)
                if inside.num_rows:
                    yield inside
                    self._at = int(inside.column("_offset")[-1].as_py()) + 1
            self._at = min(page.next_offset, end)

    def _fetching(self, offset: int) -> Future[FetchedBatches]:
        return self._broker.fetching(
            self._range.topic,
            self._range.partition,
            offset,
            _PAGE_BYTES,
            committed_only=self._options.committed_only,
        )

    # Losses

    def _pass_trimmed(self, moved: OffsetOutOfRange) -> None:
        if moved.start > self._at:
            self._pass_loss(self._at, moved.start, "retention removed them, or somebody deleted them")
        else:
            self._pass_loss(self._at, self._range.end, "the topic ends before them")

    def _pass_loss(self, start: int, end: int, reason: str) -> None:
        end = min(end, self._range.end)
        self._report(max(start, self._at), end, reason)
        self._at = max(self._at, end)

    def _report(self, start: int, end: int, reason: str) -> None:
        if start < end:
            one = self._range
            losses.report(one.topic, one.partition, start, end, reason, fail=self._options.fail_on_data_loss)


def _within(rows: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = rows.column("_offset").to_numpy()
    first, last = (int(at) for at in np.searchsorted(offsets, [start, end]))
    return rows if last - first == len(offsets) else rows.slice(first, last - first)


def _before(sources: Sources, end: int) -> Sources:
    """The sources of what lies before `end`."""
    if end >= sources.end:
        return sources
    wal = []
    for extents in sources.wal:
        rows = np.frombuffer(extents.rows, EXTENT)
        kept = rows[rows["base"] + extents.shift < end]
        if len(kept):
            wal.append(msgspec.structs.replace(extents, rows=kept.tobytes()))
    parts = tuple(part for part in sources.parts if part.base < end)
    return msgspec.structs.replace(sources, end=end, wal=tuple(wal), parts=parts)

"""Read the rows of an offset range from the stored objects, and the rest from the broker."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from mainstem import limits
from mainstem.api.lake import Sources
from mainstem.client.batches import BatchPage
from mainstem.client.broker import BrokerClient
from mainstem.errors import (
    InvalidConfig,
    LogDamaged,
    NotFound,
    OffsetOutOfRange,
    RecordsLost,
    StoreRefused,
)
from mainstem.log.read.extents import EXTENT
from mainstem.records.rows import decodable_rows
from mainstem.records.undecodable import UNDECODABLE
from mainstem.spark.source import losses
from mainstem.spark.source.offsets import PartitionRange
from mainstem.spark.source.options import SourceOptions
from mainstem.tables.parts.source_rows import source_rows

if TYPE_CHECKING:
    import pyarrow as pa

_PAGE_BYTES = 8 * limits.MIB


class RangeRows:
    """Reads one range in offset order. Continues through the broker if an object cannot be read."""

    def __init__(self, broker: BrokerClient, range: PartitionRange, options: SourceOptions) -> None:
        self._broker = broker
        self._range = range
        self._options = options
        self._at = range.start  # next offset; everything before is returned or lost
        self._via_broker = options.via_broker or not options.committed_only

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while self._at < self._range.end:
            before = self._at, self._via_broker
            try:
                yield from self._paged(self._range.end) if self._via_broker else self._from_objects()
            except OffsetOutOfRange as moved:
                self._skip_deleted(moved)
            except RecordsLost as loss:
                self._skip_lost(loss.start, loss.end, loss.reason)
            if (self._at, self._via_broker) == before:
                # No progress: the range is past the end of the topic, so the topic was recreated.
                self._skip_lost(self._at, self._range.end, "the topic ends before them")

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
            # Deleted or replaced meanwhile, damaged, or not reachable from this worker. The broker has the current
            # location of the records, and reports exactly what is lost.
            self._via_broker = True
            return
        if reachable < sources.end:
            yield from self._paged(sources.end)

    def _rows_of(self, sources: Sources) -> Iterator[pa.RecordBatch]:
        undecodable: list[tuple[int, int]] = []
        for rows in source_rows(sources, self._range.topic, self._range.partition, undecodable=undecodable):
            self._report_undecodable(undecodable)
            yield rows
            self._at = int(rows.column("_offset")[-1].as_py()) + 1
        self._report_undecodable(undecodable)

    def _report_undecodable(self, found: list[tuple[int, int]]) -> None:
        for start, end in found:
            self._report(max(start, self._range.start), min(end, self._range.end), UNDECODABLE)
        found.clear()

    # Broker

    def _paged(self, end: int) -> Iterator[pa.RecordBatch]:
        """Fetch pages; the next one is requested while the current one is decoded."""
        next_page = self._fetch(self._at) if self._at < end else None
        while next_page is not None:
            page = next_page.result()
            next_page = None
            if page.next_offset == self._at:
                return
            if page.next_offset < end:
                next_page = self._fetch(page.next_offset)
            undecodable: list[tuple[int, int]] = []
            for rows in decodable_rows(page.data, self._range.partition, undecodable) if page.data else ():
                inside = _within(rows, self._at, end)
                if inside.num_rows:
                    yield inside
                    self._at = int(inside.column("_offset")[-1].as_py()) + 1
            self._report_undecodable(undecodable)
            self._at = min(page.next_offset, end)

    def _fetch(self, offset: int) -> Future[BatchPage]:
        return self._broker.fetching(
            self._range.topic,
            self._range.partition,
            offset,
            _PAGE_BYTES,
            committed_only=self._options.committed_only,
        )

    # Losses

    def _skip_deleted(self, moved: OffsetOutOfRange) -> None:
        if moved.start > self._at:
            self._skip_lost(self._at, moved.start, "retention or a client deleted them")
        else:
            self._skip_lost(self._at, self._range.end, "the topic ends before them")

    def _skip_lost(self, start: int, end: int, reason: str) -> None:
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
    """The sources of the offsets before `end`."""
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

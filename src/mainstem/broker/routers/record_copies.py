"""Copies that differ from what is stored: filtered, without node or tag, or stamped with their origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.broker.routers.tag_matching import Match
from mainstem.records import kernels
from mainstem.records.building import build_batch
from mainstem.records.columns import NO_SPANS, RecordColumns, Spans, encode_columns
from mainstem.records.compiled import compiled
from mainstem.records.decoding import Headers, StoredRecord, decode_records, record_sizes_and_times
from mainstem.records.header import SliceFacts
from mainstem.records.index import Integers, RecordIndex, index_slices
from mainstem.records.reserved_headers import NODE, find_reserved_headers

ROUTER_COPIES_BYTES_MAX = 16 * limits.MIB  # … and decompressed

Stamp = Callable[[StoredRecord], Headers]


class CopyOptions(NamedTuple):
    """How a record is copied."""

    match: Match | None = None  # copy only matching records
    keep_node: bool = True
    keep_tag: bool = True
    stamp: Stamp | None = None  # gives the copy its headers


class DestinationRoom(NamedTuple):
    """How much a destination accepts."""

    records: int
    bytes: int


class RecordCopies(NamedTuple):
    slice: bytearray
    facts: SliceFacts
    sizes: npt.NDArray[np.uint32]
    times: npt.NDArray[np.int64]
    end: int  # records of the source below it are processed


class DestinationFull(Exception):
    """The first record does not fit any more."""

    def __init__(self, offset: int, size: int) -> None:
        super().__init__(offset, size)
        self.offset = offset
        self.size = size


@dataclass(frozen=True, slots=True)
class _SelectedRecords:
    index: RecordIndex
    rows: Integers


def make_copies(
    batches: Sequence[memoryview],
    start: int,
    end: int,
    recipe: CopyOptions,
    room: DestinationRoom,
    time_ms: int,
) -> RecordCopies | None:
    """Copies of the records in [start, end) that match, as far as there is room; None if none matches.

    Raises DestinationFull if not even one record fits."""
    joined = memoryview(b"".join(batches)) if len(batches) != 1 else batches[0]
    chosen: list[_SelectedRecords] = []
    records, size = 0, 0
    for index in index_slices([joined]):
        offsets = index.fields[kernels.OFFSET]
        kept = (offsets >= start) & (offsets < end)
        if recipe.match is not None:
            kept &= _matching(index, recipe.match)
        rows = np.flatnonzero(kept)
        totals = np.cumsum(_sizes(index, rows)) + size
        fitting = min(int(np.searchsorted(totals, room.bytes, side="right")), room.records - records)
        # At least one, whatever its size: only the destination's own limits may exclude it.
        bound = int(np.searchsorted(totals, ROUTER_COPIES_BYTES_MAX, side="right"))
        fitting = min(fitting, max(bound, 0 if records else 1))
        if fitting < len(rows):
            end = int(offsets[rows[fitting]])
            if not fitting and not records:
                raise DestinationFull(end, int(totals[0]))
            rows = rows[:fitting]
        if len(rows):
            chosen.append(_SelectedRecords(index, rows))
            records += len(rows)
            size = int(totals[len(rows) - 1])
        if fitting < int(kept.sum()):
            break
    if not chosen:
        return None
    if recipe.stamp is not None or records <= limits.INTERPRETED_RECORDS_MAX:
        slice, count = _one_by_one(joined, chosen, recipe, time_ms), 1
    else:
        parts = [encode_columns(_columns(one, recipe, time_ms)) for one in chosen]
        slice, count = bytearray().join(parts), len(parts)
    facts = SliceFacts(records, count, time_ms, -1, -1, -1, False, False)
    return RecordCopies(slice, facts, *record_sizes_and_times(slice), end)


def _matching(index: RecordIndex, match: Match) -> npt.NDArray[np.bool_]:
    found = np.empty(len(index), np.int64)
    count = index.run(kernels.find_keys, index.fields, match.text, not match.prefix, found)
    return np.isin(index.fields[kernels.OFFSET], found[:count], assume_unique=True)


def _sizes(index: RecordIndex, rows: Integers) -> Integers:
    sizes: Integers = np.maximum(index.fields[kernels.VALUE_LENGTH, rows], 0)
    if index.headers:
        sizes = sizes + np.maximum(find_reserved_headers(index).meta_length[rows], 0)
    return sizes


def _one_by_one(
    batches: memoryview, chosen: list[_SelectedRecords], recipe: CopyOptions, time_ms: int
) -> bytearray:
    wanted = {offset for one in chosen for offset in one.index.fields[kernels.OFFSET, one.rows].tolist()}
    records = [record for record in decode_records(batches) if record.offset in wanted]
    headers = [recipe.stamp(record) if recipe.stamp else record.headers for record in records]
    if not recipe.keep_node:
        headers = [tuple(header for header in own if header[0] != NODE) for own in headers]
    return build_batch(
        [record.value for record in records],
        keys=[record.key for record in records] if recipe.keep_tag else None,
        headers=headers,
        timestamps_ms=time_ms,
    )


def _columns(chosen: _SelectedRecords, recipe: CopyOptions, time_ms: int) -> RecordColumns:
    index, rows = chosen.index, chosen.rows
    fields = index.fields
    times = np.full(len(rows), time_ms, np.int64)
    values = Spans(index.octets, fields[kernels.VALUE_AT, rows], fields[kernels.VALUE_LENGTH, rows])
    keys = NO_SPANS
    if recipe.keep_tag:
        keys = Spans(index.octets, fields[kernels.KEY_AT, rows], fields[kernels.KEY_LENGTH, rows])
    if not index.headers:
        return RecordColumns(values, times, keys)
    table = np.empty((kernels.HEADER_FIELDS, index.headers), np.int64)
    compiled(kernels.index_headers)(index.octets, fields, table)
    owner = np.repeat(np.arange(len(index)), fields[kernels.HEADERS])
    kept = np.isin(owner, rows)
    if not recipe.keep_node:
        nodes = np.zeros(index.headers, np.bool_)
        index.run(
            kernels.mark_equal, table[kernels.NAME_AT], table[kernels.NAME_LENGTH], NODE.encode(), nodes
        )
        kept &= ~nodes
    return RecordColumns(
        values,
        times,
        keys,
        np.bincount(owner[kept], minlength=len(index))[rows].astype(np.int64),
        Spans(index.octets, table[kernels.NAME_AT, kept], table[kernels.NAME_LENGTH, kept]),
        Spans(index.octets, table[kernels.CONTENT_AT, kept], table[kernels.CONTENT_LENGTH, kept]),
    )

"""Encode rows as batches, for readers of records that are only in Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.records.columns import NO_SPANS, RecordColumns, Spans, encode_columns
from mainstem.records.compression import Codec
from mainstem.records.index import Integers
from mainstem.records.rows import times_ms

if TYPE_CHECKING:
    import pyarrow as pa

REBATCHED_BYTES = 1 * limits.MIB  # approximate size of a batch encoded from rows, unless one record is larger

_RECORD_OVERHEAD_BYTES = 24  # estimate for the lengths and deltas of a record
_HEADER_OVERHEAD_BYTES = 4
_DELTA_MAX = (1 << 31) - 1
_NO_INTEGERS = np.empty(0, np.int64)


def encode_rows(
    rows: pa.Table, *, codec: Codec = "none", batch_bytes: int = REBATCHED_BYTES
) -> list[bytearray]:
    """Batches of the rows, which are in offset order. Every record keeps its offset, so batches may have gaps.

    Key, value, headers and time are exactly what was decoded. Epochs are not set."""
    batches: list[bytearray] = []
    for chunk in rows.combine_chunks().to_batches():
        if chunk.num_rows:
            batches += _encode(_columns(chunk), codec, batch_bytes)
    return batches


class _Columns(NamedTuple):
    offsets: Integers
    times: Integers
    append_time: npt.NDArray[np.bool_]
    keys: Spans
    values: Spans
    header_counts: Integers
    header_names: Spans
    header_values: Spans


def _columns(rows: pa.RecordBatch) -> _Columns:
    counts, names, contents = _headers(rows)
    return _Columns(
        rows.column("_offset").to_numpy(),
        times_ms(rows.column("_timestamp"), _optional(rows, "_timestamp_ms")),
        _flags(rows),
        _spans(rows.column("_key")),
        _spans(rows.column("_value")),
        counts,
        names,
        contents,
    )


def _optional(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    at = rows.schema.get_field_index(name)
    return None if at < 0 else rows.column(at)


def _flags(rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    import pyarrow.compute as pc

    column = _optional(rows, "_append_time")
    if column is None or column.null_count == len(column):
        return np.zeros(rows.num_rows, np.bool_)
    flags = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return np.asarray(flags, np.bool_)


def _spans(column: pa.Array) -> Spans:
    """A view of a column of binaries or strings."""
    import pyarrow.compute as pc

    if column.null_count == len(column):
        return Spans(np.empty(0, np.uint8), np.zeros(len(column), np.int64), np.full(len(column), -1))
    _, offsets, data = column.buffers()
    edges = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    lengths = np.diff(edges)
    if column.null_count:
        lengths[~pc.is_valid(column).to_numpy(zero_copy_only=False)] = -1
    octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Spans(octets, edges[:-1], lengths)


def _headers(rows: pa.RecordBatch) -> tuple[Integers, Spans, Spans]:
    """The number of headers of each record, and the names and contents of all headers, concatenated."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = rows.column("_headers")
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    if not counts.any():
        return _NO_INTEGERS, NO_SPANS, NO_SPANS
    items = column.flatten()
    names = pc.struct_field(items, "key").cast(pa.binary())
    exact = _optional(rows, "_header_names")
    if exact is not None and exact.null_count < len(exact):
        mask = np.repeat(pc.is_valid(exact).to_numpy(zero_copy_only=False), counts)
        names = pc.replace_with_mask(names, pa.array(mask), exact.flatten())
    return counts, _spans(names), _spans(pc.struct_field(items, "value"))


def _encode(columns: _Columns, codec: Codec, batch_bytes: int) -> Iterator[bytearray]:
    first_header = np.concatenate(([0], np.cumsum(columns.header_counts)))
    for start, stop in pairwise(_cuts(columns, first_header, batch_bytes)):
        base = int(columns.offsets[start])
        yield encode_columns(
            _slice(columns, first_header, start, stop, base),
            codec=codec,
            base_offset=base,
            log_append_time=bool(columns.append_time[start]),
        )


def _slice(columns: _Columns, first_header: Integers, start: int, stop: int, base: int) -> RecordColumns:
    values = _part(columns.values, start, stop)
    keys = _part(columns.keys, start, stop)
    times = columns.times[start:stop]
    deltas = columns.offsets[start:stop] - base
    if not len(columns.header_counts):
        return RecordColumns(values, times, keys, offset_deltas=deltas)
    first, last = int(first_header[start]), int(first_header[stop])
    return RecordColumns(
        values,
        times,
        keys,
        columns.header_counts[start:stop],
        _part(columns.header_names, first, last),
        _part(columns.header_values, first, last),
        deltas,
    )


def _part(spans: Spans, start: int, stop: int) -> Spans:
    return Spans(spans.data, spans.starts[start:stop], spans.lengths[start:stop])


def _cuts(columns: _Columns, first_header: Integers, batch_bytes: int) -> list[int]:
    """Batch boundaries: as few batches as the format and `batch_bytes` allow."""
    sizes = _sizes(columns, first_header)
    filled = np.concatenate(([0], np.cumsum(sizes)))
    cuts = [0]
    for end in _forced_cuts(columns):
        while cuts[-1] < end:
            start = cuts[-1]
            full = int(np.searchsorted(filled, filled[start] + batch_bytes, side="right")) - 1
            reach = int(np.searchsorted(columns.offsets, columns.offsets[start] + _DELTA_MAX, side="right"))
            stop = min(end, max(full, start + 1), reach, start + limits.BATCH_RECORDS_MAX)
            cuts.append(start + _near_in_time(columns.times[start:stop]))
    return cuts


def _sizes(columns: _Columns, first_header: Integers) -> Integers:
    sizes = np.maximum(columns.keys.lengths, 0) + np.maximum(columns.values.lengths, 0)
    sizes += _RECORD_OVERHEAD_BYTES
    if len(columns.header_counts):
        header_sizes = columns.header_names.lengths + np.maximum(columns.header_values.lengths, 0)
        filled = np.concatenate(([0], np.cumsum(header_sizes + _HEADER_OVERHEAD_BYTES)))
        sizes += filled[first_header[1:]] - filled[first_header[:-1]]
    return sizes


def _forced_cuts(columns: _Columns) -> list[int]:
    """Where the kind of time changes, or the append time, of which a batch has only one. The last is the end."""
    kind, times = columns.append_time, columns.times
    changes = (kind[1:] != kind[:-1]) | (kind[1:] & (times[1:] != times[:-1]))
    return [*(np.flatnonzero(changes) + 1).tolist(), len(times)]


def _near_in_time(times: Integers) -> int:
    """How many of these times, from the first on, are within a 64-bit delta of it."""
    first = int(times[0])
    far = times < first - (1 << 63) if first >= 0 else times > first + (1 << 63) - 1
    return int(np.argmax(far)) if far.any() else len(times)

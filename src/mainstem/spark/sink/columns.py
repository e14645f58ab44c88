"""Arrow rows as the columns that the record kernels encode, without copying the bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mainstem.errors import InvalidInput
from mainstem.records.columns import NO_SPANS, Integers, RecordColumns, Spans
from mainstem.spark.sink.partitioner import NO_PARTITION

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_NO_INTEGERS = np.empty(0, np.int64)
_NO_OCTETS = np.empty(0, np.uint8)


def check_schema(schema: StructType, *, topic: str, keep_timestamps: bool) -> None:
    """Raises InvalidInput unless rows of this schema can be written. Other columns are ignored."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    wanted = {
        "value": ("binary", "string"),
        "key": ("binary", "string"),
        "topic": ("string",),
        "partition": ("int",),
        "headers": ("array<struct<key:string,value:binary>>",),
    }
    if keep_timestamps:
        wanted["timestamp"] = ("timestamp",)
    for name, allowed in wanted.items():
        if name in kinds and kinds[name] not in allowed:
            raise InvalidInput(f"column {name} must be {' or '.join(allowed)}, not {kinds[name]}")
    if "value" not in kinds:
        raise InvalidInput(f"the rows have no column value, only {', '.join(kinds) or 'none'}")
    if not topic and "topic" not in kinds:
        raise InvalidInput("set the option topic, or write rows with a column topic")
    if keep_timestamps and "timestamp" not in kinds:
        raise InvalidInput("the option keepTimestamps needs a column timestamp")


@dataclass(frozen=True, slots=True)
class SinkRows:
    """Rows of one topic."""

    records: RecordColumns
    partitions: Integers | None  # from the rows; NO_PARTITION where null
    header_starts: Integers  # first header of each row and the end; empty without headers

    def __len__(self) -> int:
        return len(self.records)

    def sizes(self) -> Integers:
        """Upper bound of each row's bytes in a batch."""
        records = self.records
        sizes = np.maximum(records.values.lengths, 0) + _RECORD_BYTES
        if len(records.keys):
            sizes = sizes + np.maximum(records.keys.lengths, 0)
        if len(self.header_starts):
            header_sizes = (
                np.maximum(records.header_names.lengths, 0)
                + np.maximum(records.header_values.lengths, 0)
                + _HEADER_BYTES
            )
            sums = np.concatenate(([0], np.cumsum(header_sizes)))
            sizes = sizes + sums[self.header_starts[1:]] - sums[self.header_starts[:-1]]
        return sizes

    def take(self, rows: Integers) -> RecordColumns:
        """The records of these rows, in this order."""
        records = self.records
        found = RecordColumns(
            values=_taken(records.values, rows),
            timestamps_ms=records.timestamps_ms[rows],
            keys=_taken(records.keys, rows) if len(records.keys) else NO_SPANS,
        )
        if not len(self.header_starts):
            return found
        counts = records.header_counts[rows]
        headers = _expand_ranges(self.header_starts[rows], counts)
        return RecordColumns(
            found.values,
            found.timestamps_ms,
            found.keys,
            counts,
            _taken(records.header_names, headers),
            _taken(records.header_values, headers),
        )


_RECORD_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5  # lengths, attributes and deltas, each at its maximum
_HEADER_BYTES = 10


def sink_rows(table: pa.Table, now_ms: int, *, keep_timestamps: bool) -> SinkRows:
    """Rows of one topic, each column combined into one chunk."""
    rows = table.num_rows
    names = table.column_names
    counts, starts, header_names, header_values = _headers(table)
    records = RecordColumns(
        values=_spans(_column(table, "value")),
        timestamps_ms=_times(table, now_ms, keep_timestamps),
        keys=_spans(_column(table, "key")) if "key" in names else NO_SPANS,
        header_counts=counts,
        header_names=header_names,
        header_values=header_values,
    )
    named: Integers | None = None
    if "partition" in names:
        column = _column(table, "partition").fill_null(NO_PARTITION)
        named = column.to_numpy(zero_copy_only=False).astype(np.int64)
        if rows and int(named.min()) < NO_PARTITION:
            raise InvalidInput(f"partition {int(named.min())} is invalid: partition numbers start at 0")
    return SinkRows(records, named, starts)


def _column(table: pa.Table, name: str) -> Any:
    return table.column(name).combine_chunks()


def _times(table: pa.Table, now_ms: int, keep_timestamps: bool) -> Integers:
    import pyarrow as pa

    if not keep_timestamps:
        return np.full(table.num_rows, now_ms, np.int64)
    column = _column(table, "timestamp").cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    return np.array(column.fill_null(now_ms).to_numpy(zero_copy_only=False), np.int64)


def _spans(column: Any) -> Spans:
    """The spans of a binary or string column, large or not."""
    import pyarrow.types as types

    large = types.is_large_binary(column.type) or types.is_large_string(column.type)
    _, offsets, data = column.buffers()
    width = np.dtype(np.int64 if large else np.int32)
    ends = np.frombuffer(offsets, width, len(column) + 1, column.offset * width.itemsize).astype(np.int64)
    lengths = np.diff(ends)
    if column.null_count:
        lengths[column.is_null().to_numpy(zero_copy_only=False)] = -1
    octets = np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_OCTETS
    return Spans(octets, ends[:-1].copy(), lengths)


def _headers(table: pa.Table) -> tuple[Integers, Integers, Spans, Spans]:
    """Header counts and starts of the rows, and the names and values of all headers."""
    if "headers" not in table.column_names:
        return _NO_INTEGERS, _NO_INTEGERS, NO_SPANS, NO_SPANS
    column = _column(table, "headers")
    counts = np.array(column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    if not counts.any():
        return _NO_INTEGERS, _NO_INTEGERS, NO_SPANS, NO_SPANS
    items = column.flatten()  # skips the items behind null lists
    names, values = (item for item in items.flatten())
    if names.null_count:
        raise InvalidInput("the key of a header is null: it must be text")
    return counts, np.concatenate(([0], np.cumsum(counts))), _spans(names), _spans(values)


def _taken(spans: Spans, rows: Integers) -> Spans:
    return Spans(spans.data, spans.starts[rows], spans.lengths[rows])


def _expand_ranges(starts: Integers, counts: Integers) -> Integers:
    """The numbers of all ranges that begin at `starts` and have `counts` members, concatenated."""
    ends = np.cumsum(counts)
    shifts: Integers = np.repeat(starts - (ends - counts), counts)
    return np.arange(len(shifts), dtype=np.int64) + shifts

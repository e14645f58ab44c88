"""Rows: records as the lake stores them, in Arrow columns of a table; and decoding of batches to rows.

| column           | type                                          | field id | holds                                  |
|------------------|-----------------------------------------------|----------|----------------------------------------|
| `_partition_id`  | int32                                         | 1        | the same in every row                  |
| `_offset`        | int64                                         | 2        | rising, maybe with gaps                |
| `_timestamp`     | timestamp[us, UTC]                            | 3        | the time, or the nearest that fits     |
| `_key`           | binary, null                                  | 4        |                                        |
| `_value`         | binary, null                                  | 5        |                                        |
| `_headers`       | list<struct<key: string, value: binary null>> | 6 to 9   | list, element, key, value              |
| `_timestamp_ms`  | int64, null                                   | 10       | the exact time where it did not fit    |
| `_header_names`  | list<binary>, null                            | 11, 12   | exact names where some are not UTF-8   |
| `_append_time`   | bool, null                                    | 13       | true where the time is LogAppendTime   |

The last three keep what the first six cannot represent, so that a record reads back exactly as it was written. They are
null in nearly every row; a file has each of them only if it needs it, and they are not columns of tables. `_timestamp`
covers the years 1 to 9999, because many readers of tables fail outside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mainstem.records import kernels
from mainstem.records.arrow import arrow_offsets, binary_column
from mainstem.records.compiled import compiled
from mainstem.records.header import walk
from mainstem.records.index import Buffer, Integers, RecordIndex, index_slices
from mainstem.records.undecodable import FAULTS

if TYPE_CHECKING:
    import pyarrow as pa

FIELD_ID = b"PARQUET:field_id"  # the key that Arrow's Parquet writer reads

DAY_MS = 86_400_000
TIMESTAMP_MS_MIN = -62_135_596_800_000  # 0001-01-01
TIMESTAMP_MS_MAX = 253_402_300_799_999  # 9999-12-31, its last millisecond


@cache
def table_schema() -> pa.Schema:
    """The columns of every table of records."""
    import pyarrow as pa

    header = pa.struct([_field("key", pa.string(), 8, nullable=False), _field("value", pa.binary(), 9)])
    return pa.schema(
        [
            _field("_partition_id", pa.int32(), 1, nullable=False),
            _field("_offset", pa.int64(), 2, nullable=False),
            _field("_timestamp", pa.timestamp("us", tz="UTC"), 3, nullable=False),
            _field("_key", pa.binary(), 4),
            _field("_value", pa.binary(), 5),
            _field("_headers", pa.list_(_field("element", header, 7, nullable=False)), 6),
        ]
    )


@cache
def row_schema() -> pa.Schema:
    """The columns of rows in memory: those of tables, and those with the exact values."""
    import pyarrow as pa

    schema = table_schema()
    for field in (
        _field("_timestamp_ms", pa.int64(), 10),
        _field("_header_names", pa.list_(_field("element", pa.binary(), 12, nullable=False)), 11),
        _field("_append_time", pa.bool_(), 13),
    ):
        schema = schema.append(field)
    return schema


def exact_columns() -> list[str]:
    """Names of the columns that a file has only if it needs them."""
    return list(row_schema().names[len(table_schema()) :])


def decode_rows(
    buffers: Sequence[Buffer], partition: int, *, timestamp_ms: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of stamped batches as rows, in bounded batches, without transaction markers.

    `timestamp_ms` is the append time of all of them, if given. Raises InvalidBatch."""
    for index in index_slices(buffers):
        yield _rows(index, partition, timestamp_ms)


def decodable_rows(
    batches: Buffer, partition: int, undecodable: list[tuple[int, int]], *, timestamp_ms: int | None = None
) -> Iterator[pa.RecordBatch]:
    """As `decode_rows`, without the batches that cannot be decoded, whose offsets it adds to `undecodable`."""
    reached = 0
    try:
        for rows in decode_rows([batches], partition, timestamp_ms=timestamp_ms):
            reached = int(rows.column("_offset")[-1].as_py()) + 1 if rows.num_rows else reached
            yield rows
    except FAULTS:
        data = memoryview(batches).cast("B")
        for header in walk(data):
            if header.control or header.base_offset < reached:
                continue
            try:
                yield from decode_rows(
                    [data[header.position : header.end]], partition, timestamp_ms=timestamp_ms
                )
            except FAULTS:
                undecodable.append((header.base_offset, header.next_offset))


def days(rows: pa.RecordBatch | pa.Table) -> Integers:
    """The UTC day of each row, counted from 1970-01-01."""
    numbers: Integers = times_ms(rows.column("_timestamp"), None) // DAY_MS
    return numbers


def only_day(rows: pa.RecordBatch) -> int | None:
    """The UTC day of all rows if they share one, otherwise None."""
    times_us = rows.column("_timestamp").view("int64").to_numpy()
    first, last = (int(time_us) // (1000 * DAY_MS) for time_us in (times_us.min(), times_us.max()))
    return first if first == last else None


def times_ms(shown: pa.Array | pa.ChunkedArray, exact: pa.Array | pa.ChunkedArray | None) -> Integers:
    """The exact times of rows, from `_timestamp` and `_timestamp_ms`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = shown.cast(pa.int64()).to_numpy() // 1000
    if exact is None or exact.null_count == len(exact):
        return np.asarray(times, np.int64)
    present = pc.is_valid(exact).to_numpy(zero_copy_only=False)
    return np.where(present, np.asarray(pc.fill_null(exact, 0).to_numpy(), np.int64), times)


def _field(name: str, kind: pa.DataType, field_id: int, *, nullable: bool = True) -> pa.Field:
    import pyarrow as pa

    return pa.field(name, kind, nullable=nullable, metadata={FIELD_ID: str(field_id).encode()})


def _rows(index: RecordIndex, partition: int, timestamp_ms: int | None) -> pa.RecordBatch:
    import pyarrow as pa

    fields = index.fields
    count = len(index)
    times = fields[kernels.TIMESTAMP] if timestamp_ms is None else np.full(count, timestamp_ms, np.int64)
    shown, exact = _timestamps(times)
    headers, names = _headers(index)
    columns = [
        pa.array(np.full(count, partition, np.int32)),
        pa.array(fields[kernels.OFFSET].copy()),  # a view would keep the whole index in memory
        shown,
        binary_column(index, fields[kernels.KEY_AT], fields[kernels.KEY_LENGTH], pa.binary()),
        binary_column(index, fields[kernels.VALUE_AT], fields[kernels.VALUE_LENGTH], pa.binary()),
        headers,
        exact,
        names,
        _append_time(index, timestamp_ms is not None),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=row_schema())


def _timestamps(times: Integers) -> tuple[pa.Array, pa.Array]:
    """`_timestamp` and `_timestamp_ms`."""
    import pyarrow as pa

    kind = row_schema().field("_timestamp").type
    if not len(times) or (times.min() >= TIMESTAMP_MS_MIN and times.max() <= TIMESTAMP_MS_MAX):
        return pa.array(times * 1000).view(kind), pa.nulls(len(times), pa.int64())
    fitting = np.clip(times, TIMESTAMP_MS_MIN, TIMESTAMP_MS_MAX)
    return pa.array(fitting * 1000).view(kind), pa.array(times.copy(), mask=fitting == times)


def _append_time(index: RecordIndex, always: bool) -> pa.Array:
    import pyarrow as pa

    fixed = index.batches[:, kernels.TIME_IS_FIXED] != 0
    if always:
        return pa.array(np.ones(len(index), np.bool_))
    if not fixed.any():
        return pa.nulls(len(index), pa.bool_())
    of_records = np.repeat(fixed, index.batches[:, kernels.COUNT])
    return pa.array(of_records, mask=~of_records)


def _headers(index: RecordIndex) -> tuple[pa.Array, pa.Array]:
    """`_headers` and `_header_names`."""
    import pyarrow as pa

    kind = row_schema().field("_headers").type
    table = np.empty((kernels.HEADER_FIELDS, index.headers), np.int64)
    if index.headers:
        compiled(kernels.index_headers)(index.octets, index.fields, table)
    counts = index.fields[kernels.HEADERS]
    names = binary_column(index, table[kernels.NAME_AT], table[kernels.NAME_LENGTH], pa.string())
    contents = binary_column(index, table[kernels.CONTENT_AT], table[kernels.CONTENT_LENGTH], pa.binary())
    names, exact = _valid_utf8(names, counts)
    items = pa.StructArray.from_arrays([names, contents], fields=list(kind.value_type))
    offsets = pa.py_buffer(arrow_offsets(counts))
    return pa.Array.from_buffers(kind, len(index), [None, offsets], children=[items]), exact


def _valid_utf8(names: pa.Array, counts: Integers) -> tuple[pa.Array, pa.Array]:
    """Names with invalid UTF-8 replaced, and the exact names of each record with such names."""
    import pyarrow as pa

    kind = row_schema().field("_header_names").type
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        # A loop is fine: hardly any producer writes names that are not UTF-8.
        raw = names.view(pa.binary()).to_pylist()
        replaced = [name.decode("utf-8", "replace") for name in raw]
        changed = np.array([new.encode() != old for new, old in zip(replaced, raw, strict=True)], np.bool_)
        exact = _lists(raw, counts, changed)
        return pa.array(replaced, pa.string()), pa.array(exact, kind)
    return names, pa.nulls(len(counts), kind)


def _lists(raw: list[bytes], counts: Integers, changed: npt.NDArray[np.bool_]) -> list[Any]:
    ends = np.cumsum(counts)
    return [
        raw[start:end] if changed[start:end].any() else None
        for start, end in zip((ends - counts).tolist(), ends.tolist(), strict=True)
    ]

"""Decode JSON values to typed columns in bulk. An invalid value does not affect other values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mainstem.errors import InvalidInput
from mainstem.spark.source.columns import RECORD_COLUMNS, headers_column, topic_column

if TYPE_CHECKING:
    import pyarrow as pa

Malformed = Literal["permissive", "failfast", "dropmalformed"]

CORRUPT_COLUMN = "_corrupt_record"  # a string column: if a query has it, it gets the invalid values

_SHOWN_CHARS = 120


class JsonColumns:
    """`malformed`: an invalid value gives nulls, an error, or no row."""

    def __init__(self, schema: pa.Schema, topic: str, partition: int, malformed: Malformed) -> None:
        import pyarrow as pa

        self._schema = schema
        self._topic = topic
        self._partition = partition
        self._malformed = malformed
        self._fields = [
            field for field in schema if field.name not in RECORD_COLUMNS and field.name != CORRUPT_COLUMN
        ]
        self._read_as = pa.schema([_read_as(field) for field in self._fields])

    def from_rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The query's columns of these rows. Raises InvalidInput if malformed values are an error."""
        import pyarrow as pa

        # The column is split at invalid values, so that the rest is still decoded in bulk.
        for start, values, typed in self._pieces(rows.column("_value"), 0):
            piece = rows.slice(start, len(values))
            if typed is None:
                if self._malformed == "failfast":
                    raise self._malformed_error(piece)
                if self._malformed == "dropmalformed":
                    continue
                typed = [pa.nulls(len(values), field.type) for field in self._fields]
                corrupt = _text(values)
            else:
                corrupt = pa.nulls(len(values), pa.string())
            yield self.batch(piece, typed, corrupt)

    def _pieces(self, values: pa.Array, start: int) -> Iterator[tuple[int, pa.Array, list[pa.Array] | None]]:
        """(first row, values, their columns): one block if all are valid, else halves; None for an invalid value."""
        import pyarrow as pa

        try:
            yield start, values, self._typed(values)
        except pa.ArrowInvalid:
            if len(values) == 1:
                yield start, values, None
                return
            half = len(values) // 2
            yield from self._pieces(values.slice(0, half), start)
            yield from self._pieces(values.slice(half), start + half)

    def _typed(self, values: pa.Array) -> list[pa.Array]:
        """Raises ArrowInvalid if one of the values is invalid."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        if not len(values):
            return [pa.nulls(0, field.type) for field in self._fields]
        lines = _lines(values)
        if not self._fields:
            return []
        read = arrow_json.read_json(
            pa.BufferReader(lines),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=self._read_as, unexpected_field_behavior="ignore"
            ),
        )
        if read.num_rows != len(values):
            raise pa.ArrowInvalid("a value holds more than one object")
        found = read.combine_chunks()
        return [_cast(found.column(field.name), field.type) for field in self._fields]

    def batch(self, rows: pa.RecordBatch, typed: list[pa.Array], corrupt: pa.Array) -> pa.RecordBatch:
        """The columns of records and of values, in the order of the query."""
        import pyarrow as pa

        made = {field.name: column for field, column in zip(self._fields, typed, strict=True)}
        columns = []
        for field in self._schema:
            if field.name in made:
                columns.append(made[field.name])
            elif field.name == CORRUPT_COLUMN:
                columns.append(corrupt)
            elif field.name == "_topic":
                columns.append(topic_column(self._topic, rows.num_rows))
            elif field.name == "_headers":
                columns.append(headers_column(rows, field.type))
            else:
                columns.append(rows.column(field.name))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _malformed_error(self, rows: pa.RecordBatch) -> InvalidInput:
        value = rows.column("_value")[0].as_py()
        shown = "null" if value is None else value[:_SHOWN_CHARS].decode("utf-8", "replace")
        return InvalidInput(
            f"offset {rows.column('_offset')[0].as_py()} of topic {self._topic!r}, partition "
            f"{self._partition}, is not a JSON object that fits the schema: {shown}"
        )


def unsupported(kind: pa.DataType) -> str | None:
    """The part of a column's type that JSON cannot be read as; None if there is none."""
    import pyarrow.types as types

    if types.is_struct(kind):
        return next((found for field in kind if (found := _nested(field.type))), None)
    if types.is_list(kind):
        return _nested(kind.value_type)
    return None if _is_plain(kind) or _is_text_first(kind) else str(kind)


def _nested(kind: pa.DataType) -> str | None:
    if _is_text_first(kind):
        return f"{kind} inside another column"
    return unsupported(kind)


def _is_plain(kind: pa.DataType) -> bool:
    import pyarrow.types as types

    return bool(
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_string(kind)
    )


def _is_text_first(kind: pa.DataType) -> bool:
    """Types that JSON represents as text."""
    import pyarrow.types as types

    return bool(types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind))


def _read_as(field: pa.Field) -> pa.Field:
    import pyarrow as pa

    return pa.field(field.name, pa.string() if _is_text_first(field.type) else field.type)


def _cast(column: Any, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if column.type == kind:
        return column
    if types.is_timestamp(kind) and kind.tz is not None:
        try:
            return column.cast(kind)
        except pa.ArrowInvalid:  # without a time zone: UTC
            return pc.assume_timezone(column.cast(pa.timestamp(kind.unit)), kind.tz)
    return column.cast(kind)


def _lines(values: pa.Array) -> pa.Buffer:
    """One value a line. Raises ArrowInvalid for a value that is null, empty or not UTF-8."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.null_count:
        raise pa.ArrowInvalid("a value is null")
    texts = values.cast(pa.string())
    for end in ("\n", "\r"):
        if pc.any(pc.match_substring(texts, end)).as_py():
            texts = pc.replace_substring(texts, end, " ")  # equivalent between the tokens of an object
    if pc.any(pc.equal(pc.utf8_length(pc.ascii_trim_whitespace(texts)), 0)).as_py():
        raise pa.ArrowInvalid("a value is empty")
    whole = pa.ListArray.from_arrays(pa.array(np.array([0, len(texts)], np.int32)), texts)
    return pc.binary_join(whole, "\n")[0].as_buffer()


def _text(values: pa.Array) -> pa.Array:
    import pyarrow as pa

    return pa.array(
        [None if value is None else value.decode("utf-8", "replace") for value in values.to_pylist()],
        pa.string(),
    )

"""Typed columns of values: JSON to Arrow, as a table declares it.

Values are decoded many at a time. Where some do not fit, halves of them are tried, down to the single value that is
at fault: its row gets no typed columns but a reason, and every other row is as if it were not there.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.api.lake import Column, ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

ERROR_COLUMN = "_error"  # why a row has no typed columns; tables do not show it
ERROR_FIELD_ID = 999

_NULL = b"null"
_FLOAT_MAX = 3.4028234663852886e38

_DECODED: dict[ColumnType, Any] = {
    "boolean": bool | None,
    "int": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None,
    "long": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None,
    "float": Annotated[float, Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)] | None,
    "double": float | None,
    "string": str | None,
    "json": msgspec.Raw,  # null is a value of it, seen to later
    "date": datetime.date | None,
    "timestamp": datetime.datetime | None,
}

Rows = list[Any]  # decoded structs; None where the value is null or at fault


def typed_fields(columns: Sequence[Column]) -> list[pa.Field]:
    """What `with_columns` adds to the raw columns, with the numbers the columns have for good."""
    import pyarrow as pa

    arrow: dict[ColumnType, pa.DataType] = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "json": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    fields = [(ERROR_COLUMN, pa.string(), ERROR_FIELD_ID)]
    fields += [(column.name, arrow[column.type], column.id) for column in columns]
    return [pa.field(name, kind, metadata={b"PARQUET:field_id": b"%d" % id}) for name, kind, id in fields]


def with_columns(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """The rows with a column for what is wrong with a value, and the declared columns."""
    import pyarrow as pa

    added = typed(rows.column("_value"), columns)
    schema = rows.schema
    for field in typed_fields(columns):
        schema = schema.append(field)
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)


def typed(values: pa.BinaryArray, columns: Sequence[Column]) -> list[pa.Array]:
    """The arrays of `typed_fields`, one row a value. A null value has nulls, and nothing wrong with it."""
    import pyarrow as pa

    reasons: dict[int, str] = {}
    shapes = [_Shape(group) for group in _without_overlap(columns)]
    decoded = [_decoded(values, shape, reasons) for shape in shapes]
    types = {field.name: field.type for field in typed_fields(columns)}
    arrays: dict[str, pa.Array] = {}
    for shape, rows in zip(shapes, decoded, strict=True):
        for at in reasons:
            rows[at] = None  # wrong for one column, wrong for all
        for column in shape.columns:
            arrays[column.name] = pa.array(shape.extracted(rows, column), types[column.name])
    faults = [reasons.get(at) for at in range(len(values))] if reasons else [None] * len(values)
    return [pa.array(faults, pa.string()), *(arrays[column.name] for column in columns)]


class _Shape:
    """A struct that holds just the columns' values, nested as their paths are."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self._places: dict[tuple[str, ...], str] = {}  # path of keys → the attribute it is found under
        self.decoder = msgspec.json.Decoder(self._struct(columns, ()))

    def _struct(self, columns: Sequence[Column], above: tuple[str, ...]) -> type[Any]:
        """One level: columns right here, and a struct for every key that has some below."""
        depth = len(above)
        keys = list(dict.fromkeys(column.keys[depth] for column in columns))
        fields, renamed = [], {}
        for number, key in enumerate(keys):
            inside = [column for column in columns if column.keys[depth] == key]
            name = f"f{number}"
            renamed[name] = key
            self._places[(*above, key)] = name
            if len(inside[0].keys) == depth + 1:
                fields.append((name, _DECODED[inside[0].type], None))
            else:
                fields.append((name, self._struct(inside, (*above, key)) | None, None))
        return msgspec.defstruct("Row", fields, rename=renamed, gc=False)

    def extracted(self, rows: Rows, column: Column) -> list[object]:
        """One column of the rows."""
        found: Iterable[Any] = rows
        for depth in range(1, len(column.keys) + 1):
            take = attrgetter(self._places[column.keys[:depth]])
            found = [None if row is None else take(row) for row in found]
        if column.type == "json":
            texts = (None if raw is None else bytes(raw) for raw in found)
            return [None if text is None or text == _NULL else text.decode() for text in texts]
        return list(found)


def _without_overlap(columns: Sequence[Column]) -> list[list[Column]]:
    """Groups of columns of which none lies inside another: only those fit one struct."""
    groups: list[list[Column]] = []
    for column in columns:
        for group in groups:
            if not any(_overlap(column.keys, other.keys) for other in group):
                group.append(column)
                break
        else:
            groups.append([column])
    return groups


def _overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return all(mine == theirs for mine, theirs in zip(one, other, strict=False))


def _decoded(values: pa.BinaryArray, shape: _Shape, reasons: dict[int, str]) -> Rows:
    """A struct for each value; what is wrong with those that have none goes to `reasons`, by row."""
    import pyarrow.compute as pc

    rows: Rows = [None] * len(values)
    # Only what starts and ends as an object can be decoded in one go: then no value can run into the next.
    whole = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}")).fill_null(False)
    together = pc.indices_nonzero(whole).to_pylist()
    for at in pc.indices_nonzero(pc.and_not(values.is_valid(), whole)).to_pylist():
        _decode_one(values, at, shape, rows, reasons)
    for start in range(0, len(together), limits.TYPED_ROWS_AT_ONCE):
        _decode_many(values, together[start : start + limits.TYPED_ROWS_AT_ONCE], shape, rows, reasons)
    return rows


def _decode_many(
    values: pa.BinaryArray, at: list[int], shape: _Shape, rows: Rows, reasons: dict[int, str]
) -> None:
    if len(at) == 1:
        _decode_one(values, at[0], shape, rows, reasons)
        return
    found = _lines(values, at, shape)
    if found is not None:
        for place, row in zip(at, found, strict=True):
            rows[place] = row
        return
    middle = len(at) // 2
    _decode_many(values, at[:middle], shape, rows, reasons)
    _decode_many(values, at[middle:], shape, rows, reasons)


def _lines(values: pa.BinaryArray, at: list[int], shape: _Shape) -> Rows | None:
    """All of these values, or None if one of them does not fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    taken = values.take(pa.array(at, pa.int64()))
    joined = pc.binary_join(pa.LargeListArray.from_arrays(pa.array([0, len(at)], pa.int64()), taken), b"\n")
    text = joined[0].as_py()
    try:
        if not text.isascii():
            text.decode()  # also what no column asks for: JSON is UTF-8
        found = shape.decoder.decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # A value that holds two objects gives two rows. None gives fewer than one.
    return found if len(found) == len(at) else None


def _decode_one(values: pa.BinaryArray, at: int, shape: _Shape, rows: Rows, reasons: dict[int, str]) -> None:
    value = values[at].as_py()
    try:
        value.decode()
        rows[at] = shape.decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        reasons.setdefault(at, (str(wrong) or type(wrong).__name__)[: limits.TYPED_REASON_CHARS_MAX])


def faulty(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Those of the rows whose value did not fit."""
    import pyarrow.compute as pc

    return rows.filter(pc.is_valid(rows.column(ERROR_COLUMN)))

"""Typed columns: decode JSON values to Arrow arrays with the columns that a table declares.

Values are decoded in blocks. A block that does not decode is halved until the invalid values are single: the row of an
invalid value has nulls and a reason. It does not affect other rows.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.api.lake import Column
from mainstem.tables.column_types import (
    DecimalType,
    ListType,
    ParsedType,
    Primitive,
    PrimitiveType,
    StructType,
    ids_inside,
    parsed_type,
)

if TYPE_CHECKING:
    import pyarrow as pa

ERROR_COLUMN = "_error"  # why a row has no typed columns; not a column of the table
ERROR_FIELD_ID = 999

_NULL = b"null"
_FLOAT_MAX = 3.4028234663852886e38

_WHOLE_MAX = 1 << 53  # up to here every whole number has a floating-point number of its own

# A whole number may be written as 1.0 or 1e3, which decodes to a float: `_whole` checks it.
_DECODED: dict[Primitive, Any] = {
    "boolean": bool,
    "int": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | float,
    "long": Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float,
    "float": Annotated[float, Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)],
    "double": float,
    "string": str,
    "json": msgspec.Raw,  # may be null, which `extract` handles
    "date": datetime.date,
    "timestamp": datetime.datetime,
}


class _UnfitValue(ValueError):
    """A value that its column cannot hold exactly."""


def _decoded_type(kind: ParsedType) -> Any:
    match kind:
        case PrimitiveType("json"):
            return msgspec.Raw
        case PrimitiveType(name):
            return _DECODED[name] | None
        case DecimalType():
            return decimal.Decimal | None
        case ListType(element):
            return list[_decoded_type(element)] | None  # type: ignore[misc]
        case StructType(fields):
            names = {f"f{at}": name for at, (name, _) in enumerate(fields)}
            types = [(f"f{at}", _decoded_type(each), None) for at, (_, each) in enumerate(fields)]
            return msgspec.defstruct("Nested", types, rename=names, gc=False) | None


def _fitting(kind: ParsedType, value: Any) -> Any:
    """A decoded value as Arrow takes it. Raises _UnfitValue."""
    if value is None:
        return None
    match kind:
        case PrimitiveType("int" | "long" as name):
            return _whole(name, value) if type(value) is float else value
        case PrimitiveType("json"):
            text = bytes(value)
            return None if text == _NULL else text.decode()
        case DecimalType():
            return _exact(kind, value)
        case ListType(element):
            return [_fitting(element, each) for each in value]
        case StructType(fields):
            return {name: _fitting(each, getattr(value, f"f{at}")) for at, (name, each) in enumerate(fields)}
    return value


def _whole(name: str, value: float) -> int:
    bits = 31 if name == "int" else 63
    if not value.is_integer() or abs(value) > min(_WHOLE_MAX, 2**bits - 1):
        raise _UnfitValue(f"{value!r} is not exactly a whole number that fits `{name}`")
    return int(value)


def _exact(kind: DecimalType, value: decimal.Decimal) -> decimal.Decimal:
    context = decimal.Context(prec=kind.precision, traps=[decimal.Inexact, decimal.InvalidOperation])
    try:
        if value.is_finite():
            return value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=context)
    except decimal.DecimalException:
        pass
    raise _UnfitValue(f"{str(value)[:64]} does not fit decimal({kind.precision}, {kind.scale}) exactly")


def _needs_fitting(kind: ParsedType, values: Sequence[object]) -> bool:
    if isinstance(kind, PrimitiveType):
        return kind.name in ("int", "long") and float in set(map(type, values))
    return True


Rows = list[Any]  # decoded structs; None where the value is null or invalid


def typed_fields(columns: Sequence[Column]) -> list[pa.Field]:
    """The fields that `with_columns` adds to the raw columns, with the columns' permanent field ids."""
    import pyarrow as pa

    fields = [(ERROR_COLUMN, pa.string(), ERROR_FIELD_ID)]
    fields += [
        (column.name, _arrow_type(parsed_type(column.type), column.id), column.id) for column in columns
    ]
    return [_field(name, kind, id) for name, kind, id in fields]


def _field(name: str, kind: pa.DataType, id: int) -> pa.Field:
    import pyarrow as pa

    return pa.field(name, kind, metadata={b"PARQUET:field_id": b"%d" % id})


def _arrow_type(kind: ParsedType, id: int) -> pa.DataType:
    import pyarrow as pa

    inside = [(_arrow_type(each, at), at) for each, at in ids_inside(kind, id)]
    match kind:
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case ListType():
            return pa.list_(_field("element", *inside[0]))
        case StructType(fields):
            named = zip(fields, inside, strict=True)
            return pa.struct([_field(name, made, at) for (name, _), (made, at) in named])
        case PrimitiveType(name):
            arrow: dict[Primitive, pa.DataType] = {
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
            return arrow[name]


def with_columns(rows: pa.RecordBatch, columns: Sequence[Column]) -> pa.RecordBatch:
    """The rows plus the error column and the declared columns."""
    import pyarrow as pa

    added = typed(rows.column("_value"), columns)
    schema = rows.schema
    for field in typed_fields(columns):
        schema = schema.append(field)
    return pa.RecordBatch.from_arrays([*rows.columns, *added], schema=schema)


def typed(values: pa.BinaryArray, columns: Sequence[Column]) -> list[pa.Array]:
    """The arrays of `typed_fields`, one row a value. A null value gives nulls and no error."""
    import pyarrow as pa

    reasons: dict[int, str] = {}
    shapes = [_Shape(group) for group in _without_overlap(columns)]
    decoded = [_decoded(values, shape, reasons) for shape in shapes]
    types = {field.name: field.type for field in typed_fields(columns)}
    found: dict[str, list[object]] = {}
    for shape, rows in zip(shapes, decoded, strict=True):
        for column in shape.columns:
            found[column.name] = _fitted(column, shape.extract(rows, column), reasons)
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        values_of = found[column.name]
        for at in reasons:
            values_of[at] = None  # a value that is invalid for one column is invalid for all
        arrays[column.name] = pa.array(values_of, types[column.name])
    errors = [reasons.get(at) for at in range(len(values))] if reasons else [None] * len(values)
    return [pa.array(errors, pa.string()), *(arrays[column.name] for column in columns)]


def _fitted(column: Column, values: list[Any], reasons: dict[int, str]) -> list[object]:
    """The values of a column as Arrow takes them. `reasons` gets the errors by row."""
    kind = parsed_type(column.type)
    if not _needs_fitting(kind, values):
        return values
    for at, value in enumerate(values):
        try:
            values[at] = _fitting(kind, value)
        except _UnfitValue as unfit:
            reasons.setdefault(at, f"{unfit} - at `{column.path}`"[: limits.TYPED_REASON_CHARS_MAX])
    return values


class _Shape:
    """A struct type with only the columns' values, nested like their paths."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self._attributes: dict[tuple[str, ...], str] = {}  # key path → attribute of the struct
        self.decoder = msgspec.json.Decoder(self._struct(columns, ()))

    def _struct(self, columns: Sequence[Column], parent: tuple[str, ...]) -> type[Any]:
        """One level: a field for each column at this depth, a nested struct for each key with deeper columns."""
        depth = len(parent)
        keys = list(dict.fromkeys(column.keys[depth] for column in columns))
        fields, renamed = [], {}
        for number, key in enumerate(keys):
            inside = [column for column in columns if column.keys[depth] == key]
            name = f"f{number}"
            renamed[name] = key
            self._attributes[(*parent, key)] = name
            if len(inside[0].keys) == depth + 1:
                fields.append((name, _decoded_type(parsed_type(inside[0].type)), None))
            else:
                fields.append((name, self._struct(inside, (*parent, key)) | None, None))
        return msgspec.defstruct("Row", fields, rename=renamed, gc=False)

    def extract(self, rows: Rows, column: Column) -> list[object]:
        """The values of one column."""
        values: Iterable[Any] = rows
        for depth in range(1, len(column.keys) + 1):
            attribute = attrgetter(self._attributes[column.keys[:depth]])
            values = [None if row is None else attribute(row) for row in values]
        if column.type == "json":
            texts = (None if raw is None else bytes(raw) for raw in values)
            return [None if text is None or text == _NULL else text.decode() for text in texts]
        return list(values)


def _without_overlap(columns: Sequence[Column]) -> list[list[Column]]:
    """Groups of columns in which no path contains another: one struct cannot hold overlapping paths."""
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
    """A struct for each value, None where a value is invalid. `reasons` gets the errors by row."""
    import pyarrow.compute as pc

    rows: Rows = [None] * len(values)
    # Only values that start and end like an object are decoded as one block: then no value runs into the next.
    objects = pc.and_(pc.starts_with(values, b"{"), pc.ends_with(values, b"}")).fill_null(False)
    indices = pc.indices_nonzero(objects).to_pylist()
    for at in pc.indices_nonzero(pc.and_not(values.is_valid(), objects)).to_pylist():
        _decode_one(values, at, shape, rows, reasons)
    for start in range(0, len(indices), limits.TYPED_ROWS_AT_ONCE):
        _decode_many(values, indices[start : start + limits.TYPED_ROWS_AT_ONCE], shape, rows, reasons)
    return rows


def _decode_many(
    values: pa.BinaryArray, at: list[int], shape: _Shape, rows: Rows, reasons: dict[int, str]
) -> None:
    if len(at) == 1:
        _decode_one(values, at[0], shape, rows, reasons)
        return
    decoded = _decode_block(values, at, shape)
    if decoded is not None:
        for index, row in zip(at, decoded, strict=True):
            rows[index] = row
        return
    middle = len(at) // 2
    _decode_many(values, at[:middle], shape, rows, reasons)
    _decode_many(values, at[middle:], shape, rows, reasons)


def _decode_block(values: pa.BinaryArray, at: list[int], shape: _Shape) -> Rows | None:
    """The decoded values at these rows, or None if one of them is invalid."""
    import pyarrow as pa
    import pyarrow.compute as pc

    selected = values.take(pa.array(at, pa.int64()))
    joined = pc.binary_join(
        pa.LargeListArray.from_arrays(pa.array([0, len(at)], pa.int64()), selected), b"\n"
    )
    text = joined[0].as_py()
    try:
        if not text.isascii():
            text.decode()  # JSON is UTF-8, in keys without a column too
        decoded = shape.decoder.decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # A value that holds two objects gives two rows. No value gives less than one.
    return decoded if len(decoded) == len(at) else None


def _decode_one(values: pa.BinaryArray, at: int, shape: _Shape, rows: Rows, reasons: dict[int, str]) -> None:
    value = values[at].as_py()
    try:
        value.decode()
        rows[at] = shape.decoder.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reasons.setdefault(at, (str(error) or type(error).__name__)[: limits.TYPED_REASON_CHARS_MAX])


def invalid_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows whose value does not fit the declared columns."""
    import pyarrow.compute as pc

    return rows.filter(pc.is_valid(rows.column(ERROR_COLUMN)))

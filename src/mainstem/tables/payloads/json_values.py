"""Decode JSON values to Arrow arrays, with the columns of a table.

Values are decoded in blocks. A block that does not decode is halved until the invalid values are single: the row of an
invalid value has nulls and a reason. It does not affect other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from mainstem import limits
from mainstem.api.lake import Column
from mainstem.tables.column_types import (
    UnfitValue,
    arrow_array,
    arrow_type,
    fitting,
    json_type,
    needs_fitting,
    object_type,
)
from mainstem.tables.columns import field_of

if TYPE_CHECKING:
    import pyarrow as pa

TYPED_ROWS_AT_ONCE = 4_096  # values decoded to typed columns in one block

Rows = list[Any]  # decoded structs; None where the value is null or invalid


def json_columns(values: pa.BinaryArray, columns: Sequence[Column]) -> list[pa.Array]:
    """Why each value has no columns, or null; then the columns. A null value gives nulls and no error."""
    import pyarrow as pa

    reasons: dict[int, str] = {}
    shapes = [_Shape(group) for group in _without_overlap(columns)]
    decoded = [_decoded(values, shape, reasons) for shape in shapes]
    found: dict[str, list[object]] = {}
    for shape, rows in zip(shapes, decoded, strict=True):
        for column in shape.columns:
            found[column.name] = _fitted(column, shape.extract(rows, column, reasons), reasons)
    arrays: dict[str, pa.Array] = {}
    for column in columns:
        values_of = found[column.name]
        for at in reasons:
            values_of[at] = None  # a value that is invalid for one column is invalid for all
        arrays[column.name] = arrow_array(values_of, arrow_type(field_of(column)))
    errors = [reasons.get(at) for at in range(len(values))] if reasons else [None] * len(values)
    return [pa.array(errors, pa.string()), *(arrays[column.name] for column in columns)]


def _fitted(column: Column, values: list[Any], reasons: dict[int, str]) -> list[object]:
    """The values of a column as Arrow takes them. `reasons` gets the errors by row."""
    kind = field_of(column).type
    if not needs_fitting(kind, values):
        return values
    for at, value in enumerate(values):
        try:
            values[at] = fitting(kind, value)
        except UnfitValue as unfit:
            reasons.setdefault(at, f"{unfit} - at `{column.path}`"[: limits.TYPED_REASON_CHARS_MAX])
    return values


class _Shape:
    """A struct type with only the columns' values, nested like their paths."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self._readers: dict[
            tuple[str, ...], Callable[[Any], Any]
        ] = {}  # key path → reads it from the level above
        self.decoder = msgspec.json.Decoder(self._struct(columns, ()))

    def _struct(self, columns: Sequence[Column], parent: tuple[str, ...]) -> type[Any]:
        """One level: a field for each column at this depth, a nested struct for each key with deeper columns."""
        depth = len(parent)
        members: dict[str, Any] = {}
        for key in dict.fromkeys(column.keys[depth] for column in columns):
            inside = [column for column in columns if column.keys[depth] == key]
            if len(inside[0].keys) == depth + 1:
                members[key] = json_type(field_of(inside[0]))
            else:
                members[key] = self._struct(inside, (*parent, key)) | None
        level: type[Any] = object_type(members)
        structured = isinstance(level, type) and issubclass(level, msgspec.Struct)
        for number, (key, kind) in enumerate(members.items()):
            read = attrgetter(f"f{number}") if structured else _reader_of_member(key, kind)
            self._readers[(*parent, key)] = read
        return level

    def extract(self, rows: Rows, column: Column, reasons: dict[int, str]) -> list[object]:
        """The values of one column. `reasons` gets the errors by row."""
        values: list[Any] = rows
        for depth in range(1, len(column.keys) + 1):
            read = self._readers[column.keys[:depth]]
            try:
                values = [None if row is None else read(row) for row in values]
            except msgspec.DecodeError:
                values = [_read_one(read, at, row, reasons) for at, row in enumerate(values)]
        return values


def _reader_of_member(key: str, kind: Any) -> Callable[[Any], Any]:
    decoder = msgspec.json.Decoder(kind)

    def read(members: dict[str, msgspec.Raw]) -> Any:
        raw = members.get(key)
        return None if raw is None else decoder.decode(raw)

    return read


def _read_one(read: Callable[[Any], Any], at: int, row: Any, reasons: dict[int, str]) -> Any:
    try:
        return None if row is None else read(row)
    except msgspec.DecodeError as error:
        reasons.setdefault(at, str(error)[: limits.TYPED_REASON_CHARS_MAX])
        return None


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
    for start in range(0, len(indices), TYPED_ROWS_AT_ONCE):
        _decode_many(values, indices[start : start + TYPED_ROWS_AT_ONCE], shape, rows, reasons)
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

"""Convert values of a schema's type to the type of a table's column, which an earlier schema may have set."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

from mainstem import limits
from mainstem.errors import UndecodablePayload
from mainstem.tables.column_types import (
    ColumnType,
    DecimalType,
    FixedType,
    PrimitiveType,
    UnfitValue,
    exact,
    whole,
)
from mainstem.tables.type_text import type_text

# of one schema, nested ones included: more do not fit
TABLE_SCHEMA_FIELDS_MAX = limits.TABLE_DECLARATION_CHARS_MAX // 64

Convert = Callable[[Any], Any]  # raises UnfitValue

JSON_TEXT = PrimitiveType("json")

_FLOAT_MAX = 3.4028234663852886e38


class FieldBudget:
    """Counts the fields of a schema while its columns are built: types that use each other may stand for millions."""

    def __init__(self) -> None:
        self._left: int | None = TABLE_SCHEMA_FIELDS_MAX

    def take(self, count: int) -> None:
        """Raises UndecodablePayload."""
        if self._left is not None:
            self._left -= count
            if self._left < 0:
                raise UndecodablePayload(
                    f"the schema has more than {TABLE_SCHEMA_FIELDS_MAX} fields, nested ones included"
                )

    def built(self) -> None:
        """The columns exist. What reads values looks at some types again, which no longer counts."""
        self._left = None


def column_name(name: str) -> str:
    """A name that a column may have: names that begin with an underscore are those of records and of Iceberg."""
    return field_name(name.lstrip("_")) or "column"


def field_name(name: str) -> str:
    printable = "".join(each if each.isprintable() else "_" for each in name)
    return printable[: limits.NAME_CHARS_MAX]


def chain(first: Convert | None, then: Convert | None) -> Convert | None:
    if first is None or then is None:
        return first or then
    return lambda value: then(first(value))


def adapted(kind: ColumnType, column: ColumnType) -> Convert | None:
    """From a value of one type that is not nested to the type of a column. None: it stays as it is."""
    if kind == column:
        return None
    match kind, column:
        case _, PrimitiveType("json"):
            return lambda value: msgspec.json.encode(value).decode()
        case (
            (PrimitiveType("int"), PrimitiveType("long"))
            | (PrimitiveType("float"), PrimitiveType("double"))
            | (FixedType(), PrimitiveType("binary"))
            | (PrimitiveType("json"), PrimitiveType("string"))
        ):
            return None
        case PrimitiveType("uuid"), PrimitiveType("string"):
            return lambda value: str(uuid.UUID(bytes=value))
        case PrimitiveType("long"), PrimitiveType("int"):
            return _within_int
        case PrimitiveType("int" | "long"), PrimitiveType("float" | "double" as name):
            return lambda value: _as_float(value, name)
        case PrimitiveType("float" | "double"), PrimitiveType("int" | "long" as name):
            return lambda value: whole(name, value)
        case PrimitiveType("double"), PrimitiveType("float"):
            return _within_float
        case ((PrimitiveType("int" | "long") | DecimalType()), DecimalType()):
            return lambda value: exact(column, Decimal(value))
        case PrimitiveType("binary") | FixedType(), FixedType(length):
            return lambda value: _of_length(value, length)
    return unfit(kind, column)


def unfit(kind: ColumnType, column: ColumnType) -> Convert:
    """For a type that no value of a column has: the column got its type from an earlier schema."""
    text = f"its type in the schema, {_short(kind)}, does not fit the column's type, {_short(column)}"

    def refuse(value: Any) -> Any:
        raise UnfitValue(text)

    return refuse


def _short(kind: ColumnType) -> str:
    text = type_text(kind)
    return text if len(text) <= 64 else f"{text[:63]}…"


def _within_int(value: int) -> int:
    if not -(2**31) <= value < 2**31:
        raise UnfitValue(f"{value} does not fit `int`")
    return value


def _within_float(value: float) -> float:
    if abs(value) > _FLOAT_MAX and abs(value) != float("inf"):
        raise UnfitValue(f"{value!r} does not fit `float`")
    return value


def _as_float(value: int, name: str) -> float:
    found = float(value)
    exactly = abs(value) <= (1 << 24 if name == "float" else 1 << 53)
    if not exactly:
        raise UnfitValue(f"{value} does not fit `{name}` exactly")
    return found


def _of_length(value: bytes, length: int) -> bytes:
    if len(value) != length:
        raise UnfitValue(f"{len(value)} bytes do not fit `fixed({length})`")
    return value

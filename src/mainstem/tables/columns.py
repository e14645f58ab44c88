"""Typed columns of a topic's table: declared by users, with permanent ids; columns are only ever added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec

from mainstem import limits
from mainstem.api.lake import Column, TableColumns
from mainstem.errors import InvalidConfig, TableIncompatible
from mainstem.tables.column_types import PRIMITIVES, Field, Primitive
from mainstem.tables.evolution import assigned, evolved
from mainstem.tables.type_text import TYPES_TEXT, declared_type, parsed_type, type_text
from mainstem.values import did_you_mean

# Above the ids of the raw columns, and above those of partition fields, which some engines list beside columns.
FIRST_COLUMN_ID = 10_001

_JSON_SCHEMA_TYPES: dict[object, Primitive] = {
    "integer": "long",
    "number": "double",
    "string": "string",
    "boolean": "boolean",
}
_JSON_SCHEMA_FORMATS: dict[object, Primitive] = {"date-time": "timestamp", "date": "date"}

_columns = msgspec.json.Decoder(TableColumns)


def decode_columns(text: str) -> TableColumns:
    """The columns of a declaration in the ledger."""
    return _columns.decode(text) if text else TableColumns()


def encode_columns(columns: TableColumns) -> str:
    return msgspec.json.encode(columns).decode()


def field_of(column: Column) -> Field:
    """The column with its type and the fields inside, each with its id."""
    ids = iter((column.id, *column.ids))
    sources = iter(column.sources)

    def numbered(field: Field) -> Field:
        field = replace(field, id=next(ids), sources=next(sources, ()))
        return field.with_inside(tuple(map(numbered, field.inside)))

    return numbered(Field(column.name, parsed_type(column.type)))


def column_of(field: Field, path: str = "") -> Column:
    """The inverse of `field_of`."""
    inside = list(field.walk())
    sources = (field.sources, *(each.sources for each in inside)) if not path else ()
    return Column(
        field.id, field.name, type_text(field.type), path, tuple(each.id for each in inside), sources
    )


def next_id(columns: Sequence[Column]) -> int:
    """The first id that no column and no field has had: columns stay for ever."""
    return max([FIRST_COLUMN_ID, *(max(column.id, *column.ids, 0) + 1 for column in columns)])


def declared(schema: object, present: Sequence[Column]) -> list[Column]:
    """The columns after a user's declaration: the present ones, then new ones.

    Raises InvalidConfig for a malformed declaration, TableIncompatible for one that removes or changes a column."""
    if isinstance(schema, dict):
        wanted = _of_json_schema(schema)
    elif isinstance(schema, list):
        wanted = [_of_item(item) for item in schema]
    else:
        raise InvalidConfig("a table's schema must be a list of columns, or a JSON Schema of an object")
    if len(wanted) > limits.TABLE_COLUMNS_MAX:
        raise InvalidConfig(
            f"a table may have up to {limits.TABLE_COLUMNS_MAX} typed columns, not {len(wanted)}"
        )
    _check_names(wanted)
    return _merged(wanted, present)


def _of_item(item: object) -> Column:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise InvalidConfig('a column must be {"name": …, "type": …}, optionally with "path": "$.key.key"')
    unknown = set(item) - {"name", "type", "path"}
    if unknown:
        raise InvalidConfig(
            f"column {item['name'][:64]!r} has an unknown key {sorted(map(str, unknown))[0][:64]!r}"
        )
    kind = item.get("type")
    try:
        if not isinstance(kind, str):
            raise ValueError("it is missing")
        canonical = type_text(declared_type(kind))
    except ValueError as wrong:
        near = did_you_mean(kind, PRIMITIVES) if isinstance(kind, str) else ""
        raise InvalidConfig(
            f"the type of column {item['name'][:64]!r} must be one of {TYPES_TEXT}{near}: {wrong}"
        ) from None
    return Column(0, item["name"], canonical, _path(item["name"], item.get("path")))


def _path(name: str, path: object) -> str:
    if path is None:
        if "." in name:
            raise InvalidConfig(
                f'column {name[:64]!r} has a dot in its name: give its path, as "path": "$.key"'
            )
        return f"$.{name}"
    keys = path[2:].split(".") if isinstance(path, str) and path.startswith("$.") else []
    if not keys or not all(keys) or any("[" in key for key in keys):
        raise InvalidConfig(f"the path of column {name[:64]!r} is invalid: write it as $.key or $.key.key")
    if len(keys) > limits.TABLE_COLUMN_DEPTH_MAX:
        raise InvalidConfig(
            f"the path of column {name[:64]!r} has more than {limits.TABLE_COLUMN_DEPTH_MAX} keys"
        )
    return "$." + ".".join(keys)


def _of_json_schema(schema: dict[Any, Any]) -> list[Column]:
    properties = schema.get("properties")
    if schema.get("type", "object") != "object" or not isinstance(properties, dict):
        raise InvalidConfig('a JSON Schema for a table must describe an object, with "properties"')
    return [
        Column(0, str(name), _json_schema_type(about), _path(str(name), None))
        for name, about in properties.items()
    ]


def _json_schema_type(about: object) -> Primitive:
    """A property without a single column type is stored as JSON text."""
    if not isinstance(about, dict):
        return "json"
    kinds = about.get("type")
    if isinstance(kinds, list):  # such as ["integer", "null"]: every column accepts null
        rest = [kind for kind in kinds if kind != "null"]
        kinds = rest[0] if len(rest) == 1 else None
    if kinds == "string" and isinstance(about.get("format"), str):
        return _JSON_SCHEMA_FORMATS.get(about["format"], "string")
    return _JSON_SCHEMA_TYPES.get(kinds, "json") if isinstance(kinds, str) else "json"


# Names of the raw columns, and the names that Iceberg reserves. All begin with an underscore, and so may later ones:
# no typed column may.
RESERVED_NAMES = (
    *("_partition_id", "_offset", "_timestamp", "_key", "_value", "_headers"),
    *("_timestamp_ms", "_header_names", "_append_time", "_error"),
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
)


def _check_names(columns: Sequence[Column]) -> None:
    reserved = [column.name for column in columns if column.name.startswith("_")]
    if reserved:
        raise InvalidConfig(
            f"column names must not begin with an underscore: {', '.join(map(repr, reserved))[:512]}; "
            f"records and Iceberg reserve {', '.join(RESERVED_NAMES)}. Declare another name, with the key as path: "
            f'{{"name": "{reserved[0].lstrip("_")[:64] or "column"}", "path": "$.{reserved[0][:64]}", "type": …}}'
        )
    seen: set[str] = set()
    for column in columns:
        name = column.name
        if not 1 <= len(name) <= limits.NAME_CHARS_MAX or not name.isprintable():
            raise InvalidConfig(
                f"{name[:64]!r} is not a valid column name: use 1 to {limits.NAME_CHARS_MAX} printable characters"
            )
        if name.lower() in seen:  # many engines ignore case
            raise InvalidConfig(f"column {name[:64]!r} is declared twice")
        seen.add(name.lower())


def _merged(wanted: Sequence[Column], present: Sequence[Column]) -> list[Column]:
    new = {column.name: column for column in wanted}
    ids = count(next_id(present))
    merged = []
    for column in present:
        again = new.pop(column.name, None)
        if again is None:
            raise TableIncompatible(f"column {column.name!r} exists and cannot be removed: declare it too")
        if again.path != column.path:
            raise TableIncompatible(
                f"column {column.name!r} has the path {column.path}, which cannot change to {again.path}"
            )
        widened = evolved(field_of(column), Field(again.name, parsed_type(again.type)), ids)
        if type_text(widened.type) != again.type:
            raise TableIncompatible(
                f"column {column.name!r} is a {column.type} and cannot become a {again.type}"
            )
        merged.append(column_of(widened, column.path))
    taken = {column.name.lower() for column in present}
    for column in new.values():
        if column.name.lower() in taken:
            raise TableIncompatible(f"column {column.name!r} differs from an existing one only in case")
        merged.append(column_of(assigned(Field(column.name, parsed_type(column.type)), ids), column.path))
    return merged

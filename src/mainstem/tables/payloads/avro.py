"""Avro values as columns.

| Avro | column |
|---|---|
| boolean, int, long, float, double, string, enum | the same; an enum is a string |
| bytes, fixed | binary, fixed(L) |
| decimal, uuid, date, time-* | decimal(P, S), uuid, date, time |
| timestamp-*, local-timestamp-* | timestamp, timestamp_ntz, in whole microseconds |
| array, map, record | list<…>, map<string, …>, struct<…> |
| a union with null | the other type: every column may be null |
| any other union | a struct with one field for each type, of which one has a value |
| a type that contains itself, or has no fields | json |
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any

import fastavro
import msgspec

from mainstem.errors import UndecodablePayload
from mainstem.schemas.avro import UNREADABLE, AvroSchema, told
from mainstem.tables.column_types import (
    DECIMAL_DIGITS_MAX,
    DEPTH_MAX,
    FIXED_BYTES_MAX,
    ColumnType,
    DecimalType,
    Field,
    FixedType,
    ListType,
    MapType,
    PrimitiveType,
    StructType,
    UnfitValue,
    list_of,
    map_of,
    microseconds,
)
from mainstem.tables.evolution import matches, unique_name
from mainstem.tables.payloads.conversion import (
    JSON_TEXT,
    Convert,
    FieldBudget,
    adapted,
    chain,
    column_name,
    field_name,
    unfit,
)

_WIDE = Context(prec=DECIMAL_DIGITS_MAX * 2)
_DAY_US = 86_400_000_000
_PRIMITIVE: dict[str, ColumnType] = {
    "null": PrimitiveType("string"),
    "boolean": PrimitiveType("boolean"),
    "int": PrimitiveType("int"),
    "long": PrimitiveType("long"),
    "float": PrimitiveType("float"),
    "double": PrimitiveType("double"),
    "string": PrimitiveType("string"),
    "bytes": PrimitiveType("binary"),
}
# By the logical type: the type of the column, and how many microseconds one unit is; 0: less than one.
_TIMES: dict[str, tuple[ColumnType, int]] = {
    "time-millis": (PrimitiveType("time"), 1000),
    "time-micros": (PrimitiveType("time"), 1),
    "timestamp-millis": (PrimitiveType("timestamp"), 1000),
    "timestamp-micros": (PrimitiveType("timestamp"), 1),
    "timestamp-nanos": (PrimitiveType("timestamp"), 0),
    "local-timestamp-millis": (PrimitiveType("timestamp_ntz"), 1000),
    "local-timestamp-micros": (PrimitiveType("timestamp_ntz"), 1),
    "local-timestamp-nanos": (PrimitiveType("timestamp_ntz"), 0),
}
_OF_INT = ("time-millis",)
_NAMED = ("record", "error", "enum", "fixed")


class AvroPayloads:
    """The values of one schema."""

    def __init__(self, schema: AvroSchema) -> None:
        self._title = schema.title
        self._bounds = schema.bounds
        self._names = dict(_definitions(schema.resolved))
        self._root = schema.resolved
        # Logical types are converted here: fastavro's Python objects end with year 9999.
        self._plain = fastavro.parse_schema(_without_logical_types(schema.resolved))
        self._budget = FieldBudget()
        self.fields = self._columns()
        self._budget.built()

    def _columns(self) -> tuple[Field, ...]:
        if not self._is_record(self._root):
            return (Field("value", self._type(self._root, ()), sources=("value",)),)
        return self._fields(self._root, (self._root["name"],), column_name)

    def reader(self, columns: Sequence[Field]) -> Convert:
        """What reads a payload, as a list with the value of each column. Raises UndecodablePayload, UnfitValue."""
        found = matches(columns, self.fields)
        record = self._is_record(self._root)
        nodes = {each["name"]: each["type"] for each in self._root["fields"]} if record else {}
        above = (self._root["name"],) if record else ()
        names = [found[place].sources[-1] if place in found else None for place in range(len(columns))]
        converted: list[tuple[int, Convert]] = []
        for place, name in enumerate(names):
            if name is not None:
                convert = self._convert(nodes.get(name, self._root), columns[place].type, above)
                converted += [(place, convert)] if convert else []

        def read(payload: bytes) -> list[Any]:
            value = self._read(payload)
            get = (value if record else {"value": value}).get
            row = [get(name) for name in names]
            place = 0
            try:
                for place, convert in converted:
                    if row[place] is not None:
                        row[place] = convert(row[place])
            except UnfitValue as wrong:
                raise UnfitValue(f"field {names[place]!r}: {wrong}") from None
            return row

        return read

    def _read(self, payload: bytes) -> Any:
        self._bounds.check(payload)
        source = io.BytesIO(payload)
        try:
            value = fastavro.schemaless_reader(source, self._plain, None, return_named_type=True)
        except (*UNREADABLE, RecursionError) as wrong:
            raise UndecodablePayload(f"the bytes do not fit {self._title}: {told(wrong)}") from None
        if source.tell() != len(payload):
            raise UndecodablePayload(
                f"the bytes do not fit {self._title}: {len(payload) - source.tell()} bytes are left over"
            )
        return value

    # Types

    def _is_record(self, node: Any) -> bool:
        return isinstance(node, dict) and node.get("type") in ("record", "error")

    def _resolved(self, node: Any) -> Any:
        """The definition of a named type, the inside of a type in an object of its own."""
        if isinstance(node, str):
            return self._names.get(node, node)
        if isinstance(node, dict) and isinstance(node.get("type"), dict | list):
            return self._resolved(node["type"])
        return node

    def _fields(self, record: Any, above: tuple[str, ...], named: Any) -> tuple[Field, ...]:
        self._budget.take(len(record["fields"]))
        found: list[Field] = []
        for each in record["fields"]:
            name = unique_name(named(each["name"]), [known.name for known in found])
            sources = (*each.get("aliases", ()), each["name"])
            found.append(Field(name, self._type(each["type"], above), sources=sources))
        return tuple(found)

    def _type(self, node: Any, above: tuple[str, ...]) -> ColumnType:
        """The natural type of a column for it. `above` has the types that it is in."""
        node = self._resolved(node)
        if isinstance(node, list):
            return self._union(node, above)
        if isinstance(node, str):
            return _PRIMITIVE[node]
        name = node["type"]
        title = node.get("name", "")
        if len(above) >= DEPTH_MAX - 1 or (title and title in above):
            return JSON_TEXT
        inner = (*above, title)
        match name:
            case "record" | "error":
                return StructType(self._fields(node, inner, field_name)) if node["fields"] else JSON_TEXT
            case "array":
                return list_of(self._type(node["items"], inner))
            case "map":
                return map_of(PrimitiveType("string"), self._type(node["values"], inner))
            case "enum":
                return PrimitiveType("string")
        return _logical_type(node)

    def _union(self, branches: Sequence[Any], above: tuple[str, ...]) -> ColumnType:
        present = _present(branches)
        if len(present) == 1:
            return self._type(present[0], above)
        if not present or len(above) >= DEPTH_MAX - 1:
            return JSON_TEXT if present else PrimitiveType("string")
        inner = (*above, "")
        self._budget.take(len(present))
        fields = [
            Field(name, self._type(node, inner), sources=(name,))
            for name, node in self._branches(present).items()
        ]
        return StructType(tuple(fields))

    def _branches(self, branches: Sequence[Any]) -> dict[str, Any]:
        """The branches of a union by name. Python has one type for int and long, so they share a field."""
        found: dict[str, Any] = {}
        for node in branches:
            resolved = self._resolved(node)
            kind = resolved if isinstance(resolved, str) else resolved["type"]
            name = resolved["name"].rpartition(".")[2] if kind in _NAMED else kind
            if {"int": "long", "float": "double"}.get(kind) in branches:
                continue
            found[unique_name(name, list(found))] = node
        return found

    # Values

    def _convert(self, node: Any, column: ColumnType, above: tuple[str, ...]) -> Convert | None:
        """From what fastavro reads to what Arrow takes; None: it stays as it is."""
        node = self._resolved(node)
        if column == JSON_TEXT:
            return _json_text
        if isinstance(node, list):
            return self._convert_union(node, column, above)
        if isinstance(node, str):
            return adapted(_PRIMITIVE[node], column)
        natural = self._type(node, above)
        if natural == JSON_TEXT:
            return chain(_json_text, adapted(natural, column))
        inner = (*above, node.get("name", ""))
        match natural, column:
            case StructType(), StructType():
                return self._convert_record(node, natural, column, inner)
            case ListType(), ListType(element):
                each = self._convert(node["items"], element.type, inner)
                return (lambda items: [_or_none(each, item) for item in items]) if each else None
            case MapType(), MapType(_, value):
                each = self._convert(node["values"], value.type, inner)
                return lambda items: [(key, _or_none(each, item)) for key, item in items.items()]
            case ((StructType() | ListType() | MapType()), _):
                return unfit(natural, column)
        raw = None if node["type"] == "enum" else _logical_value(node)
        return chain(raw, adapted(natural, column))

    def _convert_record(
        self, node: Any, natural: StructType, column: StructType, inner: tuple[str, ...]
    ) -> Convert:
        nodes = {each["name"]: each["type"] for each in node["fields"]}
        getters = [
            (column.fields[place].name, each.sources[-1], column.fields[place].type)
            for place, each in matches(column.fields, natural.fields).items()
        ]
        made = [(name, source, self._convert(nodes[source], kind, inner)) for name, source, kind in getters]
        return lambda record: {name: _got(record, source, each) for name, source, each in made}

    def _convert_union(
        self, branches: Sequence[Any], column: ColumnType, above: tuple[str, ...]
    ) -> Convert | None:
        present = _present(branches)
        if not present:
            return None
        if len(present) == 1:
            return chain(_untagged, self._convert(present[0], column, above))
        if not isinstance(column, StructType):
            return unfit(self._union(branches, above), column)
        by_kind: dict[Any, tuple[str, Convert | None]] = {}
        targets = {source: field for field in column.fields for source in field.sources}
        for name, node in self._branches(present).items():
            if name in targets:
                each = self._convert(node, targets[name].type, (*above, ""))
                by_kind[self._python_kind(node)] = (targets[name].name, each)

        def convert(value: Any) -> Any:
            kind = value[0] if type(value) is tuple else type(value)
            if kind not in by_kind:
                raise UnfitValue("its branch of a union has no column")
            name, each = by_kind[kind]
            return {name: _or_none(each, _untagged(value))}

        return convert

    def _python_kind(self, node: Any) -> Any:
        """What distinguishes the branches of a union: the name of a named type, the Python type of the others."""
        node = self._resolved(node)
        kind = node if isinstance(node, str) else node["type"]
        if kind in _NAMED:
            return node["name"]
        return _PYTHON[kind]


_PYTHON: dict[str, type] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "array": list,
    "map": dict,
}


def _present(branches: Sequence[Any]) -> list[Any]:
    """The branches of a union without null."""
    return [each for each in branches if each != "null" and each != {"type": "null"}]


def _got(row: Any, name: str, convert: Convert | None) -> Any:
    value = row[name]
    if value is None or convert is None:
        return value
    try:
        return convert(value)
    except UnfitValue as wrong:
        raise UnfitValue(f"field {name!r}: {wrong}") from None


def _or_none(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _untagged(value: Any) -> Any:
    return value[1] if type(value) is tuple else value


def _json_text(value: Any) -> str:
    return msgspec.json.encode(_without_tags(value)).decode()


def _without_tags(value: Any) -> Any:
    if type(value) is tuple:
        return _without_tags(value[1])
    if isinstance(value, list):
        return [_without_tags(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_tags(each) for name, each in value.items()}
    return value


def _decimal(node: dict[str, Any]) -> DecimalType | None:
    precision, scale = node.get("precision"), node.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return None
    sound = 1 <= precision <= DECIMAL_DIGITS_MAX and 0 <= scale <= precision
    return DecimalType(precision, scale) if sound else None


def _logical_type(node: dict[str, Any]) -> ColumnType:
    """The column type of a primitive or fixed type. A logical type that does not fit it means nothing, as Avro says."""
    kind, logical = node["type"], node.get("logicalType")
    if kind in ("bytes", "fixed") and logical == "decimal":
        found = _decimal(node)
        if found is not None:
            return found
    if logical == "uuid" and (kind == "string" or (kind == "fixed" and node["size"] == 16)):
        return PrimitiveType("uuid")
    if kind == "int" and logical == "date":
        return PrimitiveType("date")
    if logical in _TIMES and kind == ("int" if logical in _OF_INT else "long"):
        return _TIMES[logical][0]
    if kind == "fixed":
        size = node["size"]
        return FixedType(size) if 1 <= size <= FIXED_BYTES_MAX else PrimitiveType("binary")
    return _PRIMITIVE[kind]


def _logical_value(node: dict[str, Any]) -> Convert | None:
    kind = _logical_type(node)
    match kind:
        case DecimalType(_, scale):
            return lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _WIDE)
        case PrimitiveType("uuid"):
            return _uuid
        case PrimitiveType("time"):
            unit = _TIMES[node["logicalType"]][1]
            return lambda value: _time_of_day(value * unit)
        case PrimitiveType("timestamp" | "timestamp_ntz"):
            unit = _TIMES[node["logicalType"]][1]
            return (lambda value: microseconds(value, unit)) if unit else (lambda value: value // 1000)
    return None


def _uuid(value: str | bytes) -> bytes:
    try:
        return value if isinstance(value, bytes) else uuid.UUID(value).bytes
    except ValueError:
        raise UnfitValue(f"{value[:64]!r} is not a UUID") from None


def _time_of_day(value: int) -> int:
    if not 0 <= value < _DAY_US:
        raise UnfitValue(f"{value} µs is not a time of day")
    return value


def _definitions(node: Any) -> Iterator[tuple[str, Any]]:
    """The named types inside a schema, with their full names."""
    if isinstance(node, list):
        for each in node:
            yield from _definitions(each)
    elif isinstance(node, dict):
        if node.get("type") in _NAMED:
            yield node["name"], node
        for key in ("type", "items", "values"):
            if isinstance(node.get(key), dict | list):
                yield from _definitions(node[key])
        for field in node.get("fields", ()):
            yield from _definitions(field["type"])


def _without_logical_types(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_logical_types(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {key: value for key, value in node.items() if key != "logicalType" and not key.startswith("__")}
    for key in ("type", "items", "values"):
        if key in kept:
            kept[key] = _without_logical_types(kept[key])
    if "fields" in kept:
        kept["fields"] = [
            {"name": field["name"], "type": _without_logical_types(field["type"])} for field in kept["fields"]
        ]
    return kept

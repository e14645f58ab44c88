"""Protobuf values as columns. A field is known by its number, whatever its name.

| Protobuf | column |
|---|---|
| bool, float, double, string, bytes | boolean, float, double, string, binary |
| int32, sint32, sfixed32; int64, sint64, sfixed64 | int; long |
| uint32, fixed32; uint64, fixed64 | long; decimal(20, 0) |
| enum | string: the name, or the number of an unknown value |
| message, group; repeated; map | struct<…>; list<…>; map<string\\|int\\|long, …> |
| a field of a `oneof` | a column like the others; one of them has a value |
| google.protobuf.Timestamp; its wrappers of scalars | timestamp, in whole microseconds; the scalar |
| google.protobuf.Struct, Value, ListValue; a message that contains itself, or has no fields | json |

A field without presence has its default value, as Protobuf says; other fields that are not set are null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from google.protobuf import json_format

from mainstem.errors import UndecodablePayload
from mainstem.schemas.protobuf import ProtobufSchema, split_indexes
from mainstem.tables.column_types import (
    DEPTH_MAX,
    ColumnType,
    DecimalType,
    Field,
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

_UINT64 = DecimalType(20, 0)
_SCALARS: dict[int, ColumnType] = {
    1: PrimitiveType("double"),
    2: PrimitiveType("float"),
    3: PrimitiveType("long"),
    4: _UINT64,
    5: PrimitiveType("int"),
    6: _UINT64,
    7: PrimitiveType("long"),
    8: PrimitiveType("boolean"),
    9: PrimitiveType("string"),
    12: PrimitiveType("binary"),
    13: PrimitiveType("long"),
    14: PrimitiveType("string"),
    15: PrimitiveType("int"),
    16: PrimitiveType("long"),
    17: PrimitiveType("int"),
    18: PrimitiveType("long"),
}  # by the number of the type in descriptors
_ENUM = 14
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = tuple(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_DOCUMENTS = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")

Getter = Callable[[Any], Any]  # from a message to the value of one of its fields


class ProtobufPayloads:
    """The values of one schema that hold one of its messages: that of a name, or the first."""

    def __init__(self, schema: ProtobufSchema, message: str) -> None:
        self._schema = schema
        self._descriptor = schema.message_named(message) if message else schema.message((0,))
        self._above = (self._descriptor.full_name,)  # of the columns: a field of that type contains itself
        self._budget = FieldBudget()
        self.fields = self._fields(self._descriptor, self._above, column_name)
        self._budget.built()

    def reader(self, columns: Sequence[Field]) -> Convert:
        """What reads a payload, as a list with the value of each column. Raises UndecodablePayload, UnfitValue."""
        found = matches(columns, self.fields)
        numbers = self._descriptor.fields_by_number
        getters: list[Getter | None] = [None] * len(columns)
        for place, field in found.items():
            getters[place] = self._getter(
                numbers[int(field.sources[-1][1:])], columns[place].type, self._above
            )

        def read(payload: bytes) -> list[Any]:
            indexes, body = split_indexes(payload)
            if self._schema.message(indexes) is not self._descriptor:
                raise UndecodablePayload(
                    f"the value holds message {self._schema.message(indexes).full_name!r}, "
                    f"not {self._descriptor.full_name!r}"
                )
            message = self._schema.decode_message(indexes, body)
            return [None if get is None else get(message) for get in getters]

        return read

    # Types

    def _fields(self, descriptor: Any, above: tuple[str, ...], named: Any) -> tuple[Field, ...]:
        self._budget.take(len(descriptor.fields))
        found: list[Field] = []
        for each in descriptor.fields:
            name = unique_name(named(each.name), [known.name for known in found])
            found.append(Field(name, self._type(each, above), sources=(f"#{each.number}",)))
        return tuple(found)

    def _type(self, field: Any, above: tuple[str, ...]) -> ColumnType:
        if _is_map(field):
            key, value = field.message_type.fields
            return map_of(_map_key(key), self._single(value, (*above, "")))
        return list_of(self._single(field, (*above, ""))) if field.is_repeated else self._single(field, above)

    def _single(self, field: Any, above: tuple[str, ...]) -> ColumnType:
        message = field.message_type
        if message is None:
            return _SCALARS[field.type]
        name = message.full_name
        if name == _TIMESTAMP:
            return PrimitiveType("timestamp")
        if name in _WRAPPERS:
            return _SCALARS[message.fields[0].type]
        if name in _DOCUMENTS or name in above or len(above) >= DEPTH_MAX - 1 or not message.fields:
            return JSON_TEXT
        return StructType(self._fields(message, (*above, name), field_name))

    # Values

    def _getter(self, field: Any, column: ColumnType, above: tuple[str, ...]) -> Getter:
        name, natural = field.name, self._type(field, above)
        if _is_map(field) or field.is_repeated:
            return _with_field_name(field, self._many(field, natural, column, above))
        convert = self._convert(field, natural, column, above)
        if field.has_presence:
            return _with_field_name(
                field,
                lambda message: (
                    None
                    if not message.HasField(name)
                    else getattr(message, name)
                    if convert is None
                    else convert(getattr(message, name))
                ),
            )
        if convert is None:
            return lambda message: getattr(message, name)
        return _with_field_name(field, lambda message: convert(getattr(message, name)))

    def _many(self, field: Any, natural: ColumnType, column: ColumnType, above: tuple[str, ...]) -> Getter:
        name, inner = field.name, (*above, "")
        match natural, column:
            case MapType(known, inside), MapType(key, value):
                keys = adapted(known.type, key.type) if known.type != PrimitiveType("string") else _text_key
                values = field.message_type.fields_by_number[2]
                each = self._convert(values, inside.type, value.type, inner)
                return lambda message: _pairs(getattr(message, name), keys, each)
            case ListType(inside), ListType(element):
                each = self._convert(field, inside.type, element.type, inner)
                return lambda message: [_given(each, item) for item in getattr(message, name)]
        refuse = unfit(natural, column)
        return lambda message: refuse(None) if len(getattr(message, name)) else None

    def _convert(
        self, field: Any, natural: ColumnType, column: ColumnType, above: tuple[str, ...]
    ) -> Convert | None:
        """From the value of a field that is not repeated to what Arrow takes; None: it stays as it is."""
        message = field.message_type
        if message is None:
            return chain(_scalar(field), adapted(natural, column))
        name = message.full_name
        if name == _TIMESTAMP:
            return chain(_timestamp, adapted(natural, column))
        if name in _WRAPPERS:
            scalar = message.fields[0]
            return chain(chain(lambda held: held.value, _scalar(scalar)), adapted(natural, column))
        if natural == JSON_TEXT or column == JSON_TEXT:
            return chain(_json_text, adapted(JSON_TEXT, column))
        if not isinstance(natural, StructType) or not isinstance(column, StructType):
            return unfit(natural, column)
        getters = [
            (
                column.fields[place].name,
                self._getter(
                    message.fields_by_number[int(each.sources[-1][1:])],
                    column.fields[place].type,
                    (*above, name),
                ),
            )
            for place, each in matches(column.fields, natural.fields).items()
        ]
        return lambda held: {name: get(held) for name, get in getters}


def _with_field_name(field: Any, get: Getter) -> Getter:
    def got(message: Any) -> Any:
        try:
            return get(message)
        except UnfitValue as wrong:
            raise UnfitValue(f"field {field.name!r}: {wrong}") from None

    return got


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _map_key(field: Any) -> ColumnType:
    natural = _SCALARS[field.type]
    return natural if natural in (PrimitiveType("int"), PrimitiveType("long")) else PrimitiveType("string")


def _text_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _given(convert: Convert | None, value: Any) -> Any:
    return value if convert is None else convert(value)


def _pairs(items: Any, keys: Convert | None, values: Convert | None) -> list[tuple[Any, Any]]:
    return [(_given(keys, key), _given(values, items[key])) for key in items]


def _scalar(field: Any) -> Convert | None:
    if field.type == _ENUM:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    return Decimal if _SCALARS[field.type] == _UINT64 else None


def _timestamp(value: Any) -> int:
    return microseconds(value.seconds * 1_000_000 + value.nanos // 1000, 1)


def _json_text(message: Any) -> str:
    try:
        return str(json_format.MessageToJson(message, indent=None, preserving_proto_field_name=True))
    except (json_format.Error, TypeError, ValueError, RecursionError) as wrong:
        raise UnfitValue(f"it has no form in JSON: {wrong}") from None

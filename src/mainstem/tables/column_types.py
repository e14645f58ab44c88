"""Types of typed columns: what each one is in Iceberg, in Arrow and in JSON.

A nested type has fields of its own, each with a permanent id.
"""

from __future__ import annotations

import datetime
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

if TYPE_CHECKING:
    import pyarrow as pa

Primitive = Literal[
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "json",
    "date",
    "time",
    "timestamp",
    "timestamp_ntz",
    "timestamp_ms",
    "timestamp_us",
    "uuid",
    "binary",
]
PRIMITIVES: tuple[str, ...] = get_args(Primitive)
DECIMAL_DIGITS_MAX = 38
FIXED_BYTES_MAX = 65_536
DEPTH_MAX = 8  # of types that users write

_FLOAT_MAX = 3.4028234663852886e38
_MICROSECONDS_MAX = (1 << 63) - 2  # the last one, either way, is DuckDB's infinity


class Definition(NamedTuple):
    """What a primitive type is elsewhere."""

    iceberg: str  # the name of PyIceberg's class, which also decides the form of bounds in manifests
    arrow: str  # Arrow's name of the type
    json: Any  # the Python type that JSON is decoded as


# A whole number may be written as 1.0 or 1e3, which decodes to a float: `fitting` checks it.
_INT = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | float
_LONG = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float
_INSTANT = "timestamp[us, tz=UTC]"

DEFINITIONS: dict[Primitive, Definition] = {
    "boolean": Definition("BooleanType", "bool", bool),
    "int": Definition("IntegerType", "int32", _INT),
    "long": Definition("LongType", "int64", _LONG),
    "float": Definition("FloatType", "float", Annotated[float, Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)]),
    "double": Definition("DoubleType", "double", float),
    "string": Definition("StringType", "string", str),
    "json": Definition("StringType", "string", msgspec.Raw),
    "date": Definition("DateType", "date32", datetime.date),
    "time": Definition("TimeType", "time64[us]", Annotated[datetime.time, Meta(tz=False)]),
    "timestamp": Definition("TimestamptzType", _INSTANT, datetime.datetime),
    "timestamp_ntz": Definition(
        "TimestampType", "timestamp[us]", Annotated[datetime.datetime, Meta(tz=False)]
    ),
    "timestamp_ms": Definition("TimestamptzType", _INSTANT, _LONG),
    "timestamp_us": Definition("TimestamptzType", _INSTANT, _LONG),
    "uuid": Definition("UUIDType", "uuid", uuid.UUID),
    "binary": Definition("BinaryType", "binary", bytes),
}


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    name: Primitive


@dataclass(frozen=True, slots=True)
class DecimalType:
    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class FixedType:
    length: int


@dataclass(frozen=True, slots=True)
class ListType:
    element: Field


@dataclass(frozen=True, slots=True)
class MapType:
    key: Field
    value: Field


@dataclass(frozen=True, slots=True)
class StructType:
    fields: tuple[Field, ...]


ColumnType = PrimitiveType | DecimalType | FixedType | ListType | MapType | StructType


@dataclass(frozen=True, slots=True)
class Field:
    """A column, or a field inside its type."""

    name: str
    type: ColumnType
    id: int = 0  # 0: not assigned
    sources: tuple[str, ...] = ()  # the names that schemas of the registry have for it, the newest last

    @property
    def inside(self) -> tuple[Field, ...]:
        """The fields directly inside its type."""
        match self.type:
            case ListType(element):
                return (element,)
            case MapType(key, value):
                return key, value
            case StructType(fields):
                return fields
        return ()

    def with_inside(self, inside: tuple[Field, ...]) -> Field:
        match self.type:
            case ListType():
                return replace(self, type=ListType(inside[0]))
            case MapType():
                return replace(self, type=MapType(*inside))
            case StructType():
                return replace(self, type=StructType(inside))
        return self

    def walk(self) -> Iterator[Field]:
        """The fields inside its type, at any depth, each before those inside it."""
        for each in self.inside:
            yield each
            yield from each.walk()


def list_of(kind: ColumnType) -> ListType:
    return ListType(Field("element", kind))


def map_of(key: ColumnType, value: ColumnType) -> MapType:
    return MapType(Field("key", key), Field("value", value))


# Arrow and Iceberg


def arrow_field(field: Field) -> pa.Field:
    """With the field's id, as Parquet files have it."""
    import pyarrow as pa

    return pa.field(field.name, arrow_type(field), metadata={b"PARQUET:field_id": b"%d" % field.id})


def arrow_type(field: Field) -> pa.DataType:
    import pyarrow as pa

    inside = [arrow_field(each) for each in field.inside]
    match field.type:
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case FixedType(length):
            return pa.binary(length)
        case ListType():
            return pa.list_(inside[0])
        case MapType():
            return pa.map_(inside[0].with_nullable(False), inside[1])
        case StructType():
            return pa.struct(inside)
        case PrimitiveType("uuid"):
            return pa.uuid()
        case PrimitiveType("timestamp" | "timestamp_ms" | "timestamp_us"):
            return pa.timestamp("us", tz="UTC")
        case PrimitiveType(name):
            return pa.type_for_alias(DEFINITIONS[name].arrow)


def arrow_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of Python values, which may be numbers for times and bytes for UUIDs."""
    import pyarrow as pa

    storage = _storage(kind)
    made = pa.array(values, storage)
    return made if storage == kind else made.cast(kind)


def _storage(kind: pa.DataType) -> pa.DataType:
    """The type without extensions: Arrow builds no nested arrays of those."""
    import pyarrow as pa

    if isinstance(kind, pa.ExtensionType) or kind == pa.uuid():
        return kind.storage_type
    if pa.types.is_map(kind):
        return pa.map_(_bare(kind.key_field), _bare(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_bare(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_bare(kind.field(at)) for at in range(kind.num_fields)])
    return kind


def _bare(field: pa.Field) -> pa.Field:
    return field.with_type(_storage(field.type))


def iceberg_type(field: Field) -> Any:
    from pyiceberg import types

    inside = [iceberg_type(each) for each in field.inside]
    match field.type:
        case DecimalType(precision, scale):
            return types.DecimalType(precision, scale)
        case FixedType(length):
            return types.FixedType(length)
        case ListType(element):
            return types.ListType(element.id, inside[0], element_required=False)
        case MapType(key, value):
            return types.MapType(key.id, inside[0], value.id, inside[1], value_required=False)
        case StructType(fields):
            named = zip(fields, inside, strict=True)
            return types.StructType(
                *(types.NestedField(each.id, each.name, made, required=False) for each, made in named)
            )
        case PrimitiveType(name):
            return getattr(types, DEFINITIONS[name].iceberg)()


# JSON


_ODD_KEY = re.compile(r'["\\\x00-\x1f]')


class UnfitValue(ValueError):
    """A value that its column cannot hold exactly."""


def json_type(field: Field) -> Any:
    """The Python type that JSON is decoded as. Structs read the newest of the field's source names, or its name."""
    match field.type:
        case PrimitiveType("json"):
            return msgspec.Raw
        case PrimitiveType(name):
            return DEFINITIONS[name].json | None
        case DecimalType():
            return Decimal | None
        case FixedType(length):
            return Annotated[bytes, Meta(min_length=length, max_length=length)] | None
        case ListType(element):
            return list[json_type(element)] | None  # type: ignore[misc]
        case MapType(key, value):
            return dict[_map_key(key.type), json_type(value)] | None  # type: ignore[misc]
        case StructType(fields):
            return object_type({_json_key(each): json_type(each) for each in fields}) | None


def object_type(members: Mapping[str, Any]) -> Any:
    """The Python type that an object with these keys is decoded as: a struct with the attributes f0, f1 …, or a dict
    of undecoded values if a key has characters that structs cannot have."""
    if any(_ODD_KEY.search(key) for key in members):
        return dict[str, msgspec.Raw]
    names = {f"f{at}": key for at, key in enumerate(members)}
    fields = [(f"f{at}", kind, None) for at, kind in enumerate(members.values())]
    return msgspec.defstruct("Object", fields, rename=names, gc=False)


def _member(field: Field, members: dict[str, msgspec.Raw]) -> Any:
    raw = members.get(_json_key(field))
    try:
        return None if raw is None else _decoder(field).decode(raw)
    except msgspec.DecodeError as error:
        raise UnfitValue(str(error)) from None


@lru_cache(maxsize=1024)
def _decoder(field: Field) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(json_type(field))


def _json_key(field: Field) -> str:
    return field.sources[-1] if field.sources else field.name


def _map_key(kind: ColumnType) -> Any:
    if kind == PrimitiveType("string"):
        return str
    bits = 31 if kind == PrimitiveType("int") else 63
    return Annotated[int, Meta(ge=-(2**bits), le=2**bits - 1)]


def needs_fitting(kind: ColumnType, values: list[object]) -> bool:
    """Whether values that were decoded from JSON need `fitting`."""
    match kind:
        case PrimitiveType("int" | "long"):
            return float in set(map(type, values))
        case PrimitiveType("json" | "timestamp_ms" | "timestamp_us" | "uuid"):
            return True
        case PrimitiveType() | FixedType():
            return False
    return True


def fitting(kind: ColumnType, value: Any) -> Any:
    """A value that was decoded from JSON, as Arrow takes it. Raises UnfitValue."""
    if value is None:
        return None
    match kind:
        case PrimitiveType("int" | "long" as name):
            return whole(name, value) if type(value) is float else value
        case PrimitiveType("timestamp_ms" | "timestamp_us" as name):
            number = whole("long", value) if type(value) is float else value
            return microseconds(number, 1000 if name == "timestamp_ms" else 1)
        case PrimitiveType("json"):
            text = bytes(value)
            return None if text == b"null" else text.decode()
        case PrimitiveType("uuid"):
            return value.bytes
        case DecimalType():
            return exact(kind, value)
        case ListType(element):
            return [fitting(element.type, each) for each in value]
        case MapType(_, item):
            return [(key, fitting(item.type, each)) for key, each in value.items()]
        case StructType(fields):
            if type(value) is dict:
                return {each.name: fitting(each.type, _member(each, value)) for each in fields}
            return {each.name: fitting(each.type, getattr(value, f"f{at}")) for at, each in enumerate(fields)}
    return value


_WHOLE_MAX = 1 << 53  # up to here every whole number has a floating-point number of its own


def whole(name: str, value: float) -> int:
    bits = 31 if name == "int" else 63
    if not value.is_integer() or abs(value) > min(_WHOLE_MAX, 2**bits - 1):
        raise UnfitValue(f"{value!r} is not exactly a whole number that fits `{name}`")
    return int(value)


def microseconds(number: int, unit_us: int) -> int:
    """A time since 1970 in microseconds."""
    found = number * unit_us
    if abs(found) > _MICROSECONDS_MAX:
        raise UnfitValue(f"{number} is not a time that a column can hold")
    return found


def exact(kind: DecimalType, value: Decimal) -> Decimal:
    context = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        if value.is_finite():
            return value.quantize(Decimal(1).scaleb(-kind.scale), context=context)
    except DecimalException:
        pass
    raise UnfitValue(f"{str(value)[:64]} does not fit decimal({kind.precision}, {kind.scale}) exactly")

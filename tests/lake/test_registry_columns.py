"""Columns from schemas of the registry: what each language gives, how they change, and what does not fit."""

from __future__ import annotations

import datetime
import io
import json
import struct
import time
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import json_format, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.api.lake import ColumnSource, TableColumns, WriterSchema
from mainstem.schemas.protobuf import ProtobufSchema
from mainstem.tables.payloads.decoding import decoded_columns
from mainstem.tables.registry import extended_columns

UTC = datetime.UTC


def table_of(*writers: WriterSchema, message: str = "") -> TableColumns:
    """The columns after these versions of a subject, one after another."""
    table = TableColumns(registry=ColumnSource("t-value", message))
    for writer in writers:
        table = extended_columns(table, [writer], [writer.id])
    return TableColumns(table.columns, table.registry, writers)


def kinds(table: TableColumns) -> dict[str, str]:
    return {column.name: column.type for column in table.columns}


def rows_of(
    table: TableColumns, values: Sequence[bytes | None]
) -> tuple[list[str | None], list[dict[str, Any]]]:
    errors, *arrays = decoded_columns(pa.array(values, pa.binary()), table)
    named = pa.table(arrays, names=[column.name for column in table.columns])
    return errors.to_pylist(), named.to_pylist(maps_as_pydicts="strict")


def framed(id: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, id) + body


# Schemas of types that use each other


def _wide_avro(levels: int, width: int) -> str:
    type: Any = "int"
    for level in range(levels):
        again = type if isinstance(type, str) else type["name"]
        fields = [{"name": f"f{n}", "type": again if n else type} for n in range(width)]
        type = {"type": "record", "name": f"R{level}", "fields": fields}
    return json.dumps(type)


def _wide_protobuf(levels: int, width: int) -> str:
    text = 'syntax = "proto3";\n'
    for level in range(levels, 0, -1):
        fields = " ".join(f"M{level - 1} f{n} = {n + 1};" for n in range(width))
        text += f"message M{level} {{ {fields} }}\n"
    return text + "message M0 { int32 f = 1; }\n"


def _wide_json(levels: int, width: int) -> str:
    definitions: dict[str, Any] = {"d0": {"type": "integer"}}
    for level in range(1, levels + 1):
        reference = {"$ref": f"#/definitions/d{level - 1}"}
        properties = {f"f{n}": reference for n in range(width)}
        definitions[f"d{level}"] = {"type": "object", "properties": properties}
    return json.dumps({**definitions[f"d{levels}"], "definitions": definitions})


@pytest.mark.parametrize(
    ("kind", "wide"), [("AVRO", _wide_avro), ("PROTOBUF", _wide_protobuf), ("JSON", _wide_json)]
)
def test_a_small_schema_of_millions_of_fields_gives_no_columns(kind: str, wide: Any) -> None:
    few, many = (WriterSchema(1, kind, wide(2, 10)), WriterSchema(2, kind, wide(6, 20)))
    began = time.process_time()
    table = table_of(few, many)
    assert time.process_time() - began < 5.0
    assert table.columns == table_of(few).columns
    assert table.registry is not None
    assert table.registry.ids == (1, 2)


# Avro


def avro(id: int, *fields: dict[str, Any], name: str = "Order") -> WriterSchema:
    return WriterSchema(id, "AVRO", json.dumps({"type": "record", "name": name, "fields": list(fields)}))


def written(writer: WriterSchema, value: Any) -> bytes:
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(json.loads(writer.text)), value)
    return framed(writer.id, sink.getvalue())


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


EVERYTHING = avro(
    7,
    field("flag", "boolean"),
    field("count", "int"),
    field("total", "long"),
    field("ratio", "float"),
    field("exactly", "double"),
    field("title", "string"),
    field("bits", "bytes"),
    field("digest", {"type": "fixed", "name": "Four", "size": 4}),
    field("colour", {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}),
    field("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}),
    field("id", {"type": "string", "logicalType": "uuid"}),
    field("day", {"type": "int", "logicalType": "date"}),
    field("at", {"type": "int", "logicalType": "time-millis"}),
    field("moment", {"type": "long", "logicalType": "timestamp-millis"}),
    field("instant", {"type": "long", "logicalType": "timestamp-micros"}),
    field("clock", {"type": "long", "logicalType": "local-timestamp-micros"}),
    field("maybe", ["null", "string"]),
    field("tags", {"type": "array", "items": ["null", "string"]}),
    field("sizes", {"type": "map", "values": "long"}),
    field(
        "buyer",
        {
            "type": "record",
            "name": "Buyer",
            "fields": [
                field("name", "string"),
                field("_since", ["null", {"type": "int", "logicalType": "date"}]),
            ],
        },
    ),
    field("partner", ["null", "Buyer"]),
    field("either", ["null", "string", "long", "Buyer", "Colour"]),
    field("_hidden", "int"),
)


def test_each_type_of_avro_has_a_column() -> None:
    found = kinds(table_of(EVERYTHING))
    buyer = "struct<name: string, _since: date>"
    assert found == {
        "flag": "boolean",
        "count": "int",
        "total": "long",
        "ratio": "float",
        "exactly": "double",
        "title": "string",
        "bits": "binary",
        "digest": "fixed(4)",
        "colour": "string",
        "price": "decimal(12, 3)",
        "id": "uuid",
        "day": "date",
        "at": "time",
        "moment": "timestamp",
        "instant": "timestamp",
        "clock": "timestamp_ntz",
        "maybe": "string",
        "tags": "list<string>",
        "sizes": "map<string, long>",
        "buyer": buyer,
        "partner": buyer,
        "either": f"struct<string: string, long: long, Buyer: {buyer}, Colour: string>",
        "hidden": "int",
    }


BUYERS = st.fixed_dictionaries({"name": st.text(), "_since": st.none() | st.dates()})
ORDERS = st.fixed_dictionaries(
    {
        "flag": st.booleans(),
        "count": st.integers(-(2**31), 2**31 - 1),
        "total": st.integers(-(2**63), 2**63 - 1),
        "ratio": st.floats(width=32, allow_nan=False),
        "exactly": st.floats(allow_nan=False),
        "title": st.text(),
        "bits": st.binary(),
        "digest": st.binary(min_size=4, max_size=4),
        "colour": st.sampled_from(["RED", "BLUE"]),
        "price": st.decimals(-(10**9) + 1, 10**9 - 1, places=3),
        "id": st.uuids(),
        "day": st.dates(),
        "at": st.times().map(lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)),
        "moment": st.datetimes(timezones=st.just(UTC)).map(
            lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000)
        ),
        "instant": st.datetimes(timezones=st.just(UTC)),
        "clock": st.datetimes(),
        "maybe": st.none() | st.text(),
        "tags": st.lists(st.none() | st.text(), max_size=3),
        "sizes": st.dictionaries(st.text(), st.integers(-(2**63), 2**63 - 1), max_size=3),
        "buyer": BUYERS,
        "partner": st.none() | BUYERS,
        "either": st.none()
        | st.tuples(st.just("string"), st.text())
        | st.tuples(st.just("long"), st.integers(-(2**63), 2**63 - 1))
        | st.tuples(st.just("Buyer"), BUYERS)
        | st.tuples(st.just("Colour"), st.sampled_from(["RED", "BLUE"])),
        "_hidden": st.integers(0, 9),
    }
)


@settings(max_examples=60, deadline=None)
@given(orders=st.lists(ORDERS, min_size=1, max_size=5))
def test_avro_records_read_as_fastavro_reads_them(orders: list[dict[str, Any]]) -> None:
    table = table_of(EVERYTHING)
    values = [written(EVERYTHING, order) for order in orders]
    schema = fastavro.parse_schema(json.loads(EVERYTHING.text))
    expected: list[dict[str, Any]] = [
        fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) for value in values
    ]
    for row, order in zip(expected, orders, strict=True):
        row["hidden"] = row.pop("_hidden")
        branch = order["either"]
        names = ("string", "long", "Buyer", "Colour")
        row["either"] = branch and {name: branch[1] if name == branch[0] else None for name in names}
    errors, found = rows_of(table, values)
    assert errors == [None] * len(values)
    assert found == expected


def test_a_type_that_contains_itself_is_json() -> None:
    node = field("next", ["null", "Node"])
    table = table_of(avro(1, field("n", "long"), node, name="Node"))
    assert kinds(table) == {"n": "long", "next": "json"}
    value = {"n": 1, "next": {"n": 2, "next": None}}
    assert rows_of(table, [written(table.writers[0], value)])[1] == [{"n": 1, "next": '{"n":2,"next":null}'}]


def test_a_value_that_is_no_record_is_one_column() -> None:
    writer = WriterSchema(3, "AVRO", '["null", "long"]')
    table = table_of(writer)
    assert kinds(table) == {"value": "long"}
    assert rows_of(table, [written(writer, 5), written(writer, None)])[1] == [{"value": 5}, {"value": None}]


# Evolution


def test_columns_are_added_widened_renamed_and_never_removed() -> None:
    first = avro(1, field("id", "int"), field("amount", "float"), field("note", "string"))
    second = avro(
        2,
        field("id", "long"),
        field("total", "double", aliases=["amount"]),
        field("buyer", {"type": "record", "name": "B", "fields": [field("name", "string")]}),
    )
    third = avro(
        3,
        field("id", "long"),
        field("total", "double"),
        field(
            "buyer",
            {
                "type": "record",
                "name": "B",
                "fields": [
                    field("full_name", "string", aliases=["name"]),
                    field("age", ["null", "int"]),
                ],
            },
        ),
        field("amount", "string"),
    )
    one, two, three = table_of(first), table_of(first, second), table_of(first, second, third)
    assert kinds(one) == {"id": "int", "amount": "float", "note": "string"}
    assert kinds(two) == {"id": "long", "total": "double", "note": "string", "buyer": "struct<name: string>"}
    assert kinds(three) == {
        "id": "long",
        "total": "double",
        "note": "string",
        "buyer": "struct<full_name: string, age: int>",
        "amount": "string",
    }
    ids = [[(column.id, *column.ids) for column in table.columns] for table in (one, two, three)]
    assert ids[1][:3] == ids[0] == ids[2][:3]
    assert ids[2][3] == (*ids[1][3], max(ids[1][3]) + 1)
    values = [
        written(first, {"id": 1, "amount": 0.5, "note": "a"}),
        written(second, {"id": 2**40, "total": 1e300, "buyer": {"name": "Bo"}}),
        written(third, {"id": 3, "total": 2.5, "buyer": {"full_name": "Al", "age": None}, "amount": "few"}),
    ]
    errors, rows = rows_of(three, values)
    assert errors == [None] * 3
    assert rows == [
        {"id": 1, "total": 0.5, "note": "a", "buyer": None, "amount": None},
        {
            "id": 2**40,
            "total": 1e300,
            "note": None,
            "buyer": {"full_name": "Bo", "age": None},
            "amount": None,
        },
        {"id": 3, "total": 2.5, "note": None, "buyer": {"full_name": "Al", "age": None}, "amount": "few"},
    ]


def test_decimals_get_more_digits_and_keep_their_scale() -> None:
    def money(id: int, precision: int, scale: int) -> WriterSchema:
        kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        return avro(id, field("price", kind))

    first, wider, finer = money(1, 6, 2), money(2, 9, 2), money(3, 9, 3)
    table = table_of(first, wider, finer)
    assert kinds(table) == {"price": "decimal(9, 2)"}
    values = [written(first, {"price": Decimal("1.25")}), written(wider, {"price": Decimal("1234567.25")})]
    values += [written(finer, {"price": Decimal("1.250")}), written(finer, {"price": Decimal("1.255")})]
    errors, rows = rows_of(table, values)
    assert [row["price"] for row in rows] == [Decimal("1.25"), Decimal("1234567.25"), Decimal("1.25"), None]
    assert errors[:3] == [None] * 3
    assert errors[3] == "schema id 3: field 'price': 1.255 does not fit decimal(9, 2) exactly"


def test_a_type_that_changed_into_another_one_fits_value_by_value() -> None:
    numbers, texts, reals = (
        avro(1, field("x", "int")),
        avro(2, field("x", "string")),
        avro(3, field("x", "double")),
    )
    table = table_of(numbers, texts, reals)
    assert kinds(table) == {"x": "int"}
    values = [written(numbers, {"x": 1}), written(texts, {"x": "1"})]
    values += [written(reals, {"x": 2.0}), written(reals, {"x": 2.5})]
    errors, rows = rows_of(table, values)
    assert [row["x"] for row in rows] == [1, None, 2, None]
    assert (
        errors[1]
        == "schema id 2: field 'x': its type in the schema, string, does not fit the column's type, int"
    )
    assert "2.5" in (errors[3] or "")


def test_names_stay_unique_whatever_schemas_call_their_fields() -> None:
    first = proto(1, "message M { string a = 1; string b = 2; }")
    second = proto(2, "message M { string b = 1; }")
    third = proto(3, "message M { string b = 1; string B = 3; }")
    assert list(kinds(table_of(first, second, third))) == ["b_2", "b", "B_2_2"]


def test_schemas_may_be_wider_and_deeper_than_what_users_declare() -> None:
    wide = {
        "type": "record",
        "name": "W",
        "fields": [field(f"a_field_of_some_length_{n}", "long") for n in range(900)],
    }
    deep: Any = "long"
    for level in range(20):
        deep = {"type": "array", "items": {"type": "map", "values": deep} if level % 2 else deep}
    properties: dict[str, Any] = {"type": "integer"}
    for _ in range(30):
        properties = {"type": "object", "properties": {"x": {"type": "array", "items": properties}}}
    table = table_of(
        avro(1, field("wide", wide), field("deep", deep)), WriterSchema(2, "JSON", json.dumps(properties))
    )
    found = kinds(table)
    assert found["wide"].count(",") == 899
    assert found["deep"].endswith("json" + ">" * found["deep"].count("<"))
    assert found["x"].endswith("json" + ">" * found["x"].count("<"))
    assert rows_of(table, [framed(1, b"")])[0] != [None]


# What does not fit


def test_broken_and_foreign_values_are_errors_of_their_rows_alone() -> None:
    writer, foreign = avro(1, field("x", "long")), avro(9, field("x", "long"))
    table = table_of(writer)
    sound = written(writer, {"x": 5})
    values = [
        sound,
        None,
        b"",
        b"\0\0",
        b'{"x":1}',
        framed(1, b""),
        sound + b"!",
        written(foreign, {"x": 1}),
        sound,
    ]
    errors, rows = rows_of(table, values)
    assert [row["x"] for row in rows] == [5, *([None] * 7), 5]
    assert [error is None for error in errors] == [True, True, *([False] * 6), True]
    assert errors[2] == errors[3] == errors[4]
    assert "1 bytes are left over" in (errors[6] or "")
    assert errors[7] == "schema id 9 is not of a version of subject 't-value' that the table includes"


@settings(max_examples=100, deadline=None)
@given(bodies=st.lists(st.binary(max_size=40), max_size=6))
def test_no_bytes_stop_the_decoding(bodies: list[bytes]) -> None:
    proto_writer = proto(8, EVERY_FIELD)
    table = table_of(EVERYTHING, proto_writer)
    values = [framed(id, body) for body in bodies for id in (7, 8)]
    errors, rows = rows_of(table, values)
    assert len(errors) == len(rows) == len(values)


def test_times_that_python_cannot_say_are_kept() -> None:
    writer = avro(1, field("at", {"type": "long", "logicalType": "timestamp-micros"}))
    raw = avro(1, field("at", "long"))
    values = [written(raw, {"at": at}) for at in (2**63 - 2, -(2**63) + 2, 2**63 - 1)]
    errors, array = decoded_columns(pa.array(values, pa.binary()), table_of(writer))
    assert array.cast(pa.int64()).to_pylist() == [2**63 - 2, -(2**63) + 2, None]
    assert [error is None for error in errors.to_pylist()] == [True, True, False]


# Protobuf


def proto(id: int, text: str) -> WriterSchema:
    return WriterSchema(id, "PROTOBUF", f'syntax = "proto3";\n{text}')


EVERY_FIELD = """
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message Order {
  bool flag = 1; int32 count = 2; int64 total = 3; uint32 u32 = 4; uint64 u64 = 5; sint64 s64 = 6;
  float ratio = 7; double exactly = 8; string title = 9; bytes bits = 10;
  enum Colour { RED = 0; BLUE = 1; } Colour colour = 11;
  optional string maybe = 12; repeated string tags = 13; map<string, int64> sizes = 14;
  map<int32, Buyer> buyers = 15; map<bool, string> words = 16;
  Buyer buyer = 17; repeated Buyer more = 18;
  oneof either { string text = 19; Buyer person = 20; }
  google.protobuf.Timestamp at = 21; google.protobuf.StringValue wrapped = 22; google.protobuf.Struct free = 23;
  Order next = 24;
}
message Buyer { string name = 1; optional int32 age = 2; }
message Other { string x = 1; }
"""


def test_each_type_of_protobuf_has_a_column() -> None:
    buyer = "struct<name: string, age: int>"
    assert kinds(table_of(proto(1, EVERY_FIELD))) == {
        "flag": "boolean",
        "count": "int",
        "total": "long",
        "u32": "long",
        "u64": "decimal(20, 0)",
        "s64": "long",
        "ratio": "float",
        "exactly": "double",
        "title": "string",
        "bits": "binary",
        "colour": "string",
        "maybe": "string",
        "tags": "list<string>",
        "sizes": "map<string, long>",
        "buyers": f"map<int, {buyer}>",
        "words": "map<string, string>",
        "buyer": buyer,
        "more": f"list<{buyer}>",
        "text": "string",
        "person": buyer,
        "at": "timestamp",
        "wrapped": "string",
        "free": "json",
        "next": "json",
    }


def test_protobuf_records_read_as_protobuf_reads_them() -> None:
    writer = proto(1, EVERY_FIELD)
    schema = ProtobufSchema(writer.text)
    given_value = {
        "flag": True,
        "count": -5,
        "total": -(2**63),
        "u32": 2**32 - 1,
        "u64": 2**64 - 1,
        "s64": -1,
        "ratio": 0.5,
        "exactly": 1e300,
        "title": "ü",
        "bits": "/w==",
        "colour": "BLUE",
        "maybe": "",
        "tags": ["a", ""],
        "sizes": {"a": 2**62},
        "buyers": {"-1": {"name": "Bo", "age": 0}},
        "words": {"true": "yes"},
        "buyer": {"name": "Al"},
        "more": [{}, {"age": 7}],
        "person": {},
        "at": "1900-01-01T00:00:00.123456789Z",
        "wrapped": "w",
        "free": {"k": [1, None]},
        "next": {"count": 3},
    }
    descriptor = schema.message((0,))
    message = json_format.ParseDict(given_value, message_factory.GetMessageClass(descriptor)())
    table = table_of(writer)
    errors, rows = rows_of(table, [framed(1, b"\0" + body) for body in (message.SerializeToString(), b"")])
    assert errors == [None, None]
    full, empty = rows
    assert json.loads(full.pop("free")) == {"k": [1, None]}
    assert json.loads(full.pop("next"))["count"] == 3
    assert full == {
        "flag": True,
        "count": -5,
        "total": -(2**63),
        "u32": 2**32 - 1,
        "u64": Decimal(2**64 - 1),
        "s64": -1,
        "ratio": 0.5,
        "exactly": 1e300,
        "title": "ü",
        "bits": b"\xff",
        "colour": "BLUE",
        "maybe": "",
        "tags": ["a", ""],
        "sizes": {"a": 2**62},
        "buyers": {-1: {"name": "Bo", "age": 0}},
        "words": {"true": "yes"},
        "buyer": {"name": "Al", "age": None},
        "more": [{"name": "", "age": None}, {"name": "", "age": 7}],
        "text": None,
        "person": {"name": "", "age": None},
        "wrapped": "w",
        "at": datetime.datetime(1900, 1, 1, 0, 0, 0, 123456, UTC),
    }
    unset = ("maybe", "buyer", "text", "person", "at", "wrapped", "free", "next")
    assert [empty[name] for name in unset] == [None] * len(unset)
    assert (empty["count"], empty["title"], empty["tags"], empty["sizes"]) == (0, "", [], {})


def test_protobuf_fields_are_known_by_number() -> None:
    first = proto(
        1, "message M { int32 id = 1; string name = 2; Inner inner = 3; } message Inner { int32 x = 1; }"
    )
    second = proto(
        2,
        "message M { int64 id = 1; string title = 2; Inner inner = 3; } message Inner { int32 y = 1; bool z = 2; }",
    )
    table = table_of(first, second)
    assert kinds(table) == {"id": "int", "title": "string", "inner": "struct<y: int, z: boolean>"} | {
        "id": "long"
    }
    bodies = [b"\x08\x05\x12\x01a\x1a\x02\x08\x07", b"\x08\x06\x12\x01b\x1a\x04\x08\x08\x10\x01"]
    errors, rows = rows_of(table, [framed(at + 1, b"\0" + body) for at, body in enumerate(bodies)])
    assert errors == [None, None]
    assert rows == [
        {"id": 5, "title": "a", "inner": {"y": 7, "z": None}},
        {"id": 6, "title": "b", "inner": {"y": 8, "z": True}},
    ]


def test_a_table_has_the_columns_of_one_message() -> None:
    writer = proto(1, EVERY_FIELD)
    table = table_of(writer, message="Other")
    assert kinds(table) == {"x": "string"}
    errors, rows = rows_of(table, [framed(1, b"\x02\x04\x0a\x01a"), framed(1, b"\0")])
    assert rows == [{"x": "a"}, {"x": None}]
    assert errors == [None, "schema id 1: the value holds message 'Order', not 'Other'"]
    missing = table_of(writer, message="Nobody")
    assert kinds(missing) == {}
    assert rows_of(missing, [framed(1, b"\0")])[0] == ["schema id 1: the schema has no message 'Nobody'"]


# JSON Schema


def test_json_schemas_give_nested_columns() -> None:
    schema = {
        "type": "object",
        "definitions": {"buyer": {"type": "object", "properties": {"first-name": {"type": "string"}}}},
        "properties": {
            "id": {"type": "integer"},
            "ratio": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "key": {"type": "string", "format": "uuid"},
            "a.b": {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/buyer"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "object", "additionalProperties": {"type": "number"}},
            "colour": {"enum": ["red", "blue"]},
            "any": {},
            "self": {"$ref": "#"},
        },
    }
    writer = WriterSchema(4, "JSON", json.dumps(schema))
    table = table_of(writer)
    assert kinds(table) == {
        "id": "long",
        "ratio": "double",
        "at": "timestamp",
        "key": "uuid",
        "a.b": "struct<`first-name`: string>",
        "tags": "list<string>",
        "sizes": "map<string, double>",
        "colour": "string",
        "any": "json",
        "self": "json",
    }
    value = {
        "id": 1e3,
        "ratio": None,
        "at": "2026-01-02T03:04:05Z",
        "key": str(uuid.UUID(int=7)),
        "a.b": {"first-name": "Bo"},
        "tags": ["x"],
        "sizes": {"a": 1},
        "colour": "red",
        "any": [1],
    }
    errors, rows = rows_of(table, [framed(4, json.dumps(value).encode()), framed(4, b'{"id": "x"}')])
    assert rows[0] == {
        **value,
        "id": 1000,
        "at": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "key": uuid.UUID(int=7),
        "any": "[1]",
        "self": None,
    }
    assert errors[0] is None
    assert errors[1] is not None


@pytest.mark.parametrize("count", [1, 3])
def test_schemas_of_several_languages_share_one_topic(count: int) -> None:
    old, new = (
        avro(1, field("id", "int")),
        WriterSchema(2, "JSON", '{"properties":{"id":{"type":"integer"}}}'),
    )
    table = table_of(old, new)
    assert kinds(table) == {"id": "long"}
    values = [written(old, {"id": 1}), framed(2, b'{"id":5000000000}')] * count
    assert rows_of(table, values)[1] == [{"id": 1}, {"id": 5_000_000_000}] * count

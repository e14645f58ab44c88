"""Which changes of a schema its readers survive, for each language: one table each. Messages name the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mainstem.schemas.schema import AVRO, JSON, PROTOBUF, ReferencedSchema, parse


def _problems(kind: str, reader: str, writer: str) -> str:
    return "; ".join(parse(kind, reader).differences(parse(kind, writer)))


# Avro


def _record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [dict(zip(("name", "type", "default"), one, strict=False)) for one in fields],
        **more,
    }


_A = ("a", "int")
_LIST = _record(("v", "int"), ("next", ["null", "R"], None))
AVRO_TABLE: list[tuple[Any, Any, str]] = [  # reader, writer, part of the message; "" if it can read
    (_record(_A), _record(_A), ""),
    (_record(_A, ("b", "string")), _record(_A), "field 'b' of record 'R' has no default value"),
    (_record(_A, ("b", "string", "x")), _record(_A), ""),
    (_record(_A), _record(_A, ("b", "string")), ""),
    (_record(("a", "long")), _record(_A), ""),
    (_record(_A), _record(("a", "long")), "field 'a': type long changed to int"),
    ("bytes", "string", ""),
    ("string", "bytes", ""),
    ("double", "float", ""),
    ("float", "double", "at the top: type double changed to float"),
    ("string", "int", "type int changed to string"),
    (_record(("a", ["null", "int"])), _record(_A), ""),
    (_record(_A), _record(("a", ["null", "int"])), "field 'a': type null changed to int"),
    (["int", "string"], ["int"], ""),
    (["int"], ["int", "string"], "union has no type for string"),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, ""),
    ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, "field '[]'"),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, "field '{}'"),
    (
        _record(("x", _record(_A, name="I"))),
        _record(("x", _record(("a", "string"), name="I"))),
        "field 'x.a'",
    ),
    (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        "lacks the symbols B",
    ),
    (
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        {"type": "enum", "name": "E", "symbols": ["B"]},
        "",
    ),
    ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, "has 4 bytes"),
    (_record(_A, name="S"), _record(_A), "record 'R' changed its name to 'S'"),
    (_record(_A, name="S", aliases=["R"]), _record(_A), ""),
    (_record(_A, name="x.R"), _record(_A, name="y.R"), ""),
    ({**_record(), "fields": [{"name": "b", "type": "int", "aliases": ["a"]}]}, _record(_A), ""),
    (
        _record(("x", _record(("a", "int"), name="I")), ("y", ["null", "I"])),
        _record(("x", _record(("a", "string"), name="I")), ("y", ["null", "I"])),
        "field 'x.a'",
    ),
    (_LIST, _LIST, ""),
    (_record(("v", "long"), ("next", ["null", "R"], None)), _LIST, ""),
]


@pytest.mark.parametrize(("reader", "writer", "problem"), AVRO_TABLE)
def test_avro(reader: Any, writer: Any, problem: str) -> None:
    found = _problems(AVRO, json.dumps(reader), json.dumps(writer))
    assert (problem in found) if problem else found == ""


# JSON Schema


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **more}


_INT, _TEXT = {"type": "integer"}, {"type": "string"}
_CLOSED = {"additionalProperties": False}
_TREE = {"$ref": "#/$defs/n", "$defs": {"n": _object({"v": _INT, "child": {"$ref": "#/$defs/n"}})}}
_WIDE_TREE = {
    "$ref": "#/$defs/n",
    "$defs": {"n": _object({"v": {"type": "number"}, "child": {"$ref": "#/$defs/n"}})},
}
JSON_TABLE: list[tuple[Any, Any, str]] = [
    (_INT, _INT, ""),
    ({"type": "number"}, _INT, ""),
    (_INT, {"type": "number"}, "the type is now integer, and was number"),
    ({"type": ["string", "null"]}, _TEXT, ""),
    (_TEXT, {"type": ["string", "null"]}, "was null"),
    (
        _object({"a": _INT, "b": _TEXT}),
        _object({"a": _INT}),
        "field 'b' was added to an object that allowed any value",
    ),
    (_object({"a": _INT, "b": {}}), _object({"a": _INT}), ""),
    (_object({"a": _INT, "b": _TEXT}, **_CLOSED), _object({"a": _INT}, **_CLOSED), ""),
    (_object({"a": _INT}), _object({"a": _INT, "b": _TEXT}), ""),
    (_object({"a": _INT}, **_CLOSED), _object({"a": _INT, "b": _TEXT}, **_CLOSED), "field 'b' was removed"),
    (_object({"a": _INT}, **_CLOSED), _object({"a": _INT}), "no longer allowed"),
    (_object({"a": _INT}), _object({"a": _INT}, **_CLOSED), ""),
    (_object({"a": _INT}, required=["a"]), _object({"a": _INT}), "field 'a' is required"),
    (_object({"a": {**_INT, "default": 0}}, required=["a"]), _object({"a": {**_INT, "default": 0}}), ""),
    (_object({"a": _INT}), _object({"a": _INT}, required=["a"]), ""),
    (_object({"a": _object({"b": _INT})}), _object({"a": _object({"b": _TEXT})}), "field 'a.b'"),
    ({**_TEXT, "maxLength": 5}, {**_TEXT, "maxLength": 9}, "maxLength is now 5, and was 9"),
    ({**_TEXT, "maxLength": 9}, {**_TEXT, "maxLength": 5}, ""),
    ({**_INT, "minimum": 1}, _INT, "minimum is now 1, and was not set"),
    ({**_INT, "multipleOf": 2}, {**_INT, "multipleOf": 4}, ""),
    ({**_INT, "multipleOf": 4}, {**_INT, "multipleOf": 2}, "multipleOf"),
    ({**_TEXT, "pattern": "a"}, _TEXT, "pattern was added"),
    ({"enum": ["A", "B"]}, {"enum": ["A"]}, ""),
    ({"enum": ["A"]}, {"enum": ["A", "B"]}, "'B' are no longer allowed"),
    ({"type": "array", "items": _INT}, {"type": "array", "items": _TEXT}, "field '[]'"),
    ({"type": "array", "uniqueItems": True}, {"type": "array"}, "uniqueItems"),
    ({"oneOf": [_INT, _TEXT]}, _INT, ""),
    ({"oneOf": [_INT]}, {"oneOf": [_INT, _TEXT]}, "no alternative of oneOf accepts"),
    ({"anyOf": [_INT, _TEXT, {"type": "null"}]}, {"anyOf": [_INT, _TEXT]}, ""),
    ({"allOf": [_object({"a": _INT})]}, _object({"a": _INT}), ""),
    ({"allOf": [_object({"a": _INT}), {"required": ["a"]}]}, _object({"a": _INT}), "field 'a' is required"),
    ({"not": _INT}, {}, "not was added"),
    (True, _INT, ""),
    (False, _INT, "no longer allowed"),
    (
        {"anyOf": [_object({"a": {"$ref": "#/$defs/x"}}), {"$ref": "#/$defs/x"}], "$defs": {"x": _TEXT}},
        _INT,
        "no alternative",
    ),
    (_TREE, _TREE, ""),
    (_WIDE_TREE, _TREE, ""),
    (_TREE, _WIDE_TREE, "field 'v'"),
]


@pytest.mark.parametrize(("reader", "writer", "problem"), JSON_TABLE)
def test_json_schema(reader: Any, writer: Any, problem: str) -> None:
    found = _problems(JSON, json.dumps(reader), json.dumps(writer))
    assert (problem in found) if problem else found == ""


# Protobuf


def _message(body: str, more: str = "") -> str:
    return f'syntax = "proto3"; package p; message M {{ {body} }} {more}'


PROTOBUF_TABLE = [
    (_message("int32 a = 1;"), _message("int32 a = 1;"), ""),
    (_message("int32 a = 1; string b = 2;"), _message("int32 a = 1;"), ""),
    (_message("int32 a = 1;"), _message("int32 a = 1; string b = 2;"), ""),
    (_message("int32 z = 1;"), _message("int32 a = 1;"), ""),
    (_message("int64 a = 1;"), _message("int32 a = 1;"), ""),
    (_message("bytes a = 1;"), _message("string a = 1;"), ""),
    (
        _message("sint32 a = 1;"),
        _message("int32 a = 1;"),
        "field 'a' (1) of message 'p.M' changed its type from int32 to sint32",
    ),
    (_message("string a = 1;"), _message("int32 a = 1;"), "changed its type from int32 to string"),
    (_message("repeated int32 a = 1;"), _message("int32 a = 1;"), "was single and is now repeated"),
    (_message("repeated string a = 1;"), _message("string a = 1;"), ""),
    (_message("oneof o { int32 a = 1; string b = 2; }"), _message("oneof o { int32 a = 1; }"), ""),
    (
        _message("oneof o { int32 a = 1; }"),
        _message("oneof o { int32 a = 1; string b = 2; }"),
        "was removed from oneof 'o'",
    ),
    (
        _message("oneof o { int32 a = 1; string b = 2; }"),
        _message("int32 a = 1; string b = 2;"),
        "moved into one oneof",
    ),
    (_message("oneof o { int32 a = 1; }"), _message("int32 a = 1;"), ""),
    (_message("int32 a = 1;"), _message("int32 a = 1;", "message N {}"), "message 'p.N' was removed"),
    (_message("int32 a = 1;", "message N {}"), _message("int32 a = 1;"), ""),
    (
        'syntax = "proto3"; package q; message M {}',
        'syntax = "proto3"; package p; message M {}',
        "package changed",
    ),
    ("message M { required int32 a = 1; }", "message M { }", "was added, and is required"),
    ("message M { }", "message M { required int32 a = 1; }", "which is required, was removed"),
    (_message("map<string, int64> a = 1;"), _message("map<string, int32> a = 1;"), ""),
    (_message("map<string, string> a = 1;"), _message("map<string, int32> a = 1;"), "changed its type"),
    (
        _message("N n = 1;", "message N { string x = 1; }"),
        _message("N n = 1;", "message N { int32 x = 1; }"),
        "field 'x' (1) of message 'p.N'",
    ),
    (
        _message("K n = 1;", "message N {} message K {}"),
        _message("N n = 1;", "message N {} message K {}"),
        "from p.N to p.K",
    ),
    (_message("M m = 1;"), _message("M m = 1;"), ""),
    (_message("E e = 1;", "enum E { A = 0; B = 1; }"), _message("E e = 1;", "enum E { A = 0; }"), ""),
]


@pytest.mark.parametrize(("reader", "writer", "problem"), PROTOBUF_TABLE)
def test_protobuf(reader: str, writer: str, problem: str) -> None:
    found = _problems(PROTOBUF, reader, writer)
    assert (problem in found) if problem else found == ""


def test_a_protobuf_text_and_its_descriptor_are_the_same_schema() -> None:
    text = """
        syntax = "proto3";  // a comment
        package shop.v1;
        import "google/protobuf/timestamp.proto";
        import "other.proto";
        option java_package = "com.shop";
        message Order {
          option deprecated = true;
          string id = 1; optional int32 count = 2; repeated Line lines = 3 [deprecated = true];
          map<string, other.Price> prices = 4; google.protobuf.Timestamp at = 5;
          oneof how { string card = 6; bool cash = 7; }
          reserved 8, 10 to 12; reserved "old";
          message Line { Kind kind = 1; enum Kind { option allow_alias = true; A = 0; B = 1; C = 1; } }
        }
        service Orders { rpc Put (stream Order) returns (Order); }
    """
    references = [
        ReferencedSchema("other.proto", 'syntax = "proto3"; package other; message Price { int64 c = 1; }')
    ]
    schema = parse(PROTOBUF, text, references)
    descriptor = parse(PROTOBUF, schema.formatted("serialized"), references)
    assert descriptor.text == schema.text == parse(PROTOBUF, schema.text, references).text
    assert "oneof how" in schema.text
    value = {"id": "x", "lines": [{"kind": "B"}], "prices": {"e": {"c": "5"}}, "cash": True}
    assert schema.decode(schema.encode(value)) == value


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (
            AVRO,
            '{"type":"record","name":"n.R","fields":[{"name":"a","type":{"type":"int"}}]}',
            '{"fields":[{"type":"int","name":"a"}],"namespace":"n","name":"R","type":"record"}',
        ),
        (JSON, '{"type":"object","title":"T"}', '{ "title": "T", "type": "object" }'),
        (
            PROTOBUF,
            'syntax="proto3"; message M { int32 b = 2; int32 a = 1; }',
            'syntax="proto3"; message M { int32 a = 1; int32 b = 2; }',
        ),
    ],
)
def test_equal_schemas_have_one_normal_form(kind: str, first: str, second: str) -> None:
    one, other = parse(kind, first), parse(kind, second)
    assert one.normal_text() == other.normal_text()
    assert parse(kind, one.normal_text()).normal_text() == one.normal_text()


def test_comparing_hostile_schemas_ends() -> None:
    def schema(leaf: str) -> str:
        defs: dict[str, Any] = {"0": {"type": leaf}}
        for number in range(1, 60):
            below = {"$ref": f"#/$defs/{number - 1}"}
            alternatives = [_object({"a": below}), _object({"b": below}), {"type": "array", "items": below}]
            defs[str(number)] = {"anyOf": alternatives}
        return json.dumps({"$ref": "#/$defs/59", "$defs": defs})

    assert _problems(JSON, schema("string"), schema("integer"))

"""Schemas that clients write so that parsing, comparing or applying them takes far more work than their size."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from mainstem.errors import MalformedSchema, UndecodablePayload
from mainstem.schemas.schema import AVRO, JSON, PROTOBUF, parse

_CPU_S_MAX = 5.0  # hostile schemas took minutes or more


def _doubling(keyword: str, levels: int) -> dict[str, Any]:
    """Each definition refers to the one before twice: 2 to the power of the levels, when followed."""
    definitions: dict[str, Any] = {"d0": {"type": "object"}}
    for level in range(1, levels):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {keyword: [reference, dict(reference)]}
    return {"$defs": definitions, "$ref": f"#/$defs/d{levels - 1}"}


def _alternatives(count: int, extra: dict[str, Any]) -> dict[str, Any]:
    properties = [{f"a{number}": {"type": "string"}, **extra} for number in range(count)]
    return {"oneOf": [{"type": "object", "properties": one} for one in properties]}


def _enum_of(kind: str, first: int, count: int) -> Any:
    if kind == AVRO:
        return {
            "type": "enum",
            "name": "e",
            "symbols": [f"s{number}" for number in range(first, first + count)],
        }
    return {"enum": [{"a": number} for number in range(first, first + count)]}


def _costly(number: int) -> str:
    """A pattern that takes some ms to compile."""
    return f"[{''.join(chr(0x100 + 2 * each) for each in range(40))}]{{900}}{number}"


_PAIRS: dict[str, tuple[str, Any, Any]] = {
    "allOf": (JSON, _doubling("allOf", 40), {**_doubling("allOf", 40), "title": "x"}),
    "anyOf": (JSON, _doubling("anyOf", 40), {**_doubling("anyOf", 40), "title": "x"}),
    "alternatives": (JSON, _alternatives(1_000, {}), _alternatives(1_000, {"q": {"type": "integer"}})),
    "patterns": (
        JSON,
        {"patternProperties": {f"^{number}": {} for number in range(3_000)}},
        {"properties": {f"p{number}": {"type": "string"} for number in range(3_000)}},
    ),
    "alternatives of a wide object": (
        JSON,
        {"anyOf": [{"type": "object", "title": str(number)} for number in range(5_000)]},
        {"type": "object", "properties": {f"p{number}": True for number in range(20_000)}},
    ),
    "enum of objects": (JSON, _enum_of(JSON, 0, 20_000), _enum_of(JSON, 20_000, 20_000)),
    "enum of symbols": (AVRO, _enum_of(AVRO, 0, 30_000), _enum_of(AVRO, 30_000, 30_000)),
    "union": (
        AVRO,
        [{"type": "record", "name": f"u{n}", "fields": []} for n in range(1_500)],
        [{"type": "record", "name": f"v{n}", "fields": []} for n in range(1_500)],
    ),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pair", _PAIRS)
def test_schemas_are_compared_in_bounded_time(pair: str) -> None:
    kind, first, second = _PAIRS[pair]
    earlier, later = parse(kind, json.dumps(first)), parse(kind, json.dumps(second))
    began = time.process_time()
    later.differences(earlier)
    earlier.differences(later)
    assert time.process_time() - began < _CPU_S_MAX


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_doubling("allOf", 40), {}),
        (_doubling("anyOf", 40), 1),
        ({"$ref": "#"}, {}),
        (
            {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}},
            json.loads('{"a":' * 40 + "1" + "}" * 40),
        ),
    ],
    ids=["allOf", "anyOf", "itself", "a deep value"],
)
def test_a_value_is_checked_in_bounded_time(schema: dict[str, Any], value: Any) -> None:
    parsed = parse(JSON, json.dumps(schema))
    began = time.process_time()
    with pytest.raises(UndecodablePayload):
        parsed.decode(json.dumps(value).encode())
    assert time.process_time() - began < _CPU_S_MAX


@pytest.mark.timeout(120)
def test_patterns_are_applied_in_bounded_time() -> None:
    costly = [{"pattern": _costly(number)} for number in range(20)]
    parsed = parse(JSON, json.dumps({"items": {"anyOf": [*costly, {"maxLength": 1}]}}))
    began = time.process_time()
    with pytest.raises(UndecodablePayload, match="too many steps"):
        parsed.decode(json.dumps(["a"] * 200).encode())
    wide = parse(JSON, json.dumps({"patternProperties": {f"^{number}$": {} for number in range(20_000)}}))
    with pytest.raises(UndecodablePayload, match="too many steps"):
        wide.decode(json.dumps({f"p{number}": 1 for number in range(1_000)}).encode())
    assert time.process_time() - began < 4 * _CPU_S_MAX


def test_common_patterns_are_applied_to_many_values() -> None:
    patterns = {f"f{number}": {"pattern": "^[a-zA-Z0-9._-]{2,64}$"} for number in range(30)}
    name = {"pattern": "^[A-Za-zÀ-ÿ' -]{1,50}$"}
    parsed = parse(JSON, json.dumps({"items": {"properties": {**patterns, "name": name}}}))
    row = {**{f"f{number}": "some-value.1" for number in range(30)}, "name": "Zoë"}
    assert len(parsed.decode(json.dumps([row] * 50).encode())) == 50


@pytest.mark.timeout(120)
def test_many_references_to_anchors_are_found_in_bounded_time() -> None:
    began = time.process_time()
    references = {f"p{number}": {"$ref": "#far"} for number in range(10_000)}
    parse(JSON, json.dumps({"definitions": {"far": {"$id": "#far"}}, "properties": references}))
    assert time.process_time() - began < _CPU_S_MAX


_MIXED: list[Any] = [1, "a", *({"n": number} for number in range(30_000))]  # which cannot be sorted


@pytest.mark.timeout(120)
def test_that_many_items_are_unique_is_checked_in_bounded_time() -> None:
    parsed = parse(JSON, '{"uniqueItems":true}')
    began = time.process_time()
    assert parsed.decode(json.dumps(_MIXED).encode()) == _MIXED
    with pytest.raises(UndecodablePayload, match="more than once"):
        parsed.decode(json.dumps([*_MIXED, {"n": 7.0}]).encode())
    assert time.process_time() - began < _CPU_S_MAX


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, True], True),
        ([0, False], True),
        ([1, 1.0], False),
        ([[1], [1.0]], False),
        (["1", 1], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([None, "null", []], True),
        ([-0.0, 0], False),
    ],
)
def test_items_are_unique_as_json_schema_compares_them(items: list[Any], unique: bool) -> None:
    try:
        parse(JSON, '{"uniqueItems":true}').decode(json.dumps(items).encode())
    except UndecodablePayload:
        assert not unique
    else:
        assert unique


@pytest.mark.timeout(120)
def test_a_schema_with_many_values_is_parsed_in_bounded_time() -> None:
    began = time.process_time()
    parse(JSON, json.dumps({"$schema": "http://json-schema.org/draft-04/schema#", "enum": _MIXED}))
    with pytest.raises(MalformedSchema, match="more than once"):
        parse(JSON, '{"$schema":"http://json-schema.org/draft-04/schema#","enum":[1,"a",1.0]}')
    assert time.process_time() - began < _CPU_S_MAX


@pytest.mark.timeout(120)
def test_many_values_are_compared_with_many_others_in_bounded_time() -> None:
    parsed = parse(JSON, json.dumps({"items": {"enum": _MIXED}}))
    began = time.process_time()
    with pytest.raises(UndecodablePayload, match="too many steps"):
        parsed.decode(json.dumps(list(range(20_000, 30_000))).encode())
    assert time.process_time() - began < 4 * _CPU_S_MAX


def test_a_large_value_is_checked_whole() -> None:
    schema = {
        "items": {"anyOf": [{"type": name} for name in ("null", "boolean", "string", "array", "integer")]}
    }
    assert len(parse(JSON, json.dumps(schema)).decode(json.dumps(list(range(20_000))).encode())) == 20_000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (AVRO, '{"type":"array","items":' * 50_000 + '"int"' + "}" * 50_000),
        (JSON, '{"properties":{"a":' * 20_000 + "{}" + "}}" * 20_000),
        (PROTOBUF, 'syntax="proto3";' + "".join(f"message M{n} {{" for n in range(3_000)) + "}" * 3_000),
        (PROTOBUF, 'syntax="proto3"; option (x) = ' + "{a:" * 5_000 + "1" + "}" * 5_000 + ";"),
    ],
    ids=["avro", "json", "protobuf", "protobuf option"],
)
def test_a_schema_that_is_nested_too_deeply_is_refused(kind: str, text: str) -> None:
    with pytest.raises(MalformedSchema):
        parse(kind, text)


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/x", "file:///etc/passwd", "other.json"])
def test_a_reference_fetches_nothing(address: str) -> None:
    with pytest.raises(MalformedSchema, match="nothing is known"):
        parse(JSON, json.dumps({"$ref": address}))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (AVRO, '{"type":"record","name":"R","doc":"\\uD800","fields":[]}'),
        (AVRO, '{"type":"record","name":"R","fields":[{"name":"a","type":"string","default":"\\udfff"}]}'),
        (JSON, '{"properties":{"\\ud800":{}}}'),
    ],
)
def test_half_a_character_is_refused(kind: str, text: str) -> None:
    with pytest.raises(MalformedSchema, match="surrogate"):
        parse(kind, text)


def test_a_character_of_two_halves_is_taken() -> None:
    assert "\U0001f600" in parse(JSON, '{"title":"\\ud83d\\ude00"}').text

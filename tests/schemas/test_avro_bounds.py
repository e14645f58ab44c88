"""Payloads that would end the process or fill its memory are refused before the decoder sees them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.errors import UndecodablePayload
from mainstem.schemas.avro import UNREADABLE, AvroSchema

_LIST = {
    "type": "record",
    "name": "L",
    "fields": [{"name": "v", "type": "null"}, {"name": "next", "type": ["null", "L"]}],
}
_TREE = {"type": "record", "name": "T", "fields": [{"name": "c", "type": {"type": "array", "items": "T"}}]}
_MAPS = {"type": "record", "name": "M", "fields": [{"name": "m", "type": {"type": "map", "values": "M"}}]}
_EMPTY = {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]}
_NULLS = [{"name": f"n{n}", "type": "null"} for n in range(9_000)]
_WIDE = {"type": "record", "name": "W", "fields": [{"name": "i", "type": "int"}, *_NULLS]}
_MANY = b"\xfe\xff\xff\xff\xff\x7f"  # 2**40 or so


def _doubling(levels: int) -> dict[str, Any]:
    """A record with two records of the level below: 2 to the power of the levels parts, of no bytes."""
    schema: Any = "null"
    for level in range(levels):
        below = schema if isinstance(schema, str) else schema["name"]
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": below}]
        schema = {"type": "record", "name": f"D{level}", "fields": fields}
    return dict(schema)


def _chain(length: int) -> list[Any]:
    """Records side by side, each with the one before: deep values by a schema that is not deep."""
    return [
        {"type": "record", "name": f"C{n}", "fields": [{"name": "c", "type": f"C{n - 1}"}] if n else []}
        for n in range(length)
    ]


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (_LIST, b"\x02" * 100_000 + b"\0"),
        (_TREE, b"\x02" * 100_000 + b"\0" * 100_000),
        (_MAPS, b"\x02\x00" * 100_000 + b"\0" * 100_000),
        ({"type": "record", "name": "R", "fields": [{"name": "l", "type": ["int", _LIST]}]}, b"\x02" * 9_999),
        (_array("null"), _MANY + b"\0"),
        (_array(_EMPTY), _MANY + b"\0"),
        (_array({"type": "fixed", "name": "F", "size": 0}), _MANY + b"\0"),
        (_array(_array("null")), b"\x02" + _MANY + b"\0\0"),
        (["string", _array("null")], b"\x02" + _MANY + b"\0"),
        (_array(_WIDE), b"\xa0\x8d\x06" + b"\0" * 50_000 + b"\0"),
        ({"type": "map", "values": _WIDE}, b"\xa0\x8d\x06" + b"\0\0" * 50_000 + b"\0"),
        (_array(["string", _WIDE]), b"\xa0\x8d\x06" + b"\x02\0" * 50_000 + b"\0"),
        (_doubling(60), b""),
        (_chain(9_000), b"\xce\x8c\x01"),  # branch 8,999
    ],
)
def test_a_payload_without_end_is_refused(schema: Any, payload: bytes, tmp_path: Path) -> None:
    # In a process of its own: a decoder that reads them ends it.
    program = (
        "import json, resource, sys\n"
        "from mainstem.errors import UndecodablePayload\n"
        "from mainstem.schemas.avro import AvroSchema\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "schema = AvroSchema(open(sys.argv[1]).read())\n"
        "try: schema.decode(sys.stdin.buffer.read())\n"
        "except UndecodablePayload as error: print(error)\n"
    )
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    done = subprocess.run(
        [sys.executable, "-c", program, file], input=payload, capture_output=True, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"levels" in done.stdout or b"no bytes" in done.stdout


def _list_of(length: int) -> dict[str, Any]:
    value: dict[str, Any] = {"v": None, "next": None}
    for _ in range(length):
        value = {"v": None, "next": value}
    return value


_VALUES = st.integers(0, 30).map(_list_of)


@settings(max_examples=50, deadline=None)
@given(_VALUES)
def test_a_list_of_common_length_is_read(value: Any) -> None:
    schema = AvroSchema(json.dumps(_LIST))
    assert schema.bounds.needed
    assert schema.decode(schema.encode(value)) == value


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_what_passes_the_check_is_read_as_before(payload: bytes) -> None:
    every = {
        "type": "record",
        "name": "A",
        "fields": [
            {"name": "u", "type": ["null", "int", "A", {"type": "enum", "name": "N", "symbols": ["a", "b"]}]},
            {"name": "a", "type": _array("null")},
            {"name": "m", "type": {"type": "map", "values": ["bytes", "double", "boolean"]}},
            {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
            {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        ],
    }
    schema = AvroSchema(json.dumps(every))
    try:
        schema.bounds.check(payload)
    except UndecodablePayload:
        return
    source = io.BytesIO(payload)
    try:
        value = fastavro.schemaless_reader(source, schema.resolved, None)
    except UNREADABLE:
        with pytest.raises(UndecodablePayload):
            schema.decode(payload)
    else:
        assert source.tell() < len(payload) or schema.decode(payload) == value


def test_the_field_that_a_payload_lacks_is_found_quickly() -> None:
    fields = [{"name": f"f{n}", "type": "int"} for n in range(3_000)]
    schema = AvroSchema(json.dumps({"type": "record", "name": "W", "fields": fields}))
    for length in (0, 1, 1_234, 2_999):
        began = time.process_time()
        with pytest.raises(UndecodablePayload, match=f"field 'f{length}': the bytes end too early"):
            schema.decode(b"\x02" * length)
        assert time.process_time() - began < 2.0


@pytest.mark.parametrize("items", ["int", ["null", "int"], ["null", {**_EMPTY, "name": "B"}]])
def test_a_schema_that_bounds_its_values_needs_no_check(items: Any) -> None:
    plain = {"type": "record", "name": "P", "fields": [{"name": "a", "type": _array(items)}]}
    assert not AvroSchema(json.dumps(plain)).bounds.needed


def test_nulls_that_take_a_byte_each_are_read() -> None:
    fields = [{"name": "of", "type": ["null", "S"]}, {"name": "a", "type": _array(["null", "int"])}]
    schema = AvroSchema(json.dumps({"type": "record", "name": "S", "fields": fields}))
    assert schema.bounds.needed
    value = {"of": None, "a": [None] * 200_000}
    assert schema.decode(schema.encode(value)) == value

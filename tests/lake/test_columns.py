from __future__ import annotations

import datetime
import json
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainstem.api.lake import Column, TableColumns
from mainstem.errors import InvalidConfig, TableIncompatible
from mainstem.tables.columns import declared, decode_columns, encode_columns
from mainstem.tables.parts.typed_columns import with_columns
from mainstem.tables.payloads.json_values import json_columns

UTC = datetime.UTC


def columns(*rows: tuple[str, str] | tuple[str, str, str]) -> list[Column]:
    items = [dict(zip(("name", "type", "path"), row, strict=False)) for row in rows]
    return declared(items, [])


def decoded(values: Sequence[bytes | None], wanted: list[Column]) -> tuple[list[str | None], list[list[Any]]]:
    errors, *arrays = json_columns(pa.array(values, pa.binary()), wanted)
    return errors.to_pylist(), [array.to_pylist() for array in arrays]


def test_each_type_is_read() -> None:
    wanted = columns(
        ("b", "boolean"),
        ("i", "int"),
        ("l", "long"),
        ("f", "float"),
        ("d", "double"),
        ("s", "string"),
        ("j", "json"),
        ("day", "date"),
        ("t", "timestamp"),
    )
    value = {
        "b": True,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 0.5,
        "d": 3,
        "s": "ü\n",
        "j": {"x": [1, None]},
        "day": "2024-02-29",
        "t": "2024-02-29T12:00:00.000001+02:00",
        "other": [1, {"deep": "ignored"}],
    }
    errors, arrays = decoded([json.dumps(value).encode(), b"{}", None], wanted)
    assert errors == [None, None, None]
    assert [array[0] for array in arrays] == [
        True,
        -(2**31),
        2**63 - 1,
        0.5,
        3.0,
        "ü\n",
        '{"x": [1, null]}',
        datetime.date(2024, 2, 29),
        datetime.datetime(2024, 2, 29, 10, 0, 0, 1, tzinfo=UTC),
    ]
    assert all(array[1:] == [None, None] for array in arrays)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", b"2147483648"),
        ("long", b"9223372036854775808"),
        ("long", b"1.5"),
        ("long", b'"1"'),
        ("float", b"1e39"),
        ("double", b"1e999"),
        ("string", b"1"),
        ("boolean", b"0"),
        ("date", b'"yesterday"'),
        ("timestamp", b'"2024-13-01T00:00:00Z"'),
        ("timestamp", b"17"),
    ],
)
def test_what_does_not_fit_is_an_error_of_its_row_alone(kind: str, value: bytes) -> None:
    wanted = columns(("x", kind), ("y", "long"))
    errors, (x, y) = decoded([b'{"y":1}', b'{"x":' + value + b',"y":2}', b'{"y":3}'], wanted)
    assert [bool(error) for error in errors] == [False, True, False]
    assert "x" in (errors[1] or "")
    assert x == [None, None, None]
    assert y == [1, None, 3]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"{",
        b'{"a":1',
        b'{"a":1}}',
        b'{"a":1}{"a":2}',
        b'{"a":1},{"a":2}',
        b'{"a":1}\n{"a":2}',
        b"[]",
        b"17",
        b"null",
        b'{"a":"\xff"}',
        b'{"other":"\xff"}',
        b"\xef\xbb\xbf{}",
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
    ],
)
def test_no_hostile_value_shifts_or_spoils_its_neighbours(value: bytes) -> None:
    wanted = columns(("a", "long"))
    rows = [b'{"a":%d}' % at for at in range(50)]
    errors, (found,) = decoded([*rows, value, *rows, value, *rows], wanted)
    assert found == [*range(50), None, *range(50), None, *range(50)]
    assert [at for at, error in enumerate(errors) if error] == [50, 101]


def test_values_that_would_join_or_split_are_told_apart_one_by_one() -> None:
    """Three rows that read as one object, and one row that reads as three: as many as there should be."""
    wanted = columns(("a", "json"))
    values = [b'{"a":[{}', b'{"b":1}', b'{"c":1}]}', b'{"a":1}{"a":2}{"a":3}', b'{"a":4}']
    errors, (found,) = decoded(values, wanted)
    assert [bool(error) for error in errors] == [True, False, True, True, False]
    assert found == [None, None, None, None, "4"]


def test_space_around_an_object_is_allowed() -> None:
    assert decoded([b' {"a":1}\n', b'\n{\n"a"\n:\n2}\t'], columns(("a", "long"))) == ([None, None], [[1, 2]])


def test_paths_reach_into_objects_and_may_overlap() -> None:
    wanted = columns(
        ("id", "long", "$.order.id"),
        ("whole", "json", "$.order"),
        ("city", "string", "$.order.to.city"),
        ("again", "double", "$.order.id"),
    )
    values = [
        b'{"order":{"id":7,"to":{"city":"Ulm"}}}',
        b'{"order":null}',
        b'{"order":{"to":null}}',
        b'{"order":5}',
    ]
    errors, arrays = decoded(values, wanted)
    assert [bool(error) for error in errors] == [False, False, False, True]
    assert arrays == [
        [7, None, None, None],
        ['{"id":7,"to":{"city":"Ulm"}}', None, '{"to":null}', None],
        ["Ulm", None, None, None],
        [7.0, None, None, None],
    ]


_scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
_objects = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), _scalars | st.dictionaries(st.just("x"), _scalars)
)
_values = st.one_of(
    st.none(),
    st.binary(max_size=8),
    _objects.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([b'{"a":[{}', b'{"b":1}', b'{"c":1}]}', b'{"a":1}{"a":2}', b" {}"]),
    st.sampled_from([b'{"a":"x\n"}', b'{"a":"}', b'{"}']),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_values, max_size=40))
@example([b'{"a":"}', b'{"}'])
def test_many_values_at_once_read_as_each_by_itself(values: list[bytes | None]) -> None:
    wanted = columns(("a", "long"), ("b", "string"), ("c", "json"), ("d", "double", "$.c.x"))
    together = decoded(values, wanted)
    alone = [decoded([value], wanted) for value in values]
    assert together[0] == [errors[0] for errors, _ in alone]
    assert repr(together[1]) == repr([[arrays[at][0] for _, arrays in alone] for at in range(4)])


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@settings(max_examples=200, deadline=None)
@given(_values)
def test_a_value_reads_as_pythons_own_json_does(value: bytes | None) -> None:
    errors, (found,) = decoded([value], columns(("a", "long")))
    try:
        parsed = json.loads(value.decode(), parse_constant=_no_constant) if value else None
    except ValueError:
        parsed = "no JSON"
    if value is None:
        expected, fits = None, True
    elif isinstance(parsed, dict):
        expected = parsed.get("a")
        whole = type(expected) is int and -(2**63) <= expected < 2**63
        exact = type(expected) is float and expected.is_integer() and abs(expected) <= 2**53
        fits = expected is None or whole or exact
    else:
        expected, fits = None, False
    assert (errors[0] is None) == fits, (value, errors)
    assert found[0] == (expected if fits else None)


def test_rows_get_their_columns_and_keep_their_own() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"_offset": [1, 2], "_value": pa.array([b'{"a":1}', b"x"], pa.binary())}
    )
    wider = with_columns(rows, TableColumns(tuple(columns(("a", "long")))))
    assert wider.schema.names == ["_offset", "_value", "_error", "a"]
    assert [wider.schema.field(at).metadata[b"PARQUET:field_id"] for at in (2, 3)] == [b"999", b"10001"]
    assert wider.column("a").to_pylist() == [1, None]


def test_bad_rows_cost_little_more_than_good_ones() -> None:
    wanted = columns(("a", "long"))
    good = [b'{"a":%d}' % at for at in range(20_000)]
    half = [value if at % 2 else b'{"a":"x"}' for at, value in enumerate(good)]
    started = time.process_time()
    decoded(good, wanted)
    middle = time.process_time()
    decoded(half, wanted)
    assert time.process_time() - middle < 50 * (middle - started) + 1


# Declarations


def test_a_json_schema_declares_columns_as_well() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "day": {"type": "string", "format": "date"},
            "name": {"type": "string", "format": "email"},
            "tags": {"type": "array"},
            "any": True,
            "ok": {"type": "boolean"},
        },
    }
    assert [(column.name, column.type) for column in declared(schema, [])] == [
        ("id", "long"),
        ("price", "double"),
        ("at", "timestamp"),
        ("day", "date"),
        ("name", "string"),
        ("tags", "json"),
        ("any", "json"),
        ("ok", "boolean"),
    ]


def test_columns_are_added_and_keep_their_numbers() -> None:
    first = columns(("a", "int"), ("b", "string"))
    again = declared(
        [{"name": "c", "type": "long"}, {"name": "b", "type": "string"}, {"name": "a", "type": "long"}], first
    )
    assert [(column.id, column.name, column.type) for column in again] == [
        (10_001, "a", "long"),
        (10_002, "b", "string"),
        (10_003, "c", "long"),
    ]
    declaration = TableColumns(tuple(again))
    assert decode_columns(encode_columns(declaration)) == declaration
    assert decode_columns("") == TableColumns()


@pytest.mark.parametrize(
    "schema",
    [
        [],
        [{"name": "b", "type": "long"}],
        [{"name": "a", "type": "string"}],
        [{"name": "a", "type": "int"}],
        [{"name": "a", "type": "long", "path": "$.other"}],
        [{"name": "a", "type": "long"}, {"name": "A", "type": "long", "path": "$.A"}],
    ],
)
def test_what_readers_rely_on_cannot_be_taken_away(schema: list[Any]) -> None:
    with pytest.raises((TableIncompatible, InvalidConfig)):
        declared(schema, columns(("a", "long")))


@pytest.mark.parametrize(
    "schema",
    [
        "a long",
        7,
        {"type": "array"},
        {"properties": []},
        [{"name": "a"}],
        [{"name": "a", "type": "lung"}],
        [{"name": "a", "type": ["long"]}],
        [{"name": 1, "type": "long"}],
        [{"name": "_a", "type": "long"}],
        [{"name": "", "type": "long"}],
        [{"name": "a\n", "type": "long"}],
        [{"name": "a.b", "type": "long"}],
        [{"name": "a", "type": "long", "path": "a"}],
        [{"name": "a", "type": "long", "path": "$.a[0]"}],
        [{"name": "a", "type": "long", "path": "$.a..b"}],
        [{"name": "a", "type": "long", "nullable": True}],
        [{"name": "a", "type": "long"}, {"name": "a", "type": "long"}],
        [{"name": f"c{at}", "type": "long"} for at in range(1001)],
    ],
)
def test_what_is_no_declaration_is_refused(schema: object) -> None:
    with pytest.raises(InvalidConfig):
        declared(schema, [])


@pytest.mark.parametrize("name", ["_offset", "_partition", "_POS", "_mine"])
def test_names_that_records_and_iceberg_reserve_are_refused_with_the_list(name: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"_partition_id, _offset, .*_spec_id, _partition, _row_id"
    ) as refused:
        declared([{"name": "fine", "type": "long"}, {"name": name, "type": "long"}], [])
    assert name in str(refused.value)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("decimal( 10,2 )", "decimal(10, 2)"),
        ("list<string>", "list<string>"),
        ("struct<a:long,b:list<decimal(4,1)>>", "struct<a: long, b: list<decimal(4, 1)>>"),
        ("map< long ,fixed( 16 )>", "map<long, fixed(16)>"),
        (
            "struct<`first-name`:uuid,`a``b`:time,`c`:json>",
            "struct<`first-name`: uuid, `a``b`: time, c: json>",
        ),
    ],
)
def test_a_type_has_one_spelling(text: str, canonical: str) -> None:
    (column,) = declared([{"name": "c", "type": text}], [])
    assert column.type == canonical


@pytest.mark.parametrize(
    "text",
    [
        *(
            "decimal",
            "decimal(39, 0)",
            "decimal(2, 3)",
            "list<>",
            "list<int",
            "struct<>",
            "int>",
            "",
            "map<int>",
            "map<double, int>",
            "map<list<int>, int>",
            "fixed(0)",
            "fixed(65537)",
        ),
        *(
            "struct<a: int, A: int>",
            "struct<a int>",
            "struct<a: int, a.b: int>",
            "list<" * 9 + "int" + ">" * 9,
        ),
    ],
)
def test_a_type_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="must be one of"):
        declared([{"name": "c", "type": text}], [])


def test_nested_fields_have_permanent_ids() -> None:
    first = declared([{"name": "a", "type": "struct<x: long, y: list<int>>"}], [])
    both = declared(
        [{"name": "a", "type": "struct<x: long, y: list<int>>"}, {"name": "b", "type": "int"}], first
    )
    assert [column.id for column in both] == [10_001, 10_005]
    with pytest.raises(TableIncompatible):
        declared([{"name": "a", "type": "struct<x: long>"}], first)
    (wider,) = declared([{"name": "a", "type": "struct<x: long, y: list<int>, z: uuid>"}], first)
    assert (wider.id, wider.ids) == (10_001, (10_002, 10_003, 10_004, 10_005))
    (both_wider,) = declared([{"name": "a", "type": "struct<x: long, y: list<long>>"}], first)
    assert both_wider.ids == first[0].ids
    (narrow,) = declared([{"name": "d", "type": "decimal(5, 2)"}], [])
    assert declared([{"name": "d", "type": "decimal(9, 2)"}], [narrow])[0].type == "decimal(9, 2)"
    with pytest.raises(TableIncompatible):
        declared([{"name": "d", "type": "decimal(9, 3)"}], [narrow])


def test_numbers_fit_if_they_are_exact() -> None:
    wanted = columns(("i", "int"), ("d", "decimal(5, 2)"))
    values = [b'{"i":1.0}', b'{"i":1e3}', b'{"i":-0.0}', b'{"i":1.5}', b'{"i":3e9}', b'{"i":1e400}']
    values += [b'{"d":1.5}', b'{"d":"2.25"}', b'{"d":7e2}', b'{"d":1.234}', b'{"d":1000}', b'{"d":"NaN"}']
    errors, (whole, exact) = decoded(values, wanted)
    assert [error is None for error in errors] == [True] * 3 + [False] * 3 + [True] * 3 + [False] * 3
    assert whole[:3] == [1, 1000, 0]
    assert [str(value) for value in exact[6:9]] == ["1.50", "2.25", "700.00"]


def test_lists_and_structs_are_read_with_what_they_hold() -> None:
    wanted = columns(("tags", "list<string>"), ("at", "struct<x: int, more: list<struct<n: decimal(3, 1)>>>"))
    values = [
        b'{"tags":["a",null],"at":{"x":1.0,"more":[{"n":1.5},{},null],"other":7}}',
        b'{"tags":[],"at":null}',
        b'{"tags":"a"}',
        b'{"tags":["kept"],"at":{"more":[{"n":1.25}]}}',
    ]
    errors, (tags, places) = decoded(values, wanted)
    assert [error is None for error in errors] == [True, True, False, False]
    assert tags == [["a", None], [], None, None]
    assert places[0] == {"x": 1, "more": [{"n": Decimal("1.5")}, {"n": None}, None]}


_keys = st.text(
    st.characters(codec="utf-8", exclude_characters=".[") | st.sampled_from("\"\\`'/\n\0 "),
    min_size=1,
    max_size=4,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(_keys, min_size=1, max_size=4, unique=True))
@example(['q"x', "b\\y", "plain"])
def test_any_key_is_read_at_every_level(keys: list[str]) -> None:
    value = {key: number for number, key in enumerate(keys)}
    flat = columns(*((f"c{number}", "long", f"$.{key}") for number, key in enumerate(keys)))
    deep = columns(*((f"c{number}", "long", f"$.in.{key}") for number, key in enumerate(keys)))
    empty = [[None] for _ in keys]
    expected = [[number] for number, _ in enumerate(keys)]
    assert decoded([json.dumps(value).encode()], flat) == ([None], expected)
    assert decoded([json.dumps({"in": value}).encode()], deep) == ([None], expected)
    assert decoded([b'{"in": null}'], deep) == ([None], empty)
    fields = {key.lower(): key for key in keys if key.isprintable()}.values()
    if fields:
        quoted = ", ".join(f"`{key.replace('`', '``')}`: long" for key in fields)
        found = {key: value[key] for key in fields}
        wanted = columns(("s", f"struct<{quoted}>"))
        assert decoded([json.dumps({"s": value}).encode(), b"{}"], wanted) == ([None, None], [[found, None]])
        wrong = json.dumps({"s": dict.fromkeys(fields, "text")}).encode()
        (reason,), arrays = decoded([wrong], wanted)
        assert (reason is not None, arrays) == (True, [[None]])
    (reason,), arrays = decoded([json.dumps({"in": dict.fromkeys(keys, "text")}).encode()], deep)
    assert (reason is not None, arrays) == (True, empty)

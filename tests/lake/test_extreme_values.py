"""Values at the edge of every column type, from a record to what readers of the table see."""

from __future__ import annotations

import base64
import datetime
import json
import struct
import uuid
from collections.abc import Iterator
from decimal import Context, Decimal
from itertools import count
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField, PrimitiveType

from mainstem.tables.column_types import PRIMITIVES

from .tabling import Tabling, tabling

DAY_US = 86_400_000_000
EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
FLOAT_MAX = 3.4028234663852886e38
REFUSED = object()  # the value does not fit: its row has no typed columns


class Written(NamedTuple):
    """A value as JSON, and what every reader has to find: times in microseconds, dates in days."""

    text: str
    found: Any


def whole(least: int, most: int) -> st.SearchStrategy[Written]:
    edges = st.sampled_from([least - 1, least, least + 1, -1, 0, 1, most - 1, most, most + 1, 10**400])
    return (edges | st.integers(least, most)).map(
        lambda number: Written(str(number), number if least <= number <= most else REFUSED)
    )


def real(most: float) -> st.SearchStrategy[Written]:
    edges = st.sampled_from([most, -most, 5e-324, -0.0, 1e-45, 1e-38])
    finite = edges | st.floats(-most, most, allow_nan=False)
    hostile = st.sampled_from(["1e999", "-1e999", "NaN", "Infinity", '"NaN"'])
    return finite.map(lambda number: Written(repr(number), number)) | hostile.map(
        lambda text: Written(text, REFUSED)
    )


def dates() -> st.SearchStrategy[Written]:
    edges = st.sampled_from([datetime.date.min, datetime.date.max])
    sound = (edges | st.dates()).map(lambda day: Written(f'"{day.isoformat()}"', day.toordinal() - EPOCH_DAY))
    hostile = st.sampled_from(['"0000-01-01"', '"10000-01-01"', '"-0001-01-01"', '"2023-02-29"'])
    return sound | hostile.map(lambda text: Written(text, REFUSED))


@st.composite
def timestamps(draw: st.DrawFn) -> Written:
    """An offset may carry a time of year 1 or 9999 out of what Python can say."""
    near = st.sampled_from([datetime.date.min, datetime.date.max])
    day = draw(near | st.dates())
    time_us = draw(st.sampled_from([0, DAY_US - 1]) | st.integers(0, DAY_US - 1))
    minutes = draw(st.sampled_from([-1439, -60, 0, 60, 1439]) | st.integers(-1439, 1439))
    seconds, fraction = divmod(time_us, 1_000_000)
    offset = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"
    found = (day.toordinal() - EPOCH_DAY) * DAY_US + time_us - minutes * 60_000_000
    return Written(f'"{day.isoformat()}T{clock}{offset}"', found)


def local_times() -> st.SearchStrategy[Written]:
    edges = st.sampled_from([datetime.datetime.min, datetime.datetime.max])
    sound = (edges | st.datetimes()).map(lambda at: Written(f'"{at.isoformat()}"', epoch_us(at)))
    hostile = st.sampled_from(['"2023-01-01T00:00:00Z"', '"2023-01-01T00:00:00+01:00"', '"noon"', "1"])
    return sound | hostile.map(lambda text: Written(text, REFUSED))


def times_of_day() -> st.SearchStrategy[Written]:
    edges = st.sampled_from([datetime.time.min, datetime.time.max])
    day = datetime.datetime(1970, 1, 1)
    sound = (edges | st.times()).map(
        lambda at: Written(f'"{at.isoformat()}"', epoch_us(datetime.datetime.combine(day, at)))
    )
    hostile = st.sampled_from(['"24:00:00"', '"23:59:61"', '"12:00:00Z"', "0"])
    return sound | hostile.map(lambda text: Written(text, REFUSED))


def epoch_us(at: datetime.datetime) -> int:
    return (at - datetime.datetime(1970, 1, 1)) // datetime.timedelta(microseconds=1)


def epochs(unit_us: int) -> st.SearchStrategy[Written]:
    """Numbers since 1970, without DuckDB's infinities."""
    most = (2**63 - 2) // unit_us
    return whole(-most, most).map(
        lambda each: each if each.found is REFUSED else Written(each.text, each.found * unit_us)
    )


def uuids() -> st.SearchStrategy[Written]:
    edges = st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=2**127)])
    sound = (edges | st.uuids()).map(lambda id: Written(f'"{id}"', id))
    return sound | st.sampled_from(['"0"', '""', "7"]).map(lambda text: Written(text, REFUSED))


def octets(length: int | None = None) -> st.SearchStrategy[Written]:
    unit = st.binary(min_size=1, max_size=3) | st.sampled_from([b"\xff", b"\0"])
    found = st.tuples(unit, st.sampled_from([0, 1, 15, 16, 17, 5000])).map(lambda of: of[0] * of[1])
    if length is not None:
        found = found.map(lambda value: value[:length]) | st.binary(min_size=length, max_size=length)
    return found.map(
        lambda value: Written(
            f'"{base64.b64encode(value).decode()}"', value if length in (None, len(value)) else REFUSED
        )
    ) | st.sampled_from(['"?"', '"A"', "[1]"]).map(lambda text: Written(text, REFUSED))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Written]:
    most = 10**precision - 1
    edges = st.sampled_from([most, -most, 0, 1, -1])
    sound = (edges | st.integers(-most, most)).map(lambda number: Decimal(number).scaleb(-scale, WIDE))
    hostile = st.sampled_from([f"{most + 1}", f"1e-{scale + 1}", '"NaN"', '"Infinity"', "1e999", "true"])
    return st.tuples(sound, st.booleans()).map(
        lambda of: Written(f'"{of[0]:f}"' if of[1] else f"{of[0]:f}", of[0])
    ) | hostile.map(lambda text: Written(text, REFUSED))


def lists(of: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    return st.lists(of, min_size=1, max_size=4).map(
        lambda items: Written("[" + ",".join(each.text for each in items) + "]", held(items, list))
    )


def maps(of: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    return st.dictionaries(st.sampled_from(["", "a", "\0", "\U0010ffff"]), of, max_size=3).map(
        lambda items: Written(
            "{" + ",".join(f"{json.dumps(key)}:{each.text}" for key, each in items.items()) + "}",
            held(items.values(), lambda values: dict(zip(items, values, strict=True))),
        )
    )


def structs(**of: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    return st.fixed_dictionaries(of).map(
        lambda items: Written(
            "{" + ",".join(f'"{key}":{each.text}' for key, each in items.items()) + "}",
            held(items.values(), lambda values: dict(zip(items, values, strict=True))),
        )
    )


def held(items: Any, made: Any) -> Any:
    found = [each.found for each in items]
    return REFUSED if any(each is REFUSED for each in found) else made(found)


@st.composite
def strings(draw: st.DrawFn) -> Written:
    """Also long ones, whose bounds are cut, of characters that have no successor or a surrogate for one."""
    if draw(st.integers(0, 9)) == 0:
        return Written(draw(st.sampled_from(['"\\ud800"', '"\\udfff"', '"\\udc00\\ud800"'])), REFUSED)
    edges = st.sampled_from(["\0", "\ud7ff", "\ue000", "\uffff", "\U0010ffff", "ÿ", '"', "\\"])
    unit = draw(edges | st.characters(codec="utf-8"))
    text = unit * draw(st.sampled_from([0, 1, 15, 16, 17, 5000])) + draw(st.text(max_size=3))
    return Written(json.dumps(text, ensure_ascii=draw(st.booleans())), text)


def documents() -> st.SearchStrategy[Written]:
    leaves = st.sampled_from(["1e400", "-0", "0." + "1" * 50, "9" * 400, '""', "true", "{}", '{"\\u0000":0}'])
    nested = st.tuples(st.sampled_from([1, 2, 100]), leaves).map(lambda of: "[" * of[0] + of[1] + "]" * of[0])
    return (leaves | nested).map(lambda text: Written(text, text))


WIDE = Context(prec=60)
NO_MORE_THAN_ONE_LEVEL = structs(day=dates(), exact=decimals(38, 10), id=uuids())
STRATEGIES: dict[str, st.SearchStrategy[Written]] = {
    "boolean": st.booleans().map(lambda value: Written(json.dumps(value), value)),
    "int": whole(-(2**31), 2**31 - 1),
    "long": whole(-(2**63), 2**63 - 1),
    "float": real(FLOAT_MAX),
    "double": real(1.7976931348623157e308),
    "string": strings(),
    "json": documents(),
    "date": dates(),
    "timestamp": timestamps(),
    "timestamp_ntz": local_times(),
    "timestamp_ms": epochs(1000),
    "timestamp_us": epochs(1),
    "time": times_of_day(),
    "uuid": uuids(),
    "binary": octets(),
    "fixed(3)": octets(3),
    "fixed(20)": octets(20),
    "decimal(9, 2)": decimals(9, 2),
    "decimal(18, 18)": decimals(18, 18),
    "decimal(38, 0)": decimals(38, 0),
    "list<long>": lists(whole(-(2**63), 2**63 - 1)),
    "list<uuid>": lists(uuids()),
    "map<string, decimal(38, 10)>": maps(decimals(38, 10)),
    "map<string, list<time>>": maps(lists(times_of_day())),
    "struct<day: date, exact: decimal(38, 10), id: uuid>": NO_MORE_THAN_ONE_LEVEL,
    "list<struct<at: timestamp_us, bits: fixed(3)>>": lists(structs(at=epochs(1), bits=octets(3))),
}
TYPES = tuple(STRATEGIES)
NESTED = tuple(kind for kind in TYPES if "<" in kind)
# Times, which Python cannot always say, are compared as numbers.
NUMBERS = {
    pa.date32(): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.timestamp("us"): pa.int64(),
    pa.timestamp("us", tz="UTC"): pa.int64(),
}
# Mostly one column a row, so that few values are left out because another one in their row does not fit.
ROW = st.one_of(
    *(st.fixed_dictionaries({kind: strategy}) for kind, strategy in STRATEGIES.items()),
    st.fixed_dictionaries({}, optional=STRATEGIES),
)
ROWS = st.lists(ROW, min_size=1, max_size=24)
BEYOND = Written('"9999-12-31T23:59:59-01:00"', 253_402_304_399_000_000)
BEFORE = Written('"0001-01-01T00:00:00+01:00"', -62_135_600_400_000_000)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tabling]:
    with tabling(tmp_path_factory.mktemp("extremes") / "data", "--text", "off") as started:
        yield started


@pytest.fixture(scope="module")
def producer(lake: Tabling) -> Producer:
    # It outlives the server by a moment: nobody wants to read of that.
    address = str(lake.server.address("kafka"))
    return Producer({"bootstrap.servers": address, "linger.ms": 0, "log_level": 0})


_numbers = count()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=ROWS)
@example(rows=[{"timestamp": BEYOND}])
@example(rows=[{"timestamp": BEFORE}, {"timestamp": BEYOND}])
@example(rows=[{"string": Written('"' + "\ud7ff" * 20 + '"', "\ud7ff" * 20)}])
@example(rows=[{"string": Written('"' + "\U0010ffff" * 20 + '"', "\U0010ffff" * 20)}])
@example(rows=[{"json": Written("[" * 900 + "]" * 900, "[" * 900 + "]" * 900)}])
@example(rows=[{"date": Written('"9999-12-31"', 2_932_896), "double": Written("NaN", REFUSED)}])
def test_every_value_of_every_type_is_published_and_reads_the_same_everywhere(
    lake: Tabling, producer: Producer, rows: list[dict[str, Written]]
) -> None:
    topic = f"extremes{next(_numbers)}"
    lake.topic(topic)
    lake.enable(topic, schema=[{"name": kind, "type": kind} for kind in TYPES])
    try:
        for row in rows:
            fields = ",".join(f'"{kind}":{written.text}' for kind, written in row.items())
            producer.produce(topic, f"{{{fields}}}".encode())
        assert producer.flush(30) == 0
        lake.work("materialise")
        report = lake.publish()
        assert report.problems == {}
        expected = [values_of(row) for row in rows]
        table = lake.table(topic)
        (file,) = [task.file for task in table.scan().plan_files()]
        assert differences(by_pyiceberg(table), expected) == []
        assert differences(by_duckdb(file), expected) == []
        check_bounds(table, file, expected)
        refused = sum(any(each.found is REFUSED for each in row.values()) for row in rows)
        assert lake.table(f"{topic}__errors").scan().to_arrow().num_rows == refused
    finally:
        lake.ask("DELETE", f"/v0/topics/{topic}")


Row = dict[str, Any]


def values_of(row: dict[str, Written]) -> Row:
    if any(written.found is REFUSED for written in row.values()):
        return dict.fromkeys(TYPES)
    found: Row = {kind: row[kind].found if kind in row else None for kind in TYPES}
    if found["float"] is not None:
        found["float"] = float(np.float32(found["float"]))
    return found


def differences(found: list[Row], expected: list[Row]) -> list[tuple[str, Any, Any]]:
    pairs = zip(found, expected, strict=True)
    return [(kind, one[kind], two[kind]) for one, two in pairs for kind in TYPES if one[kind] != two[kind]]


def by_pyiceberg(table: Table) -> list[Row]:
    rows = as_rows(table.scan().to_arrow().sort_by("_offset"))
    for row in rows:
        for kind in TYPES:
            if kind.startswith("list<struct") and row[kind] == []:
                row[kind] = None  # PyIceberg 0.12 reads a null list of structs as an empty one
    return rows


def as_rows(rows: pa.Table) -> list[Row]:
    columns = {kind: rows.column(kind).cast(in_numbers(rows.column(kind).type)) for kind in TYPES}
    found: list[Row] = pa.table(columns).to_pylist(maps_as_pydicts="strict")
    return found


def in_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_map(kind):
        return pa.map_(in_numbers(kind.key_type), in_numbers(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(in_numbers(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct(
            [(kind.field(at).name, in_numbers(kind.field(at).type)) for at in range(kind.num_fields)]
        )
    return NUMBERS.get(kind, kind)


def by_duckdb(file: DataFile) -> list[Row]:
    path = file.file_path.removeprefix("file://")
    columns = ", ".join(f'"{kind}"' for kind in TYPES)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET arrow_lossless_conversion = true")  # else a UUID is text
        query = f"select {columns} from read_parquet(?) order by _offset"
        return as_rows(connection.sql(query, params=[path]).to_arrow_table())


def check_bounds(table: Table, file: DataFile, rows: list[Row]) -> None:
    """Numbers have exact bounds, texts sound ones, and a reader that looks for a value finds its file."""
    schema: Schema = table.schema()
    for kind in TYPES:
        if kind in NESTED:
            continue  # only counts
        values = [row[kind] for row in rows if row[kind] is not None]
        column = schema.find_field(kind)
        if not values:
            assert column.field_id not in file.lower_bounds.keys() | file.upper_bounds.keys()
            continue
        low, high = (
            from_bytes(kind_of(column), bounds[column.field_id]) if column.field_id in bounds else None
            for bounds in (file.lower_bounds, file.upper_bounds)
        )
        if kind == "fixed(20)":
            assert (low, high) == (None, None)
        elif kind in ("string", "json", "binary"):
            assert low is None or low <= min(values)
            assert high is None or high >= max(values)
        else:
            assert (as_uuid(kind, low), as_uuid(kind, high)) == (min(values), max(values))
        if kind in ("date", "timestamp", "long", "double"):
            wanted = EqualTo(term=Reference(kind), value=max(values))
            assert list(table.scan(row_filter=wanted).plan_files())


def as_uuid(kind: str, bound: Any) -> Any:
    return uuid.UUID(bytes=bound) if kind == "uuid" and isinstance(bound, bytes) else bound


def test_every_primitive_type_is_tried() -> None:
    assert set(PRIMITIVES) <= set(TYPES)


def kind_of(column: NestedField) -> PrimitiveType:
    assert isinstance(column.field_type, PrimitiveType)
    return column.field_type


def test_the_bounds_of_zeroes_hold_both_of_them(lake: Tabling) -> None:
    """-0.0 and 0.0 are equal to Parquet and two values to Iceberg, which orders one before the other."""
    lake.topic("zeroes")
    lake.enable("zeroes", schema=[{"name": "x", "type": "double"}])
    lake.write("zeroes", {"x": 0.0})
    lake.work("materialise")
    lake.publish()
    (file,) = [task.file for task in lake.table("zeroes").scan().plan_files()]
    field_id = lake.table("zeroes").schema().find_field("x").field_id
    assert file.lower_bounds[field_id] == struct.pack("<d", -0.0)
    assert file.upper_bounds[field_id] == struct.pack("<d", 0.0)

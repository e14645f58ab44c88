"""Values at the edge of every column type, from a record to what readers of the table see."""

from __future__ import annotations

import datetime
import json
import struct
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple, get_args

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

from mainstem.tables.column_types import Primitive

from .tabling import Tabling, tabling

TYPES: tuple[Primitive, ...] = get_args(Primitive)
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


STRATEGIES: dict[Primitive, st.SearchStrategy[Written]] = {
    "boolean": st.booleans().map(lambda value: Written(json.dumps(value), value)),
    "int": whole(-(2**31), 2**31 - 1),
    "long": whole(-(2**63), 2**63 - 1),
    "float": real(FLOAT_MAX),
    "double": real(1.7976931348623157e308),
    "string": strings(),
    "json": documents(),
    "date": dates(),
    "timestamp": timestamps(),
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
    lake: Tabling, producer: Producer, rows: list[dict[Primitive, Written]]
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
        assert by_pyiceberg(table) == expected
        assert by_duckdb(file) == expected
        check_bounds(table, file, expected)
        refused = sum(any(each.found is REFUSED for each in row.values()) for row in rows)
        assert lake.table(f"{topic}__errors").scan().to_arrow().num_rows == refused
    finally:
        lake.ask("DELETE", f"/v0/topics/{topic}")


Row = dict[Primitive, Any]


def values_of(row: dict[Primitive, Written]) -> Row:
    if any(written.found is REFUSED for written in row.values()):
        return dict.fromkeys(TYPES)
    found: Row = {kind: row[kind].found if kind in row else None for kind in TYPES}
    if found["float"] is not None:
        found["float"] = float(np.float32(found["float"]))
    return found


def by_pyiceberg(table: Table) -> list[Row]:
    rows = table.scan().to_arrow().sort_by("_offset")
    physical = {"date": pa.int32(), "timestamp": pa.int64()}
    columns = {
        kind: rows.column(kind).cast(physical[kind]) if kind in physical else rows.column(kind)
        for kind in TYPES
    }
    found: list[Row] = pa.table(columns).to_pylist()
    return found


def by_duckdb(file: DataFile) -> list[Row]:
    physical = {"date": "datediff('day', date '1970-01-01', \"date\")", "timestamp": 'epoch_us("timestamp")'}
    columns = ", ".join(physical.get(kind, f'"{kind}"') for kind in TYPES)
    path = file.file_path.removeprefix("file://")
    with duckdb.connect() as connection:
        query = f"select {columns} from read_parquet(?) order by _offset"
        rows = connection.execute(query, [path]).fetchall()
    return [dict(zip(TYPES, row, strict=True)) for row in rows]


def check_bounds(table: Table, file: DataFile, rows: list[Row]) -> None:
    """Numbers have exact bounds, texts sound ones, and a reader that looks for a value finds its file."""
    schema: Schema = table.schema()
    for kind in TYPES:
        values = [row[kind] for row in rows if row[kind] is not None]
        column = schema.find_field(kind)
        if not values:
            assert column.field_id not in file.lower_bounds.keys() | file.upper_bounds.keys()
            continue
        low, high = (
            from_bytes(kind_of(column), bounds[column.field_id]) if column.field_id in bounds else None
            for bounds in (file.lower_bounds, file.upper_bounds)
        )
        if kind in ("string", "json"):
            assert low is None or low <= min(values)
            assert high is None or high >= max(values)
        else:
            assert (low, high) == (min(values), max(values))
        if kind in ("date", "timestamp", "long", "double"):
            wanted = EqualTo(term=Reference(kind), value=max(values))
            assert list(table.scan(row_filter=wanted).plan_files())


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

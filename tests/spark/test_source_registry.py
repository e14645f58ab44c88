"""Reads with `valueFormat=avro|protobuf|json` and the registry. Most run in this process: only the last needs Spark."""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mainstem.client.schemas import SchemaRegistry
from mainstem.errors import InvalidInput
from mainstem.spark.datasource import MainstemDataSource

from .conftest import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
            },
            {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
            {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
            {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}},
            {"name": "digest", "type": {"type": "fixed", "name": "Two", "size": 2}},
        ],
    }
)
ID = uuid.UUID(int=7)
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=datetime.UTC)
ORDER = {
    "id": ID,
    "price": Decimal("1.25"),
    "at": AT,
    "clock": datetime.time(1, 2, 3),
    "lines": [{"a": 1}],
    "digest": b"xy",
}
SHOWN = ORDER | {"id": str(ID)}


@pytest.fixture(scope="module")
def registry(broker: Broker) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(broker.url) as opened:
        yield opened


def read(broker: Broker, topic: str, schema: Any = None, **options: str) -> list[dict[str, Any]]:
    """As Spark calls the source: plan, then read each partition."""
    source = MainstemDataSource({"url": broker.url, "subscribe": topic, **options})
    reader = source.reader(schema or source.schema())
    found: list[dict[str, Any]] = []
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def test_a_value_is_a_struct_of_the_newest_schema(
    broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    broker.create(topic)
    to_bytes = registry.serializer(f"{topic}-value", AVRO)
    broker.write(topic, to_bytes(ORDER), None, keys=[b"k", None])
    rows = read(broker, topic, valueFormat="avro", includeHeaders="true")
    assert list(rows[0]) == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]
    assert [row["value"] for row in rows] == [SHOWN, None]
    assert (rows[0]["key"], rows[0]["topic"], rows[1]["offset"]) == (b"k", topic, 1)


def test_older_and_newer_values_are_read_by_the_given_version(
    broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    broker.create(topic)
    subject = f"{topic}-value"
    first = registry.serializer(subject, 'syntax = "proto3"; message M { int32 n = 1; }', "PROTOBUF")
    broker.write(topic, first({"n": 1}))
    newer = 'syntax = "proto3"; message M { int64 number = 1; string text = 2; }'
    second = registry.serializer(subject, newer, "PROTOBUF")
    broker.write(topic, second({"number": 2**40, "text": "b"}), second({"number": 3}))
    rows = read(broker, topic, valueFormat="protobuf")
    assert [row["value"] for row in rows] == [
        {"number": 1, "text": None},
        {"number": 2**40, "text": "b"},
        {"number": 3, "text": ""},
    ]
    by_first = read(broker, topic, valueFormat="protobuf", valueVersion="1")
    assert [row["value"] for row in by_first] == [{"n": 1}, None, {"n": 3}]  # the second does not fit an int


def test_what_does_not_decode_is_null_an_error_or_left_out(
    broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    broker.create(topic)
    to_bytes = registry.serializer(f"{topic}-value", '{"properties":{"n":{"type":"integer"}}}', "JSON")
    sound = to_bytes({"n": 1})
    broker.write(topic, sound, b"nonsense", sound[:5] + b'{"n":"x"}', b"\0\xff\xff\xff\xff{}", sound)
    one = {"n": 1}
    values = [row["value"] for row in read(broker, topic, valueFormat="json")]
    assert values == [one, None, None, None, one]
    dropped = read(broker, topic, valueFormat="json", mode="dropmalformed")
    assert [(row["offset"], row["value"]) for row in dropped] == [(0, one), (4, one)]
    with pytest.raises(InvalidInput, match=f"offset 1 of topic '{topic}'.*does not begin with a zero byte"):
        read(broker, topic, valueFormat="json", mode="failfast")


def test_fields_may_be_columns_of_the_query(broker: Broker, registry: SchemaRegistry, topic: str) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    broker.create(topic)
    to_bytes = registry.serializer(f"{topic}-value", AVRO)
    broker.write(topic, to_bytes(ORDER), b"?")
    schema = (
        StructType().add("id", StringType()).add("_offset", LongType()).add("_corrupt_record", StringType())
    )
    sound, broken = read(broker, topic, schema, valueFormat="avro")
    assert sound == {"id": str(ID), "_offset": 0, "_corrupt_record": None}
    assert (broken["id"], broken["_offset"]) == (None, 1)
    assert broken["_corrupt_record"]
    with pytest.raises(InvalidInput, match="column nothing is not a field of the schema"):
        read(broker, topic, StructType().add("nothing", StringType()), valueFormat="avro")


def test_plain_json_with_a_schema_of_the_query_needs_no_registry(broker: Broker, topic: str) -> None:
    from pyspark.sql.types import LongType, StructType

    broker.create(topic)
    broker.write(topic, b'{"offset": 5, "value": {"n": 1}}')
    schema = StructType().add("value", StructType().add("n", LongType())).add("offset", LongType())
    assert read(broker, topic, schema, valueFormat="json") == [{"value": {"n": 1}, "offset": 5}]


def test_what_the_registry_cannot_answer_is_said(
    broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    broker.create(topic)
    registry.register(f"{topic}-value", '"string"')
    with pytest.raises(InvalidInput, match="option valueFormat is protobuf, but the schema"):
        read(broker, topic, valueFormat="protobuf")
    with pytest.raises(InvalidInput, match="option valueSubject is required"):
        read(broker, f"{topic},other", valueFormat="avro")


def test_spark_reads_values_as_structs(
    spark: SparkSession, broker: Broker, registry: SchemaRegistry, topic: str
) -> None:
    broker.create(topic, 2)
    to_bytes = registry.serializer(f"{topic}-value", AVRO)
    broker.write(topic, *[to_bytes(ORDER)] * 3)
    broker.write(topic, to_bytes(ORDER | {"at": None}), partition=1)
    frame = spark.read.format("mainstem").option("url", broker.url).option("valueFormat", "avro").load(topic)
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema["value"].dataType] == [
        ("id", "string"),
        ("price", "decimal(8,2)"),
        ("at", "timestamp"),
        ("clock", "time(6)"),
        ("lines", "array<map<string,int>>"),
        ("digest", "binary"),
    ]
    rows = frame.where("value.price > 1").orderBy("partition", "offset").selectExpr("value.*").collect()
    assert [row.asDict()["lines"] for row in rows] == [[{"a": 1}]] * 4
    assert (rows[0].id, rows[0].price, rows[0].clock, bytes(rows[0].digest)) == (
        *(str(ID), Decimal("1.25"), datetime.time(1, 2, 3), b"xy"),
    )
    assert rows[3].at is None

"""`spark.read.format("mainstem")` against a real broker."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from .conftest import TIME_MS, Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def read(spark: SparkSession, broker: Broker, **options: object) -> DataFrame:
    reader = spark.read.format("mainstem").option("url", broker.url)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def values(frame: DataFrame) -> list[Any]:
    rows = frame.select("partition", "offset", "value").collect()
    return [None if row.value is None else bytes(row.value) for row in sorted(rows, key=lambda r: r[:2])]


def test_records_come_back_byte_for_byte(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic, 2)
    broker.write(topic, b"a", None, b"", b"\xff\0", keys=[b"k", None, b"", b"\xfe"], times=[0, 1, 2, TIME_MS])
    broker.write(topic, b"p1", partition=1)
    frame = read(spark, broker, subscribe=topic)
    assert frame.columns == COLUMNS
    rows = sorted(frame.collect(), key=lambda row: (row.partition, row.offset))
    found = [(row.partition, row.offset, row.key, row.value, row.timestampType) for row in rows]
    assert found == [
        (0, 0, b"k", b"a", 0),
        (0, 1, None, None, 0),
        (0, 2, b"", b"", 0),
        (0, 3, b"\xfe", b"\xff\0", 0),
        (1, 0, None, b"p1", 0),
    ]
    assert {row.topic for row in rows} == {topic}
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    times = [row.timestamp.astimezone(UTC) - epoch for row in rows[:4]]
    assert times == [timedelta(milliseconds=ms) for ms in (0, 1, 2, TIME_MS)]


def test_what_the_broker_hands_out_is_what_the_objects_hold(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic)
    for number in range(5):
        broker.write(topic, *(b"%d" % (number * 100 + i) for i in range(100)))
    direct = read(spark, broker, subscribe=topic).collect()
    paged = read(spark, broker, subscribe=topic, readFrom="broker").collect()
    assert direct == paged
    assert [row.offset for row in direct] == list(range(500))


def test_headers_are_there_when_asked_for(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic)
    headers = [[("h", b"1"), ("h", None)], []]
    broker.write(topic, b"a", b"b", headers=headers)
    frame = read(spark, broker, subscribe=topic, includeHeaders=True)
    assert frame.columns == [*COLUMNS, "headers"]
    first, second = (row.headers for row in frame.orderBy("offset").collect())
    assert [(header.key, header.value) for header in first] == [("h", b"1"), ("h", None)]
    assert second is None


def test_topics_by_list_pattern_assignment_and_path(spark: SparkSession, broker: Broker, topic: str) -> None:
    for suffix in ("a", "b"):
        broker.create(f"{topic}.{suffix}", 2)
        for partition in (0, 1):
            broker.write(f"{topic}.{suffix}", f"{suffix}{partition}".encode(), partition=partition)
    both = [b"a0", b"b0", b"a1", b"b1"]
    assert sorted(values(read(spark, broker, subscribe=f"{topic}.a,{topic}.b"))) == sorted(both)
    assert sorted(values(read(spark, broker, subscribePattern=f"{topic}[.].*"))) == sorted(both)
    assigned = f'{{"{topic}.a":[1],"{topic}.b":[0]}}'
    assert sorted(values(read(spark, broker, assign=assigned))) == [b"a1", b"b0"]
    by_path = spark.read.format("mainstem").option("url", broker.url).load(f"{topic}.a")
    assert values(by_path) == [b"a0", b"a1"]


def test_offsets_say_where_to_begin_and_end(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic, 2)
    for partition in (0, 1):
        broker.write(topic, *(b"%d-%d" % (partition, i) for i in range(5)), partition=partition)
    starting, ending = f'{{"{topic}":{{"0":2,"1":-2}}}}', f'{{"{topic}":{{"0":-1,"1":1}}}}'
    frame = read(spark, broker, subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    assert values(frame) == [b"0-2", b"0-3", b"0-4", b"1-0"]
    empty = read(
        spark,
        broker,
        subscribe=topic,
        startingOffsets=ending.replace("-1", "5"),
        endingOffsets=starting.replace("-2", "1"),
    )
    assert values(empty) == []


def test_times_say_where_to_begin_and_end(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic, 2)
    for partition in (0, 1):
        times = [TIME_MS + i * 1_000 for i in range(5)]
        broker.write(topic, *(b"%d-%d" % (partition, i) for i in range(5)), partition=partition, times=times)
    frame = read(
        spark, broker, subscribe=topic, startingTimestamp=TIME_MS + 2_500, endingTimestamp=TIME_MS + 4_000
    )
    assert values(frame) == [b"0-3", b"1-3"]
    by_partition = f'{{"{topic}":{{"0":{TIME_MS + 4_000},"1":{TIME_MS + 3_500}}}}}'
    frame = read(spark, broker, subscribe=topic, startingOffsetsByTimestamp=by_partition)
    assert values(frame) == [b"0-4", b"1-4"]
    frame = read(spark, broker, subscribe=topic, endingOffsetsByTimestamp=by_partition)
    assert len(values(frame)) == 4 + 4
    late = TIME_MS + 60_000
    with pytest.raises(Exception, match="has no record at or after"):
        read(spark, broker, subscribe=topic, startingTimestamp=late).collect()
    options = {"startingTimestamp": late, "startingOffsetsByTimestampStrategy": "latest"}
    assert values(read(spark, broker, subscribe=topic, **options)) == []


def test_a_range_is_read_by_as_many_tasks_as_asked_for(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic)
    for number in range(4):
        broker.write(topic, *(b"%d" % (number * 25 + i) for i in range(25)))
    frame = read(spark, broker, subscribe=topic, minPartitions=7)
    assert frame.rdd.getNumPartitions() == 7
    assert values(frame) == [b"%d" % i for i in range(100)]


def test_removed_records_fail_the_query_by_name_or_are_passed(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic)
    broker.write(topic, *(b"%d" % i for i in range(10)))
    broker.trim(topic, 5)
    start = broker.ask("GET", f"/v0/topics/{topic}/offsets")["partitions"][0]["start"]
    assert start > 0
    from_zero = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":0}}}}'}
    with pytest.raises(Exception, match=rf"offsets \[0, {start}\) of topic '{topic}', partition 0, are gone"):
        read(spark, broker, **from_zero).collect()
    kept = [b"%d" % i for i in range(start, 10)]
    assert values(read(spark, broker, **from_zero, failOnDataLoss=False)) == kept
    assert values(read(spark, broker, subscribe=topic)) == kept
    beyond = {"endingOffsets": f'{{"{topic}":{{"0":50}}}}'}
    with pytest.raises(Exception, match=r"offsets \[10, 50\)"):
        read(spark, broker, subscribe=topic, **beyond).collect()
    assert values(read(spark, broker, subscribe=topic, **beyond, failOnDataLoss=False)) == kept


def test_deleted_records_in_the_middle_are_no_loss(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic)
    keys: list[bytes | None] = [b"gone" if i in (2, 3) else b"kept" for i in range(6)]
    broker.write(topic, *(b"%d" % i for i in range(6)), keys=keys)
    broker.ask("POST", f"/v0/topics/{topic}/delete", {"match": "gone"})
    for way in ("objects", "broker"):
        assert values(read(spark, broker, subscribe=topic, readFrom=way)) == [b"0", b"1", b"4", b"5"]


def test_typed_columns_are_made_of_json_values(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.write(
        topic,
        b'{"id": 1, "name": "a", "at": "2024-01-02T03:04:05Z", "tags": ["x"], "more": {"n": 1.5}}',
        b'{\n "id": 2,\n "other": true\n}',
        keys=[b"k", None],
    )
    schema = "id long, name string, at timestamp, tags array<string>, more struct<n:double>"
    schema += ", _offset bigint, _key binary"
    frame = (
        spark.read.format("mainstem")
        .option("url", broker.url)
        .option("valueFormat", "json")
        .schema(schema)
        .load(topic)
    )
    first, second = frame.orderBy("_offset").collect()
    assert (first.id, first.name, first.tags, first.more.n, first["_key"]) == (1, "a", ["x"], 1.5, b"k")
    assert first.at.astimezone(UTC) == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert (second.id, second.name, second["_offset"]) == (2, None, 1)


def test_values_that_do_not_fit_are_null_an_error_or_left_out(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic)
    bad = [b"nonsense", None, b"", b'{"id":"x"}', b'{"id":1}{"id":2}', b"[1]", b"\xff"]
    good = [b'{"id":%d}' % i for i in range(50)]
    broker.write(topic, *good[:25], *bad, *good[25:])

    def typed(mode: str) -> DataFrame:
        reader = spark.read.format("mainstem").option("url", broker.url).option("mode", mode)
        return reader.option("valueFormat", "json").schema("id long, _corrupt_record string").load(topic)

    rows = typed("permissive").collect()
    assert len(rows) == 57
    assert [row.id for row in rows if row.id is not None] == list(range(50))
    assert [row["_corrupt_record"] for row in rows if row.id is None] == [
        "nonsense", None, "", '{"id":"x"}', '{"id":1}{"id":2}', "[1]", "\ufffd",
    ]  # fmt: skip
    assert [row.id for row in typed("dropmalformed").collect()] == list(range(50))
    with pytest.raises(Exception, match=f"offset 25 of topic '{topic}', partition 0, is not a JSON object"):
        typed("failfast").collect()


def test_what_cannot_be_read_is_said(spark: SparkSession, broker: Broker, topic: str) -> None:
    with pytest.raises(Exception, match=f"Subject '{topic}-value' not found"):
        read(spark, broker, subscribe=topic, valueFormat="json")
    reader = spark.read.format("mainstem").option("url", broker.url)
    with pytest.raises(Exception, match="a schema needs the option"):
        reader.schema("id long").load(topic).collect()
    with pytest.raises(Exception, match="JSON cannot be read as"):
        reader.option("valueFormat", "json").schema("id map<string,int>").load(topic).collect()
    with pytest.raises(Exception, match=topic):
        read(spark, broker, subscribe=topic).collect()
    broker.ask("PUT", f"/v0/topics/{topic}", {"type": "queue"})
    with pytest.raises(Exception, match="is a queue"):
        read(spark, broker, subscribe=topic).collect()


def test_append_time_is_told_apart(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic, message_timestamp_type="LogAppendTime")
    broker.write(topic, b"a")
    (row,) = read(spark, broker, subscribe=topic).collect()
    assert row.timestampType == 1
    assert row.timestamp.astimezone(UTC) > datetime(2025, 1, 1, tzinfo=UTC)


def test_it_is_known_by_name_and_in_sql(spark: SparkSession, broker: Broker, topic: str) -> None:
    from mainstem.spark import register

    broker.create(topic)
    broker.write(topic, b"a", b"b")
    spark.sql(
        f"create or replace temporary view topic_view using mainstem options (url '{broker.url}', subscribe '{topic}')"
    )
    assert spark.sql("select count(*) from topic_view where offset > 0").collect()[0][0] == 1
    register(spark)
    assert len(values(read(spark, broker, subscribe=topic))) == 2

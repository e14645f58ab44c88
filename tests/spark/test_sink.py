"""`df.write` and `df.writeStream` of `format("mainstem")` against a real broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mainstem.records.partitioner import partition_of

from .conftest import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: DataFrame, broker: Broker, **options: object) -> None:
    writer = frame.write.format("mainstem").mode("append").option("url", broker.url)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def read(spark: SparkSession, broker: Broker, topic: str, **options: object) -> list[Any]:
    reader = spark.read.format("mainstem").option("url", broker.url).option("subscribe", topic)
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return sorted(reader.load().collect(), key=lambda row: (row.topic, row.partition, row.offset))


def test_rows_come_back_byte_for_byte(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic, 3)
    rows = [
        (b"k1", b"v1", [("h", b"1"), ("h", None)], 0),
        (None, None, None, 1),
        (b"", b"", [], 1),
        (b"\xff", b"\x00\xfe", [("a", b"")], 2),
    ]
    schema = "key binary, value binary, headers array<struct<key:string,value:binary>>, partition int"
    write(spark.createDataFrame(rows, schema).coalesce(1), broker, topic=topic)
    found = [
        (row.key, row.value, [(header.key, header.value) for header in row.headers or []], row.partition)
        for row in read(spark, broker, topic, includeHeaders=True)
    ]
    assert found == [(key, value, headers or [], partition) for key, value, headers, partition in rows]


def test_keys_go_where_kafka_clients_put_them(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic, 5)
    keys = [f"key-{i}" * (i % 4) for i in range(400)]
    write(
        spark.createDataFrame([(key, key) for key in keys], "key string, value string"), broker, topic=topic
    )
    rows = read(spark, broker, topic)
    assert sorted(bytes(row.key).decode() for row in rows) == sorted(keys)
    assert all(row.partition == partition_of(bytes(row.key), 5) for row in rows)


def test_rows_without_a_key_are_spread_and_large_writes_are_whole(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic, 2)
    frame = spark.range(60_000).selectExpr("repeat(cast(id as string), 40) as value").repartition(4)
    write(frame, broker, topic=topic, compression="zstd")
    rows = read(spark, broker, topic)
    assert len(rows) == 60_000
    assert {bytes(row.value) for row in rows} == {str(i).encode() * 40 for i in range(60_000)}
    assert {row.partition for row in rows} == {0, 1}


def test_each_row_may_name_its_topic_and_the_option_wins(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    rows = [(f"{topic}.{i % 2}", str(i)) for i in range(10)]
    frame = spark.createDataFrame(rows, "topic string, value string")
    write(frame, broker)
    assert sorted(broker.values(f"{topic}.0")) == [0, 2, 4, 6, 8]
    write(frame, broker, topic=f"{topic}.all")
    assert sorted(broker.values(f"{topic}.all")) == list(range(10))


def test_a_topic_is_copied_with_its_times(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.write(topic, b"1", b"2", times=[1_000, 2_000])
    reader = spark.read.format("mainstem").option("url", broker.url)
    frame = reader.load(topic).drop("topic", "partition")
    write(frame, broker, topic=f"{topic}.copy", keepTimestamps=True)
    found = read(spark, broker, f"{topic}.copy")
    assert [row.timestamp.timestamp() for row in found] == [1, 2]
    write(frame, broker, topic=f"{topic}.now")
    assert all(row.timestamp.timestamp() > 1e9 for row in read(spark, broker, f"{topic}.now"))


def test_a_failed_write_leaves_nothing_and_blocks_nobody(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic)
    frame = spark.range(0, 40_000, 1, 2).selectExpr(
        "if(id = 39999, cast(raise_error('broken') as string), cast(id as string)) as value"
    )
    with pytest.raises(Exception, match="broken"):
        write(frame, broker, topic=topic)
    broker.write(topic, b'"after"')
    assert broker.values(topic) == ["after"]
    assert len(read(spark, broker, topic)) == 1


def test_a_named_batch_is_written_once(spark: SparkSession, broker: Broker, topic: str) -> None:
    frame = spark.createDataFrame([("1",)], "value string")
    named = {"queryId": f"{topic}-query", "batchId": 3}
    write(frame, broker, topic=topic, **named)
    write(frame, broker, topic=topic, **named)
    assert broker.values(topic) == [1]
    write(frame, broker, topic=topic, **{**named, "batchId": 4})
    assert broker.values(topic) == [1, 1]


def test_what_cannot_be_written_is_said(spark: SparkSession, broker: Broker, topic: str) -> None:
    broker.create(topic, 2)
    good = spark.createDataFrame([("1", 7)], "value string, partition int")
    cases: list[tuple[DataFrame, dict[str, object], str]] = [
        (spark.range(1), {"topic": topic}, "no column value"),
        (spark.range(1).selectExpr("id as value"), {"topic": topic}, "value must be binary or string"),
        (good, {}, "set the option topic"),
        (good, {"topic": topic}, "partition 7 does not exist"),
        (good.drop("partition"), {"topic": topic, "batchId": 1}, "need each other"),
        (
            good.drop("partition"),
            {"topic": topic, "transactionTimeout": "10h"},
            "transactionTimeout must be 1s",
        ),
        (good.drop("partition"), {"topic": topic, "compression": "brotli"}, "compression must be none"),
        (good.drop("partition"), {"topic": topic, "tpic": "x"}, "unknown option tpic"),
        (good.drop("partition"), {"topic": f"{topic}.none", "createTopics": False}, "none"),
        (good.selectExpr("value", "cast(null as string) as topic"), {}, "topic of a row is null"),
        (good.selectExpr("repeat(value, 2000000) as value"), {"topic": topic}, "limit"),
    ]
    for frame, options, said in cases:
        with pytest.raises(Exception, match=said):
            write(frame, broker, **options)
    with pytest.raises(Exception, match="only supports mode"):
        good.write.format("mainstem").mode("overwrite").option("url", broker.url).save(topic)
    assert broker.values(topic) == []


def test_a_stream_writes_every_batch_once(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create(f"{topic}.in", 2)
    broker.create(f"{topic}.out", 3)

    def run() -> None:
        frame = (
            spark.readStream.format("mainstem")
            .option("url", broker.url)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "30")
            .load(f"{topic}.in")
            .select("key", "value")
        )
        query = (
            frame.writeStream.format("mainstem")
            .option("url", broker.url)
            .option("topic", f"{topic}.out")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    for number in range(2):
        for partition in (0, 1):
            values = [b"%d" % (number * 100 + partition * 50 + i) for i in range(50)]
            broker.write(f"{topic}.in", *values, partition=partition)
        run()
        found = [value for partition in range(3) for value in broker.values(f"{topic}.out", partition)]
        assert sorted(found) == list(range((number + 1) * 100))

"""`spark.readStream.format("mainstem")` against a real broker."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from mainstem.spark.source.options import SourceOptions
from mainstem.spark.source.reader import RangePartition
from mainstem.spark.source.stream import StreamReader

from .conftest import Broker
from .transactions import OpenTransaction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAIT_S = 120


def reader(broker: Broker, **options: object) -> StreamReader:
    """The reader as Spark's planner calls it, without Spark."""
    from pyspark.sql.types import StructType

    given = {"url": broker.url, "startingOffsets": "earliest"}
    given |= {name: str(value) for name, value in options.items()}
    return StreamReader(StructType(), SourceOptions.parse(given, streaming=True))


@contextmanager
def stopping(*readers: StreamReader) -> Iterator[None]:
    try:
        yield
    finally:
        for one in readers:
            one.stop()


def planned(one: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    """(partition, start, end) of every task."""
    found = []
    for partition in one.partitions(start, end):
        assert isinstance(partition, RangePartition)
        assert partition.range is not None
        found.append((partition.range.partition, partition.range.start, partition.range.end))
    return found


def offsets(position: dict[str, Any], topic: str) -> dict[str, int]:
    return dict(position[topic]["offsets"])


class Collected:
    """Rows of a stream's batches, in order, and a way to wait for them."""

    def __init__(self) -> None:
        self.batches: list[list[bytes]] = []
        self._changed = threading.Condition()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [bytes(row.value) for row in frame.select("value").collect()]
        with self._changed:
            self.batches.append(rows)
            self._changed.notify_all()

    @property
    def values(self) -> list[bytes]:
        return [value for batch in self.batches for value in batch]

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.values) >= count, WAIT_S), self.batches


def start(
    spark: SparkSession, broker: Broker, topic: str, into: Collected, checkpoint: Path, **options: object
) -> Any:
    stream = spark.readStream.format("mainstem").option("url", broker.url)
    trigger = options.pop("trigger", {"processingTime": "200 milliseconds"})
    for name, value in {"startingOffsets": "earliest", "subscribe": topic, **options}.items():
        stream = stream.option(name, str(value))
    writer = stream.load().writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(into)
    assert isinstance(trigger, dict)
    return writer.trigger(**trigger).start()


def test_a_stream_follows_its_topic_and_goes_on_where_it_stopped(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create(topic)
    broker.write(topic, b"0", b"1")
    seen = Collected()
    query = start(spark, broker, topic, seen, tmp_path, group=f"{topic}-group")
    try:
        seen.wait_for(2)
        broker.write(topic, b"2")
        seen.wait_for(3)
        query.processAllAvailable()
        assert query.lastProgress["sources"][0]["description"]
    finally:
        query.stop()
    broker.write(topic, b"3", b"4")
    again = Collected()
    now = {"availableNow": True}
    query = start(spark, broker, topic, again, tmp_path, group=f"{topic}-group", trigger=now)
    assert query.awaitTermination(WAIT_S)
    assert (seen.values, again.values) == ([b"0", b"1", b"2"], [b"3", b"4"])
    group = broker.ask("GET", f"/v0/groups/{topic}-group")
    # Spark tells a source that a batch is done when it plans the next one.
    assert group["offsets"][0]["offset"] >= 3


def test_what_is_available_now_is_read_in_batches_of_the_limit(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create(topic, 2)
    for partition in (0, 1):
        broker.write(topic, *(b"%d-%d" % (partition, i) for i in range(25)), partition=partition)
    seen = Collected()
    options: dict[str, object] = {"maxOffsetsPerTrigger": 20, "minOffsetsPerTrigger": 20}
    query = start(spark, broker, topic, seen, tmp_path, trigger={"availableNow": True}, **options)
    assert query.awaitTermination(WAIT_S)
    assert [len(batch) for batch in seen.batches] == [20, 20, 10]
    assert len(set(seen.values)) == 50


def test_limits_are_kept_and_what_is_available_is_fixed_at_the_start(broker: Broker, topic: str) -> None:
    broker.create(topic, 2)
    broker.write(topic, *[b"x"] * 30)
    broker.write(topic, *[b"x"] * 10, partition=1)
    one = reader(broker, subscribe=topic, maxOffsetsPerTrigger=8)
    with stopping(one):
        begin = one.initialOffset()
        assert offsets(begin, topic) == {"0": 0, "1": 0}
        limit = one.getDefaultReadLimit()
        assert limit == ReadMaxRows(8)
        assert offsets(one.latestOffset(begin, limit), topic) == {"0": 6, "1": 2}
        assert offsets(one.latestOffset(begin, ReadAllAvailable()), topic) == {"0": 30, "1": 10}
        one.prepareForTriggerAvailableNow()
        broker.write(topic, b"late")
        end = one.latestOffset(begin, ReadAllAvailable())
        assert offsets(end, topic) == {"0": 30, "1": 10}
        assert one.latestOffset(end, limit) == end
        assert offsets(one.reportLatestOffset() or {}, topic) == {"0": 31, "1": 10}
        assert json.loads(json.dumps(end)) == end


def test_a_batch_waits_for_enough_offsets_but_not_for_ever(broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.write(topic, *[b"x"] * 4)
    patient = reader(broker, subscribe=topic, minOffsetsPerTrigger=5)
    hasty = reader(broker, subscribe=topic, minOffsetsPerTrigger=5, maxTriggerDelay="0ms")
    with stopping(patient, hasty):
        begin = patient.initialOffset()
        assert patient.latestOffset(begin, ReadAllAvailable()) == begin
        assert offsets(hasty.latestOffset(begin, ReadAllAvailable()), topic) == {"0": 4}
        broker.write(topic, b"x")
        assert offsets(patient.latestOffset(begin, ReadAllAvailable()), topic) == {"0": 5}


def test_new_partitions_and_topics_are_read_from_their_start(broker: Broker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    broker.create(f"{topic}.a")
    broker.write(f"{topic}.a", b"x", b"x")
    one = reader(broker, subscribePattern=f"{topic}[.].*", startingOffsets="latest", minPartitions=3)
    with stopping(one):
        begin = one.initialOffset()
        assert offsets(begin, f"{topic}.a") == {"0": 2}
        admin = AdminClient({"bootstrap.servers": str(broker.process.address("kafka"))})
        admin.create_partitions([NewPartitions(f"{topic}.a", 2)])[f"{topic}.a"].result(30)
        broker.write(f"{topic}.a", b"x", b"x", b"x", partition=1)
        broker.create(f"{topic}.b")
        broker.write(f"{topic}.b", b"x")
        end = one.latestOffset(begin, ReadAllAvailable())
        assert offsets(end, f"{topic}.a") == {"0": 2, "1": 3}
        assert planned(one, begin, end) == [(1, 0, 1), (1, 1, 3), (0, 0, 1)]


def test_losses_are_named_or_passed(broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.write(topic, *(b"%d" % i for i in range(10)))
    strict, lenient = reader(broker, subscribe=topic), reader(broker, subscribe=topic, failOnDataLoss=False)
    with stopping(strict, lenient):
        begin = strict.initialOffset()
        broker.trim(topic, 5)
        first = broker.ask("GET", f"/v0/topics/{topic}/offsets")["partitions"][0]["start"]
        end = strict.latestOffset(begin, ReadAllAvailable())
        with pytest.raises(Exception, match=rf"offsets \[0, {first}\) of topic '{topic}', partition 0"):
            strict.partitions(begin, end)
        assert planned(lenient, begin, end) == [(0, first, 10)]


def test_a_topic_made_anew_is_not_taken_for_the_old_one(broker: Broker, topic: str) -> None:
    broker.create(topic)
    broker.write(topic, *[b"old"] * 10)
    strict, lenient = reader(broker, subscribe=topic), reader(broker, subscribe=topic, failOnDataLoss=False)
    with stopping(strict, lenient):
        begin = strict.latestOffset(strict.initialOffset(), ReadAllAvailable())
        broker.ask("DELETE", f"/v0/topics/{topic}")
        with pytest.raises(Exception, match=topic):
            strict.latestOffset(begin, ReadAllAvailable())
        assert lenient.latestOffset(begin, ReadAllAvailable()) == begin
        broker.create(topic)
        broker.write(topic, *[b"new"] * 12)
        with pytest.raises(Exception, match="the topic was recreated"):
            strict.latestOffset(begin, ReadAllAvailable())
        end = lenient.latestOffset(begin, ReadAllAvailable())
        assert planned(lenient, begin, end) == [(0, 0, 12)]


def test_open_and_aborted_transactions_are_seen_only_when_asked_for(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic)
    broker.write(topic, b"plain")
    with OpenTransaction(broker, topic) as aborted:
        aborted.write(b"aborted")
    with OpenTransaction(broker, topic) as open_one:
        open_one.write(b"open")
        broker.write(topic, b"behind it")

        def values(isolation: str) -> list[bytes]:
            frame = spark.read.format("mainstem").option("url", broker.url).option("isolation", isolation)
            return [bytes(row.value) for row in frame.load(topic).orderBy("offset").collect()]

        assert values("read_committed") == [b"plain"]
        assert values("read_uncommitted") == [b"plain", b"aborted", b"open", b"behind it"]
    assert values("read_committed") == [b"plain", b"behind it"]


def test_progress_that_cannot_be_stored_does_not_fail_the_query(broker: Broker, topic: str) -> None:
    broker.create(topic)
    one = reader(broker, subscribe=topic, group="g")
    with stopping(one):
        end = one.initialOffset()
        one.commit(end)
        assert broker.ask("GET", "/v0/groups/g")["offsets"][0]["topic"] == topic
        broker.ask("DELETE", f"/v0/topics/{topic}")
        one.commit(end)

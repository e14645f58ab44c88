"""One topic, by every way there is to read it: all of them must give the same records."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from .writers import PARTITIONS, WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Row(NamedTuple):
    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def by_kafka(bootstrap: str, topic: str, stop: threading.Event | None = None) -> list[Row]:
    """What a read_committed consumer gets from the first offset to where the end is when it gets there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "views",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",  # the front is trimmed while it is read
            "enable.partition.eof": True,
            "check.crcs": True,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    found: list[Row] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        ended: set[int] = set()
        while len(ended) < PARTITIONS and not (stop is not None and stop.is_set()):
            for message in consumer.consume(5_000, 0.5):
                error = message.error()
                if error is None:
                    found.append(_of_message(message))
                    ended.discard(found[-1].partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
                else:
                    assert error.retriable() or error.code() == KafkaError._TRANSPORT, error
    finally:
        consumer.close()
    return sorted(found)


def _of_message(message: Any) -> Row:
    headers = tuple((name, value) for name, value in message.headers() or ())
    _, time_ms = message.timestamp()
    return Row(message.partition(), message.offset(), time_ms, message.key(), message.value(), headers)


def open_table(url: str, topic: str) -> Table:
    return load_catalog("m", type="rest", uri=f"{url}/iceberg").load_table(f"default.{topic}")


def by_iceberg(table: Table) -> list[Row]:
    """What PyIceberg reads of the topic's table."""
    return sorted(_of_rows(table.scan().to_arrow()))


def by_spark_parquet(spark: SparkSession, table: Table) -> list[Row]:
    """What Spark's own Parquet reader finds in the files that the table's snapshot names."""
    files = [task.file.file_path for task in table.scan().plan_files()]
    if not files:
        return []
    columns = ("_partition_id", "_offset", "_timestamp", "_key", "_value", "_headers")
    return sorted(_of_rows(spark.read.parquet(*files).select(*columns).toArrow()))


def by_spark_source(spark: SparkSession, url: str, topic: str) -> list[Row]:
    """What `format("mainstem")` reads: the same files, and the log where there are none."""
    frame = spark.read.format("mainstem").options(url=url, includeHeaders="true").load(topic)
    names = {name: f"_{name}" for name in ("partition", "offset", "timestamp", "key", "value", "headers")}
    return sorted(_of_rows(frame.withColumnsRenamed(names).toArrow()))


def _of_rows(rows: pa.Table) -> Iterator[Row]:
    times = rows.column("_timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_pylist()
    for time_us, row in zip(times, rows.drop_columns(["_timestamp"]).to_pylist(), strict=True):
        headers = tuple((header["key"], header["value"]) for header in row["_headers"] or ())
        yield Row(row["_partition_id"], row["_offset"], time_us // 1000, row["_key"], row["_value"], headers)


class Rereader:
    """Reads everything over and over: what stands at an offset may go, and never changes."""

    def __init__(self, bootstrap: str, topics: Iterable[str]) -> None:
        self._thread = threading.Thread(target=self._run, name="rereader", daemon=True)
        self._kafka = bootstrap
        self._topics = tuple(topics)
        self._ending = threading.Event()
        self._seen: dict[tuple[str, int, int], Row] = {}
        self._fault: BaseException | None = None
        self.rounds = 0

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                for topic in self._topics:
                    self.check(topic, by_kafka(self._kafka, topic, self._ending))
                self.rounds += 1
        except BaseException as fault:  # noqa: BLE001 - raised where somebody sees it
            self._fault = fault

    def check(self, topic: str, rows: list[Row]) -> None:
        places = Counter(row[:2] for row in rows)
        twice = sorted(place for place, count in places.items() if count > 1)
        assert not twice, (
            f"{topic}: {len(twice)} records from {twice[0]} to {twice[-1]} were read twice at once"
        )
        for row in rows:
            known = self._seen.setdefault((topic, row.partition, row.offset), row)
            assert known == row, f"{topic} {row[:2]} was {known}, and is {row}"

    def finish(self) -> None:
        self._ending.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the reader does not end"
        if self._fault is not None:
            raise self._fault

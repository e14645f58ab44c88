"""Whatever is killed, lost, repeated or done twice: every row is there once, or the whole batch is not."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mainstem.client.broker import BrokerClient
from mainstem.errors import InvalidTransaction, ProducerFenced
from mainstem.spark.sink.batches import TaskBatches
from mainstem.spark.sink.options import SinkOptions

from .conftest import Broker
from .proxy import Proxy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = Path(__file__).with_name("copying_driver.py")
WAIT_S = 240


def out_values(broker: Broker, topic: str, partitions: int = 2) -> list[Any]:
    return sorted(value for partition in range(partitions) for value in broker.values(topic, partition))


def stream_once(
    spark: SparkSession, broker: Broker, topic: str, checkpoint: Path, sink_url: str = ""
) -> None:
    frame = (
        spark.readStream.format("mainstem")
        .option("url", broker.url)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .load(f"{topic}.in")
    )
    query = (
        frame.select("key", "value")
        .writeStream.format("mainstem")
        .option("url", sink_url or broker.url)
        .option("topic", f"{topic}.out")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WAIT_S)


def filled(broker: Broker, topic: str, count: int = 100) -> None:
    broker.create(f"{topic}.in")
    broker.create(f"{topic}.out", 2)
    keys: list[bytes | None] = [b"%d" % i for i in range(count)]
    broker.write(f"{topic}.in", *(b"%d" % i for i in range(count)), keys=keys)


def test_a_batch_that_spark_reruns_is_not_written_again(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    filled(broker, topic)
    stream_once(spark, broker, topic, tmp_path)
    commits = sorted((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()  # as if the driver had died right after the sink's commit
    (tmp_path / "commits" / f".{commits[-1].name}.crc").unlink()
    stream_once(spark, broker, topic, tmp_path)
    assert out_values(broker, f"{topic}.out") == list(range(100))


def test_the_example_accepts_every_payment_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "exactly_once_spark.py"))
    broker.create("payments")
    broker.create("payments.accepted")
    payments = [{"customer": name, "amount": amount} for name, amount in example["PAYMENTS"]]
    broker.write("payments", *(json.dumps(payment).encode() for payment in payments))
    example["accept"](spark, broker.url, str(tmp_path))
    (commit,) = (tmp_path / "commits").glob("[0-9]*")
    commit.unlink()  # as if the driver had died right after the sink's commit
    (tmp_path / "commits" / f".{commit.name}.crc").unlink()
    example["accept"](spark, broker.url, str(tmp_path))
    amounts = [value["amount"] for value in broker.values("payments.accepted")]
    assert sorted(amounts) == [2.5, 5.5, 10.0]


def test_lost_answers_are_asked_for_again_and_change_nothing(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    filled(broker, topic, 40)
    with Proxy(broker.url) as proxy:
        lost = []
        for path in ("/v0/sinks/tasks", f"/v0/topics/{topic}.out/batches", "/v0/sinks/commit"):
            proxy.after(path, lambda path=path: lost.append(path))  # type: ignore[misc]
            frame = spark.read.format("mainstem").option("url", broker.url).load(f"{topic}.in")
            writer = frame.select("key", "value").write.format("mainstem").mode("append")
            writer.option("url", proxy.url).option("topic", f"{topic}.out").save()
        assert len(lost) == 3
    assert out_values(broker, f"{topic}.out") == sorted([*range(40)] * 3)


def test_an_attempt_that_failed_half_way_is_not_counted(
    spark: SparkSession, broker: Broker, topic: str
) -> None:
    broker.create(topic)

    def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        sent = 0
        for batch in batches:
            yield batch
            sent += batch.nbytes
            if sent > 20_000_000 and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt fails")

    rows = spark.range(0, 30_000, 1, 1).selectExpr("repeat(cast(id % 10 as string), 1000) as value")
    rows.mapInArrow(fail_at_first, "value string").write.format("mainstem").mode("append").option(
        "url", broker.url
    ).option("topic", topic).save()
    end = broker.ask("GET", f"/v0/topics/{topic}/offsets")["partitions"][0]["end"]
    assert end > 31_000  # what the first attempt wrote took offsets; some of it was on the way when it failed
    found = spark.read.format("mainstem").option("url", broker.url).load(topic)
    assert found.count() == 30_000


class Attempt:
    """An attempt at a task, run by hand."""

    def __init__(self, broker: BrokerClient, name: str, topic: str, run: str, batch: int = 0) -> None:
        self.name = name
        self.begun = broker.begin_task("query-" + topic, run, batch, name, timeout_ms=60_000, lasting=True)
        options = SinkOptions.parse({"topic": topic, "url": "http://unused"})
        self._batches = TaskBatches(broker, self.begun, options, 0)

    def write(self, *values: bytes) -> None:
        column = pa.array(values, pa.binary())
        self._batches.write([pa.RecordBatch.from_arrays([column], names=["value"])])

    @property
    def stamp(self) -> tuple[str, int, int]:
        return self.name, self.begun.producer, self.begun.epoch


def test_of_doubled_attempts_only_the_one_that_is_named_counts(broker: Broker, topic: str) -> None:
    broker.create(topic)
    with BrokerClient(broker.url) as remote:
        twins = [Attempt(remote, f"0.{i}", topic, "run") for i in range(2)]
        for twin in twins:
            twin.write(b"1", b"2")
        assert broker.values(topic) == []
        remote.commit_batch(f"query-{topic}", "run", 0, [twins[1].stamp], lasting=True)
        assert broker.values(topic) == [1, 2]
        with pytest.raises(InvalidTransaction):
            twins[0].write(b"3")
        late = Attempt(remote, "0.9", topic, "run")
        assert late.begun.committed
        assert broker.values(topic) == [1, 2]


def test_a_driver_that_lost_its_query_to_another_cannot_commit(broker: Broker, topic: str) -> None:
    broker.create(topic)
    with BrokerClient(broker.url) as remote:
        old = Attempt(remote, "0.0", topic, "old")
        old.write(b"1")
        new = Attempt(remote, "0.0", topic, "new")
        new.write(b"1")
        with pytest.raises(ProducerFenced):
            remote.commit_batch(f"query-{topic}", "old", 0, [old.stamp], lasting=True)
        remote.commit_batch(f"query-{topic}", "new", 0, [new.stamp], lasting=True)
    assert broker.values(topic) == [1]


@contextmanager
def driver(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver with its JVM and workers in a process group of its own, which is ended with it."""
    process = subprocess.Popen([sys.executable, str(DRIVER), *arguments], start_new_session=True)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


@pytest.mark.slow
@pytest.mark.timeout(900)  # two drivers, each with a JVM of its own
def test_drivers_killed_before_and_after_the_commit_lose_and_double_nothing(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    filled(broker, topic)
    with Proxy(broker.url) as proxy:
        arguments = (broker.url, proxy.url, f"{topic}.in", f"{topic}.out", str(tmp_path))
        for hook in (proxy.before, proxy.after):
            killed = threading.Event()
            with driver(*arguments) as doomed:

                def end_driver(
                    doomed: subprocess.Popen[bytes] = doomed, killed: threading.Event = killed
                ) -> None:
                    kill(doomed)
                    killed.set()

                hook("/v0/sinks/commit", end_driver)
                assert killed.wait(WAIT_S)
        stream_once(spark, broker, topic, tmp_path, proxy.url)
    assert out_values(broker, f"{topic}.out") == list(range(100))


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_of_a_batch_loses_and_doubles_nothing(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, serve: Callable[..., Any]
) -> None:
    filled(broker, topic)
    with serve() as process:
        other = Broker(process)
        other.create(f"{topic}.out", 2)
        with Proxy(other.url) as proxy, other.client:
            restarted: list[Any] = []

            def restart() -> None:
                process.kill()
                again = serve()
                restarted.append(again.wait_ready())
                proxy.target = f"http://{again.address('http')}"

            proxy.after(f"/v0/topics/{topic}.out/batches", restart)
            stream_once(spark, broker, topic, tmp_path, proxy.url)
        try:
            found = Broker(restarted[0])
            with found.client:
                assert out_values(found, f"{topic}.out") == list(range(100))
        finally:
            restarted[0].kill()

"""The driver on Spark, as a process of its own: through kills, the records stay what they are."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from mainstem.client.broker import BrokerClient
from mainstem.records.decoding import StoredRecord, decode_records
from mainstem.spark.driver.driver import Driver, DriverOptions
from mainstem.spark.driver.jobs import SparkRunner
from mainstem.spark.driver.local_workers import LAKE_LOCAL_BYTES
from mainstem.testing.server import ServerProcess
from tests.support.cluster import eventually

from .conftest import Broker
from .driver_process import WAIT_S, DriverProcess
from .test_driver_rounds import Watched, damage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Broker]:
    with ServerProcess(tmp_path / "data", "--text", "off", "--lake-topics", "all") as process:
        found = Broker(process)
        with found.client:
            yield found


def _records(broker: Broker, topic: str, partition: int = 0) -> list[StoredRecord]:
    """Every record, from the batches the broker serves."""
    found: list[StoredRecord] = []
    at = 0
    while True:
        answer = broker.client.get(
            f"/v0/topics/{topic}/batches", params={"partition": partition, "from": at, "max_bytes": 8 << 20}
        )
        assert answer.status_code == 200, answer.text
        found += decode_records(answer.content, at)
        after = int(answer.headers["Mainstem-Next-Offset"])
        if after == at:
            return found
        at = after


def _fill(broker: Broker, topic: str, batches: int, partitions: int = 1) -> None:
    for partition in range(partitions):
        for number in range(batches):
            values = [os.urandom(50) + b"%d" % i for i in range(1000)]
            keys = [b"%d" % (i % 10) for i in range(1000)]
            times = [1_700_000_000_000 + 20_000_000 * (number % 5) + i for i in range(1000)]
            broker.write(topic, *values, partition=partition, keys=list(keys), times=times)


def _fill_large(broker: Broker, topic: str) -> int:
    """More than runs without a Spark job. Returns the number of records."""
    batches = LAKE_LOCAL_BYTES // 900_000 + 1
    for _ in range(batches):
        broker.write(topic, *(os.urandom(30_000) for _ in range(30)))
    return 30 * batches


def _parquet_files(data_dir: Path) -> list[Path]:
    return list((data_dir / "objects" / "parts").rglob("*.parquet"))


def _appears(data_dir: Path, process: subprocess.Popen[str] | None = None) -> None:
    """Wait until a file is being written."""
    waited = threading.Event()
    for _ in range(int(WAIT_S / 0.002)):
        if any(path.stat().st_size for path in _parquet_files(data_dir)):
            return
        if process is not None and process.poll() is not None:
            break
        waited.wait(0.002)
    raise AssertionError("no file was written")


def _states(broker: Broker) -> set[str]:
    """What drivers said that they do."""
    return {one["report"]["state"] for one in broker.ask("GET", "/v0/lake/status")["drivers"]}


def _named_files(broker: Broker, topic: str) -> int:
    status = broker.ask("GET", "/v0/lake/status")
    (found,) = [one for one in status["topics"] if one["topic"] == topic]
    assert found["lag_records"] == 0
    return sum(partition["files"] for partition in found["partitions"])


@pytest.mark.slow
def test_of_a_driver_killed_in_the_middle_and_a_pass_of_another_every_record_is_as_it_was(
    lake: Broker, tmp_path: Path, topic: str
) -> None:
    lake.create(topic, partitions=2)
    _fill(lake, topic, 100, partitions=2)
    lake.ask("POST", f"/v0/topics/{topic}/delete", {"match": "7"})
    before = [_records(lake, topic, partition) for partition in range(2)]
    with DriverProcess(lake.url, "--once") as killed:
        killed.wait_for("tasks")
        eventually(lambda: _states(lake), lambda found: "working" in found)
        lake.process.signal(signal.SIGSTOP)  # however quick it is now, nobody takes what it has done
        try:
            _appears(tmp_path / "data", killed.process)
            killed.kill()
        finally:
            lake.process.signal(signal.SIGCONT)
    assert "published" not in {event["event"] for event in killed.events}
    assert [_records(lake, topic, partition) for partition in range(2)] == before
    left = set(_parquet_files(tmp_path / "data"))
    with DriverProcess(lake.url, "--once") as driver:
        assert driver.wait() == 0
    published = [event for event in driver.events if event["event"] == "published"]
    assert sum(event["records"] for event in published) == sum(map(len, before))
    assert [_records(lake, topic, partition) for partition in range(2)] == before
    status = lake.ask("GET", "/v0/lake/status")
    assert status["tasks"] == []
    assert sum(p["records"] for one in status["topics"] for p in one["partitions"]) == sum(map(len, before))
    assert _named_files(lake, topic) == len(set(_parquet_files(tmp_path / "data")) - left)


def test_python_workers_killed_in_the_middle_are_replaced(
    spark: SparkSession, lake: Broker, tmp_path: Path, topic: str
) -> None:
    lake.create(topic, partitions=2)
    _fill(lake, topic, 80, partitions=2)
    before = [_records(lake, topic, partition) for partition in range(2)]
    progress = Watched()
    with BrokerClient(lake.url) as calls:
        options = DriverOptions(holder=topic, topics=(topic,))
        driver = Driver(calls, SparkRunner(spark), options, progress)
        thread = threading.Thread(target=driver.run_once)
        thread.start()
        _appears(tmp_path / "data")
        killed = _kill_workers()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        if driver.driver_status.failed:  # killed more often than Spark tries: another pass gets there
            driver = Driver(calls, SparkRunner(spark), options, progress)
            driver.run_once()
    assert killed
    assert sum(event["records"] for event in progress.named("published")) == sum(map(len, before))
    assert [_records(lake, topic, partition) for partition in range(2)] == before


def _kill_workers() -> int:
    """Those that do tasks: the children of PySpark's daemon."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        parent = process.parent()
        if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()):
            process.kill()
            killed += 1
    return killed


def test_a_damaged_topic_fails_alone_and_says_where(
    spark: SparkSession, lake: Broker, tmp_path: Path, topic: str
) -> None:
    for name in (f"{topic}-sound", f"{topic}-hurt"):
        lake.create(name)
        _fill(lake, name, 3)
    progress = Watched()
    with BrokerClient(lake.url) as calls:
        sources = calls.sources(f"{topic}-hurt", 0, 0, 3000)
        damage(sources.wal[0], row=1)
        driver = Driver(calls, SparkRunner(spark), DriverOptions(holder=topic), progress)
        driver.run_once()
    (failed,) = progress.named("failed")
    assert failed["topic"] == f"{topic}-hurt"
    assert "[1000, 2000)" in failed["error"]
    assert [event["topic"] for event in progress.named("published")] == [f"{topic}-sound"]


@pytest.mark.slow
def test_a_driver_whose_java_dies_begins_again_and_ends_politely_in_the_middle_of_its_work(
    lake: Broker, tmp_path: Path, topic: str
) -> None:
    lake.create(topic)
    with DriverProcess(lake.url) as driver:
        driver.wait_for("ready")
        (java,) = [
            process
            for process in psutil.Process(driver.process.pid).children(recursive=True)
            if process.name() == "java"
        ]
        java.kill()
        driver.process.send_signal(signal.SIGSTOP)  # it finds all records at once
        records = _fill_large(lake, topic)
        driver.process.send_signal(signal.SIGCONT)
        driver.wait_for("spark lost")
        assert driver.wait_for("published")["records"] == records
        assert [event["event"] for event in driver.events].count("ready") == 2
        assert _named_files(lake, topic) == len(_parquet_files(tmp_path / "data"))
        rounds = [event["event"] for event in driver.events].count("tasks")
        _fill(lake, topic, 100)
        driver.wait_for("tasks", rounds + 1)
        driver.process.send_signal(signal.SIGTERM)
        assert driver.wait() == 0
    assert lake.ask("GET", "/v0/lake/status")["tasks"] == []

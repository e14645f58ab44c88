"""The lake's tasks run on a Spark cluster, whose executors reach the log and the files in a bucket and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.spark.java import find_java
from mainstem.spark.session import MASTER_ENV
from mainstem.testing.server import ServerProcess
from tests.support.s3 import S3Server

from .conftest import Broker
from .driver_process import DriverProcess
from .standalone import StandaloneCluster

_BATCHES, _RECORDS = 20, 1_000
_WAIT_S = 400.0  # for several JVMs to start one after another


@pytest.fixture(autouse=True)
def long_run(chaos: bool) -> None:
    if not chaos:
        pytest.skip("five JVMs: with --chaos only")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_cluster_that_sees_only_the_bucket_materialises_and_publishes(
    tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_server.make_bucket("standalone")
    store = s3_server.url("standalone", "log")
    data = tmp_path / "data"
    (tmp_path / "cluster").mkdir()
    data.mkdir()
    with ServerProcess(data, "--store", store, "--text", "off", "--lake-topics", "all") as server:
        broker = Broker(server)
        values = [b'{"n": %d}' % number for number in range(_BATCHES * _RECORDS)]
        broker.create("orders")
        broker.ask(
            "PUT", "/v0/topics/orders/table", {"enabled": True, "schema": [{"name": "n", "type": "long"}]}
        )
        for first in range(0, len(values), _RECORDS):
            broker.write("orders", *values[first : first + _RECORDS])
        with StandaloneCluster(tmp_path / "cluster", {"MAINSTEM_STORE": store}, hidden=data) as cluster:
            monkeypatch.setenv(MASTER_ENV, cluster.url)
            monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
            monkeypatch.setenv("MAINSTEM_STORE", store)
            with DriverProcess(broker.url, "--once") as driver:
                assert driver.wait(_WAIT_S) == 0, driver.told()
            assert cluster.executors()
            assert _materialised(broker) == len(values)
            told = _read_on(cluster, broker.url, "orders")
        assert broker.ask("GET", "/v0/topics/orders/table")["records"] == len(values)
        assert told == f"{len(values)} {sum(range(len(values)))}"
        broker.client.close()
        server.terminate()


def _materialised(broker: Broker) -> int:
    (topic,) = broker.ask("GET", "/v0/lake/status")["topics"]
    return sum(partition["materialised_to"] for partition in topic["partitions"])


_PROGRAM = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import get_json_object
from mainstem.spark import register
spark = SparkSession.builder.appName("reader").getOrCreate()
register(spark)
rows = spark.read.format("mainstem").option("url", sys.argv[1]).option("subscribe", sys.argv[2]).load()
numbers = rows.select(get_json_object(rows.value.cast("string"), "$.n").cast("long").alias("n"))
print("FOUND", rows.count(), numbers.agg({"n": "sum"}).first()[0])
"""


def _read_on(cluster: StandaloneCluster, url: str, topic: str) -> str:
    """What a program says that spark-submit runs on the cluster: the count of the records, and the sum of `n`."""
    program = cluster.folder / "reader.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [*cluster.submit, str(program), url, topic],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java(os.environ))},
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        cwd=cluster.folder,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    assert found, done.stdout[-3000:]
    return found[0].removeprefix("FOUND ")

"""Topics of a cluster as tables: workers read the bucket themselves, and every reader sees the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyiceberg.catalog import load_catalog

from tests.support.cluster import BrokerProcesses, broker_processes
from tests.support.s3 import S3Server

pytestmark = pytest.mark.slow

_QUIET = {"log_level": 0}
_WAIT_S = 180


def _produced(brokers: BrokerProcesses, topic: str, count: int) -> list[list[object]]:
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True, **_QUIET})
    found: list[list[object]] = []

    def told(error: Any, message: Any) -> None:
        assert error is None, error
        found.append([message.partition(), message.offset(), message.value().decode()])

    for number in range(count):
        producer.produce(topic, json.dumps({"n": number}), f"k{number % 7}", on_delivery=told)
        if number % 100 == 99:
            assert producer.flush(60) == 0  # several commits
    return sorted(found)


def _consumed(address: str, topic: str, count: int) -> list[list[object]]:
    """From offset 0 on, through one broker only."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "none", "enable.auto.commit": False, **_QUIET}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        found: list[list[object]] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), 60)
            assert messages
            assert all(message.error() is None for message in messages)
            found += [[one.partition(), one.offset(), (one.value() or b"").decode()] for one in messages]
        return sorted(found)
    finally:
        consumer.close()


def _worker(url: str, topic: str, store: str) -> dict[str, Any]:
    """Spark, with the store's credentials in its own environment."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("lake_worker.py")), url, topic],
        env={**os.environ, "MAINSTEM_STORE": store},
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            answers |= json.loads(line)
    return answers


def _pages_asked_for(brokers: BrokerProcesses) -> int:
    """How often batches were read through a broker."""
    found = 0
    for one in brokers.running.values():
        with urllib.request.urlopen(f"http://{one.last_address('http')}/v0/metrics", timeout=60) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("mainstem_http_requests_total") and "/batches" in line:
                    found += int(float(line.rpartition(" ")[2]))
    return found


def test_a_topic_in_a_bucket_is_the_same_through_kafka_spark_and_iceberg(tmp_path: Path) -> None:
    with S3Server(tmp_path / "s3") as server:
        server.make_bucket("log")
        store = server.url("log", "cell")
        with broker_processes(tmp_path, "--store", store, "--text", "off") as brokers:
            brokers.start("one", "two")
            admin = AdminClient({"bootstrap.servers": brokers.bootstrap, **_QUIET})
            admin.create_topics([NewTopic("orders", 2)])["orders"].result(60)
            on = brokers.request("one", "PUT", "/v0/topics/orders/table", {"enabled": True})
            assert on.status < 300, on.json
            produced = _produced(brokers, "orders", 600)
            url = f"http://{brokers['two'].last_address('http')}"

            worked = _worker(url, "orders", store)
            assert (worked["failing"], worked["tables_error"]) == ([], "")
            assert worked["before"] == worked["after"] == produced
            assert _pages_asked_for(brokers) == 0  # Spark read everything from the bucket
            page = f"{url}/v0/topics/orders/batches?partition=0&from=0&max_bytes=1"
            urllib.request.urlopen(page, timeout=60).close()
            assert _pages_asked_for(brokers) == 1  # a read through the broker would have been counted

            brokers.barrier("one")  # the other broker knows
            status = brokers.request("one", "GET", "/v0/lake/status").json
            assert server.secret_access_key not in json.dumps(status)
            (topic,) = [one for one in status["topics"] if one["topic"] == "orders"]
            assert [one["materialised_to"] for one in topic["partitions"]] == [
                sum(row[0] == partition for row in produced) for partition in (0, 1)
            ]
            for name in ("one", "two"):
                assert _consumed(str(brokers[name].last_address("kafka")), "orders", 600) == produced
            catalog = load_catalog(
                "m",
                type="rest",
                uri=f"{url}/iceberg",
                **{
                    "s3.endpoint": server.endpoint,
                    "s3.access-key-id": server.access_key_id,
                    "s3.secret-access-key": server.secret_access_key,
                    "s3.region": "us-east-1",
                },
            )
            rows = catalog.load_table("default.orders").scan().to_arrow().to_pylist()
            assert (
                sorted([row["_partition_id"], row["_offset"], row["_value"].decode()] for row in rows)
                == produced
            )


def test_a_problem_reported_to_one_broker_shows_through_the_other(tmp_path: Path) -> None:
    with S3Server(tmp_path / "s3") as server:
        server.make_bucket("log")
        with broker_processes(tmp_path, "--store", server.url("log", "cell"), "--text", "off") as brokers:
            brokers.start("one", "two")
            for path, body in (
                ("/v0/topics/orders", {"durability": "disk"}),
                ("/v0/topics/orders/table", {"enabled": True}),
            ):
                made = brokers.request("one", "PUT", path, body)
                assert made.status < 300, made.json
            failure = {"topic": "orders", "error": "OverflowError: too far", "failures": 1, "at_ms": 1}
            report = {"holder": "driver", "state": "idle", "failing": [failure]}
            assert brokers.request("two", "POST", "/v0/lake/report", report).status < 300
            brokers.barrier("one")
            status = brokers.request("one", "GET", "/v0/topics/orders/table").json
            assert status["problem"] == "OverflowError: too far"

"""Records that a share group acquires and accepts, through librdkafka's share consumer.

Two consumers share one partition. A record counts once its acceptance is durable: the topic is `fsync`.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from mainstem.testing.server import ServerProcess
from tools.bench.report import Figure, Report

RECORDS, RECORD_BYTES = 200_000, 100
CONSUMERS = 2
_POLL_S = 0.05


def run(scratch: Path, report: Report) -> None:
    with ServerProcess((scratch / "shares").resolve(), "--text", "off") as server:
        bootstrap = str(server.address("kafka"))
        _fill(bootstrap)
        _measure(bootstrap, psutil.Process(server.pid), report)
        server.terminate()


def _fill(bootstrap: str) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewTopic,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("shared", 1)])["shared"].result()
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ConfigResource.Type.GROUP, "sharers", incremental_configs=[earliest])
    admin.incremental_alter_configs([group])[group].result()
    producer = Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 500, "linger.ms": 50})
    value = b"x" * RECORD_BYTES
    for number in range(RECORDS):
        producer.produce("shared", value)
        if not number % 10_000:
            producer.flush()
    producer.flush()


def _measure(bootstrap: str, process: psutil.Process, report: Report) -> None:
    from confluent_kafka import ShareConsumer

    options = {"bootstrap.servers": bootstrap, "group.id": "sharers", "log_level": 2}
    consumers = [ShareConsumer(options) for _ in range(CONSUMERS)]
    for consumer in consumers:
        consumer.subscribe(["shared"])
    done, begun = 0, 0.0
    cpu = process.cpu_times()
    while done < RECORDS:
        for consumer in consumers:
            done += len(consumer.poll(_POLL_S))
            begun = begun or time.perf_counter() * bool(done)
    for consumer in consumers:
        consumer.commit_sync(30)
    wall_s = time.perf_counter() - begun
    used = process.cpu_times()
    cpu_s = used.user + used.system - cpu.user - cpu.system
    for consumer in consumers:
        consumer.close()
    if done != RECORDS:
        raise RuntimeError(f"{done} records were handed out of {RECORDS}, none of which was released")
    what = f"Kafka: share group, {CONSUMERS} consumers of librdkafka's"
    note = f"{cpu_s / RECORDS * 1e6:.1f} µs CPU of the server each"
    report.add(Figure(what, RECORDS / wall_s, "records/s", None, cpu_s=cpu_s, note=note))

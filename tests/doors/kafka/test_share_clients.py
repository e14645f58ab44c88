"""Share groups and quotas with a third-party client: librdkafka's share consumer, through confluent-kafka."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from kio.index import load_request_schema

from mainstem.testing.server import ServerProcess

from .messages import make
from .wire import Wire

_PATIENCE_S = 90.0


def _topic(bootstrap: str, name: str, records: int, partitions: int = 1) -> None:
    """Create and fill a topic; the group of its name reads it from the start."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions)])[name].result()
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ConfigResource.Type.GROUP, name, incremental_configs=[earliest])
    admin.incremental_alter_configs([group])[group].result()
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(records):
        producer.produce(name, b"%d" % number, partition=number % partitions)
    producer.flush()


@contextmanager
def _sharer(bootstrap: str, name: str, **options: Any) -> Iterator[ShareConsumer]:
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": name, "log_level": 2, **options})
    consumer.subscribe([name])
    try:
        yield consumer
    finally:
        consumer.close()


def _poll(consumer: ShareConsumer, timeout_s: float = 0.5) -> list[Any]:
    found = list(consumer.poll(timeout_s))
    assert [message.error() for message in found if message.error() is not None] == []
    return found


def test_two_consumers_share_one_partition_and_each_record_goes_to_one(bootstrap: str) -> None:
    _topic(bootstrap, "shared", 100)
    producer = Producer({"bootstrap.servers": bootstrap})
    written = 100
    got: list[Counter[bytes]] = [Counter(), Counter()]
    with _sharer(bootstrap, "shared") as one, _sharer(bootstrap, "shared") as two:
        ends = time.monotonic() + _PATIENCE_S
        while sum(map(len, got)) < written or not all(got):
            assert time.monotonic() < ends
            if not all(got):  # until both have joined, and got records
                for _ in range(20):
                    producer.produce("shared", b"%d" % written)
                    written += 1
                    producer.flush()
            for consumer, seen in ((one, got[0]), (two, got[1])):
                seen.update(message.value() for message in _poll(consumer, 0.1))
        for consumer in (one, two):
            assert all(error is None for error in consumer.commit_sync(10).values())
        together = got[0] + got[1]
        assert set(together) == {b"%d" % number for number in range(written)}
        assert set(together.values()) == {1}
    with _sharer(bootstrap, "shared") as three:
        assert _poll(three, 1.0) == []


def test_released_records_are_delivered_again_and_rejected_ones_are_not(bootstrap: str) -> None:
    _topic(bootstrap, "judged", 9, partitions=3)
    explicit = {"share.acknowledgement.mode": "explicit"}
    kinds = (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT)
    seen: Counter[bytes] = Counter()
    with _sharer(bootstrap, "judged", **explicit) as consumer:
        ends = time.monotonic() + _PATIENCE_S
        while sum(seen.values()) < 12 and time.monotonic() < ends:
            for message in _poll(consumer):
                number = int(message.value())
                first = not seen[message.value()]
                seen[message.value()] += 1
                consumer.acknowledge(message, kinds[number // 3] if first else AcknowledgeType.ACCEPT)
            assert all(error is None for error in consumer.commit_sync(10).values())
        assert _poll(consumer) == []
    assert seen == {b"%d" % number: 2 if number // 3 == 1 else 1 for number in range(9)}


def test_accepted_records_stay_accepted_after_a_kill(tmp_path: Path) -> None:
    explicit = {"share.acknowledgement.mode": "explicit"}
    accepted: set[bytes] = set()
    with ServerProcess(tmp_path / "data") as server:
        bootstrap = str(server.address("kafka"))
        _topic(bootstrap, "killed", 40)
        consumer = ShareConsumer(
            {"bootstrap.servers": bootstrap, "group.id": "killed", "log_level": 2, **explicit}
        )
        consumer.subscribe(["killed"])
        ends = time.monotonic() + _PATIENCE_S
        while not (found := _poll(consumer)):
            assert time.monotonic() < ends
        for message in found:
            even = int(message.value()) % 2 == 0
            consumer.acknowledge(message, AcknowledgeType.ACCEPT if even else AcknowledgeType.RELEASE)
            accepted |= {message.value()} if even else set()
        assert all(error is None for error in consumer.commit_sync(10).values())
        server.kill()
    assert accepted
    with ServerProcess(tmp_path / "data") as server:
        left: set[bytes] = set()
        with _sharer(str(server.address("kafka")), "killed") as consumer:
            ends = time.monotonic() + _PATIENCE_S
            while len(left) < 40 - len(accepted) and time.monotonic() < ends:
                left |= {message.value() for message in _poll(consumer)}
    assert left == {b"%d" % number for number in range(40)} - accepted


async def test_a_producer_over_its_quota_is_throttled(server: ServerProcess) -> None:
    wire = await Wire.connect(server.address("kafka"))
    entry = {
        "entity": [{"entity_type": "client-id", "entity_name": "eager"}],
        "ops": [{"key": "producer_byte_rate", "value": 2000.0, "remove": False}],
    }
    await wire.ask(make(load_request_schema(49, 1), {"entries": [entry], "validate_only": False}))
    await wire.close()
    told: list[float] = []
    bootstrap = str(server.address("kafka"))
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": "eager",
            "throttle_cb": lambda event: told.append(event.throttle_time),
        }
    )
    deadline = time.monotonic() + _PATIENCE_S  # the topic's broker may learn of the quota a moment later
    while not told:
        assert time.monotonic() < deadline, "nobody was told"
        producer.produce("throttled", b"x" * 21_000)
        assert producer.flush(_PATIENCE_S) == 0
        producer.poll(1.0)
    assert max(told) > 0

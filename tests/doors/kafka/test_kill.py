"""An idempotent producer and a server that is killed again and again: nothing is lost or duplicated."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import confluent_kafka
import pytest

from mainstem.testing.ports import consecutive_ports
from tests.support.cluster_server import server_process

MESSAGES = 20_000
WITHIN_S = 60.0


def read_all(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes]]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes]] = []
    while True:
        message = consumer.poll(WITHIN_S)
        assert message is not None
        error = message.error()
        if error is None:
            found.append((message.offset(), message.value()))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF and len(found) >= count:
            consumer.close()
            return found


@pytest.mark.slow
def test_an_idempotent_producer_survives_kills_without_loss_or_duplicates(
    tmp_path: Path, kill_seed: int
) -> None:
    chance = random.Random(kill_seed)
    port = consecutive_ports(2)  # a second worker listens on the next one
    flags = ("--kafka", f"127.0.0.1:{port}")
    bootstrap = f"127.0.0.1:{port}"
    acked: dict[int, int] = {}  # message → offset
    failed: list[object] = []

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        if error:
            failed.append(error)
        else:
            acked[int(message.value() or b"")] = message.offset()

    server = server_process(tmp_path / "data", *flags).wait_ready()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "log_level": 0,  # refused connections are expected here
            "linger.ms": 1,
            "batch.num.messages": 200,  # librdkafka has one of these in flight: a cluster takes 100 ms for each
            "message.timeout.ms": int(WITHIN_S * 1000),
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
    )
    kill_at = sorted(chance.sample(range(1000, MESSAGES - 1000), 3))
    reached = [threading.Event() for _ in kill_at]
    restarted = threading.Event()

    def kill_again_and_again() -> None:
        nonlocal server
        for event in reached:
            event.wait(WITHIN_S)
            server.kill()
            server = server_process(tmp_path / "data", *flags).wait_ready()
        restarted.set()

    killer = threading.Thread(target=kill_again_and_again)
    killer.start()
    try:
        for index in range(MESSAGES):
            while True:
                try:
                    producer.produce("t", b"%d" % index, partition=0, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
            if index in kill_at:
                producer.poll(0.05)
                reached[kill_at.index(index)].set()
        assert restarted.wait(WITHIN_S)
        assert producer.flush(WITHIN_S) == 0
        assert failed == []
        found = read_all(bootstrap, "t", MESSAGES)
    finally:
        killer.join(WITHIN_S)
        server.kill()
    assert [int(value) for _, value in found] == list(range(MESSAGES))
    assert {int(value): offset for offset, value in found} == acked

"""A topic that kcat writes, read by a Shared subscription and queried in SQL: the same records at the same offsets."""

from __future__ import annotations

import httpx
import pulsar

from mainstem.testing.server import ServerProcess
from tests.doors.kafka.test_kcat import kcat as kcat  # the program
from tests.doors.kafka.test_kcat import run

_TOPIC = "written-by-kcat"


def test_one_topic_by_kcat_by_a_shared_subscription_and_by_sql(
    kcat: str, server: ServerProcess, client: pulsar.Client
) -> None:
    lines = [f"key{number % 4}:value {number}" for number in range(40)]
    bootstrap = str(server.address("kafka"))
    run(kcat, bootstrap, "-P", "-t", _TOPIC, "-K:", "-H", "h=1", given="\n".join(lines) + "\n")
    listed = run(kcat, bootstrap, "-C", "-t", _TOPIC, "-e", "-q", "-o", "beginning", "-f", "%o %k:%s\n")
    wanted = [(offset, *line.split(":")) for offset, line in enumerate(lines)]
    assert listed.splitlines() == [f"{offset} {key}:{value}" for offset, key, value in wanted]

    consumers = [
        client.subscribe(
            _TOPIC,
            "s",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
            receiver_queue_size=10,
        )
        for _ in range(2)
    ]
    shared: list[tuple[int, str, str]] = []
    while len(shared) < len(lines):
        for consumer in consumers:
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            assert message.properties() == {"h": "1"}
            shared.append((message.message_id().entry_id(), message.partition_key(), message.data().decode()))
            consumer.acknowledge(message)
    assert sorted(shared) == wanted

    query = f'SELECT _offset, _key, _value FROM "{_TOPIC}" ORDER BY _offset'
    answer = httpx.post(f"http://{server.address('http')}/v0/sql", json={"query": query}, timeout=60)
    assert [tuple(row) for row in answer.raise_for_status().json()["rows"]] == wanted

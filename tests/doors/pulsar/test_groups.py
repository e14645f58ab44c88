"""Subscriptions as other doors and the command line show them."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pulsar
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from mainstem.cli.subscription import subscription
from mainstem.testing.server import ServerProcess


def _subscribed(client: pulsar.Client) -> tuple[str, str, pulsar.Consumer]:
    """A topic of five records, a subscription, and its consumer."""
    topic, name = f"t-{uuid.uuid4().hex}", f"s-{uuid.uuid4().hex}"
    consumer = client.subscribe(topic, name)
    producer = client.create_producer(topic, batching_enabled=False)
    for number in range(5):
        producer.send(b"v%d" % number)
    producer.close()
    return topic, name, consumer


def _group(server: ServerProcess, name: str) -> httpx.Response:
    return httpx.get(f"http://{server.address('http')}/v0/groups/{name}")


def test_a_subscription_is_a_group_with_its_lag(client: pulsar.Client, server: ServerProcess) -> None:
    topic, name, consumer = _subscribed(client)
    listed = httpx.get(f"http://{server.address('http')}/v0/groups").json()["groups"]
    (row,) = (row for row in listed if row["group"] == name)
    del row["recent"]  # samples of its lag
    assert row == {
        "group": name,
        "state": "Stable",
        "kind": "subscription",
        "protocol_type": "pulsar",
        "members": 1,
        "lag": 5,
        "topics": [topic],
    }
    described = _group(server, name).json()
    assert (described["lag"], len(described["members"])) == (5, 1)
    assert [(row["topic"], row["offset"], row["end"]) for row in described["offsets"]] == [(topic, 0, 5)]
    admin = AdminClient({"bootstrap.servers": str(server.address("kafka"))})
    with pytest.warns(
        DeprecationWarning, match="list_groups"
    ):  # it is the call that lists and describes groups of any protocol
        groups = admin.list_groups(timeout=30)
    assert [(one.id, one.protocol_type) for one in groups if one.id == name] == [(name, "pulsar")]
    assert httpx.delete(f"http://{server.address('http')}/v0/groups/{name}").status_code == 409
    consumer.close()
    assert _group(server, name).json()["state"] == "Empty"


def _run(server: ServerProcess, *words: str) -> Any:
    done = CliRunner().invoke(subscription, [*words, "--url", f"http://{server.address('http')}"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output) if "--json" in words else done.output


def test_the_command_line_moves_subscriptions(client: pulsar.Client, server: ServerProcess) -> None:
    topic, name, consumer = _subscribed(client)
    consumer.close()
    rows = _run(server, "list", "--json")
    assert [row["lag"] for row in rows if row["subscription"] == name] == [5]
    _run(server, "skip", name, topic, "-n", "2", "--json")
    assert _run(server, "describe", name, "--json")["offsets"][0]["offset"] == 2
    peeked = _run(server, "peek", name, topic, "-n", "2", "--json")
    assert [(row["offset"], row["value"]) for row in peeked] == [(2, "v2"), (3, "v3")]
    _run(server, "reset", name, topic, "--to", "1", "--json")
    again = client.subscribe(topic, name)
    assert again.receive(10_000).data() == b"v1"
    again.close()
    shared = client.subscribe(topic, name, consumer_type=pulsar.ConsumerType.Shared)
    first = [shared.receive(10_000).data() for _ in range(4)]
    _run(server, "redeliver", name, topic)
    assert [shared.receive(10_000).data() for _ in range(4)] == first
    shared.close()
    _run(server, "skip", name, topic, "--all")
    assert _run(server, "describe", name, "--json")["offsets"][0]["lag"] == 0
    _run(server, "delete", name, "--yes")
    assert _group(server, name).status_code == 404

"""Consumer groups from the command line."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from mainstem.testing.broker import ThrowAwayBroker

from .conftest import Shell


@pytest.fixture
def topic(online: Shell) -> str:
    assert online("topic", "create", "t", "-p", "2").code == 0
    lines = b"".join(b'{"value": "%d", "timestamp_ms": %d}\n' % (n, 1000 + n) for n in range(10))
    for partition in "01":
        assert online("produce", "t", "--json", "-p", partition, stdin=lines).code == 0
    return "t"


def test_list_describe_and_lag(online: Shell, topic: str) -> None:
    assert online("group", "list", "--json").json == []
    online("consume", topic, "--group", "g", "-p", "0", "-n", "4")
    assert [(row["group"], row["state"]) for row in online("group", "list", "--json").json] == [
        ("g", "Empty")
    ]
    described = online("group", "describe", "g", "--json").json
    assert (described["lag"], described["members"]) == (16, [])
    assert [row["offset"] for row in described["offsets"]] == [4, None]
    assert online("group", "lag", "--json").json == online("group", "lag", "g", "--json").json
    shown = online("group", "lag").text.splitlines()
    assert shown[0].split() == ["group", "topic", "partition", "offset", "end", "lag"]
    assert shown[1].split() == ["g", "t", "0", "4", "10", "6"]
    assert shown[2].split() == ["g", "t", "1", "-", "10", "10"], "it has read nothing there"
    assert "lag" in online("group", "describe", "g").text


def test_a_group_starts_in_a_partition_in_which_it_has_not_committed(online: Shell, topic: str) -> None:
    online("consume", topic, "--group", "g", "-p", "0", "-n", "4")
    read = online("consume", topic, "--group", "g", "-p", "1", "-n", "2")
    assert (read.code, read.text.split()) == (0, ["0", "1"])
    assert [row["offset"] for row in online("group", "lag", "g", "--json").json] == [4, 2]


@pytest.mark.parametrize(
    ("to", "after"),
    [
        ("earliest", 0),
        ("latest", 10),
        ("3", 3),
        ("99", 10),
        ("@1005", 5),
        ("1970-01-01T00:00:01.007Z", 7),
    ],
)
def test_a_reset_is_shown_then_made(online: Shell, topic: str, to: str, after: int) -> None:
    online("consume", topic, "--group", "g", "-p", "0", "-n", "4")
    planned = online("group", "reset", "g", topic, "--to", to, "--dry-run", "--json").json
    assert [(row["partition"], row["before"], row["after"]) for row in planned] == [
        (0, 4, after),
        (1, None, after),
    ]
    assert online("group", "lag", "g", "--json").json[0]["offset"] == 4
    assert online("group", "reset", "g", topic, "--to", to, "--json").json == planned
    assert [row["offset"] for row in online("group", "lag", "g", "--json").json] == [after, after]


def test_only_some_partitions_are_moved(online: Shell, topic: str) -> None:
    outcome = online("group", "reset", "g", topic, "--to", "latest", "-p", "1")
    assert outcome.text.splitlines()[1].split() == ["t", "1", "-", "10"]
    wrong = online("group", "reset", "g", topic, "--to", "latest", "-p", "7")
    assert (wrong.code, wrong.err) == (1, "error: topic 't' has partitions 0 to 1, not 7\n")


def test_what_is_not_there_is_said(online: Shell, topic: str) -> None:
    for arguments in (["describe", "g"], ["delete", "g", "-y"], ["lag", "g"]):
        outcome = online("group", *arguments)
        assert (outcome.code, outcome.err) == (1, "error: no group named 'g' has committed an offset\n")
    assert online("group", "reset", "g", "no-topic", "--to", "latest").err.startswith("error: no topic named")
    wrong = online("group", "reset", "g", topic, "--to", "later")
    assert wrong.code == 2
    assert "is not earliest, latest" in wrong.err


def test_a_group_is_forgotten(online: Shell, topic: str) -> None:
    online("consume", topic, "--group", "g")
    assert online("group", "delete", "g", "--yes").code == 0
    assert online("group", "list", "--json").json == []


def test_a_group_at_work_is_left_alone(online: Shell, topic: str, broker: ThrowAwayBroker) -> None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        assert consumer.poll(30) is not None
        consumer.commit(asynchronous=False)
        described = online("group", "describe", "g", "--json").json
        assert described["state"] == "Stable"
        assert len(described["members"]) == 1
        for arguments in (["reset", "g", topic, "--to", "latest"], ["delete", "g", "-y"]):
            outcome = online("group", *arguments)
            assert (outcome.code, outcome.err) == (1, "error: group 'g' has members: stop them first\n")
    finally:
        consumer.close()

"""Queues, routers and tables from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem.testing.broker import ThrowAwayBroker

from .conftest import Shell


@pytest.fixture
def queue(online: Shell, broker: ThrowAwayBroker) -> str:
    broker.client.create_topic("q", type="queue", max_deliveries=1, dead_letter="q.dead")
    broker.client.produce_many("q", [{"n": 1}, {"n": 2}, {"n": 3}], keys=["a", "b", "c"])
    return "q"


def test_list_show_claim_settle(online: Shell, queue: str) -> None:
    online("topic", "create", "no-queue")
    rows = online("queue", "list", "--json").json
    assert rows == [{"queue": "q", "ready": 3, "in_flight": 0, "dead_lettered": 0}]
    jobs = online("queue", "claim", queue, "-n", "2", "--json").json
    assert [(job["$seq"], job["data"], job["$tag"]) for job in jobs] == [
        (1, {"n": 1}, "a"),
        (2, {"n": 2}, "b"),
    ]
    assert online("queue", "ack", queue, "1").err == "1 acked\n"
    assert online("queue", "nack", queue, "2", "--delay-ms", "0").err == "1 nacked\n"
    shown = online("queue", "show", queue, "--json").json
    assert (shown["ready"], shown["in_flight"], shown["dead_letter"]) == (2, 0, "q.dead")
    assert "max_deliveries" in online("queue", "show", queue).text
    again = online("queue", "ack", queue, "1")
    assert again.code == 1
    assert "leased to another worker, or already settled" in again.err


def test_claimed_jobs_are_columns_for_people(online: Shell, queue: str) -> None:
    lines = online("queue", "claim", queue).text.splitlines()
    assert lines[0].split() == ["seq", "deliveries", "deadline", "key", "data"]
    assert lines[1].endswith('{"n":1}')


def test_a_log_is_no_queue(online: Shell) -> None:
    online("topic", "create", "t")
    for command in ("show", "claim", "requeue-dead"):
        outcome = online("queue", command, "t")
        assert outcome.code == 1
        assert "is a log: only topics of type queue have jobs" in outcome.err


def test_dead_jobs_come_back_once(online: Shell, queue: str, broker: ThrowAwayBroker) -> None:
    client = broker.client
    for _ in range(2):  # handed out once, given back, then one too many
        seqs = [job.seq for job in client.claim(queue, node="n", max=3)]
        client.nack(queue, seqs, node="n")
    assert client.claim(queue, node="n") == []
    assert client.topic("q.dead").count == 3
    assert online("queue", "requeue-dead", queue, "-n", "2").err == "2 moved back to q\n"
    assert online("queue", "requeue-dead", queue).err == "1 moved back to q\n"
    assert online("queue", "requeue-dead", queue).err == "0 moved back to q\n"
    jobs = client.claim(queue, node="n", max=5)
    assert [(job.value, job.key, job.meta) for job in jobs] == [
        ({"n": 1}, "a", None),
        ({"n": 2}, "b", None),
        ({"n": 3}, "c", None),
    ]
    assert client.topic("q.dead").count == 0


def test_records_of_others_stay_where_the_dead_are(
    online: Shell, queue: str, broker: ThrowAwayBroker
) -> None:
    client = broker.client
    client.produce("q.dead", "not a job")
    for _ in range(2):
        client.nack(queue, [job.seq for job in client.claim(queue, node="n", max=3)], node="n")
    outcome = online("queue", "requeue-dead", queue)
    assert "also holds records of other queues" in outcome.err
    assert client.topic("q.dead").count == 4


def test_routers_are_made_shown_and_deleted(online: Shell, broker: ThrowAwayBroker) -> None:
    assert online("router", "create", "a>b", "a", "b", "--filter", "eu-*", "--create-source").code == 0
    broker.client.produce_many("a", [1, 2], keys=["eu-1", "us-1"])
    rows = online("router", "list", "--source", "a", "--json").json
    assert [(row["router"], row["source"], row["dest"]) for row in rows] == [("a>b", "a", "b")]
    shown = online("router", "show", "a>b", "--json").json
    assert (shown["forwarded_total"], shown["filter"]) == (1, ["tag", "Glob", "eu-*"])
    assert online("consume", "b").out == b"1\n"
    assert online("router", "delete", "a>b", "-y").code == 0
    gone = online("router", "delete", "a>b", "-y")
    assert (gone.code, "no router named 'a>b'" in gone.err) == (1, True)
    assert online("router", "show", "a>b").code == 1


def test_tables_are_switched_on_shown_and_switched_off(online: Shell, tmp_path: Path) -> None:
    online("topic", "create", "t")
    assert online("table", "show", "t", "--json").json["enabled"] is False
    assert online("table", "enable", "t", "--json").json["enabled"] is True
    shown = online("table", "show", "t", "--json").json
    assert shown["enabled"] is True
    assert "performance" not in shown
    assert "enabled" in online("table", "show", "t").text
    assert online("table", "disable", "t", "--json").json["enabled"] is False
    (tmp_path / "schema.json").write_text("{")
    wrong = online("table", "enable", "t", "--schema", "schema.json")
    assert (wrong.code, "schema.json is not valid JSON" in wrong.err) == (2, True)
    assert online("table", "enable", "t", "--registry", "--json").json["subject"] == "t-value"
    assert online("table", "enable", "t", "--subject", "s").code == 2
    online("topic", "create", "u")
    assert online("table", "enable", "u", "--registry", "--subject", "s", "--json").json["subject"] == "s"
    assert online("table", "show", "no-such-topic").err.startswith("error: no topic named")


def test_a_topic_is_delivered_as_a_delta_table_without_spark(
    online: Shell, broker: ThrowAwayBroker, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    for topic in ("t", "undelivered", "elsewhere"):
        online("topic", "create", topic)
    nowhere = online("table", "deliver", "undelivered")
    assert (nowhere.code, "has no copy" in nowhere.err) == (1, True)
    folder = str(tmp_path / "delta")
    assert online("table", "enable", "t", "--delta", folder, "--json").json["delta"] == folder
    for count in (3, 5):
        broker.client.produce_many("t", list(range(count - len(_delivered(folder)))))
        assert online("table", "deliver", "--json").json == [{"topic": "t", "table": folder, "problem": None}]
        assert online("table", "deliver", "t").code == 0  # there is nothing left to do
        assert [row["_offset"] for row in _delivered(folder)] == list(range(count))
    (tmp_path / "taken").write_text("no folder")
    online("table", "enable", "elsewhere", "--delta", str(tmp_path / "taken"))
    broker.client.produce_many("elsewhere", [1])
    failed = online("table", "deliver")
    assert (failed.code, "1 of 2 copies could not be updated" in failed.err) == (1, True)
    assert "cannot read the Delta table" in failed.text or "cannot write the Delta table" in failed.text
    assert DeltaTable.is_deltatable(folder)


def _delivered(folder: str) -> list[dict[str, object]]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(folder):
        return []
    rows = DeltaTable(folder).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["_offset"])

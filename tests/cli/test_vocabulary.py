"""Words that mean the same for every command: positions, headers, formats, the server, and consent."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mainstem.cli.main import COMMANDS
from mainstem.testing.broker import ThrowAwayBroker

from .conftest import Shell

START_MS = 1_767_225_600_000  # 2026-01-01 UTC


@pytest.fixture
def orders(broker: ThrowAwayBroker) -> str:
    """Ten records a minute apart, in two partitions."""
    client = broker.client
    client.create_topic("orders", partitions=2)
    for number in range(10):
        client.produce_batch(
            "orders",
            [b"%d" % number],
            keys=[b"k"],
            timestamps_ms=[START_MS + number * 60_000],
            partition=number % 2,
        )
    return "orders"


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("earliest", "0123456789"),
        ("start", "0123456789"),
        ("latest", ""),
        ("end", ""),
        ("3", "6789"),
        ("-2", "6789"),
        ("@1767225960000", "6789"),
        ("2026-01-01T00:06:00", "6789"),
        ("@2026-01-01T00:06:00Z", "6789"),
        ("5m", ""),
        ("4000w", "0123456789"),
    ],
)
def test_every_command_takes_the_same_positions(
    online: Shell, orders: str, position: str, expected: str
) -> None:
    consumed = online("consume", orders, "-o", position)
    assert (consumed.code, sorted(consumed.text.split())) == (0, sorted(expected))
    if expected:
        tailed = online("tail", orders, "-o", position, "-n", str(len(expected)))
        assert sorted(tailed.text.split()) == sorted(expected)
    reset = online("group", "reset", "g", orders, "-o", position, "--json").json
    assert sum(row["after"] for row in reset) == 10 - len(expected)


def test_a_partition_that_does_not_reach_an_offset_is_read_from_its_end(
    online: Shell, broker: ThrowAwayBroker
) -> None:
    broker.client.create_topic("uneven", partitions=2)
    broker.client.produce_many("uneven", ["a", "b", "c"], partition=0)
    broker.client.produce_many("uneven", ["d"], partition=1)
    for command in (("consume", "uneven"), ("tail", "uneven", "-n", "1")):
        shown = online(*command, "-o", "2")
        assert (shown.code, shown.text, shown.err) == (0, '"c"\n', "")
        refused = online(*command, "-o", "9")
        assert (refused.code, "offset 9 is outside [0, 3]" in refused.err) == (1, True)


def test_a_tail_of_a_group_shares_and_commits(online: Shell, broker: ThrowAwayBroker, orders: str) -> None:
    first = online("tail", orders, "--group", "g", "--from-start", "-n", "4", "-f", r"%p %s\n").text.split(
        "\n"
    )
    second = online("tail", orders, "--group", "g", "-n", "6", "-f", r"%p %s\n").text.split("\n")
    assert sorted(line for line in first + second if line) == sorted(f"{n % 2} {n}" for n in range(10))
    assert broker.client.group("g").lag == 0
    assert online("tail", orders, "--group", "g", "-o", "3").code == 2


def test_headers_go_in_and_out(online: Shell) -> None:
    online("topic", "create", "t")
    assert online("produce", "t", "v", "-H", "source=web", "-H", "empty").code == 0
    assert online("consume", "t", "-H").text == "source=web,empty=\tv\n"
    assert online("tail", "t", "-o", "earliest", "-n", "1", "-H").text == "source=web,empty=\tv\n"
    assert online("consume", "t", "-f", r"%K %S %R%s\x21\n").out == b"-1 1 \0\0\0\x01v!\n"
    assert json.loads(online("consume", "t", "--json").text)["headers"][0] == {
        "key": "source",
        "value": "web",
    }
    assert online("consume", "t", "-f", r"\xzz").code == 2


def test_a_server_is_named_anywhere(plain: Shell, broker: ThrowAwayBroker) -> None:
    for arguments in (
        ("--url", broker.url, "topic", "list", "--json"),
        ("topic", "--url", broker.url, "list", "--json"),
        ("topic", "list", "--json", "--url", broker.url),
    ):
        assert plain(*arguments).json == []
    assert "MAINSTEM_URL" not in os.environ, "the next command of a shell talks to the default server"


def test_nothing_is_deleted_without_consent(online: Shell, broker: ThrowAwayBroker) -> None:
    broker.client.create_topic("t")
    for arguments in (
        ("topic", "delete", "t"),
        *((noun, "delete", "x") for noun in ("group", "router", "user", "namespace", "subscription")),
    ):
        outcome = online(*arguments)
        assert outcome.code == 2
        assert "add -y" in outcome.err
    assert broker.client.topic("t").count == 0


def test_a_mistyped_source_of_a_router_is_not_created(online: Shell, broker: ThrowAwayBroker) -> None:
    broker.client.create_topic("orders")
    outcome = online("router", "create", "r", "order", "copies")
    assert (outcome.code, "did you mean orders?" in outcome.err) == (1, True)
    assert [row.topic for row in broker.client.topics()] == ["orders"]


def test_names_are_completed(plain: Shell, broker: ThrowAwayBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.shell_completion import ShellComplete

    from mainstem.cli.main import cli

    broker.client.create_topic("orders")
    monkeypatch.setenv("MAINSTEM_URL", broker.url)
    complete = ShellComplete(cli, {}, "mainstem", "_MAINSTEM_COMPLETE").get_completions
    assert [one.value for one in complete(["tail"], "ord")] == ["orders"]
    assert "retention.ms=" in [one.value for one in complete(["topic", "alter", "orders", "-c"], "reten")]
    monkeypatch.setenv("MAINSTEM_URL", "http://127.0.0.1:1")
    assert complete(["tail"], "ord") == []


def test_a_server_without_an_audit_log_says_how_to_have_one(online: Shell) -> None:
    outcome = online("audit")
    assert (outcome.code, "--audit on" in outcome.err) == (1, True)


def test_the_shell_runs_lines(online: Shell) -> None:
    lines = b"topic create t\nproduce t 'a b'\nmainstem consume t\nnonsense\n\nexit\nconsume t\n"
    outcome = online("shell", stdin=lines)
    assert outcome.out == b"a b\n"
    assert "no command 'nonsense'" in outcome.err
    assert "shell" in COMMANDS


def test_backups_are_listed_and_a_restored_directory_can_be_migrated(
    online: Shell, plain: Shell, broker: ThrowAwayBroker, tmp_path: Path
) -> None:
    broker.client.produce("t", 1)
    assert online("backup", str(tmp_path / "backup")).code == 0
    assert "files" in plain("restore", str(tmp_path / "backup"), "--list").text
    assert plain("restore", str(tmp_path / "backup")).code == 2
    assert plain("restore", str(tmp_path / "backup"), "--data-dir", str(tmp_path / "new")).code == 0
    store = (tmp_path / "store").as_uri()
    dry = plain("migrate", "--data-dir", str(tmp_path / "new"), "--store", store, "--dry-run")
    assert (dry.code, "would be copied" in dry.text) == (0, True)
    assert "not counted" in dry.text, "a restored log was never closed"
    assert plain("topic", "list", "--data-dir", str(tmp_path / "new")).code == 0
    dry = plain("migrate", "--data-dir", str(tmp_path / "new"), "--store", store, "--dry-run")
    assert (dry.text.startswith("1 topics with 1 records"), "not counted" in dry.text) == (True, False)

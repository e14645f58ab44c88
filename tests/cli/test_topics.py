"""Topics from the command line."""

from __future__ import annotations

from .conftest import Shell


def test_create_list_describe_alter_delete(either: Shell) -> None:
    assert either("topic", "create", "b", "-p", "3", "-c", "mainstem.durability=disk").code == 0
    assert either("topic", "create", "a").code == 0
    listed = either("topic", "list", "--json").json
    assert [(row["name"], row["partitions"], row["durability"]) for row in listed] == [
        ("a", 1, "fsync"),
        ("b", 3, "disk"),
    ]
    assert either("topic", "alter", "b", "-c", "retention.ms=5000", "-p", "4").code == 0
    described = either("topic", "describe", "b", "--json").json
    assert described["settings"]["retention.ms"] == "5000"
    assert described["settings"]["mainstem.durability"] == "disk"
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2, 3]
    assert either("topic", "delete", "b", "--yes").code == 0
    assert [row["name"] for row in either("topic", "list", "--json").json] == ["a"]


def test_for_people_there_are_columns(either: Shell) -> None:
    either("topic", "create", "short", "a-longer-name")
    either("produce", "short", "abc")
    lines = either("topic", "list").text.splitlines()
    assert lines[0].split() == ["name", "partitions", "records", "bytes", "type", "durability"]
    assert lines[2].split() == ["short", "1", "1", "3", "log", "fsync"]
    described = either("topic", "describe", "short").text
    assert "retention.ms" in described
    assert "max_timestamp_ms" in described


def test_the_list_takes_a_prefix_and_may_be_empty(either: Shell) -> None:
    either("topic", "create", "app.one", "app.two", "other")
    assert [row["name"] for row in either("topic", "list", "--json", "--prefix", "app.").json] == [
        "app.one",
        "app.two",
    ]
    nothing = either("topic", "list", "--prefix", "zzz")
    assert (nothing.code, nothing.out) == (0, b"")


def test_a_topic_that_exists_is_an_error_unless_told_otherwise(either: Shell) -> None:
    assert either("topic", "create", "t").code == 0
    again = either("topic", "create", "t")
    assert (again.code, again.err) == (1, "error: topic 't' already exists\n")
    assert either("topic", "create", "t", "--if-not-exists").code == 0


def test_an_unknown_topic_is_an_error_everywhere(either: Shell) -> None:
    either("topic", "create", "there")
    for arguments in (
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "-c", "retention.ms=1"],
        ["topic", "delete", "there", "t", "-y"],
        ["produce", "t", "x"],
        ["consume", "t"],
    ):
        outcome = either(*arguments)
        assert outcome.code == 1
        assert outcome.err.startswith("error: no topic named 't'")
    assert [row["name"] for row in either("topic", "list", "--json").json] == ["there"]


def test_the_default_durability_is_a_setting(shell: Shell) -> None:
    shell("topic", "create", "t", "--durability", "memory")
    assert shell("topic", "describe", "t", "--json").json["settings"]["mainstem.durability"] == "memory"

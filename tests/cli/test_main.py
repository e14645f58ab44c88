"""The command line as a whole: quick help, clear ends."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterator

import click
import pytest

from mainstem.cli.main import COMMANDS, cli
from mainstem.config import SETTINGS

from .conftest import Shell

_IMPORTS = """
import sys
from mainstem.cli.main import run
code = run(sys.argv[1:])
heavy = {"httpx", "numpy", "uvloop", "numba", "pyarrow", "asyncio", "mainstem.broker.broker"} & set(sys.modules)
sys.exit(code or ("imported " + ", ".join(sorted(heavy)) if heavy else 0))
"""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["config"], *([name, "--help"] for name in COMMANDS)],
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# Commands that do something and say no more than that it is done, or that print as they go.
_DOES = (
    "serve",
    "topic create",
    "topic alter",
    "topic delete",
    "group delete",
    "subscription delete",
    "erase start",
    "queue ack",
    "queue nack",
    "queue requeue-dead",
    "router create",
    "router delete",
    "lake run",
    "context add",
    "context use",
    "context remove",
    "key revoke",
    "user delete",
    "acl add",
    "acl remove",
    "rate set",
    "rate remove",
    "pipeline run",
    "replay",
    "restore",
    "completion",
    "cluster start",
    "shell",
)


def commands(
    group: click.Group, context: click.Context, path: str = ""
) -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, by its full name."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, context, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_every_command_and_option_says_what_it_does_and_what_reads_gives_json() -> None:
    found = dict(commands(cli, click.Context(cli)))
    for name, command in found.items():
        assert command.help, name
        options = [each for each in command.params if isinstance(each, click.Option)]
        assert [each.name for each in options if not each.help] == [], name
        if name not in _DOES:
            assert any("--json" in each.opts for each in options), f"{name} reads"
    assert set(_DOES) <= set(found)


def test_a_directory_where_nothing_can_be_made_is_one_line(plain: Shell) -> None:
    outcome = plain("topic", "create", "t", "--data-dir", "/proc/mainstem/data")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert outcome.err.startswith("error: cannot use /proc/mainstem: /proc does not allow new directories")


def test_the_help_names_every_command(shell: Shell) -> None:
    outcome = shell("--help")
    assert outcome.code == 0
    unwrapped = " ".join(outcome.text.split())
    for name, (_, help) in COMMANDS.items():
        assert f"  {name}" in outcome.text
        assert help in unwrapped


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["servee"], "no command 'servee' (did you mean serve?)"),
        (["zzz"], "no command 'zzz'"),
        (["serve", "--nope"], "No such option"),
        (["serve", "--text", "9091"], "Invalid value for '--text': it needs a port"),
        (["serve", "--durability", "fsink"], "did you mean fsync?"),
        (["serve", "--segment-bytes", "tiny"], "it takes bytes"),
        (["topic", "create"], "Missing argument"),
        (["topic", "create", "t", "-c", "nonsense"], "-c takes KEY=VALUE"),
        (["topic", "create", "t", "-p", "0"], "Invalid value"),
        (["topic", "alter", "t"], "nothing to change"),
        (["produce", "t", "x", "--json"], "takes no VALUES"),
        (["produce", "t", "-k", "a", "-K", ":"], "mutually exclusive"),
        (["produce", "t", "-K", ""], "at least one character"),
        (["consume", "t", "-o", "later"], "is not earliest, latest"),
        (["consume", "t", "-o", "@yesterday"], "is not earliest, latest"),
        (["consume", "t", "-f", "%x"], "not %x"),
        (["consume", "t", "-f", "\\q"], "not \\q"),
        (["consume", "t", "-f", "100%"], "not %"),
        (["consume", "t", "-n", "-1"], "Invalid value"),
    ],
)
def test_wrong_usage_exits_with_two_and_says_what(shell: Shell, arguments: list[str], message: str) -> None:
    outcome = shell(*arguments)
    assert outcome.code == 2
    assert message in outcome.err
    assert outcome.out == b""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topic", "list"], "error: no log at data: set --data-dir to its directory\n"),
        (["topic", "describe", "t"], "error: no log at data"),
        (["consume", "t", "--data-dir", "gone"], "error: no log at gone"),
        (["produce", "t", "x"], "error: no log at data"),
        (["config", "--config", "gone.toml"], "error: the config file gone.toml does not exist\n"),
        (["topic", "create", "no//name"], "error: invalid"),
        (["topic", "create", "t", "-c", "retention.mss=1"], "(did you mean retention.ms?)"),
        (["topic", "create", "t", "-c", "retention.ms=soon"], "error: retention.ms takes a whole number"),
    ],
)
def test_what_cannot_be_done_exits_with_one_and_one_line(
    shell: Shell, arguments: list[str], message: str
) -> None:
    outcome = shell(*arguments)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert outcome.out == b""


def test_a_wrong_variable_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTEM_TEXT", "nowhere")
    outcome = shell("serve")
    assert outcome.code == 1
    assert outcome.err.startswith("error: MAINSTEM_TEXT needs a port")


def test_config_shows_values_with_their_sources(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSTEM_NODE", "amber")
    shown = shell("config", "--json", "--text", "[::1]:0").json
    assert shown["text"] == {"value": "[::1]:0", "source": "flag", "flag": "--text", "env": "MAINSTEM_TEXT"}
    assert (shown["node"]["value"], shown["node"]["source"]) == ("amber", "environment")
    assert (shown["max_topics"]["value"], shown["max_topics"]["source"]) == (100_000, "default")
    assert shown["ports_file"]["value"] is None
    assert list(shown) == [row.name for row in SETTINGS]


def test_the_output_of_config_is_a_config_file(shell: Shell, tmp_path: object) -> None:
    outcome = shell("config", "--text", "off", "--segment-bytes", "1MiB")
    assert tomllib.loads(outcome.text)["segment_bytes"] == 1 << 20
    with open("mainstem.toml", "wb") as file:
        file.write(outcome.out)
    again = shell("config", "--json").json
    assert again["text"]["value"] == "off"
    assert again["text"]["source"] == "file mainstem.toml"

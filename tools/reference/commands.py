"""The command line, from the commands themselves."""

from __future__ import annotations

from collections.abc import Iterator

import click

from mainstem.cli.main import COMMANDS, cli
from mainstem.config import SETTINGS
from tools.reference.markdown import MADE, code, table

_TEXT = """# Commands and their flags

As `mainstem COMMAND --help` shows them. [The command line](cli.md) explains what they have in common. Flags that are
[settings of a server](configuration.md) are left out here.

"""
_LEFT_OUT = {row.flag for row in SETTINGS} | {"--config", "--help"}


def commands_page() -> str:
    context = click.Context(cli, info_name="mainstem")
    text = MADE + _TEXT
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is not None:
            text += "".join(_section(f"mainstem {name}", command, click.Context(command, context, name)))
    return text


def _section(name: str, command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")
    said = (command.help or "").strip().split("\n\n")[0].replace("\n", " ")
    yield f"## `{name}{' ' + usage if usage else ''}`\n\n{said}\n\n"
    flags = [
        option for option in command.params if isinstance(option, click.Option) and _is_documented(option)
    ]
    if flags:
        yield table(("flag", ""), [(code(", ".join(flag.opts)), flag.help or "") for flag in flags]) + "\n"
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None:
                yield from _section(f"{name} {inner}", found, click.Context(found, context, inner))


def _is_documented(option: click.Option) -> bool:
    return not option.hidden and _LEFT_OUT.isdisjoint(option.opts)

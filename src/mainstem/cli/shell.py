"""`mainstem shell`: commands without the word mainstem, one per line."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from mainstem.cli.context import flagged_key, takes_url_and_key

_HISTORY = Path("~/.mainstem_history")
_HISTORY_LINES = 1_000


@click.command()
@takes_url_and_key
def shell(url: str | None, api_key: str | None) -> None:
    """Run commands one after the other: `topic list`, `produce orders hello`, `tail orders`.

    `help` lists the commands, `exit` or Ctrl-D ends the shell. Ctrl-C ends the running command.
    """
    if url:
        os.environ["MAINSTEM_URL"] = url
    api_key = api_key or flagged_key(click.get_current_context())
    interactive = sys.stdin.isatty()
    with _history() if interactive else contextlib.nullcontext():
        while True:
            try:
                line = input("mainstem> " if interactive else "")
            except EOFError:
                break
            except KeyboardInterrupt:
                click.echo()
                continue
            if not _execute(line, api_key):
                break
    if interactive:
        click.echo()


def _execute(line: str, api_key: str | None) -> bool:
    """Run one line. False if it ends the shell. The key wins over that of the context that the line enters."""
    from mainstem.cli.main import run

    try:
        words = shlex.split(line, comments=True)
    except ValueError as wrong:
        click.echo(f"error: {wrong}", err=True)
        return True
    if words[:1] == ["mainstem"]:
        words = words[1:]
    if not words:
        return True
    if words[0] in ("exit", "quit"):
        return False
    if words[0] == "shell":
        click.echo("error: this is the shell", err=True)
        return True
    if words[0] == "help":
        words = [*words[1:], "--help"]
    run(["--api-key", api_key, *words] if api_key else words)
    return True


@contextlib.contextmanager
def _history() -> Iterator[None]:
    """Line editing with a history that outlives the shell."""
    import readline

    from mainstem.cli.main import COMMANDS

    file = _HISTORY.expanduser()
    with contextlib.suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(_HISTORY_LINES)
    readline.set_completer(lambda text, state: [*(n for n in COMMANDS if n.startswith(text)), None][state])
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            readline.write_history_file(file)

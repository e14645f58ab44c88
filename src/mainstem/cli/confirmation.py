"""Asks before a command destroys something."""

from __future__ import annotations

import sys

import click

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")


def confirm(question: str, yes: bool) -> None:
    """Ask on a terminal. Without one, the command needs -y: nobody could have said no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} The command cannot ask without a terminal: add -y (--yes)")
    click.confirm(question, abort=True, err=True)

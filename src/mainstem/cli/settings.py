"""Flags generated from the table of settings."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from mainstem.config import FILE_DEFAULT, FILE_ENV, SETTINGS, Setting, resolve

Command = Callable[..., Any]


def takes_settings(
    *names: str, described: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Command], Command]:
    """Add flags for these settings, or for all, to a command. Its first argument is the resolved settings.

    `described` overrides the help of settings that have a special meaning for this command."""
    rows = [row for row in SETTINGS if not names or row.name in names]

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(*, config_file: Path | None, **arguments: Any) -> Any:
            flags = {row.name: arguments.pop(row.name) for row in rows}
            given = {name: text for name, text in flags.items() if text is not None}
            return function(resolve(given, os.environ, config_file), **arguments)

        decorated: Command = command
        for row in reversed(rows):
            decorated = _option(row, described.get(row.name))(decorated)
        return click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            help=f"TOML file with settings. [{FILE_ENV}; ./{FILE_DEFAULT} if it exists]",
        )(decorated)

    return decorate


def _option(row: Setting, described: str | None) -> Callable[[Command], Command]:
    def check(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
        """Validate the value. It stays text and is resolved with the other sources."""
        try:
            if text is not None:
                row.kind.parse(text)
        except ValueError as wrong:
            raise click.BadParameter(f"it {wrong}") from None
        return text

    default = row.shown(row.default) or "none"
    return click.option(
        row.flag,
        row.name,
        is_flag=False,
        flag_value="true"
        if isinstance(row.default, bool)
        else None,  # the flag without a value turns the setting on
        callback=check,
        metavar=row.kind.metavar,
        help=described or f"{row.help} [{row.env}; default {default}]",
    )

"""`mainstem config`."""

from __future__ import annotations

import json

import click

from mainstem.cli.settings import takes_settings
from mainstem.config import SETTINGS, Resolved


@click.command()
@takes_settings()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def config(resolved: Resolved, as_json: bool) -> None:
    """Show every setting, its value and its source. The output is a valid config file."""
    rows = [(row, getattr(resolved.config, row.name), resolved.sources[row.name]) for row in SETTINGS]
    if as_json:
        shown = {
            row.name: {
                "value": _plain(row.shown(value), value),
                "source": source,
                "flag": row.flag,
                "env": row.env,
            }
            for row, value, source in rows
        }
        click.echo(json.dumps(shown, indent=2))
        return
    for row, value, source in rows:
        text = row.shown(value)
        # TOML has no null: a setting without a value is a comment.
        line = f"{row.name} = {json.dumps(_plain(text, value))}" if text else f"# {row.name} ="
        if row.kind.secret and text:
            line = f"# {row.name} = {text}"
        click.echo(f"{line:<48}  # {source}")


def _plain(text: str, value: object) -> int | str | None:
    if isinstance(value, int):
        return value
    return text or None

"""Output as columns, or as one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from mainstem.cli.tables import print_table

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows with the same keys, which are the column heads."""
    if as_json:
        print_json(list(rows))
    elif rows:
        print_table([*rows[0]], [[_cell(value) for value in row.values()] for row in rows])


def _cell(value: object) -> object:
    if value is None or value == [] or value == ():
        return "-"
    if isinstance(value, list | tuple) and all(isinstance(item, str | int) for item in value):
        return ", ".join(map(str, value))
    return json.dumps(value) if isinstance(value, list | tuple | dict) else value


def print_fields(fields: Mapping[str, Any], as_json: bool) -> None:
    """Print one line per field."""
    if as_json:
        print_json(fields)
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        shown = (
            json.dumps(value)
            if isinstance(value, dict | list | tuple | bool)
            else "-"
            if value is None
            else value
        )
        click.echo(f"{name.ljust(width)}  {shown}")


def print_json(content: object) -> None:
    click.echo(json.dumps(content, indent=2))

"""Rows in aligned columns."""

from __future__ import annotations

from collections.abc import Sequence

import click


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Align numbers to the right and text to the left."""
    lines = [tuple(head), *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    numeric = [
        bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(len(head))
    ]
    for line in lines:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        )
        click.echo("  ".join(cells).rstrip())

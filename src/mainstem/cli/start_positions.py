"""Positions in a topic, the same for every command: a name, an offset, a number of records, or a time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from mainstem.errors import OffsetOutOfRange

Command = Callable[..., Any]
Place = tuple[str, int]  # "start", "end", "+" offset, "-" records before the end, "@" time in ms

METAVAR = "POSITION"
HELP = (
    "earliest, latest, an offset N, -N for the last N records, a time in ISO 8601 or @MILLISECONDS, "
    "or how long ago: 30s, 5m, 2h, 1d."
)

_NAMES = {"start": "start", "earliest": "start", "end": "end", "latest": "end"}
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGO = re.compile(r"(\d{1,15})(ms|s|m|h|d|w)", re.ASCII)


def place(ctx: click.Context, param: click.Parameter, text: str | None) -> Place | None:
    """Parse a position from the command line."""
    if text is None:
        return None
    if text in _NAMES:
        return _NAMES[text], 0
    try:
        if text.startswith("@"):
            return "@", time_ms(text[1:])
        if re.fullmatch(r"-?[0-9]+", text, re.ASCII):
            return ("-", -int(text)) if text.startswith("-") else ("+", int(text))
        return "@", time_ms(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not {HELP.removesuffix('.')}") from None


def nearest_offset(offset: int, partitions: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """An offset in each partition, given as (start, end): where a partition does not reach it, its start or end.

    Raises OffsetOutOfRange if no partition does."""
    if not any(start <= offset <= end for start, end in partitions.values()):
        ends = [end for _, end in partitions.values()]
        raise OffsetOutOfRange(offset, min(start for start, _ in partitions.values()), max(ends))
    return {number: min(max(offset, start), end) for number, (start, end) in partitions.items()}


def time_ms(text: str) -> int:
    """Parse milliseconds, a time ago (5m), or ISO 8601, in UTC without a zone. Raises ValueError, OverflowError."""
    if text.isdigit():
        return int(text)
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(0, round(time.time() * 1000) - int(ago[1]) * _UNITS_MS[ago[2]])
    at = datetime.fromisoformat(text)
    since_epoch = (at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return since_epoch // timedelta(milliseconds=1)


def position_option(*names: str, help: str, required: bool = False) -> Callable[[Command], Command]:
    """An option that takes a position."""
    return click.option(*names, metavar=METAVAR, callback=place, help=f"{help} {HELP}", required=required)

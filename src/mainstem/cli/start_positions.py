"""Where to start reading: start, end, an offset, so many before the end, or a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

Place = tuple[str, int]  # "start", "end", "+" offset, "-" records before the end, "@" time in ms


def place(ctx: click.Context, param: click.Parameter, text: str | None) -> Place | None:
    """A place as it is written on the command line."""
    if text is None or text in ("start", "end"):
        return None if text is None else (text, 0)
    try:
        if text.startswith("@"):
            return "@", time_ms(text[1:])
        return ("-", -int(text)) if text.startswith("-") else ("+", int(text))
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is none of start, end, an offset N, the last -N records, or @TIME in milliseconds "
            "or ISO 8601"
        ) from None


def time_ms(text: str) -> int:
    """Milliseconds, or ISO 8601; without a zone it is UTC. Raises ValueError, OverflowError."""
    if text.isdigit():
        return int(text)
    time = datetime.fromisoformat(text)
    since_epoch = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return since_epoch // timedelta(milliseconds=1)

"""Prints records to standard output in the requested format."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from mainstem.cli.records import Formatter, formatter, to_json

if TYPE_CHECKING:
    from mainstem.cli.store import ReadRecord

_PLAIN = r"%s\n"
_WITH_HEADERS = r"%h\t%s\n"


def _format(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    try:
        if text is not None:
            formatter(text)
    except ValueError as wrong:
        raise click.BadParameter(f"it {wrong}") from None
    return text


_options = (
    click.option(
        "-f",
        "--format",
        "format",
        callback=_format,
        help="%t topic, %p partition, %o offset, %k key, %K its length, %s value, %S its length, %R its length in "
        "4 bytes, %T timestamp in ms, %h headers, %%; \\n \\t \\r \\0 \\xNN \\\\.  [default: %s\\n]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line."),
    click.option("-H", "--headers", is_flag=True, help="Print the headers before the value."),
)


def format_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """-f, --json and -H."""
    for option in reversed(_options):
        command = option(command)
    return command


def shown_as(format: str | None, *, as_json: bool, headers: bool) -> Formatter:
    """How to print records. On a terminal, the position and key come before the value, in colour."""
    if as_json:
        return to_json
    if format is not None:
        return formatter(format)
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        return lambda topic, partition, record: _coloured(topic, partition, record, headers)
    return formatter(_WITH_HEADERS if headers else _PLAIN)


def _coloured(topic: str, partition: int, record: ReadRecord, headers: bool) -> bytes:
    parts = [click.style(f"{topic}[{partition}]@{record.offset}", dim=True).encode()]
    if record.key is not None:
        parts.append(click.style(record.key.decode("utf-8", "backslashreplace"), fg="cyan").encode())
    if headers and record.headers:
        shown = ",".join(
            f"{name}={(content or b'').decode('utf-8', 'backslashreplace')}"
            for name, content in record.headers
        )
        parts.append(click.style(shown, fg="yellow").encode())
    parts.append(click.style("null", fg="magenta").encode() if record.value is None else record.value)
    return b" ".join(parts) + b"\n"


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def until_output_closes() -> Iterator[None]:
    """Exit silently when the reader of the output closes the pipe."""
    try:
        yield
    except BrokenPipeError:
        # Nothing more may be flushed to the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

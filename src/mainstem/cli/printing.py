"""Records on standard output, in the format that was asked for."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from mainstem.cli.records import Formatter, formatter


def _format(ctx: click.Context, param: click.Parameter, text: str) -> Formatter:
    try:
        return formatter(text)
    except ValueError as wrong:
        raise click.BadParameter(f"it {wrong}") from None


format_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "-f",
    "--format",
    "format",
    callback=_format,
    default=r"%s\n",
    help="%t topic, %p partition, %o offset, %k key, %s value, %T time in ms, %h headers, %%; "
    r"\n \t \r \0 \\.  [default: %s\n]",
)


def write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextlib.contextmanager
def until_output_closes() -> Iterator[None]:
    """End quietly when whoever reads the output has seen enough."""
    try:
        yield
    except BrokenPipeError:
        # Nothing more may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

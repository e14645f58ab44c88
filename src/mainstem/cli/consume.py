"""`mainstem consume`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from mainstem.cli.directory import with_broker
from mainstem.cli.records import Formatter, formatter, to_json
from mainstem.cli.settings import takes_settings
from mainstem.config import Resolved
from mainstem.errors import RecordsLost

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker, Record

_AT_ONCE_RECORDS = 1024


Place = tuple[str, int]  # "start", "end", "+" offset, "-" records before the end, "@" time in ms


def _place(ctx: click.Context, param: click.Parameter, text: str | None) -> Place | None:
    if text is None or text in ("start", "end"):
        return None if text is None else (text, 0)
    try:
        if text.startswith("@"):
            return "@", _time_ms(text[1:])
        return ("-", -int(text)) if text.startswith("-") else ("+", int(text))
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is none of start, end, an offset N, the last -N records, or @TIME in milliseconds "
            "or ISO 8601"
        ) from None


def _time_ms(text: str) -> int:
    """Milliseconds, or ISO 8601; without a zone it is UTC."""
    if text.isdigit():
        return int(text)
    time = datetime.fromisoformat(text)
    since_epoch = (time if time.tzinfo else time.replace(tzinfo=UTC)) - datetime.fromtimestamp(0, UTC)
    return since_epoch // timedelta(milliseconds=1)


def _format(ctx: click.Context, param: click.Parameter, text: str) -> Formatter:
    try:
        return formatter(text)
    except ValueError as wrong:
        raise click.BadParameter(f"it {wrong}") from None


@click.command()
@takes_settings("data_dir")
@click.argument("topic")
@click.option(
    "-o",
    "--offset",
    "place",
    metavar="start|end|N|-N|@TIME",
    callback=_place,
    help="Where to start.  [default: start]",
)
@click.option("-n", "--count", type=click.IntRange(min=0), help="Stop after so many records.")
@click.option("-e", "--exit-at-end", is_flag=True, help="Stop at the end. It is always so without a server.")
@click.option(
    "-f",
    "--format",
    "format",
    callback=_format,
    default=r"%s\n",
    help="%t topic, %p partition, %o offset, %k key, %s value, %T time in ms, %h headers, %%; "
    r"\n \t \r \0 \\.  [default: %s\n]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this one."
)
@click.option("--group", help="Start where this group stands, and move it past what was printed.")
def consume(
    resolved: Resolved,
    topic: str,
    place: Place | None,
    count: int | None,
    exit_at_end: bool,
    format: Formatter,
    as_json: bool,
    partitions: tuple[int, ...],
    group: str | None,
) -> None:
    """Print the records of TOPIC, one partition after the other.

    No one else can append while this command holds the directory, so it stops at the end.
    """
    show = to_json if as_json else format

    async def work(broker: Broker) -> None:
        left = sys.maxsize if count is None else count
        for partition in partitions or range(broker.topic(topic).partitions):
            start = await _start(broker, topic, partition, group, place)
            async for records in _records(broker, topic, partition, start):
                batch = records[:left]
                left -= len(batch)
                _write(b"".join([show(topic, partition, record) for record in batch]))
                if group is not None and batch:
                    # After the output is out: a crash in between prints records twice, but loses none.
                    await broker.commit_offset(group, topic, batch[-1].offset + 1, partition)
                if left <= 0:
                    return

    try:
        with_broker(resolved.config, work)
    except BrokenPipeError:
        # The reader has seen enough. Nothing more may be flushed to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def _start(broker: Broker, topic: str, partition: int, group: str | None, place: Place | None) -> int:
    state = broker.partition(topic, partition)
    if group is not None and place is None:
        stood = broker.committed(group, topic, partition)
        return max(state.start, stood) if stood is not None else state.start
    kind, number = place or ("start", 0)
    if kind == "@":
        return await broker.offset_at(topic, number, partition)
    starts = {"start": state.start, "end": state.end, "-": max(state.start, state.end - number), "+": number}
    return starts[kind]


async def _records(broker: Broker, topic: str, partition: int, offset: int) -> AsyncIterator[list[Record]]:
    from mainstem.client.reading import read_on

    while True:
        try:
            records = await read_on(broker, topic, offset, partition=partition, max_records=_AT_ONCE_RECORDS)
        except RecordsLost as lost:
            click.echo(f"warning: {topic}/{partition}: {lost}", err=True)
            offset = lost.end
            continue
        if not records:
            return
        yield records
        offset = records[-1].offset + 1

"""`mainstem tail`."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, NamedTuple

import click

from mainstem.cli.printing import format_option, until_output_closes, write
from mainstem.cli.records import Formatter, to_json
from mainstem.cli.target import Server, takes_server

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient
    from mainstem.client.responses import ConsumerRecord
    from mainstem.client.watch import Beginning, Event


class _TailRecord(NamedTuple):
    """A record of an event stream, for the formatters."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@click.command()
@takes_server
@click.argument("topics", nargs=-1, required=True)
@click.option("--from-start", is_flag=True, help="Start with the oldest records instead of new ones.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many records.")
@format_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def tail(
    server: Server,
    topics: tuple[str, ...],
    from_start: bool,
    count: int | None,
    format: Formatter,
    as_json: bool,
) -> None:
    """Print new records of TOPICS until interrupted.

    The command reconnects after a lost connection and continues where it stopped. It follows only the first
    partition of a topic.
    """
    show = to_json if as_json else format
    begin: Beginning = 0 if from_start else "tail"

    async def work(client: AsyncClient) -> None:
        left = sys.maxsize if count is None else count
        async with contextlib.aclosing(client.frames(dict.fromkeys(topics, begin))) as frames:
            async for events in frames:
                records = _records(events)[:left]
                write(
                    b"".join(
                        [show(record.topic, record.partition, _tail_record(record)) for record in records]
                    )
                )
                left -= len(records)
                if left <= 0:
                    return

    with until_output_closes():
        server.run(work)


def _records(events: list[Event]) -> list[ConsumerRecord]:
    """Return the records, and print warnings for other events."""
    from mainstem.api.records import TopicDeleted
    from mainstem.client.responses import ConsumerRecord, Gap

    records = []
    for event in events:
        if isinstance(event, ConsumerRecord):
            records.append(event)
        elif isinstance(event, Gap):
            lost = f"records {event.first_seq - 1} to {event.last_seq - 1} are lost ({event.reason})"
            click.echo(f"warning: {event.topic}: {lost}", err=True)
        elif isinstance(event, TopicDeleted):
            click.echo(f"warning: {event.topic}: the topic was deleted", err=True)
    return records


def _tail_record(record: ConsumerRecord) -> _TailRecord:
    headers = []
    if record.node is not None:
        headers.append(("node", record.node.encode()))
    if bytes(record.meta_json) != b"null":
        headers.append(("meta", bytes(record.meta_json)))
    key = None if record.key is None else record.key.encode()
    return _TailRecord(record.offset, record.timestamp_ms, key, record.bytes, tuple(headers))

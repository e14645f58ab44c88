"""`mainstem tail`."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from mainstem.cli.names import complete_topics
from mainstem.cli.printing import format_option, shown_as, until_output_closes, write
from mainstem.cli.start_positions import Place, nearest_offset, position_option
from mainstem.cli.target import Server, takes_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
@click.argument("topics", nargs=-1, required=True, shell_complete=complete_topics)
@position_option("-o", "--offset", "place", help="Where to start in each partition, latest unless given:")
@click.option("--from-start", is_flag=True, help="Short for -o earliest.")
@click.option("--group", help="Join this consumer group: share the partitions with its members, and commit.")
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this many records.")
@format_option
def tail(
    server: Server,
    topics: tuple[str, ...],
    place: Place | None,
    from_start: bool,
    group: str | None,
    count: int | None,
    format: str | None,
    as_json: bool,
    headers: bool,
) -> None:
    """Print new records of all partitions of TOPICS until interrupted.

    The command reconnects after a lost connection and continues where it stopped. With --group it starts where the
    group committed, and with -o or --from-start only where it has not.
    """
    if from_start and place is not None:
        raise click.UsageError("--from-start and -o are mutually exclusive")
    start: Place = ("start", 0) if from_start else place or ("end", 0)
    if group is not None and start[0] not in ("start", "end"):
        raise click.UsageError(
            "with --group, -o takes earliest or latest; `group reset` moves a group elsewhere"
        )
    show = shown_as(format, as_json=as_json, headers=headers)

    def print_some(records: Sequence[ConsumerRecord]) -> None:
        write(b"".join([show(one.topic, one.partition, _tail_record(one)) for one in records]))

    async def work(client: AsyncClient) -> None:
        left = sys.maxsize if count is None else count
        if group is not None:
            await _tail_group(client, topics, group, start, left, print_some)
            return
        begins = {topic: await _beginning(client, topic, start) for topic in topics}
        async with contextlib.aclosing(client.frames(begins)) as frames:
            async for events in frames:
                records = _records(events)[:left]
                print_some(records)
                left -= len(records)
                if left <= 0:
                    return

    with until_output_closes():
        server.run(work)


async def _tail_group(
    client: AsyncClient,
    topics: Sequence[str],
    group: str,
    start: Place,
    left: int,
    print_some: Callable[[Sequence[ConsumerRecord]], None],
) -> None:
    """Commits what is printed: a crash in between prints records twice, but loses none."""
    begin: Literal["earliest", "latest"] = "earliest" if start[0] == "start" else "latest"
    async with client.consumer(topics, group=group, start=begin, commit_interval_s=1.0) as consumer:
        while left > 0:
            records = await consumer.poll(max_records=min(left, 500))
            print_some(records)
            left -= len(records)


async def _beginning(client: AsyncClient, topic: str, start: Place) -> Beginning:
    """Where to begin, as sequence numbers: the offset of the record after."""
    kind, number = start
    if kind in ("start", "end"):
        return 0 if kind == "start" else "tail"
    if kind == "+":
        partitions = (await client.topic_settings(topic)).partitions
        return nearest_offset(number, {one.partition: (one.start, one.end) for one in partitions})
    if kind == "-":
        partitions = (await client.topic_settings(topic)).partitions
        return {one.partition: max(0, one.end - number) for one in partitions}
    return {
        one.partition: await client.offset_at(topic, number, partition=one.partition)
        for one in (await client.topic_settings(topic)).partitions
    }


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
    headers = list(record.headers)
    if record.node is not None:
        headers.append(("node", record.node.encode()))
    if bytes(record.meta_json) != b"null":
        headers.append(("meta", bytes(record.meta_json)))
    key = None if record.key is None else record.key.encode()
    return _TailRecord(record.offset, record.timestamp_ms, key, record.bytes, tuple(headers))

"""`mainstem consume`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping, Sequence

import click

from mainstem.cli.names import complete_topics
from mainstem.cli.printing import format_option, shown_as, until_output_closes, write
from mainstem.cli.schemas import decoding
from mainstem.cli.start_positions import Place, nearest_offset, position_option
from mainstem.cli.store import PartitionLine, ReadRecord, Store
from mainstem.cli.target import Target, takes_target
from mainstem.errors import PartitionNotFound, RecordsLost


@click.command()
@takes_target()
@click.argument("topic", shell_complete=complete_topics)
@position_option("-o", "--offset", "place", help="Where to start, earliest unless given:")
@click.option("-n", "--count", type=click.IntRange(min=0), help="Stop after this many records.")
@click.option(
    "-e",
    "--exit-at-end",
    is_flag=True,
    help="Stop at the end, which is the default: use `tail` to wait for more.",
)
@format_option
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Read only this partition. May be repeated.",
)
@click.option("--decode", is_flag=True, help="Print values of the schema registry as JSON.")
@click.option("--group", help="Start at the committed offsets of this group, and commit the printed records.")
def consume(
    target: Target,
    topic: str,
    place: Place | None,
    count: int | None,
    exit_at_end: bool,
    format: str | None,
    as_json: bool,
    headers: bool,
    partitions: tuple[int, ...],
    decode: bool,
    group: str | None,
) -> None:
    """Print the records of TOPIC, partition by partition, up to the end.

    To wait for new records, use `mainstem tail`.
    """
    show = shown_as(format, as_json=as_json, headers=headers)
    if decode:
        show = decoding(target, show)

    async def work(store: Store) -> None:
        left = sys.maxsize if count is None else count
        states = {line.partition: line for line in (await store.describe(topic)).partitions}
        stood: Mapping[int, int] = {}
        if group is not None and place is None:
            stood = await store.committed(group, topic)
        for number in partitions:
            if number not in states:
                raise PartitionNotFound(topic, number, len(states))
        given = place
        if given is not None and given[0] == "+":
            reach = {number: (states[number].start, states[number].end) for number in partitions or states}
            stood, given = nearest_offset(given[1], reach), None
        for number in partitions or states:
            start = await _start(store, topic, states[number], stood, given)
            async for records in _records(store, topic, number, start):
                batch = records[:left]
                left -= len(batch)
                write(b"".join([show(topic, number, record) for record in batch]))
                if group is not None and batch:
                    # Commit after printing: a crash in between prints records twice, but loses none.
                    await store.commit(group, topic, number, batch[-1].offset + 1)
                if left <= 0:
                    return

    with until_output_closes():
        target.run(work)


async def _start(
    store: Store, topic: str, state: PartitionLine, stood: Mapping[int, int], place: Place | None
) -> int:
    if place is None:
        return max(state.start, stood.get(state.partition, 0))
    kind, number = place
    if kind == "@":
        return await store.offset_at(topic, state.partition, number)
    starts = {"start": state.start, "end": state.end, "-": max(state.start, state.end - number)}
    return starts[kind]


async def _records(
    store: Store, topic: str, partition: int, offset: int
) -> AsyncIterator[Sequence[ReadRecord]]:
    while True:
        try:
            records, following = await store.read(topic, partition, offset)
        except RecordsLost as lost:
            click.echo(f"warning: {topic}/{partition}: {lost}", err=True)
            offset = lost.end
            continue
        if not records:
            return
        yield records
        offset = following

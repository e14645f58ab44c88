"""`mainstem subscription …`."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import click
import msgspec

from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.names import complete_groups, complete_topics
from mainstem.cli.output import as_json_option, print_json, print_rows
from mainstem.cli.start_positions import Place, position_option
from mainstem.cli.target import Server, takes_server

if TYPE_CHECKING:
    from mainstem.api.groups import OffsetReset
    from mainstem.client.asynchronous import AsyncClient

_KIND = "subscription"
_PEEKED_CHARS_MAX = 200  # of a value

_partitions = click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition. May be repeated.",
)


@click.group()
def subscription() -> None:
    """List, describe, skip, reset, redeliver, peek at and delete subscriptions of Pulsar clients."""


@subscription.command("list")
@takes_server
@as_json_option
def list_subscriptions(server: Server, as_json: bool) -> None:
    """List subscriptions, with the lag of all their topics."""

    async def work(client: AsyncClient) -> list[dict[str, object]]:
        return [
            {
                "subscription": row.group,
                "state": row.state,
                "topics": len(row.topics),
                "consumers": row.members,
                "lag": row.lag,
            }
            for row in await client.groups()
            if row.kind == _KIND
        ]

    print_rows(server.run(work), as_json)


@subscription.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@as_json_option
def describe(server: Server, name: str, as_json: bool) -> None:
    """Show where a subscription is in each partition, and its consumers."""
    found = server.run(lambda client: client.group(name))
    rows = [
        {
            "topic": row.topic,
            "partition": row.partition,
            "offset": row.offset,
            "end": row.end,
            "lag": row.lag,
        }
        for row in found.offsets
    ]
    consumers = [member.member_id for member in found.members]
    if as_json:
        print_json({"subscription": name, "state": found.state, "consumers": consumers, "offsets": rows})
        return
    print_rows(rows, as_json)
    if consumers:
        click.echo(f"consumers: {', '.join(consumers)}")


@subscription.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@click.option("-n", "--count", type=click.IntRange(min=1), help="How many records of each partition.")
@click.option("--all", "everything", is_flag=True, help="The whole backlog.")
@_partitions
@as_json_option
def skip(
    server: Server,
    name: str,
    topic: str,
    count: int | None,
    everything: bool,
    partitions: tuple[int, ...],
    as_json: bool,
) -> None:
    """Acknowledge the next records of subscription NAME in TOPIC, without delivering them."""
    if (count is None) != everything:
        raise click.UsageError("give --count or --all")
    records = (1 << 62) if count is None else count
    moved = server.run(lambda client: client.reset_group(name, topic, partitions=partitions, skip=records))
    print_rows([msgspec.to_builtins(row) for row in moved], as_json)


@subscription.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@position_option("-o", "--to", "place", required=True, help="New position:")
@_partitions
@as_json_option
def reset(
    server: Server, name: str, topic: str, place: Place, partitions: tuple[int, ...], as_json: bool
) -> None:
    """Deliver the records of TOPIC from a position on, even if they were delivered before. Consumers reconnect."""
    kind, number = place

    async def work(client: AsyncClient) -> list[OffsetReset]:
        if kind != "-":
            to = {"start": "earliest", "end": "latest"}.get(kind, number)
            at_ms = number if kind == "@" else None
            return await client.reset_group(name, topic, to=to, timestamp_ms=at_ms, partitions=partitions)
        moved = []
        for one in (await client.topic_settings(topic)).partitions:
            if not partitions or one.partition in partitions:
                at = max(one.start, one.end - number)
                moved += await client.reset_group(name, topic, to=at, partitions=[one.partition])
        return moved

    print_rows([msgspec.to_builtins(row) for row in server.run(work)], as_json)


@subscription.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@_partitions
@as_json_option
def redeliver(server: Server, name: str, topic: str, partitions: tuple[int, ...], as_json: bool) -> None:
    """Redeliver the records of TOPIC that consumers of subscription NAME have not acknowledged."""
    moved = server.run(lambda client: client.reset_group(name, topic, to="redeliver", partitions=partitions))
    print_rows([msgspec.to_builtins(row) for row in moved], as_json)


@subscription.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@click.option("-n", "--count", type=click.IntRange(min=1), default=1, help="How many records.")
@click.option("-p", "--partition", type=click.IntRange(min=0), default=0, help="Partition to read.")
@as_json_option
def peek(server: Server, name: str, topic: str, count: int, partition: int, as_json: bool) -> None:
    """Show the next records that subscription NAME has not acknowledged in TOPIC."""

    from mainstem.client.responses import Gap

    async def work(client: AsyncClient) -> list[dict[str, object]]:
        described = await client.group(name)
        at = next(
            (
                row.offset or 0
                for row in described.offsets
                if (row.topic, row.partition) == (topic, partition)
            ),
            None,
        )
        if at is None:
            raise click.ClickException(
                f"subscription {name!r} does not read partition {partition} of {topic!r}"
            )
        rows: list[dict[str, object]] = []
        records = client.read(topic, from_seq=at, partition=partition, on_gap="skip")
        async with aclosing(records):
            async for record in records:
                if isinstance(record, Gap):
                    continue
                value = record.value
                text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
                rows.append({"offset": record.seq - 1, "key": record.key, "value": text[:_PEEKED_CHARS_MAX]})
                if len(rows) == count:
                    break
        return rows

    print_rows(server.run(work), as_json)


@subscription.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@yes_option
def delete(server: Server, name: str, yes: bool) -> None:
    """Delete the subscriptions NAME of all topics. They must have no consumers."""
    confirm(f"Delete subscription {name}?", yes)
    server.run(lambda client: client.delete_group(name))

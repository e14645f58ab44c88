"""`mainstem group …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.names import complete_groups, complete_topics
from mainstem.cli.output import as_json_option, print_fields, print_json, print_rows
from mainstem.cli.start_positions import Place, position_option
from mainstem.cli.target import Server, takes_server
from mainstem.errors import GroupNotFound

if TYPE_CHECKING:
    from mainstem.api.groups import OffsetReset
    from mainstem.client.asynchronous import AsyncClient


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


@group.command("list")
@takes_server
@as_json_option
def list_groups(server: Server, as_json: bool) -> None:
    """List groups with members or offsets."""
    found = server.run(lambda client: client.groups())
    rows = [msgspec.to_builtins(row) for row in found]
    if not as_json:
        for row in rows:
            del row["recent"]
    print_rows(rows, as_json)


@group.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@as_json_option
def describe(server: Server, name: str, as_json: bool) -> None:
    """Show the members and offsets of a group."""
    found = server.run(lambda client: client.group(name))
    whole = msgspec.to_builtins(found)
    del whole["performance"]
    if as_json:
        print_json(whole)
        return
    members, offsets = whole.pop("members"), whole.pop("offsets")
    print_fields({**whole, "members": len(members)}, as_json)
    for rows in (members, offsets):
        if rows:
            click.echo()
            print_rows(rows, as_json)


@group.command()
@takes_server
@click.argument("names", nargs=-1, shell_complete=complete_groups)
@as_json_option
def lag(server: Server, names: tuple[str, ...], as_json: bool) -> None:
    """Show the lag of the named groups, or of all groups."""

    async def work(client: AsyncClient) -> list[dict[str, object]]:
        wanted = names or [row.group for row in await client.groups()]
        rows: list[dict[str, object]] = []
        for name in wanted:
            try:
                found = await client.group(name)
            except GroupNotFound:
                if names:
                    raise
                continue  # deleted in the meantime
            rows += [
                {
                    "group": name,
                    "topic": row.topic,
                    "partition": row.partition,
                    "offset": row.offset,
                    "end": row.end,
                    "lag": row.lag,
                }
                for row in found.offsets
            ]
        return rows

    print_rows(server.run(work), as_json)


@group.command()
@takes_server
@click.argument("name", shell_complete=complete_groups)
@click.argument("topic", shell_complete=complete_topics)
@position_option("-o", "--to", "place", required=True, help="New position:")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this partition. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes without making them.")
@as_json_option
def reset(
    server: Server,
    name: str,
    topic: str,
    place: Place,
    partitions: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Reset the offsets of group NAME in TOPIC. The group must have no members."""
    kind, number = place

    async def work(client: AsyncClient) -> list[OffsetReset]:
        if kind != "-":
            to = {"start": "earliest", "end": "latest"}.get(kind, number)
            at_ms = number if kind == "@" else None
            return await client.reset_group(
                name, topic, to=to, timestamp_ms=at_ms, partitions=partitions, dry_run=dry_run
            )
        moved = []
        for one in (await client.topic_settings(topic)).partitions:
            if not partitions or one.partition in partitions:
                moved += await client.reset_group(
                    name,
                    topic,
                    to=max(one.start, one.end - number),
                    partitions=[one.partition],
                    dry_run=dry_run,
                )
        return moved

    moved = server.run(work)
    print_rows([msgspec.to_builtins(row) for row in moved], as_json)
    if dry_run and not as_json:
        click.echo("nothing changed (--dry-run)", err=True)


@group.command()
@takes_server
@click.argument("names", nargs=-1, shell_complete=complete_groups, required=True)
@yes_option
def delete(server: Server, names: tuple[str, ...], yes: bool) -> None:
    """Delete groups and their offsets. The groups must have no members."""
    confirm(f"Delete {', '.join(names)} and their offsets?", yes)

    async def work(client: AsyncClient) -> None:
        for name in names:
            await client.group(name)  # check that all exist before deleting any
        for name in names:
            await client.delete_group(name)

    server.run(work)

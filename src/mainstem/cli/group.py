"""`mainstem group …`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
import msgspec

from mainstem.cli.output import as_json_option, print_fields, print_json, print_rows
from mainstem.cli.start_positions import time_ms
from mainstem.cli.target import Server, takes_server
from mainstem.errors import GroupNotFound

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient


@click.group()
def group() -> None:
    """Consumer groups: who is in them, how far they are, moving and deleting them."""


@group.command("list")
@takes_server
@as_json_option
def list_groups(server: Server, as_json: bool) -> None:
    """List groups that have members or offsets."""
    found = server.run(lambda client: client.groups())
    print_rows([msgspec.to_builtins(row) for row in found], as_json)


@group.command()
@takes_server
@click.argument("name")
@as_json_option
def describe(server: Server, name: str, as_json: bool) -> None:
    """Show a group's members and offsets."""
    found = server.run(lambda client: client.group(name))
    whole = msgspec.to_builtins(found)
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
@click.argument("names", nargs=-1)
@as_json_option
def lag(server: Server, names: tuple[str, ...], as_json: bool) -> None:
    """Show what groups have left to read, all groups or those named."""

    async def work(client: AsyncClient) -> list[dict[str, object]]:
        wanted = names or [row.group for row in await client.groups()]
        rows: list[dict[str, object]] = []
        for name in wanted:
            try:
                found = await client.group(name)
            except GroupNotFound:
                if names:
                    raise
                continue  # it was deleted since it was listed
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


def _target(ctx: click.Context, param: click.Parameter, text: str) -> tuple[str | int, int | None]:
    """What --to says: a word or an offset, or else a time."""
    if text in ("earliest", "latest"):
        return text, None
    try:
        if text.startswith("@"):
            return "time", time_ms(text[1:])
        if text.isdigit():
            return int(text), None
        return "time", time_ms(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{text!r} is none of earliest, latest, an offset N, or a time: @MILLISECONDS or ISO 8601"
        ) from None


@group.command()
@takes_server
@click.argument("name")
@click.argument("topic")
@click.option(
    "--to",
    "place",
    required=True,
    metavar="earliest|latest|N|TIME",
    callback=_target,
    help="Where: an offset N, or a time as ISO 8601 or @MILLISECONDS.",
)
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@as_json_option
def reset(
    server: Server,
    name: str,
    topic: str,
    place: tuple[str | int, int | None],
    partitions: tuple[int, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put group NAME elsewhere in TOPIC. Its members must have left."""
    to, at_ms = place
    moved = server.run(
        lambda client: client.reset_group(
            name, topic, to=to, timestamp_ms=at_ms, partitions=partitions, dry_run=dry_run
        )
    )
    print_rows([msgspec.to_builtins(row) for row in moved], as_json)
    if dry_run and not as_json:
        click.echo("nothing was changed (--dry-run)", err=True)


@group.command()
@takes_server
@click.argument("names", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def delete(server: Server, names: tuple[str, ...], yes: bool) -> None:
    """Forget groups and how far they were. Their members must have left."""
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {', '.join(names)} and their offsets?", abort=True, err=True)

    async def work(client: AsyncClient) -> None:
        for name in names:
            await client.group(name)  # all are there, or none is deleted
        for name in names:
            await client.delete_group(name)

    server.run(work)

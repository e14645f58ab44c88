"""`mainstem router …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.names import complete_topics
from mainstem.cli.output import as_json_option, print_fields, print_rows
from mainstem.cli.target import Server, takes_server
from mainstem.errors import NotFound, TopicNotFound
from mainstem.values import did_you_mean

if TYPE_CHECKING:
    from mainstem.client.asynchronous import AsyncClient


@click.group()
def router() -> None:
    """List, create and delete routers, which copy the records of one topic to another."""


@router.command("list")
@takes_server
@click.option("--prefix", default="", help="Only routers whose name starts with this.")
@click.option("--source", help="Only routers that read this topic.")
@click.option("--dest", help="Only routers that write this topic.")
@as_json_option
def list_routers(server: Server, prefix: str, source: str | None, dest: str | None, as_json: bool) -> None:
    """List routers."""
    found = server.run(lambda client: client.routers(prefix, source=source, dest=dest))
    columns = ("router", "source", "dest", "guarantee", "forwarded_total")
    print_rows([{name: getattr(row, name) for name in columns} for row in found], as_json)


@router.command()
@takes_server
@click.argument("name")
@as_json_option
def show(server: Server, name: str, as_json: bool) -> None:
    """Show a router and its counters."""
    fields = msgspec.to_builtins(server.run(lambda client: client.router(name)))
    del fields["performance"]
    print_fields(fields, as_json)


@router.command()
@takes_server
@click.argument("name")
@click.argument("source", shell_complete=complete_topics)
@click.argument("dest", shell_complete=complete_topics)
@click.option(
    "--filter", "match", metavar="KEY|PREFIX*", help="Only records with this key, or with this key prefix."
)
@click.option("--exactly-once", is_flag=True, help="Stamp copies, so that no record is copied twice.")
@click.option("--drop-node", is_flag=True, help="Remove the node from copies.")
@click.option("--drop-key", is_flag=True, help="Remove the key from copies.")
@click.option("--create-source", is_flag=True, help="Create SOURCE if it does not exist.")
@click.option("--no-create", is_flag=True, help="Fail if the destination does not exist.")
@click.option("--allow-cycle", is_flag=True, help="Allow copies to return to the source.")
def create(
    server: Server,
    name: str,
    source: str,
    dest: str,
    match: str | None,
    exactly_once: bool,
    drop_node: bool,
    drop_key: bool,
    create_source: bool,
    no_create: bool,
    allow_cycle: bool,
) -> None:
    """Copy every new record of SOURCE to DEST."""

    async def work(client: AsyncClient) -> None:
        if not create_source:
            await _check_source(client, source)
        await client.put_router(
            name,
            source,
            dest,
            filter=match,
            preserve_node=not drop_node,
            preserve_tag=not drop_key,
            create_dest=not no_create,
            allow_cycle=allow_cycle,
            guarantee="exactly_once" if exactly_once else "at_least_once",
        )

    server.run(work)


async def _check_source(client: AsyncClient, source: str) -> None:
    """The server creates a missing source; for a mistyped name, the router would copy nothing."""
    try:
        await client.topic(source, touch=False)
    except TopicNotFound:
        similar = did_you_mean(source, [row.topic for row in await client.topics()])
        raise NotFound(f"no topic named {source!r}{similar}; --create-source creates it") from None


@router.command()
@takes_server
@click.argument("name")
@yes_option
def delete(server: Server, name: str, yes: bool) -> None:
    """Delete a router. Existing copies stay."""
    confirm(f"Delete router {name}?", yes)
    if not server.run(lambda client: client.delete_router(name)):
        raise NotFound(f"no router named {name!r}: check the spelling with `mainstem router list`")

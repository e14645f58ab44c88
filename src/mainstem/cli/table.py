"""`mainstem table …`."""

from __future__ import annotations

import json
from typing import Any

import click

from mainstem.cli.output import as_json_option, print_fields
from mainstem.cli.target import Server, takes_server


@click.group()
def table() -> None:
    """Topics as Iceberg tables: on, off, and how far they are."""


@table.command()
@takes_server
@click.argument("topic")
@click.option(
    "--schema", "schema_file", type=click.File("rb"), help="JSON file with the schema of the values."
)
@as_json_option
def enable(server: Server, topic: str, schema_file: Any, as_json: bool) -> None:
    """Keep TOPIC as a table as well, what it holds already included."""
    schema = None
    if schema_file is not None:
        try:
            schema = json.load(schema_file)
        except ValueError as wrong:
            raise click.UsageError(f"{schema_file.name} is no JSON: {wrong}") from None
    print_fields(_shown(server.run(lambda client: client.put_table(topic, schema=schema))), as_json)


@table.command()
@takes_server
@click.argument("topic")
@as_json_option
def disable(server: Server, topic: str, as_json: bool) -> None:
    """Add nothing more to TOPIC's table."""
    print_fields(_shown(server.run(lambda client: client.put_table(topic, enabled=False))), as_json)


@table.command()
@takes_server
@click.argument("topic")
@as_json_option
def show(server: Server, topic: str, as_json: bool) -> None:
    """Show how far TOPIC's table is."""
    print_fields(_shown(server.run(lambda client: client.table(topic))), as_json)


def _shown(status: dict[str, Any]) -> dict[str, Any]:
    status.pop("performance", None)
    return status

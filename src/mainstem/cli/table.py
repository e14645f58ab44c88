"""`mainstem table …`."""

from __future__ import annotations

import json
from typing import Any

import click

from mainstem.cli.output import as_json_option, print_fields, print_rows
from mainstem.cli.target import Server, takes_server
from mainstem.errors import MainstemError


@click.group()
def table() -> None:
    """Topics as Iceberg tables: on, off, and how far they are."""


@table.command()
@takes_server
@click.argument("topic")
@click.option(
    "--schema", "schema_file", type=click.File("rb"), help="JSON file with the schema of the values."
)
@click.option("--delta", metavar="URL", help="Path or URL of a Delta table that gets the records as well.")
@as_json_option
def enable(server: Server, topic: str, schema_file: Any, delta: str | None, as_json: bool) -> None:
    """Keep TOPIC as a table as well, what it holds already included."""
    schema = None
    if schema_file is not None:
        try:
            schema = json.load(schema_file)
        except ValueError as wrong:
            raise click.UsageError(f"{schema_file.name} is no JSON: {wrong}") from None
    status = server.run(lambda client: client.put_table(topic, schema=schema, delta=delta))
    print_fields(_status_fields(status), as_json)


@table.command()
@takes_server
@click.argument("topic")
@as_json_option
def disable(server: Server, topic: str, as_json: bool) -> None:
    """Drop TOPIC's table and its snapshots. The records stay, and enable makes it anew."""
    print_fields(_status_fields(server.run(lambda client: client.put_table(topic, enabled=False))), as_json)


@table.command()
@takes_server
@click.argument("topic")
@as_json_option
def show(server: Server, topic: str, as_json: bool) -> None:
    """Show how far TOPIC's table is."""
    print_fields(_status_fields(server.run(lambda client: client.table(topic))), as_json)


@table.command()
@takes_server
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@as_json_option
def deliver(server: Server, topics: tuple[str, ...], as_json: bool) -> None:
    """Bring the Delta tables of TOPICs up to date, or all there are.

    `mainstem lake run` does so round after round; this does it once, and needs no Spark.
    """
    from mainstem.lake.broker import LakeBroker

    with LakeBroker(server.url, api_key=server.api_key) as broker:
        works = [work for work in broker.tables().tables if work.delta]
        for topic in set(topics) - {work.topic for work in works}:
            raise MainstemError(
                f"topic {topic!r} is delivered nowhere: mainstem table enable {topic} --delta URL"
            )
        chosen = [work for work in works if not topics or work.topic in topics]
        try:
            from mainstem.lake.delta import deliver as deliver_all
        except ImportError:
            raise MainstemError("Delta tables need more packages: pip install 'mainstem[spark]'") from None
        report = deliver_all(broker, chosen)
    rows = [
        {"topic": work.topic, "table": work.delta, "problem": report.problems.get(work.topic)}
        for work in chosen
    ]
    print_rows(rows, as_json)
    if report.problems:
        raise MainstemError(f"{len(report.problems)} of {len(chosen)} Delta tables are behind")


def _status_fields(status: dict[str, Any]) -> dict[str, Any]:
    status.pop("performance", None)
    return status

"""`mainstem table …`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mainstem.cli.output import as_json_option, print_fields, print_rows
from mainstem.cli.target import Server, takes_server
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from mainstem.api.lake import TableStatus


@click.group()
def table() -> None:
    """Publish topics as Iceberg tables."""


@table.command()
@takes_server
@click.argument("topic")
@click.option(
    "--schema", "schema_file", type=click.File("rb"), help="JSON file with the schema of the values."
)
@click.option("--registry", is_flag=True, help="Take the columns from the schemas of the values.")
@click.option("--subject", help="With --registry: the subject of the schemas, instead of TOPIC-value.")
@click.option(
    "--message", help="With --registry: the Protobuf message, instead of the first one in the file."
)
@click.option("--delta", metavar="URL", help="Path or URL of a Delta table for a copy of the records.")
@click.option(
    "--iceberg",
    metavar="CATALOG.NAMESPACE.TABLE",
    help="Iceberg table in another catalog for a copy of the records.",
)
@as_json_option
def enable(
    server: Server,
    topic: str,
    schema_file: Any,
    registry: bool,
    subject: str | None,
    message: str | None,
    delta: str | None,
    iceberg: str | None,
    as_json: bool,
) -> None:
    """Publish TOPIC as a table, including its existing records."""
    schema: Any = None
    source = {name: value for name, value in (("subject", subject), ("message", message)) if value}
    if source and not registry:
        raise click.UsageError("--subject and --message need --registry")
    if registry and schema_file is not None:
        raise click.UsageError("give --schema or --registry, not both")
    if registry:
        schema = source or "registry"
    elif schema_file is not None:
        try:
            schema = json.load(schema_file)
        except ValueError as wrong:
            raise click.UsageError(f"{schema_file.name} is not valid JSON: {wrong}") from None
    status = server.run(lambda client: client.put_table(topic, schema=schema, delta=delta, iceberg=iceberg))
    print_fields(_status_fields(status), as_json)


@table.command()
@takes_server
@click.argument("topic")
@as_json_option
def disable(server: Server, topic: str, as_json: bool) -> None:
    """Drop the table of TOPIC and its snapshots. The records stay, and `enable` creates a new table."""
    print_fields(_status_fields(server.run(lambda client: client.put_table(topic, enabled=False))), as_json)


@table.command()
@takes_server
@click.argument("topic")
@as_json_option
def show(server: Server, topic: str, as_json: bool) -> None:
    """Show the state of the table of TOPIC."""
    print_fields(_status_fields(server.run(lambda client: client.table(topic))), as_json)


@table.command()
@takes_server
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@as_json_option
def deliver(server: Server, topics: tuple[str, ...], as_json: bool) -> None:
    """Update the copies of TOPICs, or all copies: Delta tables, and Iceberg tables in other catalogs.

    `mainstem lake run` does this continuously. This command does it once, and does not need Spark.
    """
    from mainstem.client.broker import BrokerClient

    with BrokerClient(server.url, api_key=server.api_key) as broker:
        broker.settle_tables()
        works = [work for work in broker.tables().tables if work.copy]
        for topic in set(topics) - {work.topic for work in works}:
            raise MainstemError(
                f"topic {topic!r} has no copy: run `mainstem table enable {topic} --delta URL`, or --iceberg NAME"
            )
        chosen = [work for work in works if not topics or work.topic in topics]
        try:
            from mainstem.tables.publishing.copies import deliver as deliver_all
        except ImportError:
            raise MainstemError("copies need more packages: run pip install 'mainstem[lake]'") from None
        report = deliver_all(broker, chosen)
    rows = [
        {"topic": work.topic, "table": work.copy, "problem": report.problems.get(work.topic)}
        for work in chosen
    ]
    print_rows(rows, as_json)
    if report.problems:
        raise MainstemError(f"{len(report.problems)} of {len(chosen)} copies could not be updated")


def _status_fields(status: TableStatus) -> dict[str, Any]:
    import msgspec

    shown: dict[str, Any] = msgspec.to_builtins(status)
    del shown["performance"]
    return shown

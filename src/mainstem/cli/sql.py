"""`mainstem sql`."""

from __future__ import annotations

import base64
import json
from typing import Any

import click

from mainstem import limits
from mainstem.cli.context import takes_url_and_key
from mainstem.cli.pipeline import server
from mainstem.cli.remote import with_client
from mainstem.cli.tables import print_table

_ROWS_SHOWN = 100


@click.command()
@takes_url_and_key
@click.argument("query")
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="duckdb: the server runs the query at once. spark: start Spark here, for queries over everything.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="TOPIC=COLUMNS",
    help="With --engine spark: columns of a topic's JSON values, for example orders='id long, amount double'. May be "
    "repeated.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1, max=limits.SQL_ROWS_MAX),
    default=_ROWS_SHOWN,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.001, max=limits.SQL_TIMEOUT_MS_MAX / 1000),
    default=limits.SQL_TIMEOUT_MS / 1000,
    show_default=True,
    help="With --engine duckdb: maximum number of seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def sql(
    url: str | None,
    api_key: str | None,
    query: str,
    engine: str,
    schemas: tuple[str, ...],
    limit: int,
    timeout: float,
    as_json: bool,
) -> None:
    """Query topics with SQL.

    A topic is a table with its name, in the schema of its namespace: orders, default.orders, acme.orders. The answer
    is current to the last record. Put names with characters other than letters, digits and _ in double quotes, with
    --engine spark in backticks.
    """
    if engine == "spark":
        names, rows = _spark(url, api_key, query, schemas, limit)
    elif schemas:
        raise click.UsageError(
            "--schema needs --engine spark; or declare the columns: mainstem table enable --help"
        )
    else:
        result = with_client(
            *(url, api_key), lambda client: client.sql_json(query, limit=limit, timeout_s=timeout)
        )
        names, rows = [column.name for column in result.columns], result.rows
        if result.truncated:
            click.echo(f"only the first {limit} rows are shown: see --limit", err=True)
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(names, row, strict=True)), default=_text_of_value))
    else:
        print_table(names, [[_cell(value) for value in row] for row in rows])


def _spark(
    url: str | None, api_key: str | None, query: str, schemas: tuple[str, ...], limit: int
) -> tuple[list[str], list[list[Any]]]:
    from mainstem.spark.pipelines.views import TopicViews
    from mainstem.spark.session import open_session

    columns = dict(_schema(one) for one in schemas)
    address, key = server(url, api_key)
    spark = open_session("mainstem sql")
    try:
        frame = TopicViews(spark, address, key, columns).query(query).limit(limit)
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        names = list(frame.columns)
    finally:
        spark.stop()
    return names, [[row[name] for name in names] for row in rows]


def _schema(text: str) -> tuple[str, str]:
    topic, separator, columns = text.partition("=")
    if not separator or not topic or not columns:
        raise click.BadParameter(f"{text!r} is not TOPIC=COLUMNS", param_hint="--schema")
    return topic.strip(), columns.strip()


def _cell(value: Any) -> object:
    if value is None:
        return "-"
    return (
        value
        if isinstance(value, int)
        else json.dumps(value, default=_text_of_value)
        if isinstance(value, (dict, list))
        else _text_of_value(value)
    )


def _text_of_value(value: Any) -> str:
    """Return UTF-8 bytes as text, and other bytes as base64."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode("ascii")
    return str(value)

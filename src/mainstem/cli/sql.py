"""`mainstem sql`."""

from __future__ import annotations

import base64
import json
from typing import Any

import click

from mainstem.cli.pipeline import key_option, server, url_option
from mainstem.cli.tables import print_table

_ROWS_SHOWN = 100


@click.command()
@url_option
@key_option
@click.argument("query")
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="TOPIC=COLUMNS",
    help="Columns of a topic's JSON values, for example orders='id long, amount double'. May be repeated.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=_ROWS_SHOWN,
    show_default=True,
    help="Maximum number of rows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def sql(
    url: str | None, api_key: str | None, query: str, schemas: tuple[str, ...], limit: int, as_json: bool
) -> None:
    """Query topics and tables with Spark SQL.

    A plain name is the current state of a topic; a name with a namespace (default.orders) is a table. Put names with
    characters other than letters, digits and _ in backticks.
    """
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
    if as_json:
        for row in rows:
            click.echo(json.dumps(row, default=_text_of_value))
    else:
        print_table(names, [[_cell(row[name]) for name in names] for row in rows])


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

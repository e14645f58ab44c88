"""`mainstem replay`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainstem.cli.context import takes_url_and_key
from mainstem.cli.names import complete_topics
from mainstem.cli.pipeline import server
from mainstem.cli.start_positions import Place, position_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@click.command()
@takes_url_and_key
@click.argument("topic", shell_complete=complete_topics)
@position_option("-o", "--from", "begin", help="First record, earliest unless given:")
@position_option("--to", "end", help="One past the last record, latest unless given:")
@click.option(
    "--into", required=True, help="Destination topic; with --through, a prefix for the name of each output."
)
@click.option(
    "--through",
    type=click.Path(path_type=Path),
    help="Run this pipeline file on the range of TOPIC.",
)
def replay(
    url: str | None,
    api_key: str | None,
    topic: str,
    begin: Place | None,
    end: Place | None,
    into: str,
    through: Path | None,
) -> None:
    """Write a range of TOPIC again, to another topic or through a pipeline.

    All records are written, or none. Keys, values, headers and timestamps stay the same; offsets are new.
    """
    from mainstem.client.broker import BrokerClient
    from mainstem.errors import InvalidInput
    from mainstem.spark.pipelines.query_progress import QueryLines
    from mainstem.spark.session import open_session
    from mainstem.spark.source.range_options import topic_bound

    if through is None and into == topic:
        raise InvalidInput(f"topic {topic!r} cannot be replayed into itself")
    address, key = server(url, api_key)
    with BrokerClient(address, key) as broker:
        bounds = {
            **topic_bound(broker, topic, "starting", begin),
            **topic_bound(broker, topic, "ending", end),
        }
    lines = QueryLines()
    lines.event("starting", topic=topic, into=into)
    spark = open_session("mainstem replay")
    try:
        if through is None:
            rows = _copy(spark, address, key, topic, bounds, into)
            lines.event("done", topic=topic, into=into, rows=rows)
        else:
            for output, count in _through(spark, address, key, topic, bounds, into, through).items():
                lines.event("done", output=output, rows=count)
    finally:
        spark.stop()


def _copy(spark: SparkSession, url: str, key: str, topic: str, bounds: dict[str, str], into: str) -> int:
    reader = spark.read.format("mainstem").options(
        url=url, apiKey=key, subscribe=topic, includeHeaders="true"
    )
    frame = reader.options(**bounds).load().drop("topic", "partition").cache()
    rows = int(frame.count())
    options = {"url": url, "apiKey": key, "topic": into, "keepTimestamps": "true"}
    frame.write.format("mainstem").mode("append").options(**options).save()
    return rows


def _through(
    spark: SparkSession, url: str, key: str, topic: str, bounds: dict[str, str], into: str, file: Path
) -> dict[str, int]:
    from mainstem.errors import InvalidInput
    from mainstem.spark.pipelines.loading import load
    from mainstem.spark.pipelines.running import PipelineRun, PipelineSettings

    declared = load(file)
    if topic not in {source.topic for source in declared.sources.values()}:
        raise InvalidInput(f"pipeline {declared.name!r} does not read topic {topic!r}")
    settings = PipelineSettings(url, Path(), key)
    return PipelineRun(spark, declared, settings).replay(topic, bounds, into)

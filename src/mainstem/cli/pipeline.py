"""`mainstem pipeline …`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainstem.cli.context import takes_url_and_key
from mainstem.cli.output import as_json_option, print_json
from mainstem.cli.start_positions import Place, place
from mainstem.cli.tables import print_table
from mainstem.cli.target import Server, takes_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def server(url: str | None, api_key: str | None) -> tuple[str, str]:
    """Return URL and key, from the arguments or the environment."""
    from mainstem.client.environment import KEY_ENV, URL_DEFAULT, URL_ENV

    return url or os.environ.get(URL_ENV) or URL_DEFAULT, api_key or os.environ.get(KEY_ENV) or ""


@click.group()
def pipeline() -> None:
    """Run pipelines that read and write topics and tables, with Spark."""


@pipeline.command()
@takes_url_and_key
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Process the current data, then exit.")
@click.option(
    "--from",
    "begin",
    metavar="start|end|@TIME",
    callback=place,
    help="Start a separate run at this position. Use the same position again to resume that run.",
)
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="SOURCE=ID",
    help="Read a table at this snapshot. May be repeated.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("pipeline-state"),
    show_default=True,
    help="Directory for checkpoints.",
)
def run(
    url: str | None,
    api_key: str | None,
    file: Path,
    once: bool,
    begin: Place | None,
    snapshots: tuple[str, ...],
    state: Path,
) -> None:
    """Run the pipeline in FILE, Python or SQL, until SIGINT or SIGTERM.

    A pipeline resumes where it stopped. Every record goes through every output once.
    """
    from mainstem.spark.pipelines.loading import load
    from mainstem.spark.pipelines.query_progress import QueryLines, stopped_by_signals, watch
    from mainstem.spark.pipelines.reporting import PipelineReporter
    from mainstem.spark.pipelines.running import PipelineRun, PipelineSettings
    from mainstem.spark.source.range_options import bound

    declared = load(file)
    for text in snapshots:
        source, _, number = text.partition("=")
        if not number.isdigit():
            raise click.BadParameter(f"{text!r} is not SOURCE=ID", param_hint="--snapshot")
        declared.pin(source, int(number))
    address, key = server(url, api_key)
    label = "" if begin is None else f"from-{begin[0]}-{begin[1]}"
    settings = PipelineSettings(address, state.absolute(), key, bound("starting", begin), label)
    lines = QueryLines()
    lines.event("starting", pipeline=declared.name, outputs=len(declared.outputs))
    reporting = PipelineReporter.connected(
        declared, address, key, label=label, on_refusal=lambda why: lines.event("not reported", error=why)
    )
    with reporting as reporter, _session(declared.name) as spark, stopped_by_signals() as stop:
        queries = PipelineRun(spark, declared, settings).start(once=once)
        reporter.running()
        watch(queries, stop, lines, reporter)
        if stop.is_set():
            reporter.stopped()
    lines.event("done", pipeline=declared.name)


@contextlib.contextmanager
def _session(name: str) -> Iterator[SparkSession]:
    from mainstem.spark.session import open_session

    spark = open_session(f"mainstem pipeline {name}")
    try:
        yield spark
    finally:
        spark.stop()


@pipeline.command()
@takes_server
@as_json_option
def status(server: Server, *, as_json: bool) -> None:
    """Show the pipelines that reported within the last day."""
    found = server.run(lambda client: client.pipelines())
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found))
        return
    if not found:
        click.echo("no pipeline has reported: start one with `mainstem pipeline run FILE`")
        return
    now_ms = time.time_ns() // 1_000_000
    rows: list[list[object]] = [
        [
            one.pipeline,
            one.state,
            output.output,
            output.target,
            "-" if output.batch < 0 else output.batch,
            output.rows_in,
            output.rows_out,
            "-" if output.behind is None else output.behind,
            max(0, now_ms - one.heard_ms) // 1000,
        ]
        for one in found
        for output in one.outputs
    ]
    head = ["pipeline", "state", "output", "to", "batch", "rows in", "rows out", "lag", "reported s ago"]
    print_table(head, rows)
    for one in found:
        if one.error:
            click.echo(f"\n{one.pipeline}: {one.error}")

"""`mainstem pipeline …`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mainstem.cli.places import Place, place

url_option = click.option(
    "--url", metavar="URL", help="The server. [MAINSTEM_URL; default http://127.0.0.1:4000]"
)
key_option = click.option("--api-key", metavar="KEY", help="Key to send to it. [MAINSTEM_API_KEY]")


def server(url: str | None, api_key: str | None) -> tuple[str, str]:
    """As given, or from the environment."""
    from mainstem.client.transport import KEY_ENV, URL_DEFAULT, URL_ENV

    return url or os.environ.get(URL_ENV) or URL_DEFAULT, api_key or os.environ.get(KEY_ENV) or ""


@click.group()
def pipeline() -> None:
    """Topics and tables in, topics and tables out, on Spark."""


@pipeline.command()
@url_option
@key_option
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Do what is there now, then end.")
@click.option(
    "--from",
    "begin",
    metavar="start|end|@TIME",
    callback=place,
    help="Begin there, whatever was done before; the same place again goes on where that stopped.",
)
@click.option(
    "--snapshot",
    "snapshots",
    multiple=True,
    metavar="SOURCE=ID",
    help="Read a table as it was at this snapshot. May be repeated.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("pipeline-state"),
    show_default=True,
    help="Where checkpoints are kept.",
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
    """Run the pipeline declared in FILE, Python or SQL, until SIGINT or SIGTERM.

    It goes on where it stopped: every record goes through every output once.
    """
    from mainstem.spark.pipelines.loading import load
    from mainstem.spark.pipelines.running import PipelineRun, Settings
    from mainstem.spark.pipelines.watching import QueryLines, stopped_by_signals, watch
    from mainstem.spark.session import open_session
    from mainstem.spark.stretches import bound

    declared = load(file)
    for text in snapshots:
        source, _, number = text.partition("=")
        if not number.isdigit():
            raise click.BadParameter(f"{text!r} is not SOURCE=ID", param_hint="--snapshot")
        declared.pin(source, int(number))
    address, key = server(url, api_key)
    label = "" if begin is None else f"from-{begin[0]}-{begin[1]}"
    settings = Settings(address, state.absolute(), key, bound("starting", begin), label)
    lines = QueryLines()
    lines.event("starting", pipeline=declared.name, outputs=len(declared.outputs))
    spark = open_session(f"mainstem pipeline {declared.name}")
    try:
        with stopped_by_signals() as stop:
            watch(PipelineRun(spark, declared, settings).start(once=once), lines, stop)
    finally:
        spark.stop()
    lines.event("done", pipeline=declared.name)

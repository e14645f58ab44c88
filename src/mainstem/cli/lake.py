"""`mainstem lake …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstem.cli.tables import print_table
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from mainstem.broker.lake import LakeStatus

ANSWER_S = 10.0  # somebody waits at a terminal

_url = click.option(
    "--url",
    envvar="MAINSTEM_URL",
    metavar="URL",
    help="The server. [MAINSTEM_URL; default http://127.0.0.1:4000]",
)


@click.group()
def lake() -> None:
    """Make records into tables, on Spark."""


@lake.command()
@_url
@click.option("--once", is_flag=True, help="Do what is due now, then end.")
@click.option("--topic", "topics", multiple=True, help="Only this topic. May be repeated.")
@click.option(
    "--lease-ms",
    type=click.IntRange(1_000, 3_600_000),
    default=60_000,
    show_default=True,
    help="What a driver that died held is free again after this.",
)
def run(url: str | None, once: bool, topics: tuple[str, ...], lease_ms: int) -> None:
    """Drive the lake: materialise, publish tables, maintain, collect garbage.

    Runs until SIGINT or SIGTERM; a server that is away is waited for. Several drivers may run at once. A server that
    wants a key gets the one in MAINSTEM_API_KEY.
    """
    from mainstem.spark.driver_process import run_driver

    driver_status = run_driver(url, once=once, topics=topics, lease_ms=lease_ms)
    failing = driver_status.failing()
    if once and failing:
        first = failing[0]
        raise MainstemError(
            f"{len(failing)} partitions or tables failed, such as one of topic {first.topic!r}: {first.error}"
        )
    if once and driver_status.tables_error:
        raise MainstemError(f"the tables could not be updated: {driver_status.tables_error}")


@lake.command()
@_url
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def status(url: str | None, as_json: bool) -> None:
    """Show how far every topic is made into files, and who works on it."""
    from mainstem.lake.broker import LakeBroker

    with LakeBroker(url, timeout_s=ANSWER_S) as broker:
        found = broker.status()
    if as_json:
        import msgspec

        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return
    _print_topics(found)
    _print_work(found)


def _print_topics(found: LakeStatus) -> None:
    rows: list[list[object]] = [
        [
            topic.topic,
            partition.partition,
            partition.end,
            partition.materialised_to,
            "-" if partition.published_to is None else partition.published_to,
            partition.lag_records,
            partition.parts,
            partition.files,
            partition.file_bytes,
            ",".join(map(str, partition.generations)),
        ]
        for topic in found.topics
        for partition in topic.partitions
    ]
    if not rows:
        click.echo("no topic is made into files: enable a table, or serve with --lake-topics all")
        return
    head = ["topic", "partition", "head", "materialised to", "in the table to", "lag"]
    print_table([*head, "parts", "files", "bytes", "generations"], rows)


def _print_work(found: LakeStatus) -> None:
    if found.tasks:
        click.echo()
        print_table(
            ["task", "held by", "for another s"],
            [
                [task.task, task.holder, max(0, task.deadline_ms - found.now_ms) // 1000]
                for task in found.tasks
            ],
        )
    for heard in found.drivers:
        report = heard.report
        click.echo(
            f"\ndriver {report.holder}: {report.state}, {report.tasks} tasks, {report.records} records, "
            f"{report.failed} failed"
        )
        if report.tables_error:
            click.echo(f"  no table is published: {report.tables_error}")
        for failure in report.failing:
            click.echo(f"  {failure.topic}: {failure.error} (attempt {failure.failures})")

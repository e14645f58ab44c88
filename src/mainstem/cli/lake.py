"""`mainstem lake …`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstem.cli.context import url_option
from mainstem.cli.tables import print_table
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from mainstem.api.lake import LakeStatus

ANSWER_S = 10.0  # a user waits at a terminal


@click.group()
def lake() -> None:
    """Convert records to tables with Spark."""


@lake.command()
@url_option
@click.option("--once", is_flag=True, help="Run the tasks that are due, then exit.")
@click.option("--topic", "topics", multiple=True, help="Only this topic. May be repeated.")
@click.option(
    "--lease-ms",
    type=click.IntRange(1_000, 3_600_000),
    default=60_000,
    show_default=True,
    help="After this time other drivers can take over the tasks of a dead driver.",
)
def run(url: str | None, once: bool, topics: tuple[str, ...], lease_ms: int) -> None:
    """Run the driver of the lake: convert records, publish tables, maintain files, collect garbage.

    Runs until SIGINT or SIGTERM, and waits for an unreachable server. Several drivers may run at once. The driver sends
    the key in MAINSTEM_API_KEY to a server that requires one.
    """
    from mainstem.spark.driver.process import run_driver

    driver_status = run_driver(url, once=once, topics=topics, lease_ms=lease_ms)
    failing = driver_status.failing()
    if once and failing:
        first = failing[0]
        raise MainstemError(
            f"{len(failing)} partitions or tables failed, for example of topic {first.topic!r}: {first.error}"
        )
    if once and driver_status.tables_error:
        raise MainstemError(f"the tables could not be updated: {driver_status.tables_error}")


@lake.command()
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(url: str | None, as_json: bool) -> None:
    """Show the conversion progress of every topic, and the drivers that work on it."""
    from mainstem.client.broker import BrokerClient

    with BrokerClient(url, timeout_s=ANSWER_S) as broker:
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
        click.echo("no topic is converted to files: enable a table, or serve with --lake-topics all")
        return
    head = ["topic", "partition", "end", "materialised to", "published to", "lag"]
    print_table([*head, "parts", "files", "bytes", "generations"], rows)


def _print_work(found: LakeStatus) -> None:
    if found.tasks:
        click.echo()
        print_table(
            ["task", "holder", "seconds left"],
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
            click.echo(f"  publishing tables failed: {report.tables_error}")
        for failure in report.failing:
            click.echo(f"  {failure.topic}: {failure.error} (attempt {failure.failures})")

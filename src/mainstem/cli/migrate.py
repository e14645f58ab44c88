"""`mainstem migrate`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import msgspec

from mainstem.cli.output import as_json_option, print_json
from mainstem.cli.settings import takes_settings
from mainstem.config import Resolved
from mainstem.errors import InvalidConfig

if TYPE_CHECKING:
    from mainstem.log.objects.migration import MigrationReport, Progress


@click.command()
@takes_settings("data_dir", "store", "etcd", "objects")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@as_json_option
def migrate(resolved: Resolved, dry_run: bool, as_json: bool) -> None:
    """Move the log of a data directory to a bucket, or to etcd and a bucket, for a cluster.

    Stop the server first. The destination must be empty. If the command is interrupted, rerun it to resume. The
    directory stays unchanged; delete it once brokers serve the new log (`mainstem serve --store …`). Offsets, groups,
    transactions, queues and routers stay the same, and tables keep their snapshots. Set --objects to the object store
    with older files of the log, if there is one.
    """
    import asyncio

    from mainstem.broker.options import shared_place
    from mainstem.broker.storage.migrations import migrate as run

    config = resolved.config
    place = shared_place(config)
    if place is None:
        raise InvalidConfig(
            "name the destination: --store URL, and --etcd HOST:PORT,… if etcd orders the log"
        )
    report = asyncio.run(
        run(
            config.data_dir,
            place,
            objects=config.objects,
            showing=_progress,
            dry_run=dry_run,
        )
    )
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    _print(report, place.name)


def _print(report: MigrationReport, place: str) -> None:
    done = "would be copied" if report.dry_run else "copied and verified"
    click.echo(
        f"{report.topics} topics with {report.records} records, up to position {report.position}: "
        f"{report.objects} objects ({_mb(report.object_bytes)}) and {report.files} files ({_mb(report.file_bytes)}) "
        f"{done} to {place}"
    )
    if report.uncounted:
        click.echo(
            f"not counted: the newest records, because the log was not closed ({report.uncounted} open file): "
            "`mainstem topic list --data-dir DIR` closes it"
        )
    if report.tables:
        click.echo(f"tables, with their snapshots: {', '.join(report.tables)}")


@contextmanager
def _progress(total: int) -> Iterator[Progress]:
    bar = click.progressbar(length=total, label="copying", file=sys.stderr, hidden=not sys.stderr.isatty())
    with bar as shown:
        yield shown.update


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

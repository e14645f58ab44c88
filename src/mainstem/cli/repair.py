"""`mainstem repair`."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from mainstem.cli.check import divergence_lines
from mainstem.cli.confirmation import confirm, yes_option
from mainstem.cli.output import as_json_option, print_json
from mainstem.cli.settings import takes_settings
from mainstem.config import Resolved
from mainstem.errors import DirectoryUnusable


@click.command()
@takes_settings("data_dir", "store", "etcd", "log", "objects")
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    help="New folder for copies of the current checkpoints. [default: repair-TIME in the data directory]",
)
@yes_option
@as_json_option
def repair(resolved: Resolved, backup: Path | None, yes: bool, as_json: bool) -> None:
    """Rewrite the checkpoints of a log after a digest mismatch.

    Stop the servers first. The command copies the checkpoints to a backup folder, replays the log, and stores the
    resulting state. It changes no record and no offset. Run `mainstem check --explain-divergence` first to see the
    differences.
    """
    import asyncio

    from mainstem.broker.options import broker_options
    from mainstem.broker.storage.repair import repair_log
    from mainstem.ports.clock import SystemClock, SystemRandom

    options = broker_options(resolved.config)
    directory = options.data_dir
    if options.place is None and not (directory / "FORMAT").exists():
        raise DirectoryUnusable(f"no log at {directory}: set --data-dir to its directory")
    folder = backup or directory / time.strftime("repair-%Y%m%dT%H%M%SZ", time.gmtime())
    where = directory if options.place is None else options.place.name
    confirm(f"Rewrite the checkpoints of {where}, with a backup in {folder}?", yes)
    report = asyncio.run(repair_log(options, SystemClock(), SystemRandom(), folder))
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    for line in divergence_lines(report.divergence):
        click.echo(line)
    click.echo(
        f"checkpoint written at position {report.position}; the previous checkpoints are in {report.backup}"
    )

"""`mainstem backup` and `mainstem restore`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainstem.cli.output import as_json_option, print_json
from mainstem.cli.target import Server, takes_server
from mainstem.errors import DirectoryUnusable

if TYPE_CHECKING:
    from mainstem.log.backup import BackupReport, Progress


@click.command()
@takes_server
@click.argument("destination", metavar="FOLDER|URL")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Copy a directory that no server has open.")
@as_json_option
def backup(server: Server, destination: str, data_dir: Path | None, as_json: bool) -> None:
    """Copy everything as of now to a folder or a bucket.

    The server goes on serving; a folder is one of its machine. A second backup to the same place copies only what
    is new. A backup that was cut off is never taken for a whole one.
    """
    if "://" not in destination:
        destination = str(Path(destination).absolute())
    if data_dir is not None:
        import asyncio

        report = asyncio.run(_directory(data_dir, destination))
    else:
        report = server.run(lambda client: client.backup(destination))
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    click.echo(
        f"backup {report.name}: {report.files} files, {_mb(report.bytes)}, {_mb(report.copied_bytes)} of it new"
    )
    _tell_cold(report.cold_objects)


@click.command()
@click.argument("source", metavar="FOLDER|URL")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), required=True, help="A directory that is not there yet."
)
@click.option("--name", help="Which backup; the newest if not given.")
@click.option("--list", "listing", is_flag=True, help="Only show which backups there are.")
@click.option("--verify", is_flag=True, help="Only compare every byte of the backup with its checksum.")
def restore(source: str, data_dir: Path, name: str | None, listing: bool, verify: bool) -> None:
    """Bring a backup back into a new data directory, checking every byte."""
    import asyncio

    asyncio.run(_restore(source, data_dir, name, listing, verify))


async def _restore(source: str, data_dir: Path, name: str | None, listing: bool, verify: bool) -> None:
    from mainstem.log import backup as backups
    from mainstem.ports.objectstore.open import open_store

    store = open_store(source)
    if listing:
        for manifest in await backups.read_manifests(store):
            click.echo(f"{manifest.made}  {len(manifest.files)} files  {_mb(manifest.bytes)}")
        return
    manifest = await backups.find_manifest(store, name)
    with _progress("verifying" if verify else "restoring", manifest.bytes) as progress:
        if verify:
            await backups.verify(store, manifest, progress=progress)
        else:
            await backups.restore(store, data_dir, name, progress=progress)
    done = "is whole" if verify else f"restored into {data_dir}"
    click.echo(f"backup of {manifest.made} {done}: {len(manifest.files)} files, {_mb(manifest.bytes)}")
    _tell_cold(manifest.cold_objects)


def _tell_cold(objects: int) -> None:
    if objects:
        click.echo(
            f"{objects} older files of the log are in its object store (--objects) and not in the backup: "
            "keep that store, and let one server at a time use it",
            err=True,
        )


async def _directory(data_dir: Path, destination: str) -> BackupReport:
    from mainstem.log import backup as backups
    from mainstem.ports.commitlog.identity import read_format
    from mainstem.ports.commitlog.standstill import standstill
    from mainstem.ports.files import OsFiles
    from mainstem.ports.objectstore.open import open_store

    with standstill(data_dir) as still:
        if not still:
            raise DirectoryUnusable(
                f"a server has {data_dir} open: back it up through the server, with --url"
            )
        log = read_format(OsFiles(), data_dir)
        if log is None:
            raise DirectoryUnusable(f"there is no log at {data_dir}: name its directory with --data-dir")
        files = backups.offline_files(data_dir)
        with _progress("copying", sum(length for _, length in files)) as progress:
            return await backups.write_backup(
                data_dir,
                files,
                open_store(destination),
                log=log.whole,
                position=-1,
                now=datetime.now(UTC),
                progress=progress,
            )


@contextmanager
def _progress(label: str, total: int) -> Iterator[Progress]:
    bar: Any  # click's own type says nothing of what `update` is
    with click.progressbar(length=total, label=label, hidden=not sys.stdout.isatty()) as bar:
        yield bar.update


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

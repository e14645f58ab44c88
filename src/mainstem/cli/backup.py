"""`mainstem backup` and `mainstem restore`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from mainstem.cli.output import as_json_option, print_json
from mainstem.cli.target import Server, takes_server

if TYPE_CHECKING:
    from mainstem.log.backup import Progress


@click.command()
@takes_server
@click.argument("destination", metavar="FOLDER|URL")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Copy a directory that no server has open.")
@click.option(
    "--objects", default="", metavar="URL", help="With --data-dir: where older files of its log are."
)
@click.option("--store", default="", metavar="URL", help="Copy a log that brokers share, from where it is.")
@click.option(
    "--etcd", default="", metavar="HOST:PORT,…", help="With --store: the members of the etcd that orders it."
)
@as_json_option
def backup(
    server: Server,
    destination: str,
    data_dir: Path | None,
    objects: str,
    store: str,
    etcd: str,
    as_json: bool,
) -> None:
    """Copy everything as of now to a folder or a bucket, older files of the log in an object store included.

    The server goes on serving; a folder is one of its machine. A second backup to the same place copies only what
    is new. A backup that was cut off is never taken for a whole one.

    With --store the log of several brokers is copied, by this process, to a place that is empty. Brokers open the
    copy as it is (`mainstem serve --store DESTINATION`), and to bring it back is to copy it again.
    """
    if objects and data_dir is None:
        raise click.UsageError("a server knows its object store: --objects goes with --data-dir")
    if (store and data_dir is not None) or (etcd and not store):
        raise click.UsageError(
            "name one log: --data-dir, or --store with --etcd if etcd orders it, or a server"
        )
    if "://" not in destination:
        destination = str(Path(destination).absolute())
    if store:
        _back_up_shared(store, etcd, destination, as_json)
        return
    if data_dir is not None:
        import asyncio

        from mainstem.broker.backups import back_up_directory

        copying = partial(_progress, "copying")
        report = asyncio.run(back_up_directory(data_dir, destination, objects=objects, showing=copying))
    else:
        report = server.run(lambda client: client.backup(destination))
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    click.echo(
        f"backup {report.name}: {report.files} files, {_mb(report.bytes)}, {_mb(report.copied_bytes)} of it new"
        + (f"; {report.store_files} files of the object store" if report.store_files else "")
    )


def _back_up_shared(store: str, etcd: str, destination: str, as_json: bool) -> None:
    import asyncio

    from mainstem.broker.shared_backups import back_up_shared
    from mainstem.ports.commitlog.shared.open import SharedPlace

    source = SharedPlace(store, tuple(filter(None, etcd.split(","))))
    to = SharedPlace(destination)
    report = asyncio.run(back_up_shared(source, to, showing=partial(_progress, "copying")))
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    copied = _mb(report.object_bytes + report.file_bytes)
    click.echo(
        f"backup of {report.topics} topics with {report.records} records, up to position {report.position}: {copied} "
        f"copied to {to.name} and compared"
    )


@click.command()
@click.argument("source", metavar="FOLDER|URL")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), required=True, help="A directory that is not there yet."
)
@click.option(
    "--objects",
    default="",
    metavar="URL",
    help="Where what was in an object store shall go; else the directory.",
)
@click.option("--name", help="Which backup; the newest if not given.")
@click.option("--list", "listing", is_flag=True, help="Only show which backups there are.")
@click.option("--verify", is_flag=True, help="Only compare every byte of the backup with its checksum.")
def restore(source: str, data_dir: Path, objects: str, name: str | None, listing: bool, verify: bool) -> None:
    """Bring a backup back into a new data directory, checking every byte.

    All of it comes into the directory. With --objects, what the log had in an object store goes to that one instead,
    and so do files of tables: serve the directory with the same --objects then.
    """
    import asyncio

    asyncio.run(_restore(source, data_dir, objects, name, listing, verify))


async def _restore(
    source: str, data_dir: Path, objects: str, name: str | None, listing: bool, verify: bool
) -> None:
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
            there = open_store(objects) if objects else None
            await backups.restore(store, data_dir, name, objects=there, progress=progress)
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


@contextmanager
def _progress(label: str, total: int) -> Iterator[Progress]:
    bar: Any  # click's own type says nothing of what `update` is
    with click.progressbar(length=total, label=label, hidden=not sys.stdout.isatty()) as bar:
        yield bar.update


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

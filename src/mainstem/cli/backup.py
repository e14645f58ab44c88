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
    from mainstem.log.objects.backup import Progress


@click.command()
@takes_server
@click.argument("destination", metavar="FOLDER|URL")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Back up this directory. No server may have it open."
)
@click.option(
    "--objects", default="", metavar="URL", help="With --data-dir: object store with older files of the log."
)
@click.option("--store", default="", metavar="URL", help="Back up the log of a cluster from this store.")
@click.option(
    "--etcd",
    default="",
    metavar="HOST:PORT,…",
    help="With --store: members of the etcd cluster that orders the log.",
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
    """Back up the whole log to a folder or a bucket, including older files in an object store.

    The server keeps running. A folder is on the machine of the server. A second backup to the same destination copies
    only new data. An interrupted backup is never mistaken for a complete one.

    With --store this process copies the log of a cluster to an empty destination. Brokers can open the copy
    (`mainstem serve --store DESTINATION`). To restore it, back it up to another store.
    """
    if objects and data_dir is None:
        raise click.UsageError("use --objects only with --data-dir: a server knows its own object store")
    if (store and data_dir is not None) or (etcd and not store):
        raise click.UsageError(
            "name one log: --data-dir, or --store (with --etcd if etcd orders the log), or a server"
        )
    if "://" not in destination:
        destination = str(Path(destination).absolute())
    if store:
        _back_up_shared(store, etcd, destination, as_json)
        return
    if data_dir is not None:
        import asyncio

        from mainstem.broker.storage.backups import back_up_directory

        copying = partial(_progress, "copying")
        report = asyncio.run(back_up_directory(data_dir, destination, objects=objects, showing=copying))
    else:
        report = server.run(lambda client: client.backup(destination))
    if as_json:
        print_json(msgspec.to_builtins(report))
        return
    click.echo(
        f"backup {report.name}: {report.files} files, {_mb(report.bytes)}, {_mb(report.copied_bytes)} new"
        + (f"; {report.store_files} files from the object store" if report.store_files else "")
    )


def _back_up_shared(store: str, etcd: str, destination: str, as_json: bool) -> None:
    import asyncio

    from mainstem.broker.storage.shared_backups import back_up_shared
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
        f"copied to {to.name} and verified"
    )


@click.command()
@click.argument("source", metavar="FOLDER|URL")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Directory to create.")
@click.option(
    "--objects",
    default="",
    metavar="URL",
    help="Object store for the files that were in one. [default: the data directory]",
)
@click.option("--name", help="Backup to restore. [default: the newest]")
@click.option("--list", "listing", is_flag=True, help="Only list the backups.")
@click.option("--verify", is_flag=True, help="Only verify the checksum of every byte of the backup.")
def restore(
    source: str, data_dir: Path | None, objects: str, name: str | None, listing: bool, verify: bool
) -> None:
    """Restore a backup into a new data directory, and verify every byte.

    By default all files go to the directory. With --objects, files that were in an object store and the files of tables
    go to that store instead: serve the directory with the same --objects.
    """
    import asyncio

    if data_dir is None and not listing and not verify:
        raise click.UsageError("name the directory to create: --data-dir")
    asyncio.run(_restore(source, data_dir, objects, name, listing, verify))


async def _restore(
    source: str, data_dir: Path | None, objects: str, name: str | None, listing: bool, verify: bool
) -> None:
    from mainstem.log.objects import backup as backups
    from mainstem.ports.objectstore.open import open_store

    store = open_store(source)
    if listing:
        found = await backups.read_manifests(store)
        if not found:
            raise click.ClickException(f"there is no backup in {source}")
        for manifest in found:
            click.echo(f"{manifest.made}  {len(manifest.files)} files  {_mb(manifest.bytes)}")
        return
    manifest = await backups.find_manifest(store, name)
    with _progress("verifying" if verify else "restoring", manifest.bytes) as progress:
        if verify or data_dir is None:
            await backups.verify(store, manifest, progress=progress)
        else:
            there = open_store(objects) if objects else None
            await backups.restore(store, data_dir, name, objects=there, progress=progress)
    done = "is intact" if verify else f"restored into {data_dir}"
    click.echo(f"backup of {manifest.made} {done}: {len(manifest.files)} files, {_mb(manifest.bytes)}")
    _tell_cold(manifest.cold_objects)


def _tell_cold(objects: int) -> None:
    if objects:
        click.echo(
            f"the backup does not include {objects} older log files that are in the object store (--objects): "
            "keep that store, and let only one server at a time use it",
            err=True,
        )


@contextmanager
def _progress(label: str, total: int) -> Iterator[Progress]:
    bar: Any  # click does not type `update`
    with click.progressbar(length=total, label=label, hidden=not sys.stdout.isatty()) as bar:
        yield bar.update


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"

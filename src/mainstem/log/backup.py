"""Backups: a data directory as of one moment, copied to an object store, and back.

A backup is its manifest, `backups/<UTC time>.json`, put last: what has none was never finished and is of no use. The
files it names are cut into chunks, `chunks/<log id>/<path>/<from>-<length>-<CRC32C>`, which later backups of the same
log use again: a sealed file never changes, so a second backup copies only what is new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from mainstem import limits
from mainstem.errors import BackupDamaged, DirectoryUnusable, NewerVersion, NotFound
from mainstem.ports.commitlog.cold import SUFFIX
from mainstem.ports.commitlog.layout import COLD
from mainstem.ports.files import File, Files, OsFiles, make_directories, write_all
from mainstem.ports.objectstore.port import ObjectStore

VERSION = 1
MANIFESTS = "backups/"
_CHUNKS = "chunks"


class FileLength(NamedTuple):
    """How much of a file belongs to the moment of a backup."""

    path: PurePosixPath  # below the data directory
    bytes: int


class Chunk(msgspec.Struct, frozen=True):
    key: str
    bytes: int
    crc: int  # CRC32C


class BackedUpFile(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    chunks: tuple[Chunk, ...]


class Manifest(msgspec.Struct, frozen=True):
    version: int
    log: str  # the log's id, in hex
    position: int  # the backup holds every commit before this
    made: str  # UTC, ISO 8601
    files: tuple[BackedUpFile, ...]
    cold_objects: int = 0  # older files of the log, which stay in its object store and are not in the backup

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class BackupReport(msgspec.Struct, frozen=True):
    name: str
    position: int
    files: int
    bytes: int
    copied_bytes: int  # the rest was there already
    cold_objects: int = 0  # files of the log that are in its object store, where the backup leaves them


Progress = Callable[[int], None]  # bytes done


def _silent(_: int) -> None: ...


async def write_backup(
    directory: Path,
    files: Sequence[FileLength],
    store: ObjectStore,
    *,
    log: bytes,
    position: int,
    now: datetime,
    progress: Progress = _silent,
) -> BackupReport:
    """Copy the files as they stand, the manifest last. They may grow meanwhile, but must not go."""
    known = {
        chunk.key
        for manifest in await read_manifests(store)
        if manifest.log == log.hex()
        for file in manifest.files
        for chunk in file.chunks
    }
    copied = 0
    backed_up: list[BackedUpFile] = []
    for path, length in files:
        chunks: list[Chunk] = []
        for at in range(0, length, limits.BACKUP_CHUNK_BYTES):
            size = min(limits.BACKUP_CHUNK_BYTES, length - at)
            data = await asyncio.to_thread(_read, directory / path, at, size)
            crc = crc32c(data)
            chunk = Chunk(f"{_CHUNKS}/{log.hex()}/{path}/{at}-{size}-{crc:08x}", size, crc)
            if chunk.key not in known:
                await store.put(chunk.key, data)
                copied += size
            chunks.append(chunk)
            progress(size)
        backed_up.append(BackedUpFile(str(path), length, tuple(chunks)))
    name = now.strftime("%Y%m%dT%H%M%S.%fZ")
    cold = sum(path.suffix == SUFFIX and path.parts[0] == COLD for path, _ in files)
    manifest = Manifest(VERSION, log.hex(), position, now.isoformat(), tuple(backed_up), cold)
    await store.put(f"{MANIFESTS}{name}.json", msgspec.json.encode(manifest), if_absent=True)
    return BackupReport(name, position, len(backed_up), manifest.bytes, copied, cold)


async def read_manifests(store: ObjectStore) -> list[Manifest]:
    """Of every finished backup, oldest first. Raises BackupDamaged, NewerVersion."""
    keys = [found.key async for found in store.list(MANIFESTS)]
    return [await _manifest(store, key) for key in sorted(keys)]


async def restore(
    store: ObjectStore, directory: Path, name: str | None = None, *, progress: Progress = _silent
) -> Manifest:
    """Bring a backup back, the newest unless named, into a directory that is empty or not there.

    Raises NotFound, BackupDamaged, NewerVersion, DirectoryUnusable."""
    manifest = await find_manifest(store, name)
    files = OsFiles()
    await asyncio.to_thread(_make_empty, files, directory)
    # Under another name until all is there: a restore that was cut off is not to be taken for the log.
    building = directory / ".restoring"
    for file in manifest.files:
        await _restore_file(store, files, building / file.path, file, progress)
    await asyncio.to_thread(_settle, files, building, directory)
    return manifest


async def find_manifest(store: ObjectStore, name: str | None = None) -> Manifest:
    """The named backup, or the newest one. Raises NotFound."""
    if name is not None:
        return await _manifest(store, f"{MANIFESTS}{name}.json")
    manifests = await read_manifests(store)
    if not manifests:
        raise NotFound("there is no finished backup in this store")
    return manifests[-1]


async def _manifest(store: ObjectStore, key: str) -> Manifest:
    try:
        manifest = msgspec.json.decode(await store.get(key), type=Manifest)
    except msgspec.DecodeError as error:
        raise BackupDamaged(f"{key} is no manifest of a backup: {error}") from error
    if manifest.version > VERSION:
        raise NewerVersion(f"{key} is of version {manifest.version}: upgrade this Mainstem to read it")
    return manifest


def _read(path: Path, at: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        data = file.read(length)
    if len(data) != length:
        raise BackupDamaged(f"{path} ends at byte {at + len(data)}, before what belongs to the backup")
    return data


def _make_empty(files: Files, directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        raise DirectoryUnusable(f"{directory} is not empty: restore into a new directory")
    make_directories(files, directory)


async def _restore_file(
    store: ObjectStore, files: Files, path: Path, file: BackedUpFile, progress: Progress
) -> None:
    await asyncio.to_thread(make_directories, files, path.parent)
    made = await asyncio.to_thread(files.create, path)
    try:
        at = 0
        for chunk in file.chunks:
            data = await _whole(store, chunk, file.path)
            await asyncio.to_thread(write_all, made, [data], at)
            at += len(data)
            progress(len(data))
        await asyncio.to_thread(_sync, files, made, path)
    finally:
        made.close()


async def _whole(store: ObjectStore, chunk: Chunk, path: str) -> bytes:
    try:
        data = await store.get(chunk.key)
    except NotFound:
        raise BackupDamaged(f"{path}: the chunk {chunk.key} is missing from the backup") from None
    if len(data) != chunk.bytes or crc32c(data) != chunk.crc:
        raise BackupDamaged(f"{path}: the chunk {chunk.key} does not match its checksum")
    return data


def _sync(files: Files, made: File, path: Path) -> None:
    made.fdatasync()
    files.fsync_dir(path.parent)


def _settle(files: Files, building: Path, directory: Path) -> None:
    """Give everything its name; FORMAT last, without which a directory is no log."""
    for entry in sorted(building.iterdir(), key=lambda entry: entry.name == "FORMAT"):
        entry.rename(directory / entry.name)
    building.rmdir()
    files.fsync_dir(directory)


async def verify(store: ObjectStore, manifest: Manifest, *, progress: Progress = _silent) -> None:
    """Read every chunk of a backup and compare it with its checksum. Raises BackupDamaged."""
    for file in manifest.files:
        for chunk in file.chunks:
            await _whole(store, chunk, file.path)
            progress(chunk.bytes)


def offline_files(directory: Path) -> list[FileLength]:
    """All there is in a data directory that no server has open."""
    found = []
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        if path.is_file() and inside.parts[0] not in _NOT_KEPT and not path.name.endswith(".tmp"):
            found.append(FileLength(PurePosixPath(inside), path.stat().st_size))
    return found


_NOT_KEPT = ("LOCK", "cache", ".backup", ".restoring")

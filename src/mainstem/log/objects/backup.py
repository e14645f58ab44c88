"""Backups: copy a data directory as of one moment to an object store, and restore it.

A backup is its manifest, `backups/<UTC time>.json`, written last: a backup without one is incomplete and unusable. Its
files are split into chunks, `chunks/<log id>/<path>/<from>-<length>-<CRC32C>`, which later backups of the same log
share: a sealed file never changes, so a second backup copies only what is new.

A log with older files in an object store is backed up whole, as if those files were in the directory. Restore puts
them into the directory, or into an object store that then serves readers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

import msgspec
from crc32c import crc32c

from mainstem import limits
from mainstem.api.server import BackupReport
from mainstem.errors import BackupDamaged, DirectoryUnusable, NewerVersion, NotFound, ObjectMissing
from mainstem.log.objects.backup_contents import OBJECTS, BackupContent
from mainstem.ports.commitlog.local.cold import owner_key
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import COLD
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.files import File, Files, OsFiles, make_directories, write_all
from mainstem.ports.objectstore.port import ObjectStore

BACKUP_CHUNK_BYTES = 32 * limits.MIB  # chunk size of files in a backup

VERSION = 2  # 1: only files of the directory
MANIFESTS = "backups/"
_CHUNKS = "chunks"


class BackupChunk(msgspec.Struct, frozen=True):
    key: str
    bytes: int
    crc: int  # CRC32C


class BackedUpFile(msgspec.Struct, frozen=True):
    path: str
    bytes: int
    chunks: tuple[BackupChunk, ...]
    tier: str = ""  # of a log file that the object store had too: its folder there
    cold: bool = False  # only the store had it
    modified_ms: int = 0  # only of files of the object store

    @property
    def unchanging(self) -> tuple[str, int, str, int] | None:
        """A key that identifies the content; None if the content must be read to identify it."""
        marked = self.tier or self.modified_ms
        return (self.path, self.bytes, self.tier, self.modified_ms) if marked else None


class Manifest(msgspec.Struct, frozen=True):
    version: int
    log: str  # the log's id, in hex
    position: int  # the backup holds every commit before it
    made: str  # UTC, ISO 8601
    files: tuple[BackedUpFile, ...]
    cold_objects: int = 0  # version 1: log files that were left in the object store

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


Progress = Callable[[int], None]  # bytes done


def _silent(_: int) -> None: ...


async def write_backup(
    contents: Sequence[BackupContent],
    store: ObjectStore,
    *,
    log: bytes,
    position: int,
    now: datetime,
    progress: Progress = _silent,
) -> BackupReport:
    """Copy contents, the manifest last. Files may grow meanwhile; only contents with `may_go` may disappear."""
    writing = _BackupWriter(store, log.hex(), await read_manifests(store), progress)
    files = [file for content in contents if (file := await writing.add(content)) is not None]
    name = now.strftime("%Y%m%dT%H%M%S.%fZ")
    from_store = sum(file.cold or bool(file.modified_ms) for file in files)
    version = VERSION if any(file.unchanging for file in files) else 1
    manifest = Manifest(version, log.hex(), position, now.isoformat(), tuple(files))
    await store.put(f"{MANIFESTS}{name}.json", msgspec.json.encode(manifest), if_absent=True)
    return BackupReport(name, position, len(files), manifest.bytes, writing.copied_bytes, from_store)


class _BackupWriter:
    """Writes one backup, and reuses the chunks of earlier ones."""

    def __init__(self, store: ObjectStore, log: str, before: Sequence[Manifest], progress: Progress) -> None:
        self._store = store
        self._log = log
        files = [file for manifest in before if manifest.log == log for file in manifest.files]
        self._chunks = {chunk.key for file in files for chunk in file.chunks}
        self._unchanging = {file.unchanging: file for file in files if file.unchanging}
        self._progress = progress
        self.copied_bytes = 0

    async def add(self, content: BackupContent) -> BackedUpFile | None:
        """Copy the chunks that no backup has. None if the content is gone and `may_go`. Raises ObjectMissing."""
        facts = (str(content.path), content.bytes, (), content.tier, content.cold, content.modified_ms)
        file = BackedUpFile(*facts)
        known = self._unchanging.get(file.unchanging) if file.unchanging else None
        if known is not None:
            self._progress(file.bytes)
            return msgspec.structs.replace(file, chunks=known.chunks)
        chunks: list[BackupChunk] = []
        for at in range(0, content.bytes, BACKUP_CHUNK_BYTES):
            size = min(BACKUP_CHUNK_BYTES, content.bytes - at)
            try:
                data = await content.read(at, size)
            except NotFound as error:
                if content.may_go:
                    return None
                raise ObjectMissing(
                    f"the object store has lost {content.path}, so the backup would be incomplete: {error}"
                ) from error
            chunks.append(await self._put(content.path, at, data))
            self._progress(size)
        return msgspec.structs.replace(file, chunks=tuple(chunks))

    async def _put(self, path: PurePosixPath, at: int, data: bytes) -> BackupChunk:
        crc = crc32c(data)
        chunk = BackupChunk(f"{_CHUNKS}/{self._log}/{path}/{at}-{len(data)}-{crc:08x}", len(data), crc)
        if chunk.key not in self._chunks:
            await self._store.put(chunk.key, data)
            self.copied_bytes += len(data)
        return chunk


async def read_manifests(store: ObjectStore) -> list[Manifest]:
    """The manifests of all complete backups, oldest first. Raises BackupDamaged, NewerVersion."""
    keys = [found.key async for found in store.list(MANIFESTS)]
    return [await _manifest(store, key) for key in sorted(keys)]


async def restore(
    store: ObjectStore,
    directory: Path,
    name: str | None = None,
    *,
    objects: ObjectStore | None = None,
    progress: Progress = _silent,
) -> Manifest:
    """Restore a backup, the newest unless named, into a directory that is empty or does not exist.

    With `objects`, files from the object store go there; it must have nothing of this log yet. Without, all files go
    into the directory. Raises NotFound, BackupDamaged, NewerVersion, DirectoryUnusable."""
    manifest = await find_manifest(store, name)
    await _BackupRestorer(store, manifest, directory, objects, progress).run()
    return manifest


async def find_manifest(store: ObjectStore, name: str | None = None) -> Manifest:
    """The named backup, or the newest one. Raises NotFound."""
    if name is not None:
        return await _manifest(store, f"{MANIFESTS}{name}.json")
    manifests = await read_manifests(store)
    if not manifests:
        raise NotFound("the store has no complete backup")
    return manifests[-1]


async def _manifest(store: ObjectStore, key: str) -> Manifest:
    try:
        manifest = msgspec.json.decode(await store.get(key), type=Manifest)
    except msgspec.DecodeError as error:
        raise BackupDamaged(f"{key} is not a backup manifest: {error}") from error
    if manifest.version > VERSION:
        raise NewerVersion(f"{key} has version {manifest.version}: upgrade Mainstem to read it")
    return manifest


class _BackupRestorer:
    """Restores one backup."""

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        directory: Path,
        objects: ObjectStore | None,
        progress: Progress,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._directory = directory
        # Under another name until complete: nobody may mistake an interrupted restore for the log.
        self._building = directory / ".restoring"
        self._objects = objects
        self._progress = progress
        self._files = OsFiles()

    async def run(self) -> None:
        await asyncio.to_thread(_make_empty, self._files, self._directory)
        if self._objects is None:
            for file in self._manifest.files:
                if not self._is_note(file):
                    await self._into_directory(file)
        else:
            await self._into_both(self._objects)
        await asyncio.to_thread(_settle, self._files, self._building, self._directory)

    def _is_note(self, file: BackedUpFile) -> bool:
        """Whether the file is a note of a log file that the backup itself holds."""
        return self._manifest.version > 1 and PurePosixPath(file.path).parts[0] == COLD

    async def _into_both(self, objects: ObjectStore) -> None:
        if self._manifest.cold_objects:
            raise DirectoryUnusable(
                "this backup does not include files that the log keeps in its object store: restore it without "
                "--objects, and serve it with the store that it was made with"
            )
        owner = owner_key(LogId(bytes.fromhex(self._manifest.log)))
        async for found in objects.list(owner):
            raise DirectoryUnusable(
                f"the object store has files of this log already ({found.key}): restore into another prefix"
            )
        for file in self._manifest.files:
            path = PurePosixPath(file.path)
            if path.parts[0] == OBJECTS:
                await objects.put(str(path.relative_to(OBJECTS)), [data async for data in self._chunks(file)])
                continue
            if not file.cold:
                await self._into_directory(file)
            if file.tier:
                await self._into_tier(objects, file)
        await objects.put(owner, bytes.fromhex(self._manifest.log))

    async def _into_tier(self, objects: ObjectStore, file: BackedUpFile) -> None:
        """Split into the parts that a log file has in a store."""
        parts, number, room = Parts(objects), 0, bytearray()
        async for data in self._chunks(file, silent=not file.cold):
            room += data
            while len(room) >= limits.STORE_OBJECT_BYTES_MAX:
                part = bytes(room[: limits.STORE_OBJECT_BYTES_MAX])
                del room[: limits.STORE_OBJECT_BYTES_MAX]
                await parts.put_one(lambda part: f"{file.tier}/{part}", number, part)
                number += 1
        if room:
            await parts.put_one(lambda part: f"{file.tier}/{part}", number, room)

    async def _into_directory(self, file: BackedUpFile) -> None:
        path = self._building / file.path
        await asyncio.to_thread(make_directories, self._files, path.parent)
        made = await asyncio.to_thread(self._files.create, path)
        try:
            at = 0
            async for data in self._chunks(file):
                await asyncio.to_thread(write_all, made, [data], at)
                at += len(data)
            await asyncio.to_thread(_sync, self._files, made, path)
        finally:
            made.close()

    async def _chunks(self, file: BackedUpFile, *, silent: bool = False) -> AsyncIterator[bytes]:
        for chunk in file.chunks:
            data = await _whole(self._store, chunk, file.path)
            yield data
            if not silent:
                self._progress(len(data))


def _make_empty(files: Files, directory: Path) -> None:
    if directory.exists() and any(directory.iterdir()):
        raise DirectoryUnusable(f"{directory} is not empty: restore into a new directory")
    make_directories(files, directory)


async def _whole(store: ObjectStore, chunk: BackupChunk, path: str) -> bytes:
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
    """Rename everything into place; FORMAT last, because a directory without it is not a log."""
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

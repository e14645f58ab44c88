"""What a backup copies: files of a data directory, and the log's files in an object store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mainstem.errors import BackupDamaged
from mainstem.ledger.tiers import Tier, Tiers
from mainstem.ports.commitlog.local.cold import tier_folder
from mainstem.ports.commitlog.local.identity import LogId
from mainstem.ports.commitlog.local.layout import WAL
from mainstem.ports.commitlog.local.segments import number_of, segment_path
from mainstem.ports.commitlog.shared.bucket.parts import Parts
from mainstem.ports.objectstore.port import ObjectStore, StoredObject

OBJECTS = "objects"  # folder of the object store's files in a data directory
_NOT_KEPT = ("LOCK", "cache", ".backup", ".restoring", ".objects-moved", "erasure.key")

Read = Callable[[int, int], Awaitable[bytes]]
"""Bytes of a file: start and length. Raises NotFound if the file is gone."""


@dataclass(frozen=True, slots=True)
class BackupContent:
    """How much of a file belongs to a backup, and how to read it."""

    path: PurePosixPath  # below the data directory; where it would be, for a file of the store
    bytes: int
    read: Read
    tier: str = ""  # of a log file that the object store has too: its folder there
    cold: bool = False  # only the store has it
    modified_ms: int = 0  # only of files of the object store
    may_go: bool = False  # nothing is lost if it is deleted before it is read


@dataclass(frozen=True, slots=True)
class LocalFile:
    """The first bytes of a file that may grow meanwhile."""

    path: PurePosixPath  # below the folder
    bytes: int


def file_contents(folder: Path, files: Iterable[LocalFile], log: LogId, tiers: Tiers) -> list[BackupContent]:
    """Files on disk; for log files, also where the object store has them."""
    found = []
    for file in files:
        number = number_of(file.path.name) if file.path.parts[0] == WAL else None
        tier = None if number is None else tiers.stored(number)
        there = "" if tier is None else tier_folder(log, tier.object, tier.token)
        found.append(BackupContent(file.path, file.bytes, _of_file(folder / file.path), there))
    return found


def _of_file(path: Path) -> Read:
    async def read(start: int, size: int) -> bytes:
        return await asyncio.to_thread(_read, path, start, size)

    return read


def _read(path: Path, at: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(at)
        return _whole(file.read(length), at, length, str(path))


def cold_contents(store: ObjectStore, log: LogId, tiers: Sequence[Tier]) -> list[BackupContent]:
    """Log files that only the object store has, at the paths they had on disk."""
    return [
        BackupContent(
            PurePosixPath(segment_path(Path(WAL), tier.object)),
            tier.size_bytes,
            _of_parts(store, tier_folder(log, tier.object, tier.token)),
            tier_folder(log, tier.object, tier.token),
            cold=True,
        )
        for tier in tiers
    ]


def _of_parts(store: ObjectStore, folder: str) -> Read:
    parts = Parts(store)

    async def read(start: int, size: int) -> bytes:
        return _whole(await parts.read(lambda part: f"{folder}/{part}", start, size), start, size, folder)

    return read


async def stored_contents(store: ObjectStore, prefix: str, *, may_go: bool = False) -> list[BackupContent]:
    """Every file of the object store whose key starts with `prefix`."""
    return [
        BackupContent(
            PurePosixPath(OBJECTS, found.key),
            found.size_bytes,
            _of_object(store, found),
            modified_ms=found.modified_ms,
            may_go=may_go,
        )
        async for found in store.list(prefix)
    ]


def _of_object(store: ObjectStore, found: StoredObject) -> Read:
    async def read(start: int, size: int) -> bytes:
        (data,) = await store.get_ranges(found.key, [(start, size)])
        return _whole(data, start, size, found.key)

    return read


def _whole(data: bytes, start: int, length: int, name: str) -> bytes:
    if len(data) != length:
        raise BackupDamaged(f"{name} ends at byte {start + len(data)}, but the backup needs more of it")
    return data


def files_of(directory: Path) -> list[LocalFile]:
    """All files of a data directory that no server has open."""
    found = []
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        if path.is_file() and inside.parts[0] not in _NOT_KEPT and not path.name.endswith(".tmp"):
            found.append(LocalFile(PurePosixPath(inside), path.stat().st_size))
    return found

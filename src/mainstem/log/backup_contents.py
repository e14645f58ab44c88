"""What a backup copies: files of a data directory, and what the log has in an object store, each as it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mainstem.errors import BackupDamaged
from mainstem.ledger.tiers import Tier, Tiers
from mainstem.ports.commitlog.bucket.parts import Parts
from mainstem.ports.commitlog.cold import tier_folder
from mainstem.ports.commitlog.identity import LogId
from mainstem.ports.commitlog.layout import WAL
from mainstem.ports.commitlog.segments import number_of, segment_path
from mainstem.ports.objectstore.port import ObjectStore, StoredObject

OBJECTS = "objects"  # where a data directory has the files of the object store
_NOT_KEPT = ("LOCK", "cache", ".backup", ".restoring", ".objects-moved")

Read = Callable[[int, int], Awaitable[bytes]]
"""Bytes of a file: start and length. Raises NotFound if the file is gone."""


@dataclass(frozen=True, slots=True)
class BackupContent:
    """How much of a file belongs to the moment of a backup, and how to read it."""

    path: PurePosixPath  # where it is, or would be, below the data directory
    bytes: int
    read: Read
    tier: str = ""  # of a log file that the object store has: the folder it is in there
    cold: bool = False  # the store alone has it
    modified_ms: int = 0  # of a file of the object store
    may_go: bool = False  # nothing is lost should it be deleted before it was read


@dataclass(frozen=True, slots=True)
class LocalFile:
    """The first bytes of a file, which may grow meanwhile."""

    path: PurePosixPath  # below the folder
    bytes: int


def file_contents(folder: Path, files: Iterable[LocalFile], log: LogId, tiers: Tiers) -> list[BackupContent]:
    """Files of the disk; of those of the log, whether the object store has them too."""
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
    """Log files that are in the object store alone, as the files that they were."""
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
    """Every file of the object store whose key begins so."""
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
        raise BackupDamaged(f"{name} ends at byte {start + len(data)}, before what belongs to the backup")
    return data


def files_of(directory: Path) -> list[LocalFile]:
    """All there is in a data directory that no server has open."""
    found = []
    for path in sorted(directory.rglob("*")):
        inside = path.relative_to(directory)
        if path.is_file() and inside.parts[0] not in _NOT_KEPT and not path.name.endswith(".tmp"):
            found.append(LocalFile(PurePosixPath(inside), path.stat().st_size))
    return found

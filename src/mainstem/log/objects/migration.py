"""Migration: turn the log of a data directory into a log that several brokers share.

Nobody writes meanwhile. The migration copies the objects that can still be read and the files that the state names;
the state itself becomes the new log's first checkpoint. Offsets, groups, transactions, queues, routers and the rest of
the state do not change, nor does the log's id. What cannot migrate is reported before anything is copied.

The migration first writes a note to the new place that says which log arrives there, and deletes it at the end. A run
that finds the note resumes an interrupted migration: it does not copy again what is there complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from mainstem.errors import InvalidInput, LogDamaged, NotFound
from mainstem.ledger.ledger import Ledger
from mainstem.log.objects.dead_spans import all_dead
from mainstem.log.read.extents import SealedExtents
from mainstem.ports.commitlog.port import Checkpoint, CommitLog, LogObject, SharedCommitLog
from mainstem.ports.commitlog.shared.importing import LogImporter
from mainstem.ports.commitlog.shared.open import MIGRATION_KEY
from mainstem.ports.objectstore.port import ObjectStore, StoredObject

Progress = Callable[[int], None]  # bytes done


class PlannedFile(NamedTuple):
    """A file of the object store that is copied."""

    key: str
    size_bytes: int
    modified_ms: int = 0  # 0: the content of this key never changes


class ObjectListing(Protocol):
    """The objects of a log."""

    def objects(self) -> list[LogObject]: ...

    def read_index(self, object: int) -> bytes: ...


class MigrationReport(msgspec.Struct, frozen=True):
    """What was copied; of a dry run, what would be."""

    log: str  # the log's id, in hex
    position: int
    topics: int
    records: int
    objects: int
    object_bytes: int
    files: int  # of parts and repacked objects
    file_bytes: int
    tables: list[str] = []  # copied with their snapshots
    state_digest: str = ""  # of the migrated state, in hex
    dry_run: bool = False
    uncounted: int = 0  # files of the log that a dry run does not count: they were not closed


@dataclass(slots=True)
class MigrationPlan:
    """What is copied, and the state that the new log starts with."""

    ledger: Ledger
    # With the index. The size is that of the payload.
    objects: list[tuple[LogObject, bytes]] = field(default_factory=list)
    files: list[PlannedFile] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)  # keys of files that only table snapshots name
    tables: list[str] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        return sum(one.size_bytes for one, _ in self.objects) + sum(file.size_bytes for file in self.files)

    def report(self, identity: bytes, *, dry_run: bool = False, uncounted: int = 0) -> MigrationReport:
        streams = self.ledger.streams
        return MigrationReport(
            identity.hex(),
            self.ledger.position,
            len(self.ledger.topics),
            int(streams.records[: streams.count].sum()),
            len(self.objects),
            sum(one.size_bytes for one, _ in self.objects),
            len(self.files),
            sum(file.size_bytes for file in self.files),
            self.tables,
            f"{self.ledger.digest():016x}",
            dry_run,
            uncounted,
        )


def plan_migration(port: ObjectListing, ledger: Ledger) -> MigrationPlan:
    """Blocks. `ledger` is the state at the end of the port; the new log starts with it.

    Raises InvalidInput, which names what cannot migrate."""
    _check_movable(ledger)
    plan = MigrationPlan(ledger)
    for one in port.objects():
        if not one.sealed or one.number < ledger.repacked.frontier:
            continue  # not sealed, so it holds no commit; or repacked files serve it
        index = port.read_index(one.number)
        extents = SealedExtents.decode(one.number, index)
        if not all_dead(ledger, extents.spans):
            plan.objects.append((_log_object(one, extents), index))
    plan.files = _files(ledger)
    plan.retired = _retired(ledger)
    plan.tables = [f"{table.namespace}.{table.name}" for table in ledger.tables]
    ledger.tiers.clear()  # the new log has no tiers
    return plan


def _check_movable(ledger: Ledger) -> None:
    ephemeral = [topic.name for topic in ledger.topics if topic.config.durability == "ephemeral"]
    if ephemeral:
        raise InvalidInput(
            f"ephemeral topics, such as {ephemeral[0]!r}, cannot be shared: "
            "delete them, or change their durability"
        )


def _log_object(one: LogObject, extents: SealedExtents) -> LogObject:
    """The object with the size to copy: up to the end of its last slice."""
    rows = extents.rows
    end = int((rows["start"].astype(np.int64) + rows["length"]).max()) if len(rows) else 0
    return LogObject(one.number, one.first_position, one.end_position, end, sealed=True)


def _files(ledger: Ledger) -> list[PlannedFile]:
    generations = ledger.generations
    parts = [part for stream in generations.streams() for part in generations.parts(stream)]
    files = {file.key: file.bytes for part in parts for file in part.files}
    files |= {file.key: file.bytes for one in ledger.repacked.rounds for file in one.files}
    return [PlannedFile(*file) for file in sorted(files.items())]


def _retired(ledger: Ledger) -> list[str]:
    """Files that topics no longer use, but that a kept snapshot may name."""
    garbage = ledger.generations.garbage()
    return [one.key for one in garbage if ledger.tables.protects(one.topic_id, one.position)]


async def check_place(target: ObjectStore, identity: bytes) -> bool:
    """Whether an interrupted migration of this log is in the store. Raises InvalidInput if anything else is there."""
    try:
        noted = await target.get(MIGRATION_KEY)
    except NotFound:
        async for found in target.list():
            raise InvalidInput(
                f"the store is not empty, it holds {found.key!r}: name an empty store or prefix"
            ) from None
        return False
    if noted.decode(errors="replace") != identity.hex():
        raise InvalidInput(
            "the store holds an incomplete migration of another log: name an empty store or prefix"
        )
    return True


class Migration:
    """From a port and its object store into an importer and another store."""

    def __init__(
        self,
        port: CommitLog,
        store: ObjectStore,
        importer: LogImporter,
        target: ObjectStore,
        progress: Progress,
    ) -> None:
        self._port = port
        self._store = store
        self._importer = importer
        self._target = target
        self._progress = progress
        self._there: dict[str, StoredObject] = {}  # by key: what an interrupted migration copied

    async def run(self, plan: MigrationPlan) -> None:
        """Copy everything, the state last. Raises LogDamaged if a file is damaged, and the errors of `check_place`."""
        last = max((one.number for one in self._port.objects()), default=0)
        whole: set[int] = set()
        if await check_place(self._target, self._port.identity):
            whole = await self._importer.resume([one for one, _ in plan.objects])
            self._there = {found.key: found async for found in self._target.list()}
        else:
            await self._target.put(MIGRATION_KEY, self._port.identity.hex().encode())
        for file in plan.files:
            await self._copy_file(file)
        for key in plan.retired:
            await self._copy_retired(key)
        for one, index in plan.objects:
            if one.number in whole:
                self._progress(one.size_bytes)
            else:
                await self._importer.put_object(one, index, self._reading(one.number))
        checkpoint = Checkpoint(plan.ledger.position, await asyncio.to_thread(plan.ledger.encode))
        await self._importer.finish(self._port.identity, checkpoint, last)
        await self._target.delete(MIGRATION_KEY)

    def _reading(self, number: int) -> Callable[[int, int], Awaitable[bytes]]:
        async def read(start: int, length: int) -> bytes:
            content = await asyncio.to_thread(self._port.read, number, start, length)
            self._progress(length)
            return bytes(content)

        return read

    async def _copy_file(self, file: PlannedFile) -> None:
        key, size = file.key, file.size_bytes
        there = self._there.get(key)
        if there is not None and there.size_bytes == size and there.modified_ms > file.modified_ms:
            self._progress(size)
            return
        try:
            content = await self._store.get(key)
        except NotFound as error:
            raise LogDamaged(f"a file that the log refers to is missing: {error}") from error
        if len(content) != size:
            raise LogDamaged(f"the file {key!r} has {len(content)} bytes instead of {size}: restore it first")
        await self._target.put(key, content)
        self._progress(size)

    async def _copy_retired(self, key: str) -> None:
        """Copy a retired file. If it is missing, it was about to be deleted anyway."""
        if key in self._there:
            return
        try:
            await self._target.put(key, await self._store.get(key))
        except NotFound:
            return


async def verify_migration(plan: MigrationPlan, port: SharedCommitLog, target: ObjectStore) -> None:
    """Check that the new log has the state, and every object and file complete. Raises LogDamaged."""
    stored = await asyncio.to_thread(port.load_checkpoint)
    if stored is None or stored.position != plan.ledger.position or port.end != stored.position:
        raise LogDamaged(
            "the new log does not start where the old one ends: empty the store and migrate again"
        )
    if Ledger.decode(stored.state).digest() != plan.ledger.digest():
        raise LogDamaged("the new log has another state than the old one: empty the store and migrate again")
    there = {one.number: one.size_bytes for one in port.objects()}
    for one, index in plan.objects:
        same = there.get(one.number) == one.size_bytes
        if not same or await asyncio.to_thread(port.read_index, one.number) != index:
            raise LogDamaged(f"object {one.number} is incomplete: empty the store and migrate again")
        if one.size_bytes:
            await asyncio.to_thread(port.read, one.number, one.size_bytes - 1, 1)
    sizes = {found.key: found.size_bytes async for found in target.list()}
    for file in plan.files:
        if sizes.get(file.key) != file.size_bytes:
            raise LogDamaged(f"the file {file.key!r} is incomplete: empty the store and migrate again")

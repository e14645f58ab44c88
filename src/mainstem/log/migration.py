"""Migration: the log of a data directory goes on as a log that several brokers share.

Nobody writes meanwhile. The objects that anybody may still read are copied, and so are the files that the state names;
the state itself becomes the new log's first checkpoint. Offsets, groups, transactions, queues, routers and all else in
the state stay what they are, and so does the log's id. What cannot come along is told before anything is copied.

The first thing in the new place is a note of which log comes there, and it goes when the log is there. Whoever finds it
goes on where a migration was cut off: what is there whole is not copied again.
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
from mainstem.ledger.tiers import Tiers
from mainstem.log.dead_spans import all_dead
from mainstem.log.extents import SealedExtents
from mainstem.ports.commitlog.adoption import Adoption
from mainstem.ports.commitlog.places import ARRIVING
from mainstem.ports.commitlog.port import Checkpoint, CommitLog, LogObject, SharedCommitLog
from mainstem.ports.objectstore.port import ObjectStore, StoredObject

Progress = Callable[[int], None]  # bytes done


class PlannedFile(NamedTuple):
    """A file of the object store that goes along."""

    key: str
    size_bytes: int
    modified_ms: int = 0  # 0: what has this key never changes


class ObjectListing(Protocol):
    """Of a log: the objects there are."""

    def objects(self) -> list[LogObject]: ...

    def read_index(self, object: int) -> bytes: ...


class MigrationReport(msgspec.Struct, frozen=True):
    """What was copied, or would be."""

    log: str  # the log's id, in hex
    position: int
    topics: int
    records: int
    objects: int
    object_bytes: int
    files: int  # of parts and repacked objects
    file_bytes: int
    tables: list[str] = []  # they go along, with their snapshots
    state_digest: str = ""  # of the state as it was taken over, in hex
    dry_run: bool = False


@dataclass(slots=True)
class MigrationPlan:
    """What goes, and what comes of the state."""

    ledger: Ledger
    objects: list[tuple[LogObject, bytes]] = field(
        default_factory=list
    )  # with the index; of its payload's size
    files: list[PlannedFile] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)  # keys of files that only snapshots of tables name
    tables: list[str] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        return sum(one.size_bytes for one, _ in self.objects) + sum(file.size_bytes for file in self.files)

    def report(self, identity: bytes, *, dry_run: bool = False) -> MigrationReport:
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
        )


def plan_migration(port: ObjectListing, ledger: Ledger) -> MigrationPlan:
    """Blocks. `ledger` is the state at the end of the port; it becomes what the new log begins with.

    Raises InvalidInput, naming what cannot go."""
    _check_movable(ledger)
    plan = MigrationPlan(ledger)
    for one in port.objects():
        if not one.sealed or one.number < ledger.repacked.frontier:
            continue  # nothing was settled, or repacked files serve what it held
        index = port.read_index(one.number)
        extents = SealedExtents.decode(one.number, index)
        if not all_dead(ledger, extents.spans):
            plan.objects.append((_log_object(one, extents), index))
    plan.files = _files(ledger)
    plan.retired = _retired(ledger)
    plan.tables = [f"{table.namespace}.{table.name}" for table in ledger.tables]
    ledger.tiers = Tiers()  # the new log keeps all of it in one place
    return plan


def _check_movable(ledger: Ledger) -> None:
    ephemeral = [topic.name for topic in ledger.topics if topic.config.durability == "ephemeral"]
    if ephemeral:
        raise InvalidInput(
            f"topics that are in memory only cannot be shared, such as {ephemeral[0]!r}: "
            "delete them, or change their durability"
        )


def _log_object(one: LogObject, extents: SealedExtents) -> LogObject:
    """With the size of what is to be copied: up to where the last slice ends."""
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
    """Files that left the topics, and that a snapshot which is kept may name."""
    garbage = ledger.generations.garbage()
    return [one.key for one in garbage if ledger.tables.protects(one.topic_id, one.position)]


async def check_place(target: ObjectStore, identity: bytes) -> bool:
    """Whether a migration of this log into the place was cut off. Raises InvalidInput if anything else is there."""
    try:
        noted = await target.get(ARRIVING)
    except NotFound:
        async for found in target.list():
            raise InvalidInput(
                f"the store is not empty, it holds {found.key!r}: name another place, or empty this one"
            ) from None
        return False
    if noted.decode(errors="replace") != identity.hex():
        raise InvalidInput(
            "the store holds part of another log, whose migration was cut off: name another place, or empty this one"
        )
    return True


class Migration:
    """From a port and its object store into an adoption and another store."""

    def __init__(
        self, port: CommitLog, store: ObjectStore, adoption: Adoption, target: ObjectStore, progress: Progress
    ) -> None:
        self._port = port
        self._store = store
        self._adoption = adoption
        self._target = target
        self._progress = progress
        self._there: dict[str, StoredObject] = {}  # by key: what was copied by a migration that was cut off

    async def run(self, plan: MigrationPlan) -> None:
        """Copy, the state last. Raises LogDamaged where bytes are not what they were, and as `check_place`."""
        last = max((one.number for one in self._port.objects()), default=0)
        whole: set[int] = set()
        if await check_place(self._target, self._port.identity):
            whole = await self._adoption.go_on([one for one, _ in plan.objects])
            self._there = {found.key: found async for found in self._target.list()}
        else:
            await self._target.put(ARRIVING, self._port.identity.hex().encode())
        for file in plan.files:
            await self._copy_file(file)
        for key in plan.retired:
            await self._copy_retired(key)
        for one, index in plan.objects:
            if one.number in whole:
                self._progress(one.size_bytes)
            else:
                await self._adoption.put_object(one, index, self._reading(one.number))
        checkpoint = Checkpoint(plan.ledger.position, await asyncio.to_thread(plan.ledger.encode))
        await self._adoption.finish(self._port.identity, checkpoint, last)
        await self._target.delete(ARRIVING)

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
            raise LogDamaged(f"the file {key!r} has {len(content)} bytes of {size}: restore it first")
        await self._target.put(key, content)
        self._progress(size)

    async def _copy_retired(self, key: str) -> None:
        """One that is gone was about to be forgotten."""
        if key in self._there:
            return
        try:
            await self._target.put(key, await self._store.get(key))
        except NotFound:
            return


async def verify_migration(plan: MigrationPlan, port: SharedCommitLog, target: ObjectStore) -> None:
    """That the new log gives back the state and has every object and file whole. Raises LogDamaged."""
    stored = await asyncio.to_thread(port.load_checkpoint)
    if stored is None or stored.position != plan.ledger.position or port.end != stored.position:
        raise LogDamaged("the new log does not begin where the old one ends: empty its place, and try again")
    if Ledger.decode(stored.state).digest() != plan.ledger.digest():
        raise LogDamaged("the new log gives back another state: empty its place, and try again")
    there = {one.number: one.size_bytes for one in port.objects()}
    for one, index in plan.objects:
        same = there.get(one.number) == one.size_bytes
        if not same or await asyncio.to_thread(port.read_index, one.number) != index:
            raise LogDamaged(f"object {one.number} did not arrive whole: empty the place, and try again")
        if one.size_bytes:
            await asyncio.to_thread(port.read, one.number, one.size_bytes - 1, 1)
    sizes = {found.key: found.size_bytes async for found in target.list()}
    for file in plan.files:
        if sizes.get(file.key) != file.size_bytes:
            raise LogDamaged(f"the file {file.key!r} did not arrive whole: empty the place, and try again")

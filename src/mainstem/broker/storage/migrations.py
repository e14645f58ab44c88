"""Migration of a data directory's log to a log that several brokers share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from mainstem.errors import DirectoryLocked, DirectoryUnusable, InvalidInput, NotFound
from mainstem.ledger.table import Table
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.migration import (
    Migration,
    MigrationPlan,
    MigrationReport,
    PlannedFile,
    Progress,
    check_place,
    plan_migration,
    verify_migration,
)
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import absent_tiers
from mainstem.log.recovery import RecoveredLog, load_ledger, recover, replay
from mainstem.ports.clock import SystemClock
from mainstem.ports.commitlog.local.cold import read_notes
from mainstem.ports.commitlog.local.identity import read_format
from mainstem.ports.commitlog.local.layout import COLD, FORMAT, WAL
from mainstem.ports.commitlog.local.locking import block_owner
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.local.reader import LogReader, open_reader
from mainstem.ports.commitlog.local.segments import HEADER_BYTES, segment_path
from mainstem.ports.commitlog.local.tiered import TieredCommitLog
from mainstem.ports.commitlog.port import Buffer, LogObject
from mainstem.ports.commitlog.shared.importing import open_importer
from mainstem.ports.commitlog.shared.open import MIGRATION_KEY, SharedPlace, open_shared
from mainstem.ports.files import OsFiles
from mainstem.ports.host import boot_id
from mainstem.ports.objectstore.blocking import BlockingStore
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore, StoredObject, check_key
from mainstem.tables import table_metadata
from mainstem.tables.catalog import FOLDER, found_in

RESERVED = ("log/", MIGRATION_KEY)  # prefixes that users' files must not have in the new store

_FRAME_LOOK_BYTES = 64  # of preallocated zeros none is set

Showing = Callable[[int], AbstractContextManager[Progress]]
"""Shows progress, given the total number of bytes."""


async def migrate(
    directory: Path, place: SharedPlace, *, objects: str, showing: Showing, dry_run: bool
) -> MigrationReport:
    """Copy the log. The directory stays unchanged, except for a clean stop. Returns what was, or would be, copied.
    Running it again for the same log resumes an interrupted migration.

    Raises DirectoryUnusable, DirectoryLocked, InvalidInput, LogDamaged, Unavailable, StoreRefused."""
    if not (directory / FORMAT).is_file():
        raise DirectoryUnusable(f"no log at {directory}: set --data-dir to its directory")
    source = open_store(objects or (directory / "objects").absolute().as_uri())
    target = open_store(place.store)
    importer = await open_importer(place, target)
    try:
        await importer.check_free()
        log = read_format(OsFiles(), directory)
        await check_place(target, b"" if log is None else log.whole)
        if dry_run:
            return await _dry_run(directory, source)
        port, plan = await _planned(directory, source if objects else None, source)
        try:
            with showing(plan.total_bytes) as progress:
                await Migration(port, source, importer, target, progress).run(plan)
            report = plan.report(port.identity)
        finally:
            await port.close()
    finally:
        await importer.close()
    await check_arrival(plan, place, target)
    return report


async def _dry_run(directory: Path, store: ObjectStore) -> MigrationReport:
    """Plan from sealed files and notes without changing anything: the newest commits are not included."""
    files = OsFiles()
    with block_owner(directory) as still:
        if not still:
            raise DirectoryLocked(f"a server has {directory} open: stop it first")
        log = read_format(files, directory)
        reader = open_reader(directory, files=files)
        try:
            ledger = await asyncio.to_thread(load_ledger, reader)
            async for _ in replay(reader, ledger):
                pass
            plan = await asyncio.to_thread(plan_migration, _UnopenedLog(files, directory, reader), ledger)
            plan.files += await files_of_tables(plan, store)
            uncounted = _uncounted(directory, reader)
        finally:
            await reader.close()
    return plan.report(b"" if log is None else log.whole, dry_run=True, uncounted=uncounted)


def _uncounted(directory: Path, reader: LogReader) -> int:
    """How many files have commits that only opening the log would read."""
    counted = {segment_path(directory / WAL, one.number) for one in reader.objects()}
    found = 0
    for path in set((directory / WAL).glob("*.wal")) - counted:
        with path.open("rb") as file:
            file.seek(HEADER_BYTES)
            found += any(file.read(_FRAME_LOOK_BYTES))
    return found


async def files_of_tables(plan: MigrationPlan, store: ObjectStore) -> list[PlannedFile]:
    """Metadata and manifests of tables, and data files of tables that belong to no topic. The first broker of the new
    log relocates the tables. Raises InvalidInput for a table that cannot be relocated."""
    if not plan.tables:
        return []
    found = {one.key: PlannedFile(*_object_fields(one)) async for one in store.list(f"{FOLDER}/")}
    known = found.keys() | {file.key for file in plan.files}
    for table in plan.ledger.tables:
        if table.topic_id:
            continue
        for key in sorted(await _rows(table, store) - known):
            # Elsewhere in the store: an engine added a file that it did not write itself.
            async for one in store.list(key):
                if one.key == key:
                    found[key] = PlannedFile(*_object_fields(one))
    return list(found.values())


def _object_fields(stored: StoredObject) -> tuple[str, int, int]:
    return stored.key, stored.size_bytes, stored.modified_ms


async def _rows(table: Table, store: ObjectStore) -> set[str]:
    """Keys of a table's data files, found by a trial run of the relocation by the new log's first broker."""
    try:
        key, content = await found_in(store, table.location)
        table_metadata.check_available()
        from mainstem.tables.relocation import Relocation

        old = table.location.removesuffix(key)
        blocking = BlockingStore(_ReadOnlyStore(store), asyncio.get_running_loop())
        trial = Relocation(blocking, old, old, "trial")
        await asyncio.to_thread(trial.run, content)
        keys = {name.removeprefix(old) for name in trial.named if name.startswith(old)}
        for key in keys:
            check_key(key)
            if key.startswith(RESERVED):
                raise InvalidInput(f"it refers to {key[:512]!r}, which is reserved for the log")
    except (InvalidInput, NotFound) as error:
        raise InvalidInput(
            f"table {table.namespace}.{table.name} cannot migrate: {error}: have an engine rewrite it, or drop it"
        ) from error
    return keys


class _ReadOnlyStore:
    """A store that ignores writes."""

    def __init__(self, store: ObjectStore) -> None:
        self.get = store.get
        self.get_ranges = store.get_ranges
        self.list = store.list
        self.delete = store.delete
        self.head = store.head

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        return True

    async def put_stream(self, key: str, chunks: AsyncIterator[bytes]) -> int:
        return sum([len(chunk) async for chunk in chunks])


class _UnopenedLog:
    """The objects of a directory that no process has open."""

    def __init__(self, files: OsFiles, directory: Path, reader: LogReader) -> None:
        self._reader = reader
        log = read_format(files, directory)
        here = {one.number for one in reader.objects()}
        self._notes = (
            {}
            if log is None
            else {
                cold.number: (cold, index)
                for cold, index in read_notes(files, directory / COLD, log)
                if cold.number not in here
            }
        )

    def objects(self) -> list[LogObject]:
        cold = [cold.described() for cold, _ in self._notes.values()]
        return sorted([*self._reader.objects(), *cold], key=lambda one: one.number)

    def read_index(self, object: int) -> bytes:
        noted = self._notes.get(object)
        return self._reader.read_index(object) if noted is None else noted[1]


async def _planned(
    directory: Path, cold: ObjectStore | None, store: ObjectStore
) -> tuple[LocalCommitLog, MigrationPlan]:
    """Lock the log, and stop it cleanly if the last server did not."""
    port = await _open(directory, cold)
    try:
        recovered = await recover(port)
        while (writer := _unsettled(port, recovered)) is not None:
            options = LogOptions(broker=writer, boot_id=boot_id(), repack=RepackOptions(on=False))
            log = await Log.open(port, SystemClock(), options, objects=store)
            await log.close()
            port = await _open(directory, cold)
            recovered = await recover(port)
        if elsewhere := absent_tiers(port, recovered.ledger):
            raise DirectoryUnusable(
                f"{len(elsewhere)} older files of the log are only in an object store: name it with --objects"
            )
        plan = await asyncio.to_thread(plan_migration, port, recovered.ledger)
        plan.files += await files_of_tables(plan, store)
        return port, plan
    except BaseException:
        await port.close()
        raise


def _unsettled(port: LocalCommitLog, recovered: RecoveredLog) -> int | None:
    """The broker that must stop cleanly first; None: every object is sealed, and no damage is unrecorded."""
    members = list(recovered.ledger.brokers)
    left = [member.broker for member in members if not member.halted]
    if left:
        return left[0]
    whole = all(one.sealed for one in port.objects()) and not recovered.damaged
    return None if whole or not members else members[0].broker


async def _open(directory: Path, cold: ObjectStore | None) -> LocalCommitLog:
    if cold is None:
        return await LocalCommitLog.open(directory)
    return await TieredCommitLog.open_tiered(directory, cold)


async def check_arrival(plan: MigrationPlan, place: SharedPlace, target: ObjectStore) -> None:
    """Check the new log against the plan. Raises LogDamaged."""
    port = await open_shared(place, broker=None)
    try:
        await verify_migration(plan, port, target)
    finally:
        await port.close()

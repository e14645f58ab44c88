"""Moving the log of a data directory to where several brokers share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from mainstem.broker import table_metadata
from mainstem.broker.catalog import FOLDER, found_in
from mainstem.errors import DirectoryLocked, DirectoryUnusable, InvalidInput, NotFound
from mainstem.ledger.table import Table
from mainstem.log.log import Log, LogOptions
from mainstem.log.migration import (
    Migration,
    MigrationPlan,
    MigrationReport,
    PlannedFile,
    Progress,
    check_place,
    plan_migration,
    verify_migration,
)
from mainstem.log.recovery import RecoveredLog, load_ledger, recover, replay
from mainstem.log.repack.plan import RepackOptions
from mainstem.log.tiering import absent_tiers
from mainstem.ports.clock import SystemClock
from mainstem.ports.commitlog.adoption import open_adoption
from mainstem.ports.commitlog.cold import read_notes
from mainstem.ports.commitlog.identity import read_format
from mainstem.ports.commitlog.layout import COLD, FORMAT
from mainstem.ports.commitlog.local import LocalCommitLog
from mainstem.ports.commitlog.places import ARRIVING, SharedPlace, open_shared
from mainstem.ports.commitlog.port import Buffer, LogObject
from mainstem.ports.commitlog.reader import LogReader, open_reader
from mainstem.ports.commitlog.standstill import standstill
from mainstem.ports.commitlog.tiered import TieredCommitLog
from mainstem.ports.files import OsFiles
from mainstem.ports.host import boot_id
from mainstem.ports.objectstore.keys import check_key
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore, StoredObject

RESERVED = ("log/", ARRIVING)  # what keys of users' files must not begin with in the new place

Showing = Callable[[int], AbstractContextManager[Progress]]
"""How progress is shown, told how many bytes there are."""


async def migrate(
    directory: Path, place: SharedPlace, *, objects: str, showing: Showing, dry_run: bool
) -> MigrationReport:
    """Copy what the log holds. The directory stays as it is, a clean stop aside. Returns what was, or would be, copied.

    One that was cut off is gone on with by another of the same log.

    Raises DirectoryUnusable, DirectoryLocked, InvalidInput, LogDamaged, Unavailable, StoreRefused."""
    if not (directory / FORMAT).is_file():
        raise DirectoryUnusable(f"there is no log at {directory}: name its directory with --data-dir")
    source = open_store(objects or (directory / "objects").absolute().as_uri())
    target = open_store(place.store)
    adoption = await open_adoption(place, target)
    try:
        await adoption.check_free()
        log = read_format(OsFiles(), directory)
        await check_place(target, b"" if log is None else log.whole)
        if dry_run:
            return await _dry_run(directory, source)
        port, plan = await _planned(directory, source if objects else None, source)
        try:
            with showing(plan.total_bytes) as progress:
                await Migration(port, source, adoption, target, progress).run(plan)
            report = plan.report(port.identity)
        finally:
            await port.close()
    finally:
        await adoption.close()
    await check_arrival(plan, place, target)
    return report


async def _dry_run(directory: Path, store: ObjectStore) -> MigrationReport:
    """What sealed files and notes say, changing nothing: what was written last is not in it."""
    files = OsFiles()
    with standstill(directory) as still:
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
        finally:
            await reader.close()
    return plan.report(b"" if log is None else log.whole, dry_run=True)


async def files_of_tables(plan: MigrationPlan, store: ObjectStore) -> list[PlannedFile]:
    """Metadata and manifests, and rows of tables that are no topic's. The first broker of the new log has them name
    files where they are then. Raises InvalidInput for a table with which it could not."""
    if not plan.tables:
        return []
    found = {one.key: PlannedFile(*_object_fields(one)) async for one in store.list(f"{FOLDER}/")}
    known = found.keys() | {file.key for file in plan.files}
    for table in plan.ledger.tables:
        if table.topic_id:
            continue
        for key in sorted(await _rows(table, store) - known):
            # Elsewhere in the store: an engine was told to add a file that it did not write itself.
            async for one in store.list(key):
                if one.key == key:
                    found[key] = PlannedFile(*_object_fields(one))
    return list(found.values())


def _object_fields(stored: StoredObject) -> tuple[str, int, int]:
    return stored.key, stored.size_bytes, stored.modified_ms


async def _rows(table: Table, store: ObjectStore) -> set[str]:
    """Keys of the files that a table has its rows in, learned by doing what the first broker of the new log will."""
    try:
        key, content = await found_in(store, table.location)
        table_metadata.check_available()
        from mainstem.broker.table_relocation import Relocation

        old = table.location.removesuffix(key)
        rehearsed = Relocation(_ReadOnlyStore(store), old, old, "rehearsed")
        await rehearsed.run(content)
        keys = {name.removeprefix(old) for name in rehearsed.named if name.startswith(old)}
        for key in keys:
            check_key(key)
            if key.startswith(RESERVED):
                raise InvalidInput(f"it names {key[:512]!r}, where the log itself goes")
    except (InvalidInput, NotFound) as error:
        raise InvalidInput(
            f"table {table.namespace}.{table.name} cannot go: {error}: have an engine rewrite it, or drop it"
        ) from error
    return keys


class _ReadOnlyStore:
    """A store to which nothing is written."""

    def __init__(self, store: ObjectStore) -> None:
        self.get = store.get
        self.get_ranges = store.get_ranges
        self.list = store.list
        self.delete = store.delete

    async def put(self, key: str, data: Buffer | Sequence[Buffer], *, if_absent: bool = False) -> bool:
        return True


class _UnopenedLog:
    """The objects of a directory that nobody has open."""

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
    """The log, taken so that no server can, and ended cleanly if the last server did not."""
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
                f"{len(elsewhere)} older files of the log are in an object store alone: name it with --objects"
            )
        plan = await asyncio.to_thread(plan_migration, port, recovered.ledger)
        plan.files += await files_of_tables(plan, store)
        return port, plan
    except BaseException:
        await port.close()
        raise


def _unsettled(port: LocalCommitLog, recovered: RecoveredLog) -> int | None:
    """Which broker did not say goodbye, or has to once more; None: every object is sealed, and all is known."""
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
    """That the log in its new place is what was planned. Raises LogDamaged."""
    port = await open_shared(place, broker=None)
    try:
        await verify_migration(plan, port, target)
    finally:
        await port.close()

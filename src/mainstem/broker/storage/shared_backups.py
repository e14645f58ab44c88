"""Backups of a log that brokers share: a copy in another store, as of one moment, that brokers can open directly.

A backup needs no broker and delays none: it rebuilds the state from the newest checkpoint and the commits since, copies
the files that the state refers to, and writes the state last. Brokers may delete files meanwhile; then the backup
starts over with the new state and keeps what it has copied.

To restore a backup, copy it the same way in the other direction.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from mainstem.broker.storage.migrations import Showing, check_arrival, files_of_tables
from mainstem.errors import DirectoryUnusable, InvalidInput, LogDamaged, Unavailable
from mainstem.log.objects.migration import (
    Migration,
    MigrationPlan,
    MigrationReport,
    check_place,
    plan_migration,
)
from mainstem.log.recovery import RecoveredLog, recover
from mainstem.ports.commitlog.port import LogObject, SharedCommitLog
from mainstem.ports.commitlog.shared.importing import open_importer
from mainstem.ports.commitlog.shared.open import SharedPlace, open_shared
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore

_ATTEMPTS_MAX = 5  # each continues where the previous one met a deleted file


async def back_up_shared(source: SharedPlace, to: SharedPlace, *, showing: Showing) -> MigrationReport:
    """Copy the log to an empty store. Running it again for the same log resumes an interrupted copy.

    Raises DirectoryUnusable if there is none, InvalidInput if the place is not empty, LogDamaged, ObjectMissing,
    StoreRefused, Unavailable."""
    store, target = open_store(source.store), open_store(to.store)
    await _check_there(source, store)
    attempts = 1
    while True:
        try:
            plan, report = await _copied(source, store, to, target, showing)
            break
        except FileNotFoundError as error:
            if attempts == _ATTEMPTS_MAX:
                raise Unavailable(
                    f"brokers delete objects faster than they are copied: run the backup again: {error}"
                ) from error
        except LogDamaged:  # a file was replaced, or is damaged: damage fails every attempt
            if attempts == _ATTEMPTS_MAX:
                raise
        attempts += 1
    await check_arrival(plan, to, target)
    return report


async def _check_there(source: SharedPlace, store: ObjectStore) -> None:
    """Check that there is a log: opening the place would create one."""
    importer = await open_importer(source, store)
    try:
        await importer.check_free()
    except InvalidInput:
        return
    finally:
        await importer.close()
    raise DirectoryUnusable(f"no log in {source.name}: set --store, and --etcd if etcd orders the log")


async def _copied(
    source: SharedPlace, store: ObjectStore, to: SharedPlace, target: ObjectStore, showing: Showing
) -> tuple[MigrationPlan, MigrationReport]:
    port = await open_shared(source, broker=None)
    try:
        importer = await open_importer(to, target)
        try:
            await importer.check_free()
            await check_place(target, port.identity)
            held = _LogObjects(port, await recover(port, port))
            plan = await asyncio.to_thread(plan_migration, held, held.ledger)
            plan.files += await files_of_tables(plan, store)
            with showing(plan.total_bytes) as progress:
                await Migration(port, store, importer, target, progress).run(plan)
            return plan, plan.report(port.identity)
        finally:
            await importer.close()
    finally:
        await port.close()


class _LogObjects:
    """The objects of a log at the moment of its state, unsealed ones included."""

    def __init__(self, port: SharedCommitLog, recovered: RecoveredLog) -> None:
        recovered.index.finish()
        self.ledger = recovered.ledger
        self._port = port
        self._objects = [replace(one, sealed=True) for one in port.objects()]
        self._indexes = {extents.number: extents.encode() for extents in recovered.index.unsealed()}

    def objects(self) -> list[LogObject]:
        return self._objects

    def read_index(self, object: int) -> bytes:
        known = self._indexes.get(object)
        return self._port.read_index(object) if known is None else known

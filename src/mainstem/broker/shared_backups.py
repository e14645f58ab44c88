"""Backups of a log that brokers share: a copy in another place, as of one moment, that brokers open as it is.

Nobody is asked for it and nobody is held up: the state is made from the newest checkpoint and the commits since, what
it names is copied, and the state is put last. Brokers may drop what they no longer need meanwhile; then the copy goes
on from what is needed by then, and what it has stays.

To bring a backup back is to make one of it: the other way round.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from mainstem.broker.migrations import Showing, check_arrival, files_of_tables
from mainstem.errors import DirectoryUnusable, InvalidInput, LogDamaged, Unavailable
from mainstem.log.migration import (
    Migration,
    MigrationPlan,
    MigrationReport,
    check_place,
    plan_migration,
)
from mainstem.log.recovery import RecoveredLog, recover
from mainstem.ports.commitlog.adoption import open_adoption
from mainstem.ports.commitlog.places import SharedPlace, open_shared
from mainstem.ports.commitlog.port import LogObject, SharedCommitLog
from mainstem.ports.objectstore.open import open_store
from mainstem.ports.objectstore.port import ObjectStore

_ATTEMPTS_MAX = 5  # each goes on where the one before came to something that was dropped


async def back_up_shared(source: SharedPlace, to: SharedPlace, *, showing: Showing) -> MigrationReport:
    """Copy the log to an empty place. One that was cut off is gone on with by another of the same log.

    Raises DirectoryUnusable if there is no log, InvalidInput if the place is not empty, LogDamaged, ObjectMissing,
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
                    f"brokers drop objects faster than they are copied: run it again: {error}"
                ) from error
        except LogDamaged:  # a file was replaced; or it is damage, which stays
            if attempts == _ATTEMPTS_MAX:
                raise
        attempts += 1
    await check_arrival(plan, to, target)
    return report


async def _check_there(source: SharedPlace, store: ObjectStore) -> None:
    """Else to open it would begin one."""
    adoption = await open_adoption(source, store)
    try:
        await adoption.check_free()
    except InvalidInput:
        return
    finally:
        await adoption.close()
    raise DirectoryUnusable(
        f"there is no log in {source.name}: name it with --store, and --etcd if it has one"
    )


async def _copied(
    source: SharedPlace, store: ObjectStore, to: SharedPlace, target: ObjectStore, showing: Showing
) -> tuple[MigrationPlan, MigrationReport]:
    port = await open_shared(source, broker=None)
    try:
        adoption = await open_adoption(to, target)
        try:
            await adoption.check_free()
            await check_place(target, port.identity)
            held = _LogObjects(port, await recover(port, port))
            plan = await asyncio.to_thread(plan_migration, held, held.ledger)
            plan.files += await files_of_tables(plan, store)
            with showing(plan.total_bytes) as progress:
                await Migration(port, store, adoption, target, progress).run(plan)
            return plan, plan.report(port.identity)
        finally:
            await adoption.close()
    finally:
        await port.close()


class _LogObjects:
    """The objects of a log at the moment that its state is of, those that are not sealed by then among them."""

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

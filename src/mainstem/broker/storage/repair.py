"""Repair a log whose digests disagree: back up the checkpoints, then rewrite them from the log."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mainstem.broker.storage.opening import open_log
from mainstem.errors import DirectoryUnusable
from mainstem.log.divergence import Divergence, LogDigest, rewrite_checkpoints
from mainstem.ports.clock import Clock, Random
from mainstem.ports.commitlog.local.layout import CHECKPOINTS, LOCK
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.open import SharedPlace, open_shared
from mainstem.ports.files import OsFiles

if TYPE_CHECKING:
    from mainstem.broker.broker import BrokerOptions


@dataclass(frozen=True, slots=True)
class RepairReport:
    backup: str  # folder of the old checkpoints
    position: int  # of the new checkpoint
    divergence: Divergence  # the differences found


async def repair_log(options: BrokerOptions, clock: Clock, random: Random, backup: Path) -> RepairReport:
    """The servers of the log must be stopped. Raises DirectoryLocked or DirectoryUnusable."""
    if options.place is not None:
        return await _repair_shared(options, options.place, clock, random, backup)
    lock = OsFiles().lock(options.data_dir / LOCK)
    try:
        await asyncio.to_thread(_copy, options.data_dir / CHECKPOINTS, backup)
        found = await rewrite_checkpoints(options.data_dir)
    finally:
        lock.release()
    # A clean stop leaves a checkpoint at the end of the log, so no later start compares the digests before it.
    log, _ = await open_log(replace(options, trusts_log=True), clock, random)
    found.log = found.log or [LogDigest(*row) for row in log.ledger.mismatches]
    await log.close()
    return RepairReport(str(backup), log.ledger.position, found)


async def _repair_shared(
    options: BrokerOptions, place: SharedPlace, clock: Clock, random: Random, backup: Path
) -> RepairReport:
    port = await open_shared(place, broker=None)
    try:
        newest = port.load_checkpoint()
    finally:
        await port.close()
    await asyncio.to_thread(_keep, newest, backup)
    log, lock = await open_log(replace(options, trusts_log=True), clock, random)
    try:
        found = Divergence(
            log=[LogDigest(*row) for row in log.ledger.mismatches], skipped=log.ledger.digests_skipped
        )
        position = await log.rewrite_shared_checkpoint()
    finally:
        await log.close()
        if lock is not None:
            lock.release()
    return RepairReport(str(backup), position, found)


def _copy(checkpoints: Path, backup: Path) -> None:
    _check_new(backup)
    shutil.copytree(checkpoints, backup / CHECKPOINTS)


def _keep(newest: Checkpoint | None, backup: Path) -> None:
    _check_new(backup)
    backup.mkdir(parents=True)
    if newest is not None:
        (backup / f"{newest.position:020d}.state").write_bytes(newest.state)


def _check_new(backup: Path) -> None:
    if backup.exists():
        raise DirectoryUnusable(f"{backup} exists already: name a new folder with --backup")

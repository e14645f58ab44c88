"""Digests that disagree: compare checkpoints with the log, and rewrite checkpoints.

The log is authoritative: checksums protect its bytes, and a checkpoint only saves replay. Where the log no longer has
the commits before a checkpoint, the checkpoint's state is authoritative.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from mainstem import limits
from mainstem.errors import LogDamaged
from mainstem.ledger import checkpoint
from mainstem.ledger.divergence import Difference, differences
from mainstem.ledger.ledger import Ledger
from mainstem.log.recovery import Followed, replay
from mainstem.ports.commitlog.local.checkpoints import LocalCheckpoints
from mainstem.ports.commitlog.local.layout import CHECKPOINTS
from mainstem.ports.commitlog.local.reader import open_reader
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.files import OsFiles


class LogDigest(NamedTuple):
    """A digest in the log that differs from the digest of the replayed state."""

    position: int
    recorded: int
    replayed: int


@dataclass(slots=True)
class CheckpointDivergence:
    """One checkpoint, compared with the log."""

    position: int
    recorded: int | None  # None: in a form that cannot be compared
    stored: int  # digest of the checkpoint's state
    replayed: int | None  # digest of the replayed state; None: the log no longer has these commits
    differences: list[Difference] = field(default_factory=list)

    @property
    def diverged(self) -> bool:
        return self.recorded not in (None, self.stored) or self.replayed not in (None, self.stored)


@dataclass(slots=True)
class Divergence:
    """Every digest of a directory that disagrees."""

    checkpoints: list[CheckpointDivergence] = field(default_factory=list)
    log: list[LogDigest] = field(default_factory=list)
    skipped: int = 0  # digests that cannot be compared

    @property
    def diverged(self) -> bool:
        return bool(self.log) or any(one.diverged for one in self.checkpoints)


async def explain(directory: Path) -> Divergence:
    """Replay the sealed part of a log and compare it with the checkpoints. Changes nothing."""
    reader = open_reader(directory)
    try:
        found = Divergence()
        async for one, _ in _compared(reader, _checkpoints(directory), reader.end, found):
            found.checkpoints.append(one)
        return found
    finally:
        await reader.close()


async def rewrite_checkpoints(directory: Path) -> Divergence:
    """Rewrite each checkpoint with the replayed state and its digest. The caller owns the directory."""
    reader = open_reader(directory)
    stored = _checkpoints(directory)
    try:
        found = Divergence()
        async for one, ledger in _compared(reader, stored, reader.end, found):
            found.checkpoints.append(one)
            await asyncio.to_thread(stored.save, Checkpoint(one.position, ledger.encode()))
        return found
    finally:
        await reader.close()


def _checkpoints(directory: Path) -> LocalCheckpoints:
    return LocalCheckpoints(OsFiles(), directory / CHECKPOINTS, limits.CHECKPOINTS_KEPT)


async def _compared(
    reader: Followed, stored: LocalCheckpoints, end: int, found: Divergence
) -> AsyncIterator[tuple[CheckpointDivergence, Ledger]]:
    """Each intact checkpoint, and the state that recovery from it should have."""
    ledger = Ledger()
    ledger.trusts_log = True
    for position in stored.positions():
        saved = await asyncio.to_thread(stored.read, position)
        if saved is None:
            continue  # damaged: recovery skips it
        _, recorded = checkpoint.unpack(saved.state)
        state = Ledger.decode(saved.state, trust=True)
        one = CheckpointDivergence(position, recorded, state.digest(), None)
        if await _reached(reader, ledger, position):
            one.replayed = ledger.digest()
            one.differences = differences(state.state(), ledger.state(), limits.DIVERGENCES_SHOWN)
        else:
            ledger, state.trusts_log = state, True
        yield one, ledger
    await _reached(reader, ledger, end)
    found.log = [LogDigest(*row) for row in ledger.mismatches]
    found.skipped = ledger.digests_skipped


async def _reached(reader: Followed, ledger: Ledger, position: int) -> bool:
    """Replay up to `position`. False: older files were deleted, as retention may."""
    try:
        async for _ in replay(reader, ledger, until=position):
            pass
    except LogDamaged:
        return False
    return ledger.position == position

"""Checkpoints: the ledger's state at the end of a log object, so that replay starts there and not at position 0.

A checkpoint is always at an object boundary: the indexes of the sealed objects cover what came before, and replay
covers what comes after.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from mainstem.errors import StorageError
from mainstem.ledger.ledger import Ledger
from mainstem.ports.commitlog.port import Checkpoint, CommitLog
from mainstem.ports.commitlog.shared.open import SharedPlace


class Checkpointer(Protocol):
    def reached(self, ledger: Ledger) -> None:
        """The ledger is at an object boundary and a checkpoint is due. Runs on the loop."""
        ...

    async def save(self) -> int:
        """Store the checkpoint that `reached` requested last. Returns its position."""
        ...


class InlineCheckpointer:
    """Encodes the state on the loop: for small states, tests, and shutdown."""

    def __init__(self, port: CommitLog) -> None:
        self._port = port
        self._checkpoint: Checkpoint | None = None

    def reached(self, ledger: Ledger) -> None:
        self._checkpoint = Checkpoint(ledger.position, ledger.encode())

    async def save(self) -> int:
        if self._checkpoint is None:
            raise StorageError("no state was captured for a checkpoint")
        await self._port.save_checkpoint(self._checkpoint)
        return self._checkpoint.position


class ChildCheckpointer:
    """Starts a process that loads the last checkpoint, replays the sealed objects and stores the next checkpoint.

    The loop does not pause, however large the state is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._position = 0

    def reached(self, ledger: Ledger) -> None:
        self._position = ledger.position

    async def save(self) -> int:
        position = self._position
        await self.save_at(position)
        return position

    async def save_at(self, position: int) -> None:
        """Store the state at an object boundary; the ledger may be past it."""
        await _run_child(b"", str(self._directory), str(position))


class SharedChildCheckpointer:
    """As `ChildCheckpointer`, for a log that several brokers share: the child opens it read-only."""

    def __init__(self, place: SharedPlace) -> None:
        self._place = place

    async def save_at(self, position: int) -> None:
        """Store the state at an object boundary; the ledger may be past it."""
        # Not as arguments, which every process on the machine can see: the URL may hold a key.
        place = json.dumps({"store": self._place.store, "etcd": self._place.etcd})
        await _run_child(place.encode(), "-", str(position))


async def _run_child(stdin: bytes, *arguments: str) -> None:
    # Not asyncio's subprocess: uvloop forks, and the loop stops while the page tables of a large process are copied
    # (20 ms for 400 MB). Popen starts the child with vfork, in less than 1 ms.
    child = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "mainstem.log.objects.checkpointer", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    talk = asyncio.ensure_future(asyncio.to_thread(child.communicate, stdin))
    try:
        _, stderr = await asyncio.shield(talk)
    except asyncio.CancelledError:
        child.kill()
        await talk
        raise
    if child.returncode != 0:
        raise StorageError(f"the checkpoint process failed: {stderr.decode(errors='replace').strip()[-500:]}")

"""Checkpoints: the ledger's state at the end of a log object, so that replay starts there and not at zero.

A checkpoint always stands at an object boundary: what came before is indexed by the sealed objects themselves,
what comes after is replayed.
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
from mainstem.ports.commitlog.places import SharedPlace
from mainstem.ports.commitlog.port import Checkpoint, CommitLog


class Checkpointer(Protocol):
    def reached(self, ledger: Ledger) -> None:
        """The ledger stands at an object boundary and a checkpoint is wanted. Runs on the loop."""
        ...

    async def save(self) -> int:
        """Store the checkpoint last asked for. Returns its position."""
        ...


class InlineCheckpointer:
    """Encodes the state on the spot: for small states, tests, and the end of a process."""

    def __init__(self, port: CommitLog) -> None:
        self._port = port
        self._checkpoint: Checkpoint | None = None

    def reached(self, ledger: Ledger) -> None:
        self._checkpoint = Checkpoint(ledger.position, ledger.encode())

    async def save(self) -> int:
        if self._checkpoint is None:
            raise StorageError("a checkpoint is saved only after its state was captured")
        await self._port.save_checkpoint(self._checkpoint)
        return self._checkpoint.position


class ChildCheckpointer:
    """Has another process load the last checkpoint, replay the finished objects and store the next one.

    The loop never pauses for it, however large the state is."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._position = 0

    def reached(self, ledger: Ledger) -> None:
        self._position = ledger.position

    async def save(self) -> int:
        position = self._position
        await _run_child(b"", str(self._directory), str(position))
        return position


class SharedChildCheckpointer:
    """The same for a log that several brokers share: the child opens it where it stands, only to read."""

    def __init__(self, place: SharedPlace) -> None:
        self._place = place

    async def save_at(self, position: int) -> None:
        """Store the state at an object boundary, which the ledger may have passed."""
        # Not as arguments, which every process of the machine can see: the URL may hold a key.
        place = json.dumps({"store": self._place.store, "etcd": self._place.etcd})
        await _run_child(place.encode(), "-", str(position))


async def _run_child(told: bytes, *arguments: str) -> None:
    # Not asyncio's: uvloop forks, so the loop stands still while the page tables of a large process are copied (20 ms
    # for 400 MB). This one starts the child with vfork, in less than one.
    child = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "mainstem.log.checkpointer", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    talk = asyncio.ensure_future(asyncio.to_thread(child.communicate, told))
    try:
        _, said = await asyncio.shield(talk)
    except asyncio.CancelledError:
        child.kill()
        await talk
        raise
    if child.returncode != 0:
        raise StorageError(f"no checkpoint was made: {said.decode(errors='replace').strip()[-500:]}")

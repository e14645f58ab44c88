"""The checkpoint child: `python -m mainstem.log.objects.checkpointer DIRECTORY POSITION`.

With `-` as the directory it reads the location of a shared log from stdin.

It loads the last checkpoint, replays the sealed objects up to POSITION and stores the state. It reads only sealed
objects, so the process that owns the directory can keep writing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Protocol

from mainstem.errors import MainstemError, StorageError
from mainstem.log.recovery import Followed, load_ledger, replay
from mainstem.ports.commitlog.local.reader import open_reader
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.shared.open import SharedPlace, open_shared

_NICENESS = 5  # the broker's work goes first


class Checkpointed(Followed, Protocol):
    async def save_checkpoint(self, checkpoint: Checkpoint) -> None: ...


async def checkpoint(directory: Path, position: int) -> None:
    """Store the state after every commit before `position`, an object boundary."""
    reader = open_reader(directory)
    try:
        await store_state(reader, position)
    finally:
        await reader.close()


async def checkpoint_shared(place: SharedPlace, position: int) -> None:
    """As `checkpoint`, for a log that several brokers share."""
    port = await open_shared(place, broker=None)
    try:
        await store_state(port, position)
    finally:
        await port.close()


async def store_state(log: Checkpointed, position: int, *, trust: bool = False) -> None:
    """Replay from the last checkpoint up to `position`, and store the state. `trust`: as for `load_ledger`."""
    ledger = await asyncio.to_thread(load_ledger, log, trust=trust)
    async for _ in replay(log, ledger, until=position):
        pass
    if ledger.position != position:
        raise StorageError(f"replay ended at position {ledger.position}, not at position {position}")
    await log.save_checkpoint(Checkpoint(position, ledger.encode()))


def main() -> None:
    os.nice(_NICENESS)
    try:
        position = int(sys.argv[2])
        if sys.argv[1] == "-":
            place = json.load(sys.stdin)
            asyncio.run(checkpoint_shared(SharedPlace(place["store"], tuple(place["etcd"])), position))
        else:
            asyncio.run(checkpoint(Path(sys.argv[1]), position))
    except MainstemError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

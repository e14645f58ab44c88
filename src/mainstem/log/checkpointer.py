"""The checkpoint child: `python -m mainstem.log.checkpointer DIRECTORY POSITION`.

Loads the last checkpoint, replays the finished objects up to POSITION and stores the state. It only reads what
takes no more commits, so the process that owns the directory goes on undisturbed.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mainstem.errors import MainstemError, StorageError
from mainstem.log.recovery import load_ledger, replay
from mainstem.ports.commitlog.port import Checkpoint
from mainstem.ports.commitlog.reader import open_reader

_NICENESS = 5  # the broker's work goes first


async def checkpoint(directory: Path, position: int) -> None:
    """Store the state after every commit before `position`, an object boundary."""
    reader = open_reader(directory)
    try:
        ledger = load_ledger(reader)
        async for _ in replay(reader, ledger, until=position):
            pass
        if ledger.position != position:
            raise StorageError(f"the log was replayed to {ledger.position}, not to {position}")
        await reader.save_checkpoint(Checkpoint(position, ledger.encode()))
    finally:
        await reader.close()


def main() -> None:
    os.nice(_NICENESS)
    try:
        asyncio.run(checkpoint(Path(sys.argv[1]), int(sys.argv[2])))
    except MainstemError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

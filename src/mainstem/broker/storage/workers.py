"""A data directory that several workers share: who may start them, and which one writes."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from mainstem.errors import DirectoryLocked
from mainstem.ports.commitlog.local.layout import LOCK
from mainstem.ports.commitlog.local.locking import block_owner
from mainstem.ports.commitlog.shared.host.log import FOLDER
from mainstem.ports.files import Lock, OsFiles, make_directories


@dataclass(frozen=True, slots=True)
class WorkersLock:
    """Held by the process that starts the workers."""

    folder: Path  # for files of the workers
    lock: Lock

    def release(self) -> None:
        self.lock.release()


def lock_workers(directory: Path) -> WorkersLock:
    """Raises DirectoryLocked if another server uses the directory."""
    files = OsFiles()
    make_directories(files, directory / FOLDER)
    lock = files.lock(directory / FOLDER / LOCK)
    try:
        with block_owner(directory) as free:
            if not free:
                raise DirectoryLocked(
                    f"{directory} is in use by another process: stop it, or choose another directory"
                )
    except BaseException:
        lock.release()
        raise
    return WorkersLock(directory / FOLDER, lock)


def writer_pid(directory: Path) -> int:
    """The process that writes the log; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return int((directory / LOCK).read_text("ascii").strip())
    return 0

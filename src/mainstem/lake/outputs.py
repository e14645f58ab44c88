"""Where a task's files go: objects that exist once they are sealed, durable from then on.

Nobody reads a key before the ledger names it, and every key is used once. So a file may grow in its own place:
what a killed worker leaves is one of the files that no ledger names, which the collector deletes.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import IO, Protocol

from mainstem.lake.object_readers import local_path
from mainstem.lake.store_access import open_named
from mainstem.ports.files import OsFiles, make_directories


class Outputs(Protocol):
    def create(self, key: str) -> IO[bytes]:
        """A new file to write to."""
        ...

    def seal(self, key: str, file: IO[bytes]) -> int:
        """Close it and make it durable. Returns its size in bytes."""
        ...

    def discard(self, key: str) -> None:
        """Delete what was made of it, if anything."""
        ...


def open_outputs(url: str) -> Outputs:
    """Raises InvalidConfig for a URL of no known kind."""
    path = local_path(url)
    return StoreOutputs(url) if path is None else LocalOutputs(path)


class LocalOutputs:
    """Files of a local directory, with keys for paths."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = OsFiles()

    def create(self, key: str) -> IO[bytes]:
        path = self._directory / key
        make_directories(self._files, path.parent)
        return path.open("xb")

    def seal(self, key: str, file: IO[bytes]) -> int:
        file.flush()
        os.fsync(file.fileno())
        size = os.fstat(file.fileno()).st_size
        file.close()
        self._files.fsync_dir((self._directory / key).parent)
        return size

    def discard(self, key: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            (self._directory / key).unlink()


class StoreOutputs:
    """Objects of a store, put whole once they are complete. Until then they are files of this machine."""

    def __init__(self, url: str) -> None:
        self._store = open_named(url)

    def create(self, key: str) -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="mainstem-")

    def seal(self, key: str, file: IO[bytes]) -> int:
        file.flush()
        with (
            file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            asyncio.run(self._store.put(key, view))
            return len(view)

    def discard(self, key: str) -> None:
        asyncio.run(self._store.delete(key))

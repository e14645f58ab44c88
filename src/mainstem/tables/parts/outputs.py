"""Output files of a task: an object is durable when it is sealed.

A key is used once, and nobody reads it before the ledger references it. So a file may grow under its final name: the
garbage collector deletes the files of a killed worker, because the ledger does not reference them.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import IO, Protocol

from mainstem.ports.files import OsFiles, make_directories
from mainstem.ports.objectstore.blocking import open_blocking
from mainstem.tables.parts.object_readers import local_path


class Outputs(Protocol):
    def create(self, key: str) -> IO[bytes]:
        """Create a file to write to."""
        ...

    def seal(self, key: str, file: IO[bytes]) -> int:
        """Close the file and make it durable. Returns its size in bytes."""
        ...

    def discard(self, key: str) -> None:
        """Delete the file, if it exists."""
        ...


def open_outputs(url: str) -> Outputs:
    """Raises InvalidConfig for an unknown URL scheme."""
    path = local_path(url)
    return StoreOutputs(url) if path is None else LocalOutputs(path)


class LocalOutputs:
    """Files of a local directory; a key is a path."""

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
    """Objects of a store, uploaded when they are complete. Until then they are local temporary files."""

    def __init__(self, url: str) -> None:
        self._store = open_blocking(url)

    def create(self, key: str) -> IO[bytes]:
        return tempfile.TemporaryFile(prefix="mainstem-")

    def seal(self, key: str, file: IO[bytes]) -> int:
        file.flush()
        with (
            file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
            memoryview(content) as view,
        ):
            self._store.put(key, view)
            return len(view)

    def discard(self, key: str) -> None:
        self._store.delete(key)

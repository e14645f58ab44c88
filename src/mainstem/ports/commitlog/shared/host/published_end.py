"""The end of the log in memory that all workers map: a barrier reads it without asking the writer.

File `end`: one u8 in the machine's byte order, aligned, so that it is written and read in one piece. The writer stores
it before it answers a commit. It means nothing until a writer has stored it, so it need not survive anything.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_BYTES = 8


class PublishedEnd:
    def __init__(self, path: Path, *, writable: bool) -> None:
        """Raises OSError; only the writer creates the file."""
        flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        try:
            if writable:
                os.ftruncate(descriptor, _BYTES)
            access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
            self._map = mmap.mmap(descriptor, _BYTES, access=access)
        finally:
            os.close(descriptor)
        self._value = memoryview(self._map).cast("Q")

    def get(self) -> int:
        return self._value[0]

    def set(self, end: int) -> None:
        self._value[0] = end

"""WAL files kept open for reading; the least recently used are closed."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from mainstem.ports.commitlog.local.segments import segment_path
from mainstem.ports.files import File, Files

SEGMENT_FILES_OPEN_MAX = 128  # read-only WAL files kept open


class _Shared:
    """An open file and its number of readers; once retired, the last reader closes it."""

    __slots__ = ("file", "readers", "retired")

    def __init__(self, file: File) -> None:
        self.file = file
        self.readers = 0
        self.retired = False


class OpenFiles:
    """Thread-safe. A file is never closed under a reader: its descriptor could belong to another file by then."""

    def __init__(self, files: Files, wal: Path) -> None:
        self._files = files
        self._wal = wal
        self._open: OrderedDict[int, _Shared] = OrderedDict()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def reading(self, number: int) -> Iterator[File]:
        """The segment's file for as long as the block runs. Raises FileNotFoundError."""
        with self._lock:
            shared = self._open.get(number)
            if shared is None:
                shared = _Shared(self._files.open(segment_path(self._wal, number)))
                self._open[number] = shared
            self._open.move_to_end(number)
            shared.readers += 1
            while len(self._open) > SEGMENT_FILES_OPEN_MAX:
                self._retire(self._open.popitem(last=False)[1])
        try:
            yield shared.file
        finally:
            with self._lock:
                shared.readers -= 1
                if shared.retired and shared.readers == 0:
                    shared.file.close()

    def forget(self, number: int) -> None:
        with self._lock:
            shared = self._open.pop(number, None)
            if shared is not None:
                self._retire(shared)

    def close(self) -> None:
        with self._lock:
            for shared in self._open.values():
                self._retire(shared)
            self._open.clear()

    @staticmethod
    def _retire(shared: _Shared) -> None:
        shared.retired = True
        if shared.readers == 0:
            shared.file.close()

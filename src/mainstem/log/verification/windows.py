"""A file that is read in windows: scanning a log of small commits reads a few bytes at a time, millions of times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mainstem.errors import invariant
from mainstem.limits import KIB
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.files import File, read_up_to

_WINDOW_BYTES = 256 * KIB
_BEFORE_BYTES = 16 * KIB  # a frame's tail is read before the entry copy right in front of it


class WindowedFile:
    """Reads another file a window at a time. The file must not change meanwhile; writes are refused."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._base = 0
        self._window = memoryview(b"")

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def descriptor(self) -> int | None:
        return self._file.descriptor

    def preadv(self, buffer: bytearray | memoryview, offset: int) -> int:
        wanted = len(buffer)
        if wanted >= _WINDOW_BYTES:
            return self._file.preadv(buffer, offset)
        at = offset - self._base
        if at < 0 or at + wanted > len(self._window):
            self._base = max(0, offset - _BEFORE_BYTES)
            self._window = memoryview(read_up_to(self._file, self._base, _WINDOW_BYTES + _BEFORE_BYTES))
            at = offset - self._base
        found = self._window[at : at + wanted]
        buffer[: len(found)] = found
        return len(found)

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        return self._refuse()

    def fdatasync(self) -> None:
        self._refuse()

    def ftruncate(self, size: int) -> None:
        self._refuse()

    def in_place(self) -> bool:
        return self._file.in_place()

    def posix_fallocate(self, offset: int, length: int) -> None:
        self._refuse()

    def _refuse(self) -> int:
        invariant(False, "a check writes nothing")
        return 0

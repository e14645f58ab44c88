"""Byte ranges as a seekable Python file, for libraries such as Arrow."""

from __future__ import annotations

import io
from collections.abc import Callable

from mainstem.ports.commitlog.port import Buffer


class RangeFile(io.RawIOBase):
    """A file of `size` bytes; `read_range` returns those at (start, length). Not buffered: Arrow reads large ranges."""

    def __init__(self, read_range: Callable[[int, int], Buffer], size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        left = max(0, self._size - self._at)
        found = self._take(left if size is None or size < 0 else min(size, left))
        return found if isinstance(found, bytes) else bytes(found)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview | bytearray, /) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        found = self._take(min(len(view), max(0, self._size - self._at)))
        view[: len(found)] = found
        return len(found)

    def _take(self, length: int) -> Buffer:
        found = self._read_range(self._at, length) if length else b""
        self._at += len(found)
        return found

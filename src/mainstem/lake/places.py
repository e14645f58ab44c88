"""Objects by URL, as workers read them: files of this machine, or objects of a store."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from mainstem.errors import NotFound
from mainstem.ports.objectstore.open import open_store


class Place(Protocol):
    """An object that ranges of bytes are read from. For one thread."""

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Ranges as (start, length); fewer bytes at the object's end."""
        ...

    def close(self) -> None: ...


def open_place(url: str) -> Place:
    """Raises NotFound where it can be told already, and InvalidConfig for a URL of no known kind."""
    path = local_path(url)
    return _StorePlace(url) if path is None else _LocalPlace(path)


def open_seekable(url: str, size: int) -> io.RawIOBase | io.BufferedReader:
    """An object of `size` bytes as a file to read. Raises as `open_place`."""
    path = local_path(url)
    if path is None:
        return _SeekablePlace(open_place(url), size)
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"no object at {path}") from None


def local_path(url: str) -> Path | None:
    """The path of a file: URL; None for any other kind."""
    parts = urlsplit(url)
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return Path(unquote(parts.path)) if local else None


def url_of(store: str, key: str) -> str:
    """The URL of an object, from its store's, whose options stay at the end."""
    parts = urlsplit(store)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{key}"))


class _LocalPlace:
    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise NotFound(f"no object at {path}") from None

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self._read(start, length) for start, length in ranges]

    def _read(self, start: int, length: int) -> bytes:
        pieces = []
        while length > 0:
            piece = os.pread(self._fd, length, start)
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
            length -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        os.close(self._fd)


class _StorePlace:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._key = unquote(parts.path).strip("/")
        self._store = open_store(urlunsplit(parts._replace(path="")))
        self._runner = asyncio.Runner()  # workers have no event loop of their own

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._runner.run(self._store.get_ranges(self._key, ranges))

    def close(self) -> None:
        self._runner.close()


class _SeekablePlace(io.RawIOBase):
    """A place as a file. What reads it asks for large ranges, so nothing is buffered."""

    def __init__(self, place: Place, size: int) -> None:
        self._place = place
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        (data,) = self._place.read([(self._at, min(len(view), max(0, self._size - self._at)))])
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._place.close()
        super().close()

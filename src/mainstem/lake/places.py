"""Objects by URL, as workers read them: files of this machine, or objects of a store."""

from __future__ import annotations

import asyncio
import io
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

from mainstem.broker.plans import StoredPiece
from mainstem.errors import NotFound
from mainstem.lake.access import open_named


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


def open_pieces(store: str, pieces: Sequence[StoredPiece]) -> Place:
    """An object of the log that lies in pieces below a store's URL. Raises InvalidConfig."""
    return _PiecedPlace(store, pieces)


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
        self._store = open_named(urlunsplit(parts._replace(path="")))
        self._runner = asyncio.Runner()  # workers have no event loop of their own

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._runner.run(self._store.get_ranges(self._key, ranges))

    def close(self) -> None:
        self._runner.close()


class _Wanted(NamedTuple):
    """Bytes of one object of the store."""

    range: int  # which of those asked for they are a part of
    into: int  # where in it
    at: int  # where in the object
    length: int


class _PiecedPlace:
    """Reads the object of the log as if it were one, out of the objects of the store that have it."""

    def __init__(self, store: str, pieces: Sequence[StoredPiece]) -> None:
        self._store = open_named(store)
        self._pieces = pieces
        self._starts = [piece.start for piece in pieces]
        self._runner = asyncio.Runner()

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._runner.run(self._read(ranges))

    async def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Every object is asked once, for all that is wanted of it. What no piece has comes as zeros: between two
        slices that are read at once may be others, which nobody asked where to find."""
        found = [bytearray(length) for _, length in ranges]
        wanted: dict[str, list[_Wanted]] = {}
        for number, (start, length) in enumerate(ranges):
            for key, one in self._cut(number, start, length):
                wanted.setdefault(key, []).append(one)
        answers = await asyncio.gather(
            *(
                self._store.get_ranges(key, [(one.at, one.length) for one in ones])
                for key, ones in wanted.items()
            )
        )
        for ones, contents in zip(wanted.values(), answers, strict=True):
            for one, content in zip(ones, contents, strict=True):
                found[one.range][one.into : one.into + len(content)] = content
        return [bytes(content) for content in found]

    def _cut(self, number: int, start: int, length: int) -> Iterator[tuple[str, _Wanted]]:
        """What to ask for, by key, to have a range."""
        end = start + length
        for piece in self._pieces[max(0, bisect_right(self._starts, start) - 1) :]:
            if piece.start >= end:
                return
            first, last = max(start, piece.start), min(end, piece.start + piece.length)
            if first < last:
                yield piece.key, _Wanted(number, first - start, piece.at + first - piece.start, last - first)

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

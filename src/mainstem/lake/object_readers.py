"""Objects by URL, as workers read them: files of this machine, or objects of a store."""

from __future__ import annotations

import asyncio
import io
import os
from bisect import bisect_right
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np

from mainstem.broker.plans import StoredPiece
from mainstem.errors import NotFound
from mainstem.lake.store_access import open_named

T = TypeVar("T")
Range = tuple[int, int]  # start and length
Content = bytes | memoryview  # a view is the caller's to write to


class ObjectReader(Protocol):
    """An object that ranges of bytes are read from. For one thread."""

    def read(self, ranges: Sequence[Range]) -> Sequence[Content]:
        """Ranges as (start, length); fewer bytes at the object's end."""
        ...

    def close(self) -> None: ...


def open_object_reader(url: str) -> ObjectReader:
    """Raises NotFound where it can be told already, and InvalidConfig for a URL of no known kind."""
    path = local_path(url)
    return _StoreObjectReader(url) if path is None else _LocalObjectReader(path)


def open_pieces(store: str, pieces: Sequence[StoredPiece]) -> ObjectReader:
    """An object of the log that lies in pieces below a store's URL. Raises InvalidConfig."""
    path = local_path(store)
    return _PiecedObjectReader(_StoredObjects(store) if path is None else _LocalObjects(path), pieces)


def open_seekable(url: str, size: int) -> io.RawIOBase | io.BufferedReader:
    """An object of `size` bytes as a file to read. Raises as `open_object_reader`."""
    path = local_path(url)
    if path is None:
        return _SeekableReader(open_object_reader(url), size)
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


class _LocalObjectReader:
    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            raise NotFound(f"no object at {path}") from None

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        return [self._read(start, length) for start, length in ranges]

    def _read(self, start: int, length: int) -> memoryview:
        content = np.empty(length, np.uint8).data  # not filled with zeros first
        filled = 0
        while filled < length:
            count = os.preadv(self._fd, [content[filled:]], start + filled)
            if not count:
                break
            filled += count
        return content[:filled]

    def close(self) -> None:
        os.close(self._fd)


class _Loop:
    """Has coroutines done where no event loop runs, one at a time.

    Not asyncio's Runner: for each call that sets a handler of SIGINT which holds the task, and Python makes text of it
    when the old one comes back, of the bytes that were read too. That took a sixth of a worker's time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


class _StoreObjectReader:
    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._key = unquote(parts.path).strip("/")
        self._store = open_named(urlunsplit(parts._replace(path="")))
        self._loop = _Loop()

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        return self._loop.run(self._store.get_ranges(self._key, ranges))

    def close(self) -> None:
        self._loop.close()


class _Objects(Protocol):
    """Objects of one store, by their keys."""

    def read(self, wanted: Mapping[str, Sequence[Range]]) -> Sequence[Sequence[Content]]:
        """The ranges of each object, in the order of the keys. Raises NotFound."""
        ...

    def close(self) -> None: ...


class _LocalObjects:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, wanted: Mapping[str, Sequence[Range]]) -> list[list[memoryview]]:
        return [self._read(key, ranges) for key, ranges in wanted.items()]

    def _read(self, key: str, ranges: Sequence[Range]) -> list[memoryview]:
        place = _LocalObjectReader(self._directory / key)
        try:
            return place.read(ranges)
        finally:
            place.close()

    def close(self) -> None: ...


class _StoredObjects:
    def __init__(self, url: str) -> None:
        self._store = open_named(url)
        self._loop = _Loop()

    def read(self, wanted: Mapping[str, Sequence[Range]]) -> list[list[bytes]]:
        return self._loop.run(self._read(wanted))

    async def _read(self, wanted: Mapping[str, Sequence[Range]]) -> list[list[bytes]]:
        return await asyncio.gather(*(self._store.get_ranges(key, ranges) for key, ranges in wanted.items()))

    def close(self) -> None:
        self._loop.close()


class _ByteRange(NamedTuple):
    """Bytes of one object of the store."""

    range: int  # which of those asked for they are a part of
    into: int  # where in it
    at: int  # where in the object
    length: int


class _PiecedObjectReader:
    """Reads the object of the log as if it were one, out of the objects of the store that have it."""

    def __init__(self, objects: _Objects, pieces: Sequence[StoredPiece]) -> None:
        self._objects = objects
        self._pieces = pieces
        self._starts = [piece.start for piece in pieces]

    def read(self, ranges: Sequence[Range]) -> list[Content]:
        """Every object is asked once, for all that is wanted of it. What no piece has comes as zeros: between two
        slices that are read at once may be others, which nobody asked where to find."""
        wanted: dict[str, list[_ByteRange]] = {}
        for number, (start, length) in enumerate(ranges):
            for key, one in self._cut(number, start, length):
                wanted.setdefault(key, []).append(one)
        answers = self._objects.read(
            {key: [(one.at, one.length) for one in ones] for key, ones in wanted.items()}
        )
        found: list[list[tuple[int, Content]]] = [[] for _ in ranges]
        for ones, contents in zip(wanted.values(), answers, strict=True):
            for one, content in zip(ones, contents, strict=True):
                found[one.range].append((one.into, content))
        return [_joined(length, parts) for (_, length), parts in zip(ranges, found, strict=True)]

    def _cut(self, number: int, start: int, length: int) -> Iterator[tuple[str, _ByteRange]]:
        """What to ask for, by key, to have a range."""
        end = start + length
        for piece in self._pieces[max(0, bisect_right(self._starts, start) - 1) :]:
            if piece.start >= end:
                return
            first, last = max(start, piece.start), min(end, piece.start + piece.length)
            if first < last:
                yield (
                    piece.key,
                    _ByteRange(number, first - start, piece.at + first - piece.start, last - first),
                )

    def close(self) -> None:
        self._objects.close()


def _joined(length: int, parts: list[tuple[int, Content]]) -> Content:
    """Bytes of which there are some parts, each with its place."""
    if len(parts) == 1 and len(parts[0][1]) == length:
        return parts[0][1]  # nearly always
    whole = bytearray(length)
    for at, content in parts:
        whole[at : at + len(content)] = content
    return memoryview(whole)


class _SeekableReader(io.RawIOBase):
    """A place as a file. What reads it asks for large ranges, so nothing is buffered."""

    def __init__(self, place: ObjectReader, size: int) -> None:
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

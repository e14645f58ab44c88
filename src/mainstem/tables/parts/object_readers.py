"""Read objects by URL: local files, or objects of a store."""

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

from mainstem.api.lake import StoredPiece
from mainstem.errors import NotFound
from mainstem.ports.objectstore.range_file import RangeFile
from mainstem.tables.parts.store_access import open_named

T = TypeVar("T")
Range = tuple[int, int]  # start and length
Content = bytes | memoryview  # the caller may write to a memoryview


class ObjectReader(Protocol):
    """Reads byte ranges of one object. Not safe for several threads."""

    def read(self, ranges: Sequence[Range]) -> Sequence[Content]:
        """Ranges are (start, length). A range past the object's end gives fewer bytes."""
        ...

    def close(self) -> None: ...


def open_object_reader(url: str) -> ObjectReader:
    """Raises NotFound if a local file does not exist, InvalidConfig for an unknown URL scheme."""
    path = local_path(url)
    return _StoreObjectReader(url) if path is None else _LocalObjectReader(path)


def open_pieces(store: str, pieces: Sequence[StoredPiece]) -> ObjectReader:
    """Read an object of the log that is stored as pieces below a store's URL. Raises InvalidConfig."""
    path = local_path(store)
    return _PiecedObjectReader(_StoredObjects(store) if path is None else _LocalObjects(path), pieces)


def open_seekable(url: str, size: int) -> io.RawIOBase | io.BufferedReader:
    """An object of `size` bytes as a file. Raises like `open_object_reader`."""
    path = local_path(url)
    if path is None:
        return _PlaceFile(open_object_reader(url), size)
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"no object at {path}") from None


def local_path(url: str) -> Path | None:
    """The path of a file: URL; None for any other scheme."""
    parts = urlsplit(url)
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return Path(unquote(parts.path)) if local else None


def url_of(store: str, key: str) -> str:
    """The URL of an object in a store. The options of the store's URL stay at the end."""
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
        content = np.empty(length, np.uint8).data  # does not zero the memory first
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
    """Runs coroutines in a thread without an event loop, one at a time.

    asyncio.Runner costs more: for each call it installs a SIGINT handler that holds the task. Restoring the old handler
    formats this one as text, with the bytes that were read."""

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
    """Objects of one store, by key."""

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
        reader = _LocalObjectReader(self._directory / key)
        try:
            return reader.read(ranges)
        finally:
            reader.close()

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

    range: int  # index of the requested range that these bytes belong to
    into: int  # position in that range
    at: int  # position in the object
    length: int


class _PiecedObjectReader:
    """Reads an object of the log that is stored as pieces of several objects."""

    def __init__(self, objects: _Objects, pieces: Sequence[StoredPiece]) -> None:
        self._objects = objects
        self._pieces = pieces
        self._starts = [piece.start for piece in pieces]

    def read(self, ranges: Sequence[Range]) -> list[Content]:
        """Read each stored object once, for all ranges in it. Bytes that no piece has are zeros: a range may
        include slices between two wanted ones, whose pieces the caller did not request."""
        wanted: dict[str, list[_ByteRange]] = {}
        for number, (start, length) in enumerate(ranges):
            for key, part in self._split(number, start, length):
                wanted.setdefault(key, []).append(part)
        contents_by_key = self._objects.read(
            {key: [(part.at, part.length) for part in parts] for key, parts in wanted.items()}
        )
        found: list[list[tuple[int, Content]]] = [[] for _ in ranges]
        for parts, contents in zip(wanted.values(), contents_by_key, strict=True):
            for part, content in zip(parts, contents, strict=True):
                found[part.range].append((part.into, content))
        return [_joined(length, pieces) for (_, length), pieces in zip(ranges, found, strict=True)]

    def _split(self, number: int, start: int, length: int) -> Iterator[tuple[str, _ByteRange]]:
        """The stored byte ranges that make up a range, by key."""
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
    """A range of `length` bytes from its parts, each with its position."""
    if len(parts) == 1 and len(parts[0][1]) == length:
        return parts[0][1]  # the usual case
    whole = bytearray(length)
    for at, content in parts:
        whole[at : at + len(content)] = content
    return memoryview(whole)


class _PlaceFile(RangeFile):
    """A place as a file, which closes it."""

    def __init__(self, place: ObjectReader, size: int) -> None:
        super().__init__(lambda start, length: place.read([(start, length)])[0], size)
        self._place = place

    def close(self) -> None:
        if not self.closed:
            self._place.close()
        super().close()

"""Read objects by URL: local files, or objects of a store."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import numpy as np

from mainstem.api.lake import StoredPiece
from mainstem.errors import NotFound
from mainstem.ports.objectstore.blocking import BlockingStore, Range, open_blocking

Content = bytes | memoryview  # the caller may write to a memoryview
ReadObjects = Callable[
    [Mapping[str, Sequence[Range]]], Sequence[Sequence[Content]]
]  # like BlockingStore.get_ranges


class ObjectReader(Protocol):
    """Reads byte ranges of one object. Not safe for several threads."""

    def read(self, ranges: Sequence[Range]) -> Sequence[Content]:
        """Ranges are (start, length). A range past the object's end gives fewer bytes."""
        ...

    def close(self) -> None: ...


def open_object_reader(url: str) -> ObjectReader:
    """Raises NotFound if a local file does not exist, InvalidConfig for an unknown URL scheme."""
    path = local_path(url)
    return _StoreObjectReader(*_store_and_key(url)) if path is None else _LocalObjectReader(path)


def open_pieces(store: str, pieces: Sequence[StoredPiece]) -> ObjectReader:
    """Read an object of the log that is stored as pieces below a store's URL. Raises InvalidConfig."""
    path = local_path(store)
    read = open_blocking(store).get_ranges if path is None else partial(_read_local, path)
    return _PiecedObjectReader(read, pieces)


def open_seekable(url: str, size: int) -> io.RawIOBase | io.BufferedReader:
    """An object of `size` bytes as a file. Raises like `open_object_reader`."""
    path = local_path(url)
    if path is None:
        store, key = _store_and_key(url)
        return store.open(key, size)
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"no object at {path}") from None


def local_path(url: str) -> Path | None:
    """The path of a file: URL; None for any other scheme."""
    parts = urlsplit(url)
    local = parts.scheme == "file" and parts.netloc in ("", "localhost")
    return Path(unquote(parts.path)) if local else None


def _store_and_key(url: str) -> tuple[BlockingStore, str]:
    parts = urlsplit(url)
    return open_blocking(urlunsplit(parts._replace(path=""))), unquote(parts.path).strip("/")


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


class _StoreObjectReader:
    def __init__(self, store: BlockingStore, key: str) -> None:
        self._store = store
        self._key = key

    def read(self, ranges: Sequence[Range]) -> list[bytes]:
        return self._store.get_ranges({self._key: ranges})[0]

    def close(self) -> None: ...


def _read_local(directory: Path, wanted: Mapping[str, Sequence[Range]]) -> list[list[memoryview]]:
    contents = []
    for key, ranges in wanted.items():
        reader = _LocalObjectReader(directory / key)
        try:
            contents.append(reader.read(ranges))
        finally:
            reader.close()
    return contents


class _ByteRange(NamedTuple):
    """Bytes of one object of the store."""

    range: int  # index of the requested range that these bytes belong to
    into: int  # position in that range
    at: int  # position in the object
    length: int


class _PiecedObjectReader:
    """Reads an object of the log that is stored as pieces of several objects."""

    def __init__(self, read: ReadObjects, pieces: Sequence[StoredPiece]) -> None:
        self._read = read
        self._pieces = pieces
        self._starts = [piece.start for piece in pieces]

    def read(self, ranges: Sequence[Range]) -> list[Content]:
        """Read each stored object once, for all ranges in it. Bytes that no piece has are zeros: a range may
        include slices between two wanted ones, whose pieces the caller did not request."""
        wanted: dict[str, list[_ByteRange]] = {}
        for number, (start, length) in enumerate(ranges):
            for key, part in self._split(number, start, length):
                wanted.setdefault(key, []).append(part)
        contents_by_key = self._read(
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

    def close(self) -> None: ...


def _joined(length: int, parts: list[tuple[int, Content]]) -> Content:
    """A range of `length` bytes from its parts, each with its position."""
    if len(parts) == 1 and len(parts[0][1]) == length:
        return parts[0][1]  # the usual case
    whole = bytearray(length)
    for at, content in parts:
        whole[at : at + len(content)] = content
    return memoryview(whole)

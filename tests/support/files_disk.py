"""The contents of a simulated disk: a file's bytes now, after a power cut, and everything in between."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

SECTOR_BYTES = 512  # written whole or not at all


@dataclass(frozen=True, slots=True)
class Write:
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resize:
    size: int


Change = Write | Resize


class Content:
    """Bytes of a file. Allocated space that was never written is not held, it only counts in `size`."""

    __slots__ = ("data", "size")

    def __init__(self, data: bytes | bytearray = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = max(size, len(data))

    def copy(self) -> Content:
        return Content(self.data, self.size)

    def apply(self, change: Change) -> None:
        if isinstance(change, Resize):
            del self.data[change.size :]
            self.size = change.size
        else:
            self.write(change.offset, change.data)

    def write(self, offset: int, data: bytes) -> None:
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset : offset + len(data)] = data
        self.size = max(self.size, len(self.data))

    def read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        found = bytes(self.data[offset : offset + length])
        return found + bytes(length - len(found))


class Inode:
    """A file independent of its name: what readers see, what is durable, and the changes in between."""

    __slots__ = ("_durable", "_pending", "now")

    def __init__(self, content: Content | None = None) -> None:
        self.now = content or Content()
        self._durable = self.now.copy()
        self._pending: list[Change] = []

    def change(self, change: Change) -> None:
        self.now.apply(change)
        self._pending.append(change)

    def sync(self) -> None:
        for change in self._pending:
            self._durable.apply(change)
        self._pending.clear()

    def lose_pending(self) -> None:
        """A failed fsync: the kernel drops the dirty pages, yet readers see them until they are evicted."""
        self._pending.clear()

    def flip(self, byte: int, bit: int) -> None:
        """Damage, both on disk and in what readers see."""
        for content in (self.now, self._durable):
            content.write(byte, bytes([content.read(byte, 1)[0] ^ 1 << bit]))

    def lost(self) -> Content:
        """Only what was synced."""
        return self._durable.copy()

    def kept(self) -> Content:
        return self.now.copy()

    def torn(self, randomness: random.Random) -> Content:
        """Each sector, and the size, as it was after some of the changes, each chosen by itself."""
        content = self._durable.copy()
        changes = len(self._pending)
        moments: dict[int, int] = {}
        size_moment = _moment(randomness, changes)
        size = content.size
        for count, change in enumerate(self._pending, start=1):
            if isinstance(change, Resize):
                if count <= size_moment:
                    size = change.size
                    content.apply(change)
                continue
            if count <= size_moment:
                size = max(size, change.offset + len(change.data))
            for sector, offset, part in _sectors(change):
                if sector not in moments:
                    moments[sector] = _moment(randomness, changes)
                if count <= moments[sector]:
                    content.write(offset, part)
        del content.data[size:]
        content.size = size
        return content


def _moment(randomness: random.Random, changes: int) -> int:
    """How many changes reached the disk: often all or none, else any number."""
    return randomness.choice((0, changes, changes, randomness.randint(0, changes)))


def _sectors(write: Write) -> Iterable[tuple[int, int, bytes]]:
    """The write, split where sectors end: (sector, offset, bytes)."""
    done = 0
    while done < len(write.data):
        offset = write.offset + done
        step = min(SECTOR_BYTES - offset % SECTOR_BYTES, len(write.data) - done)
        yield offset // SECTOR_BYTES, offset, write.data[done : done + step]
        done += step

"""Which commits an object holds: where each one's payload starts, and the id that names it in the store.

Stored with a sealed object as rows, little-endian (`DIRECTORY_ROW`), by rising start:

| field  | type | meaning                                    |
|--------|------|--------------------------------------------|
| start  | u8   | bytes of payload in the object before it   |
| length | u4   | bytes of payload; commits without any have no row |
| id     | s16  | of the commit                              |
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator

DIRECTORY_ROW = struct.Struct("<QI16s")


class Directory:
    """The payloads of one object, by rising start."""

    __slots__ = ("_ids", "_lengths", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._lengths: list[int] = []
        self._ids: list[bytes] = []

    def add(self, start: int, length: int, id: bytes) -> None:
        if length:
            self._starts.append(start)
            self._lengths.append(length)
            self._ids.append(id)

    @property
    def ids(self) -> list[bytes]:
        return self._ids

    @property
    def end(self) -> int:
        return self._starts[-1] + self._lengths[-1] if self._starts else 0

    def pieces(self, start: int, length: int) -> Iterator[tuple[bytes, int, int]]:
        """What to read for a range of the object: (commit id, start in its payload, length)."""
        at = bisect_right(self._starts, start) - 1
        while length > 0 and 0 <= at < len(self._starts):
            skipped = start - self._starts[at]
            taken = min(length, self._lengths[at] - skipped)
            if taken > 0:
                yield self._ids[at], skipped, taken
                start += taken
                length -= taken
            at += 1

    def pack(self) -> bytes:
        rows = zip(self._starts, self._lengths, self._ids, strict=True)
        return b"".join(DIRECTORY_ROW.pack(*row) for row in rows)

    @classmethod
    def unpack(cls, packed: bytes) -> Directory:
        found = cls()
        for start, length, id in DIRECTORY_ROW.iter_unpack(packed):
            found.add(start, length, id)
        return found

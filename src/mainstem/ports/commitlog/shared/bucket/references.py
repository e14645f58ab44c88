"""References: large payloads that a sealed object leaves where their commits put them.

Rows (`REFERENCE_ROW`), little-endian, by rising start:

| field  | type | meaning                                        |
|--------|------|------------------------------------------------|
| start  | u8   | bytes of payload in the object before it       |
| length | u4   | bytes of payload: all that the commit has      |
| id     | s16  | of the commit, which names its WAL objects     |

The rest of the object is packed: the bytes between the references, joined.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mainstem import limits
from mainstem.ports.commitlog.shared.bucket.entries import EntryHead

# A payload of at least this size stays there when its object is sealed
BUCKET_REFERENCE_BYTES_MIN = 1 * limits.MIB

REFERENCE_ROW = struct.Struct("<QI16s")


class Stretch(NamedTuple):
    """Bytes of an object that are contiguous in the store."""

    start: int  # in the object
    length: int
    commit: bytes | None  # whose WAL objects hold exactly them; None: they are packed …
    packed_at: int = 0  # … at this offset


class References:
    """The references of one object of `size` bytes."""

    __slots__ = ("_before", "_ids", "_lengths", "_size", "_starts")

    def __init__(self, size: int, rows: Iterable[tuple[int, int, bytes]] = ()) -> None:
        """Raises ValueError unless the rows are inside the object, rising and not empty."""
        self._size = size
        self._starts: list[int] = []
        self._lengths: list[int] = []
        self._ids: list[bytes] = []
        self._before = [0]  # referenced bytes before each row, and in total
        end = 0
        for start, length, id in rows:
            if start < end or not length or start + length > size:
                raise ValueError("references overlap or exceed the object")
            end = start + length
            self._starts.append(start)
            self._lengths.append(length)
            self._ids.append(id)
            self._before.append(self._before[-1] + length)

    @classmethod
    def among(cls, size: int, commits: Iterable[EntryHead]) -> References:
        """The references for an object of these commits. Every writer finds the same.

        A commit with its entry in the WAL objects is not referenced: a replay needs the entry as long as the commit
        exists, and the WAL objects of a dropped object go earlier."""
        return cls(
            size,
            (
                (one.start, one.payload_length, one.id)
                for one in commits
                if one.payload_apart
                and not one.entry_apart
                and one.payload_length >= BUCKET_REFERENCE_BYTES_MIN
            ),
        )

    @classmethod
    def unpack(cls, size: int, packed: bytes) -> References:
        """Raises ValueError."""
        if len(packed) % REFERENCE_ROW.size:
            raise ValueError("the last row is incomplete")
        return cls(size, REFERENCE_ROW.iter_unpack(packed))

    def pack(self) -> bytes:
        rows = zip(self._starts, self._lengths, self._ids, strict=True)
        return b"".join(REFERENCE_ROW.pack(*row) for row in rows)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, commit: object) -> bool:
        return commit in self._ids

    def items(self) -> Iterator[tuple[bytes, int]]:
        """Each as commit id and length."""
        return zip(self._ids, self._lengths, strict=True)

    @property
    def bytes(self) -> int:
        """How many bytes are in WAL objects."""
        return self._before[-1]

    def stretches(self, start: int, length: int) -> Iterator[Stretch]:
        """The stretches that a range of the object touches, each complete."""
        end = min(start + length, self._size)
        at = bisect_right(self._starts, start) - 1
        while start < end:
            if at >= 0 and start < self._starts[at] + self._lengths[at]:
                found = Stretch(self._starts[at], self._lengths[at], self._ids[at])
            else:
                found = self._between(at)
                at += 1
            if found.length:  # two references may be adjacent
                yield found
            start = found.start + found.length

    def _between(self, at: int) -> Stretch:
        """The packed bytes after the reference `at`, up to the next one."""
        first = self._starts[at] + self._lengths[at] if at >= 0 else 0
        last = self._starts[at + 1] if at + 1 < len(self._starts) else self._size
        return Stretch(first, last - first, None, first - self._before[at + 1])

    def packed(self, start: int, length: int) -> Iterator[tuple[int, int]]:
        """Which (start, length) of the object a range of the packed bytes holds."""
        for one in self.stretches(0, self._size):
            first = max(start, one.packed_at)
            last = min(start + length, one.packed_at + one.length)
            if one.commit is None and first < last:
                yield one.start + first - one.packed_at, last - first

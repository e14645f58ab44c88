"""Content split into objects of one size, so that division gives the part of a byte."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

from mainstem import limits
from mainstem.ports.commitlog.port import Buffer
from mainstem.ports.objectstore.port import ObjectStore

Names = Callable[[int], str]


class Parts:
    """Puts, reads and deletes content that takes several objects."""

    def __init__(self, store: ObjectStore, part_bytes: int = limits.STORE_OBJECT_BYTES_MAX) -> None:
        self._store = store
        self._part_bytes = part_bytes

    def count(self, length: int) -> int:
        return -(-length // self._part_bytes)

    async def put(self, names: Names, content: Sequence[Buffer]) -> None:
        """Store every part. Empty content has none."""
        cut = self._cut(content)
        await asyncio.gather(*(self._store.put(names(number), part) for number, part in enumerate(cut)))

    async def put_one(self, names: Names, number: int, content: Buffer) -> None:
        await self._store.put(names(number), content)

    async def read(self, names: Names, start: int, length: int) -> bytes:
        """Bytes of the content; fewer if it ends there. Raises NotFound."""
        asked = self._ranges(start, length)
        found = await asyncio.gather(
            *(self._store.get_ranges(names(number), [part]) for number, part in asked)
        )
        return b"".join(piece for pieces in found for piece in pieces)

    async def delete(self, names: Names, length: int) -> None:
        """Idempotent."""
        await asyncio.gather(*(self._store.delete(names(number)) for number in range(self.count(length))))

    def spans(self, length: int) -> Iterator[tuple[int, int, int]]:
        """Each part as (number, start, length)."""
        for number in range(self.count(length)):
            start = number * self._part_bytes
            yield number, start, min(self._part_bytes, length - start)

    def covering(self, length: int, start: int, wanted: int) -> Iterator[tuple[int, int, int]]:
        """The parts, as in `spans`, that hold `wanted` bytes from `start` on."""
        for number in range(start // self._part_bytes, self.count(min(start + wanted, length))):
            first = number * self._part_bytes
            yield number, first, min(self._part_bytes, length - first)

    def _ranges(self, start: int, length: int) -> list[tuple[int, tuple[int, int]]]:
        found = []
        while length > 0:
            number, skipped = divmod(start, self._part_bytes)
            taken = min(length, self._part_bytes - skipped)
            found.append((number, (skipped, taken)))
            start += taken
            length -= taken
        return found

    def _cut(self, content: Sequence[Buffer]) -> list[list[Buffer]]:
        parts: list[list[Buffer]] = []
        room = 0
        for whole_piece in content:
            piece = memoryview(whole_piece)
            at = 0
            while at < len(piece):
                if not room:
                    parts.append([])
                    room = self._part_bytes
                taken = min(room, len(piece) - at)
                parts[-1].append(piece[at : at + taken])
                at += taken
                room -= taken
        return parts

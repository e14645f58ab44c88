"""Cache of batches encoded from a part's rows: bounded in bytes, least recently used out first."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import OrderedDict
from typing import NamedTuple

PartKey = tuple[int, int, int, int]  # stream, base, end and generation: no two parts ever share all four

_CHUNK_OVERHEAD_BYTES = 512


class PartChunk(NamedTuple):
    """The remaining records of [base, end), as stamped batches."""

    base: int
    end: int
    batches: tuple[memoryview, ...]

    @property
    def bytes(self) -> int:
        return sum(map(len, self.batches))


class PartCache:
    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self.held_bytes = 0
        self._chunks: OrderedDict[tuple[PartKey, int], PartChunk] = OrderedDict()
        self._bases: dict[PartKey, list[int]] = {}

    def get(self, key: PartKey, offset: int) -> PartChunk | None:
        """The chunk that covers `offset`."""
        chunk = self.peek(key, offset)
        if chunk is not None:
            self._chunks.move_to_end((key, chunk.base))
        return chunk

    def peek(self, key: PartKey, offset: int) -> PartChunk | None:
        """As `get`, without marking the chunk as used."""
        bases = self._bases.get(key)
        at = bisect_right(bases, offset) - 1 if bases else -1
        if bases is None or at < 0:
            return None
        chunk = self._chunks[key, bases[at]]
        return chunk if chunk.end > offset else None

    def put(self, key: PartKey, chunk: PartChunk) -> None:
        self._drop(key, chunk.base)
        self._chunks[key, chunk.base] = chunk
        insort(self._bases.setdefault(key, []), chunk.base)
        self.held_bytes += chunk.bytes + _CHUNK_OVERHEAD_BYTES
        while self.held_bytes > self._capacity and len(self._chunks) > 1:
            self._drop(*next(iter(self._chunks)))

    def _drop(self, key: PartKey, base: int) -> None:
        chunk = self._chunks.pop((key, base), None)
        if chunk is None:
            return
        self.held_bytes -= chunk.bytes + _CHUNK_OVERHEAD_BYTES
        bases = self._bases[key]
        bases.remove(base)
        if not bases:
            del self._bases[key]

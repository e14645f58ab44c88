"""The tail cache: slices of the last commits, as they came in, already stamped."""

from __future__ import annotations

from collections import deque

# What an entry costs beside its bytes, measured: buffer object, key tuple, dict and deque slots.
_ENTRY_OVERHEAD_BYTES = 300


class TailCache:
    """Slices by (object, start), oldest out first, bounded in bytes."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._slices: dict[tuple[int, int], bytearray] = {}
        self._ages: deque[tuple[int, int]] = deque()
        self._held = 0

    @property
    def held_bytes(self) -> int:
        return self._held

    def put(self, object: int, start: int, slice: bytearray) -> None:
        key = (object, start)
        self._slices[key] = slice
        self._ages.append(key)
        self._held += len(slice) + _ENTRY_OVERHEAD_BYTES
        while self._held > self._capacity:
            oldest = self._slices.pop(self._ages.popleft())
            self._held -= len(oldest) + _ENTRY_OVERHEAD_BYTES

    def get(self, object: int, start: int) -> bytearray | None:
        return self._slices.get((object, start))

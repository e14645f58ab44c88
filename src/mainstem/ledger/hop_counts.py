"""Hops: how often records of a stream were copied before, while they wait to be copied on.

Only streams that routers read from are looked at, and only copies: a record that was written is at hop 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from mainstem.ledger.digest import MASK, hash_fields

HopState = tuple[int, list[tuple[int, int, int]]]  # stream, then (start, end, hop)


class HopCounts:
    def __init__(self, state: list[HopState] | None = None) -> None:
        self._of: dict[int, list[tuple[int, int, int]]] = dict(state or ())

    def __contains__(self, stream: int) -> bool:
        return stream in self._of

    def note(self, stream: int, start: int, end: int, hop: int) -> None:
        """Records at [start, end), past all noted before, are copies for the `hop`-th time."""
        ranges = self._of.setdefault(stream, [])
        if ranges and ranges[-1][1:] == (start, hop):
            ranges[-1] = (ranges[-1][0], end, hop)
        else:
            ranges.append((start, end, hop))

    def pieces(self, stream: int, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """[start, end) cut into (start, end, hop)."""
        at = start
        for first, last, hop in self._of.get(stream, ()):
            if last <= at or first >= end:
                continue
            if first > at:
                yield at, first, 0
                at = first
            stop = min(last, end)
            yield at, stop, hop
            at = stop
        if at < end:
            yield at, end, 0

    def cut(self, stream: int, floor: int) -> None:
        """Every router has passed `floor`."""
        ranges = self._of.get(stream)
        if ranges:
            ranges[:] = [(max(start, floor), end, hop) for start, end, hop in ranges if end > floor]
            if not ranges:
                del self._of[stream]

    def forget(self, stream: int) -> None:
        self._of.pop(stream, None)

    def digest(self) -> int:
        total = sum(hash_fields("hops", stream, ranges) for stream, ranges in self._of.items())
        return total & MASK

    def encode(self) -> list[HopState]:
        return [(stream, list(ranges)) for stream, ranges in sorted(self._of.items())]

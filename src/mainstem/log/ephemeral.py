"""Ephemeral streams: records live in this process's memory only, under offsets that are never given out twice.

Nothing of them goes through the commit log but their ceilings. Each start of the broker continues at the ceiling,
and the offsets before it are an explicit gap.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from mainstem import limits
from mainstem.ledger.commands import RaiseCeilings
from mainstem.log.committer import LEADER_EPOCH, Committer
from mainstem.log.group import Placed
from mainstem.log.visibility import Visibility
from mainstem.records.header import SliceFacts, stamp


@dataclass(slots=True)
class _Held:
    start: int  # first offset still in memory
    end: int
    bases: list[int] = field(default_factory=list)
    slices: list[bytearray] = field(default_factory=list)
    bytes: int = 0


class EphemeralStreams:
    def __init__(self, committer: Committer, visibility: Visibility) -> None:
        self._committer = committer
        self._visibility = visibility
        self._held: dict[int, _Held] = {}

    def _stream(self, stream: int) -> _Held:
        held = self._held.get(stream)
        if held is None:
            end = self._visibility.ends[stream]
            held = self._held[stream] = _Held(end, end)
        return held

    async def append(self, stream: int, slice: bytearray, facts: SliceFacts) -> Placed:
        """Keep a slice; the oldest give way past the stream's share of memory."""
        base = await self._reserve(stream, facts.count)
        held = self._stream(stream)
        stamp(slice, base, LEADER_EPOCH)
        held.bases.append(base)
        held.slices.append(slice)
        held.bytes += len(slice)
        held.end = base + facts.count
        if held.bytes > limits.EPHEMERAL_STREAM_BYTES_MAX:
            self._evict(held)
        self._visibility.publish(stream, held.end)
        return base, False

    async def _reserve(self, stream: int, count: int) -> int:
        """The base offset of the next `count` records, once a synced ceiling covers them."""
        while True:
            # Looked up anew each time round: other appends may have passed while this one waited.
            base = self._stream(stream).end
            ceiling = self._visibility.next_ceiling(stream, base + count)
            if ceiling is None and self._visibility.below_ceiling(stream, base + count):
                return base
            await self._committer.propose(RaiseCeilings(((stream, ceiling or base + count),)))

    def _evict(self, held: _Held) -> None:
        """Give up the oldest sixteenth at once, so that the lists shift seldom."""
        keep_bytes = limits.EPHEMERAL_STREAM_BYTES_MAX * 15 // 16
        drop = 0
        while held.bytes > keep_bytes and drop < len(held.slices) - 1:
            held.bytes -= len(held.slices[drop])
            drop += 1
        del held.slices[:drop], held.bases[:drop]
        held.start = max(held.start, held.bases[0])

    def bounds(self, stream: int) -> tuple[int, int]:
        held = self._stream(stream)
        return held.start, held.end

    def held_bytes(self, stream: int) -> int:
        return self._stream(stream).bytes

    def trim(self, stream: int, offset: int) -> int:
        """Forget the slices that end at or before `offset`, and hide what is left below it."""
        held = self._stream(stream)
        held.start = max(held.start, min(offset, held.end))
        while held.bases and (held.bases[1] if len(held.bases) > 1 else held.end) <= held.start:
            held.bytes -= len(held.slices.pop(0))
            held.bases.pop(0)
        return held.start

    def read(self, stream: int, offset: int, max_bytes: int) -> tuple[list[memoryview], int]:
        """Slices from the one that holds `offset` on, and the offset after them."""
        held = self._stream(stream)
        at = max(bisect_right(held.bases, offset) - 1, 0)
        found: list[memoryview] = []
        total = 0
        while at < len(held.slices) and (not found or total + len(held.slices[at]) <= max_bytes):
            found.append(memoryview(held.slices[at]).toreadonly())
            total += len(held.slices[at])
            at += 1
        return found, held.bases[at] if at < len(held.bases) else held.end

    def forget(self, stream: int) -> None:
        self._held.pop(stream, None)

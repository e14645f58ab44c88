"""Which slices of the objects to repack are still needed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.ledger.intervals import DELETED, is_loss
from mainstem.ledger.ledger import Ledger
from mainstem.log.read.extents import Rows, SealedExtents

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Liveness:
    """Liveness of streams, by number, each at one moment. What is dead stays dead."""

    streams: Int64s
    floors: Int64s  # what ends at or below these offsets cannot be read any more
    transactional: Bools  # slices of these streams stay apart: some may be aborted
    gone: dict[int, tuple[Int64s, Int64s]] = field(default_factory=dict)  # stream → ranges deleted or lost

    def needed(self, rows: Rows) -> Bools:
        """Which extents, by stream and base, hold records that may be read."""
        at = np.searchsorted(self.streams, rows["stream"])
        ends = rows["base"] + rows["count"]
        needed: Bools = ends > self.floors[at]
        for stream, (firsts, lasts) in self.gone.items():
            low, high = np.searchsorted(rows["stream"], (stream, stream + 1))
            hole = np.searchsorted(firsts, rows["base"][low:high], side="right") - 1
            needed[low:high] &= (hole < 0) | (lasts[hole] < ends[low:high])
        return needed

    def kept_apart(self, rows: Rows) -> Bools:
        """Which extents must not be joined with their neighbours."""
        return self.transactional[np.searchsorted(self.streams, rows["stream"])]


class _StreamOffsets(NamedTuple):
    """Streams, by number, and the offsets that objects hold of each."""

    streams: Int64s
    bases: Int64s
    ends: Int64s

    def pieces(self) -> Iterator[_StreamOffsets]:
        """As many streams at a time as may block the loop."""
        for low in range(0, len(self.streams), limits.REPACK_STREAMS_AT_ONCE):
            high = low + limits.REPACK_STREAMS_AT_ONCE
            yield _StreamOffsets(self.streams[low:high], self.bases[low:high], self.ends[low:high])


async def liveness(ledger: Ledger, indexes: Sequence[SealedExtents]) -> Liveness:
    """What is live in these objects. A few streams are computed at a time: each as of one moment, which is enough."""
    held = await asyncio.to_thread(_stream_offsets, indexes)
    found = Liveness(
        held.streams, np.zeros(len(held.streams), np.int64), np.zeros(len(held.streams), np.bool_)
    )
    at = 0
    for piece in held.pieces():
        some = slice(at, at + len(piece.streams))
        found.floors[some] = live_from(ledger, *piece)
        touched = ledger.streams.transactions.touched
        found.transactional[some] = [stream in touched for stream in piece.streams.tolist()]
        for stream, base, end in zip(*(column.tolist() for column in piece), strict=True):
            if ranges := _gone(ledger, stream, base, end):
                firsts, lasts = zip(*ranges, strict=True)
                found.gone[stream] = (np.array(firsts), np.array(lasts))
        at = some.stop
        await asyncio.sleep(0)
    return found


def _stream_offsets(indexes: Sequence[SealedExtents]) -> _StreamOffsets:
    spans = np.concatenate([one.spans[one.spans["bytes"] > 0] for one in indexes])
    streams, which = np.unique(spans["stream"].astype(np.int64), return_inverse=True)
    bases = np.full(len(streams), limits.OFFSET_MAX, np.int64)
    ends = np.zeros(len(streams), np.int64)
    np.minimum.at(bases, which, spans["base"])
    np.maximum.at(ends, which, spans["end"])
    return _StreamOffsets(streams, bases, ends)


async def dead_bytes(ledger: Ledger, index: SealedExtents) -> tuple[int, int]:
    """How many of an object's bytes belong to streams that are dead in it, and how many bytes it has."""
    spans = index.spans[index.spans["bytes"] > 0]
    held = _StreamOffsets(spans["stream"].astype(np.int64), spans["base"], spans["end"])
    dead = at = 0
    for piece in held.pieces():
        sizes = spans["bytes"][at : at + len(piece.streams)]
        dead += int(sizes[piece.ends <= live_from(ledger, *piece)].sum())
        at += len(piece.streams)
        await asyncio.sleep(0)
    return dead, int(spans["bytes"].sum())


def _gone(ledger: Ledger, stream: int, base: int, end: int) -> list[tuple[int, int]]:
    """The ranges that are lost, or deleted and not needed by an alias in another stream."""
    holes = ledger.streams.holes(stream)
    if not len(holes):
        return []
    return [
        (first, last)
        for first, last, reason in holes.overlapping(base, end)
        if is_loss(reason) or (reason == DELETED and not ledger.aliases.reaching(stream, first, last))
    ]


def live_from(ledger: Ledger, streams: Int64s, bases: Int64s, ends: Int64s) -> Int64s:
    """The offset of each stream below which its bytes in [base, end) cannot be read any more: they are before the
    stream's start, or parts serve them, and no alias in another stream needs them."""
    columns, generations, aliases = ledger.streams, ledger.generations, ledger.aliases
    floors: Int64s = np.maximum.reduce(
        [floor[streams] for floor in (columns.delete_floor, columns.evict_floor, columns.expiry_floor)]
    )
    for row, stream in enumerate(streams.tolist()):
        if generations.serves(stream):
            floors[row] = generations.frontier(stream)
    floors[~columns.alive[streams]] = limits.OFFSET_MAX
    for row in np.flatnonzero(floors > bases).tolist() if aliases.feeds else ():
        if aliases.reaching(int(streams[row]), int(bases[row]), min(int(floors[row]), int(ends[row]))):
            floors[row] = bases[row]
    return floors

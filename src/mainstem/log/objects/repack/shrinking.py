"""Shrinking: while the log's own objects are repacked, records that have a newer one in the same objects are left out.

A topic with few keys and many writes hardly takes up space then. This goes from the newest slice to the oldest, so it
reads each slice once. What is left of the slices stays in memory until it is copied: beyond a size, older slices are
copied as they are. So are those of streams with many keys, of which little would go: it costs less to compact them
later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mainstem import limits
from mainstem.log.objects.repack.copying import Read
from mainstem.log.objects.repack.rewriting import (
    SliceBlock,
    SlicePiece,
    decoded,
    extents,
    in_order,
    read_block,
    rows_to_compact,
    runs_of,
)
from mainstem.log.read.extents import EXTENT, Rows, SealedExtents, spans_of
from mainstem.ports.commitlog.port import Buffer
from mainstem.records.compacting import KeyIndex, StreamCompaction

SHRUNK_BYTES_MAX = 64 * limits.MIB  # of what is left, in memory
SHRUNK_RECORDS_MIN = 250_000  # of a stream, after which its share of superseded records is judged
SHRUNK_SHARE_MIN = 0.5
SHRUNK_OBJECT = -1  # number of the object in memory

RemovedRange = tuple[int, int, int, int]
"""Stream, base, end, live records: as in PublishRepack."""


class ShrunkObjects(NamedTuple):
    indexes: list[SealedExtents]  # of the objects without the slices that are in memory, and of these
    data: memoryview  # the slices in memory
    removed: tuple[RemovedRange, ...]
    read_records: int
    removed_bytes: int
    many_keys: tuple[int, ...] = ()  # streams with few superseded records

    def reading(self, read: Read) -> Read:
        """Also read the object in memory."""

        async def read_both(number: int, start: int, length: int, again: bool) -> Buffer:
            if number == SHRUNK_OBJECT:
                return self.data[start : start + length]
            return await read(number, start, length, again)

        return read_both


async def shrink(
    indexes: Sequence[SealedExtents], streams: Sequence[StreamCompaction], read: Read, keys: KeyIndex
) -> ShrunkObjects:
    """Leave out superseded records of these streams."""
    left = [np.ones(len(one.rows), np.bool_) for one in indexes]
    pieces: list[SlicePiece] = []
    removed: list[RemovedRange] = []
    many_keys: list[int] = []
    size = read_records = stored_bytes = 0
    for stream in streams:
        bounds, count, seen = [], 0, 0
        for index, others in reversed(list(zip(indexes, left, strict=True))):
            chosen = rows_to_compact(index, stream, others)
            for run in reversed(runs_of(index.rows[chosen])):
                few = seen >= SHRUNK_RECORDS_MIN and count < SHRUNK_SHARE_MIN * seen
                if few or size >= SHRUNK_BYTES_MAX:
                    break
                block = await read_block(read, index.number, index.rows[chosen], run)
                found = await asyncio.to_thread(_shrink_block, stream, keys, block)
                pieces += found.pieces
                size += sum(len(piece.data) for piece in found.pieces)
                seen += found.read
                whole = ~found.raw
                others[chosen[run.first : run.last][whole]] = False
                stored_bytes += int(block.rows["length"][whole].sum())
                if found.removed:
                    count += found.removed
                    bounds += [
                        int(block.rows["base"][0]),
                        int(block.rows["base"][-1] + block.rows["count"][-1]),
                    ]
        read_records += seen
        if count:
            removed.append((stream.stream, min(bounds), max(bounds), count))
        if seen >= SHRUNK_RECORDS_MIN and count < SHRUNK_SHARE_MIN * seen:
            many_keys.append(stream.stream)
    in_memory = await asyncio.to_thread(object_of, pieces)
    remaining = [without_rows(one, others) for one, others in zip(indexes, left, strict=True)]
    return ShrunkObjects(
        [*remaining, in_memory[0]],
        in_memory[1],
        tuple(sorted(removed)),
        read_records,
        stored_bytes - size,
        tuple(many_keys),
    )


class _ShrunkBlock(NamedTuple):
    pieces: list[SlicePiece]
    raw: np.typing.NDArray[np.bool_]  # which extents are copied as they are
    read: int
    removed: int


def _shrink_block(stream: StreamCompaction, keys: KeyIndex, block: SliceBlock) -> _ShrunkBlock:
    pieces: list[SlicePiece] = []
    raws = []
    read = removed = 0
    for one in reversed(list(decoded(block, 0, len(block.rows)))):
        kept, superseded = stream.keep_last(keys, one.slices)
        written = one.slices.rewritten(kept, stream.last)
        pieces.append(SlicePiece(extents(stream, written), written.data))
        raws.append(one.raw)
        read, removed = read + len(kept), removed + superseded
    return _ShrunkBlock(in_order(pieces[::-1]), np.concatenate(raws[::-1]), read, removed)


def object_of(pieces: Sequence[SlicePiece]) -> tuple[SealedExtents, memoryview]:
    """An object in memory that holds the pieces: its index and its bytes."""
    rows: list[Rows] = [np.empty(0, EXTENT)]
    at = 0
    for piece in pieces:
        moved = piece.rows.copy()
        moved["start"] += at
        rows.append(moved)
        at += len(piece.data)
    merged = np.concatenate(rows)
    merged = merged[np.lexsort((merged["base"], merged["stream"]))]
    data = memoryview(b"".join(piece.data for piece in pieces))
    return SealedExtents(SHRUNK_OBJECT, spans_of(merged), merged), data


def without_rows(index: SealedExtents, others: np.typing.NDArray[np.bool_]) -> SealedExtents:
    """An index with only these of its rows."""
    if others.all():
        return index
    rows = index.rows[others]
    return SealedExtents(index.number, spans_of(rows), rows)

"""Erasing: rewrite files of the log without the bytes of records that nobody can read.

Repacking drops slices that are dead as a whole. Of the other slices of some streams, this leaves out the records that
were deleted, aborted or trimmed, as compaction leaves out superseded ones: offsets do not change. A record that a copy
in another stream still needs stays.

Damaged slices, and those that cannot be decoded, stay as they are; `HeldRecords.opaque` counts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mainstem.ledger.intervals import ABORTED, DELETED
from mainstem.ledger.ledger import Ledger
from mainstem.log.objects.repack.copying import Read
from mainstem.log.objects.repack.rewriting import (
    SliceBlock,
    SlicePiece,
    decoded,
    extents,
    in_order,
    read_block,
    read_blocks,
    runs_of,
)
from mainstem.log.objects.repack.shrinking import SHRUNK_BYTES_MAX, ShrunkObjects, object_of, without_rows
from mainstem.log.read.extents import SealedExtents
from mainstem.records import kernels
from mainstem.records.compacting import StreamCompaction

Int64s = npt.NDArray[np.int64]
Ranges = list[tuple[int, int]]


class HeldRecords(NamedTuple):
    """What a file holds of the records to leave out."""

    any: bool
    opaque: int  # slices that cannot be decoded, in their ranges


def unreadable_records(ledger: Ledger, streams: Iterable[int]) -> list[StreamCompaction]:
    """By stream, the ranges of records that nobody can read, in the stream or in a copy of it."""
    found = []
    for stream in streams:
        if not ledger.streams.exists(stream):
            continue  # repacking drops all of it
        ranges = _subtract(_removed(ledger, stream), _needed_by_copies(ledger, stream))
        if ranges:
            apart = stream in ledger.streams.transactions.touched
            found.append(StreamCompaction(stream, 0, 0, holes=ranges, apart=apart))
    return found


def _removed(ledger: Ledger, stream: int) -> Ranges:
    start = ledger.streams.start(stream)
    holes = [
        (first, last)
        for first, last, reason in ledger.streams.holes(stream)
        if reason in (DELETED, ABORTED) and last > start
    ]
    return [(0, start), *holes] if start else holes


def _needed_by_copies(ledger: Ledger, stream: int) -> Ranges:
    """The offsets of a stream that live copies in other streams are read from, merged."""
    needed: Ranges = []
    for copy, run in ledger.aliases.copies_from(stream):
        if not ledger.streams.exists(copy):
            continue
        shift = run.base - run.origin_base
        # Before its frontier, the parts of the copy serve it.
        first = max(run.base, ledger.generations.frontier(copy))
        live = ledger.streams.holes(copy).live(first, run.end)
        needed += [(low - shift, high - shift) for low, high in live]
    return _merged(needed)


def _merged(ranges: Ranges) -> Ranges:
    merged: Ranges = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _subtract(ranges: Ranges, taken: Ranges) -> Ranges:
    """Disjoint rising ranges without others, which are disjoint and rise too."""
    left: Ranges = []
    at = 0
    for first, last in ranges:
        while at < len(taken) and taken[at][1] <= first:
            at += 1
        following = at
        while following < len(taken) and taken[following][0] < last:
            low, high = taken[following]
            if low > first:
                left.append((first, low))
            first = max(first, high)
            following += 1
        if first < last:
            left.append((first, last))
    return left


def rows_in_ranges(index: SealedExtents, stream: StreamCompaction) -> Int64s:
    """Which rows of a file overlap the ranges to leave out of a stream."""
    low, high = np.searchsorted(index.rows["stream"], (stream.stream, stream.stream + 1))
    rows = index.rows[low:high]
    starts, ends = np.array(stream.holes, np.int64).T
    at = np.searchsorted(ends, rows["base"], side="right")
    inside = at < len(starts)
    inside[inside] &= starts[at[inside]] < (rows["base"] + rows["count"])[inside]
    found: Int64s = low + np.flatnonzero(inside)
    return found


async def held_records(index: SealedExtents, streams: Sequence[StreamCompaction], read: Read) -> HeldRecords:
    """Whether a file holds records to leave out."""
    opaque = 0
    for stream in streams:
        rows = index.rows[rows_in_ranges(index, stream)]
        async for block in read_blocks(read, index.number, rows):
            held, undecoded = await asyncio.to_thread(_held_in_block, stream, block)
            opaque += undecoded
            if held:
                return HeldRecords(True, opaque)
    return HeldRecords(False, opaque)


def _held_in_block(stream: StreamCompaction, block: SliceBlock) -> tuple[bool, int]:
    opaque = 0
    for one in decoded(block, 0, len(block.rows)):
        opaque += int(one.raw.sum())
        if stream.gone(one.slices.fields[kernels.OFFSET]).any():
            return True, opaque
    return False, opaque


async def leave_out(
    indexes: Sequence[SealedExtents], streams: Sequence[StreamCompaction], read: Read
) -> ShrunkObjects:
    """Leave these records out of objects that are copied. What is left of their slices stays in memory until then:
    beyond a size, the rest is copied as it is, and must be copied again."""
    left = [np.ones(len(one.rows), np.bool_) for one in indexes]
    pieces: list[SlicePiece] = []
    size = read_records = stored_bytes = 0
    for stream in streams:
        for index, others in zip(indexes, left, strict=True):
            chosen = rows_in_ranges(index, stream)
            for run in runs_of(index.rows[chosen]):
                if size >= SHRUNK_BYTES_MAX:
                    break
                block = await read_block(read, index.number, index.rows[chosen], run)
                found = await asyncio.to_thread(_leave_out_of_block, stream, block)
                pieces += found.pieces
                size += sum(len(piece.data) for piece in found.pieces)
                read_records += found.read
                others[chosen[run.first : run.last][found.rewritten]] = False
                stored_bytes += int(block.rows["length"][found.rewritten].sum())
    rows, data = await asyncio.to_thread(object_of, pieces)
    remaining = [without_rows(one, others) for one, others in zip(indexes, left, strict=True)]
    return ShrunkObjects([*remaining, rows], data, (), read_records, stored_bytes - size)


class _RewrittenBlock(NamedTuple):
    pieces: list[SlicePiece]
    rewritten: npt.NDArray[np.bool_]  # which extents; the others are copied as they are
    read: int


def _leave_out_of_block(stream: StreamCompaction, block: SliceBlock) -> _RewrittenBlock:
    pieces: list[SlicePiece] = []
    rewritten = []
    read = 0
    for one in decoded(block, 0, len(block.rows)):
        kept = ~stream.gone(one.slices.fields[kernels.OFFSET])
        read += len(kept)
        rewritten.append(~one.raw & (not kept.all()))
        if not kept.all():
            written = one.slices.rewritten(kept, -1)
            pieces.append(SlicePiece(extents(stream, written), written.data))
    return _RewrittenBlock(in_order(pieces), np.concatenate(rewritten), read)

"""Slices of one stream in objects and repacked files, read to leave out some of their records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mainstem.errors import TooLarge
from mainstem.log.objects.repack.copying import (
    REPACK_READ_BYTES,
    REPACK_READ_GAP_BYTES,
    REPACKED_EXTENT_BYTES,
    Read,
)
from mainstem.log.read.extents import EXTENT, Rows, SealedExtents
from mainstem.ports.commitlog.port import Buffer
from mainstem.records import compaction_kernels as kernel
from mainstem.records.compacting import CompactedSlices, DecodedSlices, StreamCompaction, decode_slices
from mainstem.records.slices import SliceRun, coalesce, is_intact

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class SliceBlock(NamedTuple):
    """Consecutive extents of a file, and the bytes that hold them."""

    rows: Rows
    data: memoryview
    start: int  # of the bytes, in the file
    damaged: Bools


class SlicePiece(NamedTuple):
    """Extents in the order of stream and base, and their bytes; starts count from the bytes."""

    rows: Rows
    data: Buffer


def runs_of(rows: Rows) -> list[SliceRun]:
    """The reads that cover extents of one object, in order."""
    places = list(zip(rows["start"].tolist(), rows["length"].tolist(), strict=True))
    return coalesce(places, REPACK_READ_GAP_BYTES, REPACK_READ_BYTES)


async def read_block(read: Read, number: int, rows: Rows, run: SliceRun) -> SliceBlock:
    some = rows[run.first : run.last]
    for again in (False, True):  # the second read tells damage in transit from damage in storage
        data = memoryview(await read(number, run.start, run.length, again))
        damaged = await asyncio.to_thread(_damaged, some, data, run.start)
        if not damaged.any():
            break
    return SliceBlock(some, data, run.start, damaged)


async def read_blocks(read: Read, number: int, rows: Rows) -> AsyncIterator[SliceBlock]:
    """Extents of an object with their bytes, a few at a time, in order."""
    for run in runs_of(rows):
        yield await read_block(read, number, rows, run)


def _damaged(rows: Rows, data: memoryview, start: int) -> Bools:
    columns = (rows["start"].tolist(), rows["length"].tolist(), rows["crc"].tolist())
    return np.array(
        [
            not is_intact(data[begin - start : begin - start + length], length, crc)
            for begin, length, crc in zip(*columns, strict=True)
        ],
        np.bool_,
    )


class DecodedRows(NamedTuple):
    rows: Rows
    raw: Bools  # which rows stay as they are
    slices: DecodedSlices


def decoded(block: SliceBlock, low: int, high: int) -> Iterator[DecodedRows]:
    """The extents of a block, decoded a few at a time."""
    rows, raw = block.rows[low:high], block.damaged[low:high].copy()
    whole = np.flatnonzero(~raw)
    starts, lengths, bases = (rows[name][whole].astype(np.int64) for name in ("start", "length", "base"))
    try:
        slices = decode_slices(block.data, starts - block.start, lengths, bases)
    except TooLarge:
        middle = (low + high) // 2
        yield from decoded(block, low, middle)
        yield from decoded(block, middle, high)
        return
    raw[whole[slices.opaque]] = True
    yield DecodedRows(rows, raw, slices)


def raw_piece(block: SliceBlock, rows: Rows) -> SlicePiece:
    start, end = int(rows["start"][0]), int(rows["start"][-1]) + int(rows["length"][-1])
    moved = rows.copy()
    moved["start"] -= start
    return SlicePiece(moved, block.data[start - block.start : end - block.start])


def extents(stream: StreamCompaction, written: CompactedSlices) -> Rows:
    """The extents of batches: an extent has no gaps between batches, and is small or a single batch."""
    batches = written.batches
    if not len(batches):
        return np.empty(0, EXTENT)
    starts, stops = batches[:, kernel.OUT_START], batches[:, kernel.OUT_END]
    bases = batches[:, kernel.OUT_BASE]
    ends = bases + batches[:, kernel.OUT_OFFSETS]
    apart = (ends[:-1] != bases[1:]) | (np.diff(starts // REPACKED_EXTENT_BYTES) > 0)
    if stream.apart:
        apart |= np.diff(batches[:, kernel.OUT_SLICE]) > 0
    firsts = np.concatenate(([0], np.flatnonzero(apart) + 1))
    lasts = np.append(firsts[1:], len(batches)) - 1
    rows = np.zeros(len(firsts), EXTENT)
    rows["stream"] = stream.stream
    rows["base"] = bases[firsts]
    rows["count"] = ends[lasts] - bases[firsts]
    rows["start"] = starts[firsts]
    rows["length"] = stops[lasts] - starts[firsts]
    rows["max_timestamp"] = np.maximum.reduceat(batches[:, kernel.OUT_TIME], firsts)
    data = memoryview(written.data)
    rows["crc"] = [
        crc32c(data[start:stop])
        for start, stop in zip(starts[firsts].tolist(), stops[lasts].tolist(), strict=True)
    ]
    return rows


def in_order(pieces: list[SlicePiece]) -> list[SlicePiece]:
    """Pieces that overlap in offsets become one."""
    pieces = [piece for piece in pieces if len(piece.rows)]
    bases = [int(piece.rows["base"][0]) for piece in pieces]
    lasts = [int(piece.rows["base"][-1]) for piece in pieces]
    if all(last < base for last, base in zip(lasts, bases[1:], strict=False)):
        return pieces
    at, placed = 0, []
    for piece in pieces:
        moved = piece.rows.copy()
        moved["start"] += at
        placed.append(moved)
        at += len(piece.data)
    rows = np.concatenate(placed)
    return [SlicePiece(rows[np.argsort(rows["base"])], b"".join(piece.data for piece in pieces))]


def rows_to_compact(index: SealedExtents, stream: StreamCompaction, needed: Bools) -> Int64s:
    """Which rows of a file hold records of a stream that may be superseded."""
    low, high = np.searchsorted(index.rows["stream"], (stream.stream, stream.stream + 1))
    inside = needed[low:high] & (index.rows["base"][low:high] < stream.end)
    found: Int64s = low + np.flatnonzero(inside)
    return found

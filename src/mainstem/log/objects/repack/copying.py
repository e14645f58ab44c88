"""Copy slices of objects into files in which each stream's slices are contiguous."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from mainstem import limits
from mainstem.ledger.repacked_objects import FIRST_NUMBER
from mainstem.log.objects.repack import layout
from mainstem.log.objects.repack.layout import Origin
from mainstem.log.objects.repack.liveness import Liveness
from mainstem.log.objects.repack.plan import StreamEnds
from mainstem.log.read.extents import Rows, SealedExtents
from mainstem.ports.commitlog.port import Buffer
from mainstem.records.header import stamp, walk
from mainstem.records.slices import coalesce, is_intact, salvage

REPACK_READ_BYTES = 4 * limits.MIB  # copied at a time
REPACK_READ_GAP_BYTES = 64 * limits.KIB  # one read covers slices closer than this
REPACKED_FILE_EXTENTS_MAX = 64 * limits.KIB  # bounds its index
REPACKED_EXTENT_BYTES = 32 * limits.KIB  # consecutive small slices are joined up to this size

Int64s = npt.NDArray[np.int64]
Read = Callable[[int, int, int, bool], Awaitable[Buffer]]
"""Bytes of an object: its number, start, length, and whether the previous read of them was damaged."""


class UnreadableSlice(NamedTuple):
    """A slice, or batches of one, that is damaged."""

    stream: int
    base: int
    end: int


@dataclass(slots=True)
class CopiedFile:
    """A file ready to be stored."""

    stream: int  # of its first slice
    offset: int
    buffers: list[Buffer]
    damaged: list[UnreadableSlice] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(map(len, self.buffers))


class _Slices(NamedTuple):
    """Extents by stream and base, and the object of each."""

    rows: Rows
    objects: Int64s


async def copied_files(
    indexes: Sequence[SealedExtents],
    live: Liveness,
    ends: StreamEnds,
    read: Read,
    origin: Origin,
    *,
    file_bytes: int,
) -> AsyncIterator[CopiedFile]:
    """The live slices of objects, as files ordered by stream and offset. One file is in memory at a time."""
    slices = await asyncio.to_thread(_order_slices, indexes, live)
    cuts = _cuts(slices.rows, file_bytes)
    for at, (low, high) in enumerate(cuts):
        after = int(slices.rows["stream"][cuts[at + 1][0]]) if at + 1 < len(cuts) else 1 << 32
        before = int(slices.rows["stream"][low]) if at else 0
        part = _Slices(slices.rows[low:high], slices.objects[low:high])
        yield await _copied(part, live, ends.between(before, after), read, origin)


def _order_slices(indexes: Sequence[SealedExtents], live: Liveness) -> _Slices:
    kept: list[_Slices] = []
    for one in indexes:
        rows = one.rows[live.needed(one.rows)]
        kept.append(_Slices(rows, np.full(len(rows), one.number, np.int64)))
    rows = np.concatenate([one.rows for one in kept])
    order = np.lexsort((rows["base"], rows["stream"]))
    return _Slices(rows[order], np.concatenate([one.objects for one in kept])[order])


def _cuts(rows: Rows, file_bytes: int) -> list[tuple[int, int]]:
    """The row ranges of the files."""
    if not len(rows):
        return []
    sizes = rows["length"].cumsum(dtype=np.int64)
    files = (sizes - 1) // file_bytes + np.arange(len(rows)) // REPACKED_FILE_EXTENTS_MAX
    edges = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(rows)]
    return list(pairwise(edges))


async def _copied(part: _Slices, live: Liveness, ends: StreamEnds, read: Read, origin: Origin) -> CopiedFile:
    rows = part.rows.copy()
    sizes = rows["length"].astype(np.int64)
    places = sizes.cumsum() - sizes
    # A bytearray would be zeroed here, on the loop.
    payload = memoryview(np.empty(int(sizes.sum()), np.uint8))  # type: ignore[arg-type]
    whole = np.ones(len(rows), np.bool_)
    salvaged: list[Rows] = []
    damaged: list[UnreadableSlice] = []
    # Batches tell joined slices apart; a slice of a transactional stream counts as a whole.
    joined = (part.objects >= FIRST_NUMBER) & ~live.kept_apart(rows)
    for number, start, length, some in await asyncio.to_thread(_reads, part):
        for again in (False, True):  # the second read tells damage in transit from damage in storage
            block = await read(number, start, length, again)
            bad = await asyncio.to_thread(_scatter, payload, block, start, rows[some], places[some])
            if not bad:
                break
        whole[some[bad]] = False
        for at in some[bad].tolist():
            begin = int(rows["start"][at]) - start
            piece = memoryview(block)[begin : begin + int(sizes[at])] if joined[at] else b""
            target = payload[int(places[at]) : int(places[at]) + int(sizes[at])]
            target[:] = bytes(len(target))  # zeroes where no slice goes
            left, lost = _salvage_extent(rows[at : at + 1], piece, target)
            left["start"] += int(places[at])
            salvaged.append(left)
            damaged += lost
    rows["start"] = places
    kept = np.concatenate([rows[whole], *salvaged])
    kept = kept[np.lexsort((kept["base"], kept["stream"]))]
    buffers = await asyncio.to_thread(_built, kept, live, ends, payload, origin)
    return CopiedFile(int(rows["stream"][0]), int(rows["base"][0]), buffers, damaged)


def _salvage_extent(row: Rows, stored: Buffer, target: memoryview) -> tuple[Rows, list[UnreadableSlice]]:
    """Copy the intact batches of a damaged extent to `target`. Returns their extents, relative to it, and the loss."""
    stream, count, base, _, length, *_ = row[0].tolist()
    found = salvage(memoryview(stored), base, count)
    left: list[Rows] = []
    for intact, first, end, at in (
        (found.before, base, found.first, 0),
        (found.after, found.end, base + count, length - len(found.after)),
    ):
        if intact:
            piece = target[at : at + len(intact)]
            piece[:] = intact
            stamp(piece, first, 0)  # only to make the checksum valid: readers stamp the batches again
            one = row.copy()
            one["base"], one["count"], one["start"], one["length"] = first, end - first, at, len(intact)
            one["crc"] = crc32c(piece)
            one["max_timestamp"] = max(header.max_timestamp for header in walk(piece))
            left.append(one)
    lost = UnreadableSlice(stream, found.first, found.end)
    return np.concatenate([row[:0], *left]), [lost] if lost.base < lost.end else []


def _reads(part: _Slices) -> list[tuple[int, int, int, Int64s]]:
    """The reads that cover the slices: object, start, length, and which slices it covers."""
    order = np.lexsort((part.rows["start"], part.objects))
    found = []
    for some in np.split(order, np.flatnonzero(np.diff(part.objects[order])) + 1):
        places = list(zip(part.rows["start"][some].tolist(), part.rows["length"][some].tolist(), strict=True))
        for run in coalesce(places, REPACK_READ_GAP_BYTES, REPACK_READ_BYTES):
            number = int(part.objects[some[0]])
            found.append((number, run.start, run.length, some[run.first : run.last]))
    return found


def _scatter(payload: memoryview, block: Buffer, start: int, rows: Rows, places: Int64s) -> list[int]:
    """Check slices and copy them to their places. Returns which are damaged."""
    source = memoryview(block)
    bad: list[int] = []
    columns = (rows["start"].tolist(), rows["length"].tolist(), rows["crc"].tolist(), places.tolist())
    for at, (begin, length, crc, place) in enumerate(zip(*columns, strict=True)):
        slice = source[begin - start : begin - start + length]
        if not is_intact(slice, length, crc):
            bad.append(at)
        else:
            payload[place : place + length] = slice
    return bad


def _built(rows: Rows, live: Liveness, ends: StreamEnds, payload: memoryview, origin: Origin) -> list[Buffer]:
    joined = _joined(rows, live, payload)
    # A file also lists streams that continue in the next file, and streams that only an alias needs.
    streams = np.union1d(ends.streams, joined["stream"].astype(np.int64))
    reach = np.zeros(len(streams), np.int64)
    reach[np.searchsorted(streams, ends.streams)] = ends.ends
    return layout.encode(joined, streams, reach, payload, origin)


def _joined(rows: Rows, live: Liveness, payload: memoryview) -> Rows:
    """Small adjacent extents, joined: a smaller index, and less work for readers."""
    if not len(rows):
        return rows
    starts = rows["start"].astype(np.int64)
    before, after = rows[:-1], rows[1:]
    apart = (
        (before["stream"] != after["stream"])
        | (before["base"] + before["count"] != after["base"])
        | (starts[:-1] + before["length"] != starts[1:])
        | (np.diff(starts // REPACKED_EXTENT_BYTES) > 0)
        | live.kept_apart(after)
    )
    firsts = np.concatenate(([0], np.flatnonzero(apart) + 1))
    joined = rows[firsts]
    joined["count"] = np.add.reduceat(rows["count"], firsts)
    joined["length"] = np.add.reduceat(rows["length"], firsts)
    joined["max_timestamp"] = np.maximum.reduceat(rows["max_timestamp"], firsts)
    for at in np.flatnonzero(np.diff(firsts, append=len(rows)) > 1).tolist():
        start = int(joined["start"][at])
        joined["crc"][at] = crc32c(payload[start : start + int(joined["length"][at])])
    return joined

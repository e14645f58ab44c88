"""Stored slices: which ones to read at once, which are intact, and what is left of a damaged one.

Every batch has its own checksum, so the batches that match it are intact, wherever the damage is. Their offsets are
known too: batches before the damage count from the first offset, batches after it from the last, because the offsets
in a damaged batch's header cannot be trusted. Batches between two damaged ones are lost with them. The length field of
each batch leads to the next one; if a length is damaged, the rest is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c

from mainstem import limits
from mainstem.records.header import CRC_COVERS_FROM, HEADER, HEADER_BYTES, LENGTH_COVERS_FROM, MAGIC


class SliceRun(NamedTuple):
    """Slices that one read covers: [first, last) of those wanted, and their bytes in the object."""

    first: int
    last: int
    start: int
    length: int


def coalesce(slices: Sequence[tuple[int, int]], gap_bytes: int, block_bytes: int = 1 << 63) -> list[SliceRun]:
    """Combine slices, given as (start, length), into reads: each covers neighbours at most `gap_bytes` apart that start
    in the same block of the object. A gap costs less to read than another request."""
    runs: list[SliceRun] = []
    first, begin, end, block_end = 0, 0, -1, 0
    for at, (start, length) in enumerate(slices):
        if start < end or start > end + gap_bytes or start >= block_end:
            if at:
                runs.append(SliceRun(first, at, begin, end - begin))
            first, begin, block_end = at, start, start - start % block_bytes + block_bytes
        end = start + length
    if slices:
        runs.append(SliceRun(first, len(slices), begin, end - begin))
    return runs


def cut(
    runs: Sequence[SliceRun],
    blocks: Iterable[bytes | bytearray | memoryview],
    slices: Sequence[tuple[int, int]],
) -> Iterator[memoryview]:
    """The bytes of each slice, from the blocks that were read for `runs`; fewer bytes where a block ends too early."""
    for run, block in zip(runs, blocks, strict=True):
        view = memoryview(block)
        for start, length in slices[run.first : run.last]:
            yield view[start - run.start : start - run.start + length]


def is_intact(slice: memoryview, length: int, crc: int) -> bool:
    return len(slice) == length and crc32c(slice) == crc


class Salvaged(NamedTuple):
    """The intact batches at both ends of a slice, and the lost offsets [first, end) between them."""

    before: memoryview
    after: memoryview
    first: int
    end: int


def salvage(data: memoryview, base: int, offsets: int) -> Salvaged:
    """The intact batches of a slice that covers this number of offsets from `base`. All come before the loss if only
    the fields that readers overwrite are damaged."""
    at = front_bytes = front_offsets = back_offsets = 0
    back_at, damaged = len(data), False
    while at < len(data):
        end, covered = _batch(data, at)
        if end is None:
            back_at, back_offsets, damaged = len(data), 0, True
            break
        if covered is None:
            back_at, back_offsets, damaged = end, 0, True
        elif damaged:
            back_offsets += covered
        else:
            front_bytes, front_offsets = end, front_offsets + covered
        at = end
    if front_offsets + back_offsets + damaged > offsets or (not damaged and front_offsets != offsets):
        return Salvaged(data[:0], data[:0], base, base + offsets)  # not the original batches
    return Salvaged(data[:front_bytes], data[back_at:], base + front_offsets, base + offsets - back_offsets)


def _batch(data: memoryview, at: int) -> tuple[int | None, int | None]:
    """The end of a batch, if it is known, and the offsets it covers, if it is intact."""
    if len(data) - at < HEADER_BYTES:
        return None, None
    _, length, _, magic, crc, _, delta, *_ = HEADER.unpack_from(data, at)
    end = at + LENGTH_COVERS_FROM + length
    if length < HEADER_BYTES - LENGTH_COVERS_FROM or end > len(data):
        return None, None
    plausible = magic == MAGIC and 0 <= delta < limits.BATCH_RECORDS_MAX
    intact = plausible and crc32c(data[at + CRC_COVERS_FROM : end]) == crc
    return end, delta + 1 if intact else None

"""Chunks: what one read gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mainstem.log.read.extents import Extent
from mainstem.log.read.part_cache import PartChunk
from mainstem.records.header import walk
from mainstem.records.rewrite import without_ranges


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Whole batches of one stream, stamped. The first may begin before the offset asked for."""

    batches: tuple[memoryview, ...]
    next_offset: int
    of_part: bool = False  # made of a part: no markers of transactions, nor what they aborted


def part_chunk(
    chunks: Sequence[PartChunk], offset: int, max_bytes: int, deleted: list[tuple[int, int]]
) -> ReadChunk:
    """What consecutive chunks of a part hold from `offset` on: one batch at least, if there is one."""
    taken: list[memoryview] = []
    size = 0
    next_offset = offset
    for chunk in chunks:
        for batch in chunk.batches:
            reach = next(walk(batch)).next_offset
            if reach <= offset:
                continue
            kept = without_ranges(batch, deleted) if deleted else batch
            if taken and size + len(kept) > max_bytes:
                return ReadChunk(tuple(taken), next_offset, of_part=True)
            if len(kept):
                taken.append(kept)
                size += len(kept)
            next_offset = reach
        next_offset = max(next_offset, chunk.end)
    return ReadChunk(tuple(taken), next_offset, of_part=True)


def extents_chunk(batches: list[memoryview], offset: int, extents: list[Extent]) -> ReadChunk:
    """What was read of `extents`, which is the first of them at least, from the batch with `offset` on."""
    next_offset = extents[len(batches) - 1].end
    if extents[0].base < offset:
        batches = [from_batch_with(batches[0], offset), *batches[1:]]
    return ReadChunk(tuple(batch for batch in batches if len(batch)), next_offset)


def from_batch_with(slice: memoryview, offset: int) -> memoryview:
    """Leave out the batches that end before `offset`."""
    for header in walk(slice):
        if header.next_offset > offset:
            return slice[header.position :]
    return slice[len(slice) :]


def without(batches: list[memoryview], deleted: list[tuple[int, int]]) -> list[memoryview]:
    """Leave out the records that were deleted; where there are any, batches are made anew."""
    return [without_ranges(batch, deleted) for batch in batches]

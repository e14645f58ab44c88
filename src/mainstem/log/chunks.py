"""Chunks: what one read gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mainstem.log.part_cache import PartChunk
from mainstem.records.header import walk
from mainstem.records.rewrite import without_ranges


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one stream, stamped. The first may begin before the offset asked for."""

    batches: tuple[memoryview, ...]
    next_offset: int


def part_chunk(
    chunks: Sequence[PartChunk], offset: int, max_bytes: int, deleted: list[tuple[int, int]]
) -> Chunk:
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
                return Chunk(tuple(taken), next_offset)
            if len(kept):
                taken.append(kept)
                size += len(kept)
            next_offset = reach
        next_offset = max(next_offset, chunk.end)
    return Chunk(tuple(taken), next_offset)

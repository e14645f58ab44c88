"""Deletes: remove records permanently on request. Readers get no tombstone.

The broker finds the offsets by reading the keys; the ledger gets only the offsets, and never reads a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from mainstem import limits
from mainstem.broker.routers.tag_matching import Match
from mainstem.broker.streams import StreamService, View, stream_of
from mainstem.broker.topics.floors import expire, floors_of
from mainstem.errors import NotFound, OffsetOutOfRange, RecordsLost, TopicNotFound
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records import kernels
from mainstem.records.index import Integers, index_slices
from mainstem.records.reserved_headers import find_reserved_headers
from mainstem.records.undecodable import decoded

DELETE_RECORDS_PER_COMMAND = 100_000  # a larger delete takes several commands
DELETE_SIZING_BYTES_MAX = 64 * limits.MIB  # read to compute the deleted bytes; above it, the average is used

Ranges = tuple[tuple[int, int], ...]


class Matcher(Protocol):
    def offsets(self, batches: memoryview) -> Integers:
        """The offsets of matching records in some stamped batches."""
        ...


@dataclass(slots=True)
class _MatchingRecords:
    offsets: list[Integers] = field(default_factory=list)
    sizes: list[Integers] = field(default_factory=list)
    read_bytes: int = 0

    def add(self, others: _MatchingRecords) -> None:
        self.offsets += others.offsets
        self.sizes += others.sizes


class DeleteService:
    def __init__(self, log: Log, clock: Clock, streams: StreamService) -> None:
        self._log = log
        self._clock = clock
        self._streams = streams

    async def delete(
        self, topic: Topic, *, before_seq: int | None = None, match: Match | None = None, partition: int = 0
    ) -> int:
        """Delete existing records below `before_seq` that match. Returns how many were deleted.

        Raises PartitionNotFound, or TopicNotFound if the topic is deleted in the meantime."""
        stream = stream_of(topic, partition)
        try:
            if topic.config.ttl_ms:
                await expire(self._log, topic, stream, self._clock.now_ms())
            floors = floors_of(self._log, stream, topic.config, self._clock.now_ms())
            end = floors.end if before_seq is None else max(0, min(before_seq - 1, floors.end))
            if end <= floors.start:
                return 0
            if match is None:
                return await self._trim(stream, floors.start, end)
            return await self._punch(stream, await self._scan(stream, floors.start, end, match))
        except NotFound:
            raise TopicNotFound(topic.name) from None

    async def delete_matching(self, stream: int, match: Matcher, below: int | None = None) -> int:
        """Delete the committed records of a stream, below an offset if it is given, that match, even those whose time
        to live is over. Returns how many. Raises NotFound if the topic is deleted."""
        start, end = self._streams.bounds(stream)
        end = end if below is None else min(below, end)
        return await self._punch(stream, await self._scan(stream, start, end, match))

    async def _trim(self, stream: int, start: int, end: int) -> int:
        streams, number = self._log.streams.of(stream).state(stream)
        size = 0
        if streams.tracked(number) is None and end < self._log.streams.of(stream).bounds(stream)[1]:
            # Without rows for each record the ledger would estimate their bytes by the average.
            found = await self._scan(stream, start, end, None)
            size = int(sum(sizes.sum() for sizes in found.sizes))
        return await self._log.streams.of(stream).trim(stream, end, "delete", size)

    async def _punch(self, stream: int, found: _MatchingRecords) -> int:
        if not found.offsets:
            return 0
        offsets, sizes = np.concatenate(found.offsets), np.concatenate(found.sizes)
        deleted = 0
        for first in range(0, len(offsets), DELETE_RECORDS_PER_COMMAND):
            part = slice(first, first + DELETE_RECORDS_PER_COMMAND)
            deleted += await self._log.streams.of(stream).delete(
                stream, as_ranges(offsets[part]), int(sizes[part].sum())
            )
        return deleted

    async def _scan(self, stream: int, start: int, end: int, match: Matcher | None) -> _MatchingRecords:
        """The records of [start, end) that match, and their sizes."""
        found = _MatchingRecords()
        at = start
        while at < end:
            try:
                chunk = await self._streams.read(stream, at, limits.READ_BYTES_DEFAULT, view=View.COMMITTED)
            except RecordsLost as loss:
                at = loss.end
                continue
            except OffsetOutOfRange as moved:
                if moved.start <= at:
                    raise
                at = moved.start  # trimmed in the meantime
                continue
            if match is None:
                found.read_bytes += sum(map(len, chunk.batches))
                if found.read_bytes > DELETE_SIZING_BYTES_MAX:
                    return _MatchingRecords()  # too many: use the average size
            reached = chunk.next_offset
            if chunk.batches:
                look = partial(_find_matching, start=at, end=end, match=match)
                try:
                    matching, reached = await asyncio.to_thread(decoded, chunk.batches, at, reached, look)
                except RecordsLost as loss:
                    at = loss.end
                    continue
                found.add(matching)
            if reached <= at:
                break
            at = reached
        return found


def _find_matching(
    batches: Sequence[memoryview], start: int, end: int, match: Matcher | None
) -> _MatchingRecords:
    found = _MatchingRecords()
    if not batches:
        return found
    joined = [memoryview(b"".join(batches))] if len(batches) > 1 else batches
    wanted = None if match is None else match.offsets(joined[0])
    for index in index_slices(joined):
        offsets = index.fields[kernels.OFFSET]
        chosen = (offsets >= start) & (offsets < end)
        if wanted is not None:
            chosen &= np.isin(offsets, wanted, assume_unique=True)
        sizes = np.maximum(index.fields[kernels.VALUE_LENGTH], 0)
        if index.headers:
            sizes = sizes + np.maximum(find_reserved_headers(index).meta_length, 0)
        if chosen.any():
            found.offsets.append(offsets[chosen])
            found.sizes.append(sizes[chosen])
    return found


def as_ranges(offsets: Integers) -> Ranges:
    """Rising offsets as half-open ranges."""
    breaks = np.flatnonzero(np.diff(offsets) != 1) + 1
    starts = offsets[np.concatenate(([0], breaks))]
    ends = offsets[np.concatenate((breaks - 1, [-1]))] + 1
    return tuple(zip(starts.tolist(), ends.tolist(), strict=True))

"""Reads all partitions of a topic, merged by time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from mainstem.client.responses import ConsumerRecord, Gap

Item = ConsumerRecord | Gap


class PartitionPage(NamedTuple):
    items: list[Item]
    next_seq: int
    caught_up: bool


Fetch = Callable[[int, int], Awaitable[PartitionPage]]  # partition, sequence number


class _PartitionReader:
    __slots__ = ("caught_up", "items", "next_seq")

    def __init__(self, page: PartitionPage) -> None:
        self.items = deque(page.items)
        self.next_seq = page.next_seq
        self.caught_up = page.caught_up

    def add(self, page: PartitionPage) -> None:
        self.items.extend(page.items)
        self.next_seq = page.next_seq
        self.caught_up = page.caught_up

    @property
    def time_ms(self) -> int:
        first = self.items[0]
        return 0 if isinstance(first, Gap) else first.timestamp_ms


class MergedRead:
    """`positions` has, after a read, where the next one continues."""

    def __init__(self, first: Mapping[int, PartitionPage], fetch: Fetch) -> None:
        self._readers = {partition: _PartitionReader(page) for partition, page in first.items()}
        self._fetch = fetch

    @property
    def positions(self) -> dict[int, int]:
        return {partition: reader.next_seq for partition, reader in self._readers.items()}

    async def read(self) -> AsyncGenerator[list[Item]]:
        """All items up to the ends of the partitions, by time; within a partition always in order.

        It holds about one page of each partition."""
        readers = self._readers
        while True:
            hungry = [
                number for number, reader in readers.items() if not reader.items and not reader.caught_up
            ]
            if hungry:
                pages = await asyncio.gather(
                    *(self._fetch(number, readers[number].next_seq) for number in hungry)
                )
                for number, page in zip(hungry, pages, strict=True):
                    readers[number].add(page)
                continue
            merged = self._merge()
            if not merged:
                return
            yield merged

    def _merge(self) -> list[Item]:
        """The items that are due before a partition must be read further."""
        readers = self._readers
        heap = [(reader.time_ms, number) for number, reader in readers.items() if reader.items]
        heapify(heap)
        merged: list[Item] = []
        while heap:
            number = heap[0][1]
            reader = readers[number]
            merged.append(reader.items.popleft())
            if reader.items:
                heapreplace(heap, (reader.time_ms, number))
            elif reader.caught_up:
                heappop(heap)
            else:
                break
        return merged

"""Read-ahead in repacked files: which reads are in flight, and how they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mainstem import limits
from mainstem.errors import StoreUnreachable
from mainstem.log.objects.repack.read_ahead import (
    REPACKED_AHEAD_BYTES_MAX,
    REPACKED_AHEAD_BYTES_MIN,
    REPACKED_READERS_MAX,
    PlannedRead,
    PrefetchedRead,
    ReadAhead,
)
from mainstem.log.read.extents import Extent

STREAM = 7
A_READ = limits.MIB
A_FILE = 200  # records
END = 1_000


class Reads:
    """A stream in which each read finds ten records in two extents. The test decides when they are loaded."""

    def __init__(self) -> None:
        self.loads: list[list[int]] = []  # the start offsets of each request's reads
        self.gate = asyncio.Event()
        self.extent_bytes = A_READ // 2
        self.damaged_at = END
        self.failing = False
        self.ahead = ReadAhead(self._find, self._load)

    async def _find(self, place: PlannedRead) -> list[Extent]:
        if place.offset >= END:
            return []
        file = place.offset // A_FILE
        return [Extent(file, 5, place.offset + more, 0, self.extent_bytes, 0, 0) for more in (0, 5)]

    async def _load(self, extents: list[Extent]) -> list[memoryview]:
        self.loads.append([extent.base for extent in extents[::2]])
        await self.gate.wait()
        if self.failing:
            raise StoreUnreachable("not now")
        return [memoryview(b"%d" % one.base) for one in extents if one.base < self.damaged_at]

    def take(
        self, offset: int, stream: int = STREAM, max_bytes: int = A_READ
    ) -> asyncio.Task[PrefetchedRead | None]:
        return asyncio.ensure_future(self.ahead.take(PlannedRead(stream, offset, max_bytes), offset + 10))


@pytest.fixture
async def reads() -> AsyncIterator[Reads]:
    made = Reads()
    yield made
    made.ahead.close()


async def _settle() -> None:
    for _ in range(40):
        await asyncio.sleep(0)


async def _second(reads: Reads, start: int = 0) -> asyncio.Task[PrefetchedRead | None]:
    """A reader requests a second sequential read."""
    await reads.take(start)
    await _settle()
    second = reads.take(start + 10)
    await _settle()
    return second


async def test_the_next_read_starts_before_the_first_one_is_loaded(reads: Reads) -> None:
    assert await reads.take(0) is None  # the reader loads it itself
    await _settle()
    assert reads.loads == [[10]]


async def test_from_the_second_sequential_read_on_one_request_fetches_several(reads: Reads) -> None:
    second = await _second(reads)
    assert not second.done()
    assert reads.loads == [[10], [20, 30, 40, 50]]
    reads.gate.set()
    ready = await second
    assert ready is not None
    assert [extent.base for extent in ready.extents] == [10, 15]
    assert ready.batches == [b"10", b"15"]
    third = await reads.take(20)
    assert third is not None
    assert third.batches == [b"20", b"25"]


async def test_more_reads_start_when_half_of_them_are_left(reads: Reads) -> None:
    await _second(reads)
    reads.gate.set()
    await reads.take(20)
    await _settle()
    assert len(reads.loads) == 2
    await reads.take(30)
    await _settle()
    assert reads.loads[2:] == [[60, 70, 80, 90]]
    for offset in range(40, END, 10):
        assert await reads.take(offset) is not None
    assert len(reads.loads) <= 2 + (END - 60) // 40 + END // A_FILE


async def test_a_request_stays_within_one_file_and_a_size(reads: Reads) -> None:
    await _second(reads, A_FILE - 30)
    assert reads.loads[-1] == [A_FILE - 10]
    reads.extent_bytes = REPACKED_AHEAD_BYTES_MAX // 4
    await _second(reads)
    assert reads.loads[-1] == [20, 30]


async def test_a_small_look_up_starts_no_read_ahead(reads: Reads) -> None:
    await reads.take(0, max_bytes=REPACKED_AHEAD_BYTES_MIN - 1)
    await _settle()
    assert reads.loads == []


async def test_reads_before_damage_are_returned_and_the_others_retried(reads: Reads) -> None:
    await _second(reads)
    reads.damaged_at = 35
    reads.gate.set()
    third = await reads.take(30)
    assert third is not None
    assert third.batches == [b"30"]
    assert await reads.take(40) is None


async def test_failed_reads_are_retried(reads: Reads) -> None:
    second = await _second(reads)
    reads.failing = True
    reads.gate.set()
    assert await second is None
    assert await reads.take(20) is None


async def test_reads_of_many_streams_are_evicted_and_nobody_waits_forever(reads: Reads) -> None:
    waiting = await _second(reads)
    for stream in range(100, 100 + REPACKED_READERS_MAX):
        await reads.take(0, stream)
    await _settle()
    assert len(reads.ahead) == REPACKED_READERS_MAX
    given_up = reads.take(20)
    reads.gate.set()
    assert await asyncio.wait_for(given_up, 30) is None
    assert await asyncio.wait_for(waiting, 30) is not None


async def test_a_cancelled_read_does_not_affect_others_of_its_request(reads: Reads) -> None:
    await _second(reads)
    third = reads.take(20)
    await _settle()
    third.cancel()
    await _settle()
    reads.gate.set()
    assert await reads.take(30) is not None

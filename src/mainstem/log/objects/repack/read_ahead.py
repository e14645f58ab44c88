"""Read-ahead in repacked files, for sequential readers.

The next read is in the same file or in a file of the next round, and each request to a store takes long: so a few of
the next reads start before they are requested. One request fetches them together, since a store bills each request and
is faster with few large ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from mainstem import limits
from mainstem.log.read.extents import Extent

REPACKED_READS_AHEAD = 4  # concurrent reads for a reader that reads a stream in order …
REPACKED_AHEAD_BYTES_MIN = 64 * limits.KIB  # … of at least this size …
# … and at most this; also the total after which no further read starts
REPACKED_AHEAD_BYTES_MAX = 4 * limits.MIB
REPACKED_READERS_MAX = 32  # readers that get a read-ahead or are tracked for one


class PlannedRead(NamedTuple):
    """A read as the reader will request it."""

    stream: int
    offset: int
    max_bytes: int


class PrefetchedRead(NamedTuple):
    extents: list[Extent]
    batches: list[memoryview]  # of the first extents, checksummed and stamped


Find = Callable[[PlannedRead], Awaitable[list[Extent]]]
"""The extents of a read, if they are in a repacked file; else none."""
Load = Callable[[list[Extent]], Awaitable[list[memoryview]]]


@dataclass(slots=True, eq=False)
class _ReadBatch:
    """Consecutive reads that are fetched together."""

    reads: dict[PlannedRead, asyncio.Future[PrefetchedRead | None]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def answer(self, found: dict[PlannedRead, list[Extent]], batches: list[memoryview]) -> None:
        """Set the batches of the extents in order; damage leaves the last reads without any."""
        at = 0
        for place, extents in found.items():
            some = batches[at : at + len(extents)]
            at += len(extents)
            if some and not self.reads[place].done():
                self.reads[place].set_result(PrefetchedRead(extents, some))

    def settle(self) -> None:
        """Complete the reads that have no result."""
        for waited in self.reads.values():
            if not waited.done():
                waited.set_result(None)


class ReadAhead:
    """Bounded in reads; later reads evict those that nobody requests."""

    def __init__(self, find: Find, load: Load) -> None:
        self._find = find
        self._load = load
        self._under_way: OrderedDict[PlannedRead, _ReadBatch] = OrderedDict()
        self._next: dict[PlannedRead, PlannedRead] = {}  # successors of reads in flight, where known
        # The next offsets of recent readers.
        self._expected: OrderedDict[tuple[int, int], None] = OrderedDict()

    def __len__(self) -> int:
        """How many reads are in progress, or done and not taken."""
        return len(self._under_way)

    async def take(self, place: PlannedRead, reached: int) -> PrefetchedRead | None:
        """The prefetched result of this read, which ends at `reached`; None if there is none, or it failed: the caller
        reads again. Starts the following reads before it waits for this one."""
        batch = self._under_way.pop(place, None)
        self._next.pop(place, None)
        self._go_on(place, reached)
        return None if batch is None else await batch.reads[place]

    def _go_on(self, place: PlannedRead, reached: int) -> None:
        """Start the next read; from the second sequential read on, start several."""
        in_a_row = (place.stream, place.offset) in self._expected
        self._expected.pop((place.stream, place.offset), None)
        self._expected[place.stream, reached] = None
        while len(self._expected) > REPACKED_READERS_MAX:
            self._expected.popitem(last=False)
        # A smaller read is a look-up, not a sequential read.
        if REPACKED_AHEAD_BYTES_MIN <= place.max_bytes <= REPACKED_AHEAD_BYTES_MAX:
            self._begin(place._replace(offset=reached), REPACKED_READS_AHEAD if in_a_row else 1)

    def _begin(self, place: PlannedRead, reads: int) -> None:
        """Start `reads` more reads from `place` on, once half of the last ones are taken."""
        left = 0
        while place in self._under_way:
            left += 1
            if place not in self._next or 2 * left > reads:
                return  # its successor is being looked up, or there are enough reads in flight
            place = self._next[place]
        batch = _ReadBatch()
        self._join(place, batch)
        batch.task = asyncio.get_running_loop().create_task(self._run(place, reads, batch))

    def _join(self, place: PlannedRead, batch: _ReadBatch) -> None:
        batch.reads[place] = asyncio.get_running_loop().create_future()
        self._under_way[place] = batch
        while len(self._under_way) > REPACKED_READERS_MAX:
            self._give_up(next(iter(self._under_way.values())))

    def _give_up(self, batch: _ReadBatch) -> None:
        for place in batch.reads:
            if self._under_way.get(place) is batch:
                del self._under_way[place]
                self._next.pop(place, None)
        if batch.task is not None:
            batch.task.cancel()
        batch.settle()

    async def _run(self, place: PlannedRead, reads: int, batch: _ReadBatch) -> None:
        try:
            found = await self._find_all(place, reads, batch)
            if found:
                batches = await self._load([extent for extents in found.values() for extent in extents])
                batch.answer(found, batches)
        except Exception:  # noqa: BLE001 - the reader meets the same error, and handles it
            return
        finally:
            batch.settle()

    async def _find_all(
        self, place: PlannedRead, reads: int, batch: _ReadBatch
    ) -> dict[PlannedRead, list[Extent]]:
        """The extents of consecutive reads in one file, up to a total size."""
        found: dict[PlannedRead, list[Extent]] = {}
        file, size = -1, 0
        while len(found) < reads and size < REPACKED_AHEAD_BYTES_MAX:
            try:
                extents = await self._find(place)
            except Exception:  # noqa: BLE001 - as above; the reads before it are still useful
                break
            if not extents or (found and (extents[0].object != file or place in self._under_way)):
                break
            if found:
                self._join(place, batch)
            found[place] = extents
            file = extents[0].object
            size += sum(extent.length for extent in extents)
            following = place._replace(offset=extents[-1].end)
            if self._under_way.get(place) is batch:  # else it was taken meanwhile
                self._next[place] = following
            place = following
        return found

    def close(self) -> None:
        for batch in list(self._under_way.values()):
            self._give_up(batch)
        self._next.clear()

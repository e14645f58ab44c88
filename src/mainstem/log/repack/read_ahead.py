"""Reading ahead in repacked files, for whoever reads a stream from front to end.

What is read next lies in the same file or in that of the next round, and a store takes its time for each request: so a
few of the next reads are under way before they are asked for. They are fetched together, by one request, since a
store bills each one and is quicker with few large ones.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from mainstem import limits
from mainstem.log.extents import Extent


class PlannedRead(NamedTuple):
    """A read as it will be asked for."""

    stream: int
    offset: int
    max_bytes: int


class PrefetchedRead(NamedTuple):
    extents: list[Extent]
    batches: list[memoryview]  # of the first extents, checked and stamped


Find = Callable[[PlannedRead], Awaitable[list[Extent]]]
"""The extents of a read, if they are in a repacked file; else none."""
Load = Callable[[list[Extent]], Awaitable[list[memoryview]]]


@dataclass(slots=True, eq=False)
class _ReadBatch:
    """Reads that follow each other and are fetched together."""

    reads: dict[PlannedRead, asyncio.Future[PrefetchedRead | None]] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None

    def answer(self, found: dict[PlannedRead, list[Extent]], batches: list[memoryview]) -> None:
        """Batches of the extents in their order, of fewer if damage stands in the way."""
        at = 0
        for place, extents in found.items():
            some = batches[at : at + len(extents)]
            at += len(extents)
            if some and not self.reads[place].done():
                self.reads[place].set_result(PrefetchedRead(extents, some))

    def settle(self) -> None:
        """Nobody waits any longer for what is not there."""
        for waited in self.reads.values():
            if not waited.done():
                waited.set_result(None)


class ReadAhead:
    """Bounded in reads; those that nobody asks for give way to later ones."""

    def __init__(self, find: Find, load: Load) -> None:
        self._find = find
        self._load = load
        self._under_way: OrderedDict[PlannedRead, _ReadBatch] = OrderedDict()
        self._next: dict[PlannedRead, PlannedRead] = {}  # of those under way, as far as it is known
        self._expected: OrderedDict[tuple[int, int], None] = OrderedDict()  # where readers were last

    async def take(self, place: PlannedRead, reached: int) -> PrefetchedRead | None:
        """What was read ahead for this place, which ends at `reached`; None if nothing was, or it failed: then it is
        read anew. The reads after it are begun before this one is waited for."""
        stretch = self._under_way.pop(place, None)
        self._next.pop(place, None)
        self._go_on(place, reached)
        return None if stretch is None else await stretch.reads[place]

    def _go_on(self, place: PlannedRead, reached: int) -> None:
        """Begin the next read, and from the second in a row on a few."""
        in_a_row = (place.stream, place.offset) in self._expected
        self._expected.pop((place.stream, place.offset), None)
        self._expected[place.stream, reached] = None
        while len(self._expected) > limits.REPACKED_READERS_MAX:
            self._expected.popitem(last=False)
        # Who asks for less looks something up.
        if limits.REPACKED_AHEAD_BYTES_MIN <= place.max_bytes <= limits.REPACKED_AHEAD_BYTES_MAX:
            self._begin(place._replace(offset=reached), limits.REPACKED_READS_AHEAD if in_a_row else 1)

    def _begin(self, place: PlannedRead, reads: int) -> None:
        """Have reads from the place on under way: so many more, once half of as many are left."""
        left = 0
        while place in self._under_way:
            left += 1
            if place not in self._next or 2 * left > reads:
                return  # what comes after it is being looked for, or there is enough
            place = self._next[place]
        stretch = _ReadBatch()
        self._join(place, stretch)
        stretch.task = asyncio.get_running_loop().create_task(self._run(place, reads, stretch))

    def _join(self, place: PlannedRead, stretch: _ReadBatch) -> None:
        stretch.reads[place] = asyncio.get_running_loop().create_future()
        self._under_way[place] = stretch
        while len(self._under_way) > limits.REPACKED_READERS_MAX:
            self._give_up(next(iter(self._under_way.values())))

    def _give_up(self, stretch: _ReadBatch) -> None:
        for place in stretch.reads:
            if self._under_way.get(place) is stretch:
                del self._under_way[place]
                self._next.pop(place, None)
        if stretch.task is not None:
            stretch.task.cancel()
        stretch.settle()

    async def _run(self, place: PlannedRead, reads: int, stretch: _ReadBatch) -> None:
        try:
            found = await self._find_all(place, reads, stretch)
            if found:
                batches = await self._load([extent for extents in found.values() for extent in extents])
                stretch.answer(found, batches)
        except Exception:  # noqa: BLE001 - whoever reads meets it again, where it is dealt with
            return
        finally:
            stretch.settle()

    async def _find_all(
        self, place: PlannedRead, reads: int, stretch: _ReadBatch
    ) -> dict[PlannedRead, list[Extent]]:
        """The extents of reads that follow each other in one file, and together are not too large."""
        found: dict[PlannedRead, list[Extent]] = {}
        file, size = -1, 0
        while len(found) < reads and size < limits.REPACKED_AHEAD_BYTES_MAX:
            try:
                extents = await self._find(place)
            except Exception:  # noqa: BLE001 - as above, and what is before it can be read all the same
                break
            if not extents or (found and (extents[0].object != file or place in self._under_way)):
                break
            if found:
                self._join(place, stretch)
            found[place] = extents
            file = extents[0].object
            size += sum(extent.length for extent in extents)
            following = place._replace(offset=extents[-1].end)
            if self._under_way.get(place) is stretch:  # else it was taken meanwhile
                self._next[place] = following
            place = following
        return found

    def close(self) -> None:
        for stretch in list(self._under_way.values()):
            self._give_up(stretch)
        self._next.clear()

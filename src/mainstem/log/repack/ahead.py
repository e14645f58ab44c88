"""Reading ahead in repacked files, for whoever reads a stream from front to end.

What is read next lies in the same file or in that of the next round, and a store takes its time for each request: so a
few of the next reads are under way before they are asked for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from mainstem import limits
from mainstem.log.extents import Extent


class Place(NamedTuple):
    """A read as it will be asked for."""

    stream: int
    offset: int
    max_bytes: int


class Ready(NamedTuple):
    extents: list[Extent]
    batches: list[memoryview]  # of the first extents, checked and stamped


Find = Callable[[Place], Awaitable[list[Extent]]]
"""The extents of a read, if they are in a repacked file; else none."""
Load = Callable[[list[Extent]], Awaitable[list[memoryview]]]


class ReadAhead:
    """Bounded in reads; those that nobody asks for give way to later ones."""

    def __init__(self, find: Find, load: Load) -> None:
        self._find = find
        self._load = load
        self._under_way: OrderedDict[Place, asyncio.Task[Ready | None]] = OrderedDict()
        self._next: dict[Place, Place] = {}  # of those under way, as far as it is known
        self._expected: OrderedDict[tuple[int, int], None] = OrderedDict()  # where readers were last

    async def take(self, place: Place) -> Ready | None:
        """What was read ahead for this place; None if nothing was, or it failed: then it is read anew."""
        task = self._under_way.pop(place, None)
        self._next.pop(place, None)
        if task is None:
            return None
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            raise
        except Exception:  # noqa: BLE001 - whoever reads meets it again, where it is dealt with
            return None

    def went_on(self, place: Place, reached: int) -> None:
        """A read of repacked bytes ended at `reached`. The next one is begun, and from the second in a row on a few."""
        in_a_row = (place.stream, place.offset) in self._expected
        self._expected.pop((place.stream, place.offset), None)
        self._expected[place.stream, reached] = None
        while len(self._expected) > limits.REPACKED_READERS_MAX:
            self._expected.popitem(last=False)
        # Who asks for less looks something up.
        if limits.REPACKED_AHEAD_BYTES_MIN <= place.max_bytes <= limits.REPACKED_AHEAD_BYTES_MAX:
            self._begin(place._replace(offset=reached), limits.REPACKED_READS_AHEAD if in_a_row else 1)

    def _begin(self, place: Place, depth: int) -> None:
        if place in self._under_way:
            if depth > 1 and place in self._next:
                self._begin(self._next[place], depth - 1)
            return
        task = asyncio.get_running_loop().create_task(self._run(place, depth))
        task.add_done_callback(_seen)
        self._under_way[place] = task
        while len(self._under_way) > limits.REPACKED_READERS_MAX:
            unread, task = self._under_way.popitem(last=False)
            self._next.pop(unread, None)
            task.cancel()

    async def _run(self, place: Place, depth: int) -> Ready | None:
        extents = await self._find(place)
        if not extents:
            return None
        following = place._replace(offset=extents[-1].end)
        if place in self._under_way:
            self._next[place] = following
        if depth > 1:
            self._begin(following, depth - 1)
        return Ready(extents, await self._load(extents))

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()
        self._next.clear()


def _seen(task: asyncio.Task[Ready | None]) -> None:
    if not task.cancelled():
        task.exception()

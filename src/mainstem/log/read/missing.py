"""Missing records: offsets that a stream must hold and that no file holds, because a file was deleted or lost.

Neither retention nor a delete removes a file with a record that somebody may read. So an offset at or above the start
of its stream is missing if it is not a hole, and neither a part nor a file holds it. The ledger does not record that:
the records are back once the file is, unless an operator accepts the loss (`accept`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from mainstem import events
from mainstem.errors import LogDamaged, NotFound, Unavailable
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.parts import PARTS
from mainstem.ledger.repacked_objects import REPACKED
from mainstem.ledger.streams import MarkLost
from mainstem.log.read.index import ExtentIndex
from mainstem.log.read.index_lookups import IndexLookups
from mainstem.metrics import Metric, one
from mainstem.ports.objectstore.port import ObjectStore

MISSING = "missing"  # the reason of such a loss
_log = events.named("log")

Offsets = tuple[int, int]  # half-open
_T = TypeVar("_T")


class MissingRecords:
    def __init__(self, ledger: Ledger, index: ExtentIndex, lookups: IndexLookups) -> None:
        self._ledger = ledger
        self._index = index
        self._lookups = lookups
        self.ranges: dict[int, list[Offsets]] = {}  # by stream, rising
        self.of_parts: dict[
            int, list[Offsets]
        ] = {}  # the same of parts, whose files no repack or plan can pass
        self.files = 0  # repacked files that were not in the store at the start

    async def survey(self) -> None:
        """Compare what streams must hold with the files there are. Reports what is missing."""
        if self._index.unbroken:
            return
        for stream, start, end in self._index.uncovered(self._ledger.streams.end, self._ledger.streams.count):
            try:
                found = await self.between(stream, start, end)
            except (LogDamaged, Unavailable, FileNotFoundError):
                continue  # of repacked files: a read of them reports it
            for first, last in found:
                self.add(stream, first, last)
                for copy, low, high in self._ledger.aliases.copies_of(stream, first, last):
                    for piece in self._live(copy, low, high):
                        self.add(copy, *piece)

    async def survey_store(self, store: ObjectStore) -> None:
        """Compare the repacked files and the files of parts with what the store has. Reports what is missing."""
        repacked, generations = self._ledger.repacked, self._ledger.generations
        files = {number: repacked.file(number) for number in repacked.numbers()}
        named = {file.key: number for number, file in files.items() if file is not None}
        for key, number in (await _absent(store, REPACKED, named)).items():
            if repacked.file(number) == files[number]:  # else it was replaced meanwhile
                self.files += 1
                self._index.cannot_load(number, gone=True)
                _log.error("repacked file missing", key=key, action="restore it from a backup")
        of_parts = {
            file.key: (stream, part)
            for stream in generations.streams()
            for part in generations.parts(stream)
            for file in part.files
        }
        for stream, part in (await _absent(store, PARTS, of_parts)).values():
            if generations.part_at(stream, part.base) == part:
                self.add(stream, part.base, part.end, self.of_parts)

    def add(self, stream: int, start: int, end: int, ranges: dict[int, list[Offsets]] | None = None) -> None:
        """Take a range in, and report it."""
        ranges = self.ranges if ranges is None else ranges
        known = ranges.setdefault(stream, [])
        if any(first <= start and end <= last for first, last in known):
            return
        merged: list[Offsets] = []
        for first, last in sorted([*known, (start, end)]):
            if merged and first <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        ranges[stream] = merged
        topic = self._ledger.topics.of_stream(stream)
        _log.error(
            "records missing",
            topic=None if topic is None else topic.name,
            partition=None if topic is None else topic.streams.index(stream),
            start=start,
            end=end,
            action="restore the file from a backup and restart, or restart with --accept-missing",
        )

    async def between(self, stream: int, start: int, end: int) -> list[Offsets]:
        """The offsets of [start, end) that no file holds, where the log's own files hold none of them."""
        start = max(start, self._ledger.generations.frontier(stream))
        if not any(self._live(stream, start, end)):
            return []
        if self._ledger.repacked.rounds:
            # Compaction leaves gaps in repacked files, so only what is behind them counts.
            start = max(start, await self._lookups.resolve(lambda: self._index.repacked_end(stream)))
        return list(self._live(stream, start, end))

    def _live(self, stream: int, start: int, end: int) -> Iterator[Offsets]:
        """The offsets that hold a record of the stream's own, by all that the ledger knows."""
        streams = self._ledger.streams
        if not streams.exists(stream) or streams.ephemeral(stream):
            return
        sparse = [(one.base, one.end) for one in self._ledger.compactions.get(stream).sparse]
        for first, last in streams.holes(stream).live(max(start, streams.start(stream)), end):
            copied = [(run.base, run.end) for run in self._ledger.aliases.between(stream, first, last)]
            at = first
            for low, high in sorted((*copied, *sparse)):
                if at < low < last:
                    yield at, low
                at = max(at, high)
            if at < last:
                yield at, last

    def next(self, stream: int, offset: int) -> Offsets | None:
        """The first missing range that ends after `offset`."""
        return next((found for found in self.ranges.get(stream, ()) if found[1] > offset), None)

    def count(self, stream: int | None = None) -> int:
        """How many records are missing: of a stream, or of all."""
        if not self.ranges and not self.of_parts:
            return 0
        streams = {*self.ranges, *self.of_parts} if stream is None else (stream,)
        return sum(self._count(one) for one in streams)

    def _count(self, stream: int) -> int:
        streams = self._ledger.streams
        if not streams.exists(stream):
            return 0
        start, holes = streams.start(stream), streams.holes(stream)
        return sum(
            last - first
            for low, high in (*self.ranges.get(stream, ()), *self.of_parts.get(stream, ()))
            for first, last in holes.live(max(low, start), high)
        )

    async def accept(self, propose: Callable[[MarkLost], Awaitable[object]]) -> None:
        """Record the losses for good, by the word of an operator."""
        for stream, ranges in list(self.ranges.items()):
            for start, end in ranges if self._ledger.streams.exists(stream) else ():
                await propose(MarkLost(stream, start, end, MISSING))
                _log.warning("missing records accepted as lost", stream=stream, start=start, end=end)
            del self.ranges[stream]

    def metrics(self) -> list[Metric]:
        return [
            one(
                "mainstem_records_missing",
                "gauge",
                "Records that no file holds, because files are missing.",
                self.count(),
            ),
            one(
                "mainstem_repacked_files_missing",
                "gauge",
                "Repacked files that the object store lacked when the server started.",
                self.files,
            ),
        ]


async def _absent(store: ObjectStore, prefix: str, named: dict[str, _T]) -> dict[str, _T]:
    """The keys with this prefix that the store does not have."""
    if not named:
        return {}
    left = dict(named)
    async for found in store.list(prefix):
        left.pop(found.key, None)
    for key in list(left):
        try:
            await store.get_ranges(key, [(0, 1)])  # the listing may be older than the file
        except NotFound:
            continue
        del left[key]
    return left

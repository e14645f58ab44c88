"""Where the records of a range are, as readers and jobs that fetch them by themselves are told."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem import limits
from mainstem.broker.plans import Sources, WalExtents
from mainstem.errors import OffsetOutOfRange
from mainstem.ledger.intervals import ABORTED, DELETED, is_loss
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.parts import Part
from mainstem.log.log import Log

_LEFT_OUT = frozenset((DELETED, ABORTED))  # a marker has no bytes that could be shown


@dataclass(frozen=True, slots=True)
class Logged:
    """A stretch of the log's own bytes."""

    sources: Sources
    bytes: int


class Sourcing:
    """Looks up; promises nothing: only a lease keeps what it names from being deleted."""

    def __init__(self, log: Log, store_url: str) -> None:
        self._log = log
        self._store_url = store_url

    @property
    def _ledger(self) -> Ledger:
        return self._log.ledger

    async def readable(self, stream: int, start: int, end: int) -> Sources:
        """Of committed records in [start, end), or of as many of them as one answer may name.

        Raises OffsetOutOfRange, or NotFound if the topic is deleted."""
        first, visible_end = self._log.bounds(stream)
        if not first <= start <= visible_end:
            raise OffsetOutOfRange(start, first, visible_end)
        end = max(start, min(end, self._log.stable_end(stream)))
        if self._ledger.streams.ephemeral(stream):
            return Sources(start, end, unreachable=((start, end),) if start < end else ())
        frontier = min(max(self._ledger.generations.frontier(stream), start), end)
        parts = self._within_task(self._ledger.generations.parts(stream, start, frontier))
        if parts and parts[-1].end < frontier:
            return self._sources(stream, start, parts[-1].end, parts, (), ())
        logged = await self.logged(stream, frontier, end)
        return self._sources(
            stream,
            start,
            logged.sources.end,
            parts,
            logged.sources.wal,
            logged.sources.unreachable,
        )

    async def logged(self, stream: int, base: int, end: int) -> Logged:
        """Of a range that the log's own bytes serve, up to one task's worth."""
        located, urls = await self._log.locate(
            stream, base, end, max_bytes=limits.LAKE_TASK_BYTES, max_extents=limits.LAKE_TASK_EXTENTS_MAX
        )
        wal: list[WalExtents] = []
        unreachable: list[tuple[int, int]] = []
        for number, rows in located.objects:
            url = urls[number]
            if url is None:
                first, last = int(rows["base"][0]), int(rows["base"][-1]) + int(rows["count"][-1])
                unreachable.append((max(base, first), min(last, located.end)))
            else:
                wal.append(WalExtents(url, rows.tobytes()))
        sources = self._sources(stream, base, located.end, (), tuple(wal), tuple(unreachable))
        return Logged(sources, located.bytes)

    def of_parts(self, stream: int, parts: list[Part]) -> Sources:
        return self._sources(stream, parts[0].base, parts[-1].end, parts, (), ())

    def _sources(
        self,
        stream: int,
        base: int,
        end: int,
        parts: list[Part] | tuple[Part, ...],
        wal: tuple[WalExtents, ...],
        unreachable: tuple[tuple[int, int], ...],
    ) -> Sources:
        streams = self._ledger.streams
        start = streams.start(stream)
        below = [(base, min(start, end))] if base < start else []
        holes = list(streams.holes(stream).overlapping(base, end))
        return Sources(
            base,
            end,
            wal,
            tuple(parts),
            self._store_url,
            leave_out=(*below, *((first, last) for first, last, why in holes if why in _LEFT_OUT)),
            lost=tuple(hole for hole in holes if is_loss(hole[2])),
            unreachable=unreachable,
        )

    @staticmethod
    def _within_task(parts: list[Part]) -> list[Part]:
        """The first of them, as many as make up one task's bytes; one at least."""
        taken: list[Part] = []
        size = 0
        for part in parts:
            if taken and size + part.bytes > limits.LAKE_TASK_BYTES:
                break
            taken.append(part)
            size += part.bytes
        return taken

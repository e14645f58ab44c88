"""Where the records of an offset range are stored, for tasks and readers that read the files themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from mainstem import limits
from mainstem.api.lake import Part, Sources, StoredPiece, WalExtents
from mainstem.errors import OffsetOutOfRange
from mainstem.ledger.aliases import AliasRun
from mainstem.ledger.intervals import ABORTED, DELETED, is_loss
from mainstem.ledger.ledger import Ledger
from mainstem.log.log import Log
from mainstem.log.read.missing import MISSING
from mainstem.ports.commitlog.port import Piece

LAKE_TASK_EXTENTS_MAX = 200_000  # slices that one task reads, which bounds the plan that lists them
LAKE_TASK_PIECES_MAX = 20_000  # the same where each slice may be an object of the store that the plan names
LAKE_TASK_RUNS_MAX = 20_000  # alias ranges that one task reads, each stored in another stream

_OWN_TIME = -(1 << 63)  # the time of a run of the stream's own bytes, whose records have their own times
_RUNS_PER_TURN = 64


@dataclass(slots=True)
class _LocatedRange:
    reach: int
    wal: list[WalExtents] = field(default_factory=list)
    unreachable: list[tuple[int, int]] = field(default_factory=list)
    bytes: int = 0
    extents: int = 0


@dataclass(frozen=True, slots=True)
class LogRange:
    """A range that the log's own bytes serve."""

    sources: Sources
    cost_bytes: int  # bytes to read, with LAKE_SLICE_BYTES for each slice


class RecordLocator:
    """Finds files, but does not protect them: only a lease keeps them from being deleted."""

    def __init__(self, log: Log, store_url: str) -> None:
        self._log = log
        self._store_url = store_url  # without secrets
        # In a shared log each slice may be in its own object, and a plan lists the key of each.
        self._extents_max = LAKE_TASK_PIECES_MAX if log.shared else LAKE_TASK_EXTENTS_MAX

    @property
    def _ledger(self) -> Ledger:
        return self._log.ledger

    async def readable(self, stream: int, start: int, end: int) -> Sources:
        """The locations of committed records in [start, end), or of a prefix of it that fits one response.

        Raises OffsetOutOfRange, or NotFound if the topic is deleted."""
        first, visible_end = self._log.streams.of(stream).bounds(stream)
        if not first <= start <= visible_end:
            raise OffsetOutOfRange(start, first, visible_end)
        end = max(start, min(end, self._log.streams.of(stream).stable_end(stream)))
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

    async def logged(self, stream: int, base: int, end: int) -> LogRange:
        """The locations of a range that the log's own bytes serve, up to the size of one task."""
        found = _LocatedRange(base)
        for number, run in enumerate(self._runs(stream, base, end)):
            if number % _RUNS_PER_TURN == _RUNS_PER_TURN - 1:
                await asyncio.sleep(0)  # let others run: each append may be a run of its own
            full = found.bytes >= limits.LAKE_TASK_BYTES or found.extents >= self._extents_max
            if number == LAKE_TASK_RUNS_MAX or full or not await self._add(found, run):
                break
        else:
            found.reach = end
        sources = self._sources(stream, base, found.reach, (), tuple(found.wal), tuple(found.unreachable))
        return LogRange(sources, found.bytes + found.extents * limits.LAKE_SLICE_BYTES)

    def _runs(self, stream: int, base: int, end: int) -> Iterator[AliasRun]:
        """The range as runs, each of the bytes of one stream."""
        at = base
        for run in self._ledger.aliases.between(stream, base, end):
            if at < run.base:
                yield AliasRun(at, run.base - at, stream, at, _OWN_TIME)
            yield run
            at = run.end
        if at < end:
            yield AliasRun(at, end - at, stream, at, _OWN_TIME)

    async def _add(self, found: _LocatedRange, run: AliasRun) -> bool:
        """Add one run. False if only a part of it fits."""
        shift = run.base - run.origin_base
        located, places = await self._log.locate(
            run.origin,
            run.origin_base,
            run.origin_base + run.count,
            max_bytes=limits.LAKE_TASK_BYTES - found.bytes,
            max_extents=self._extents_max - found.extents,
        )
        reach = located.end + shift
        for number, rows in located.objects:
            place = places[number]
            if place is None:
                first, last = int(rows["base"][0]), int(rows["base"][-1]) + int(rows["count"][-1])
                found.unreachable.append((max(run.base, first + shift), min(last + shift, reach)))
                continue
            extents = self._stored(place, rows.tobytes())
            if run.time_ms != _OWN_TIME:
                extents = msgspec.structs.replace(
                    extents, shift=shift, timestamp_ms=run.time_ms, first=run.base, last=reach
                )
            found.wal.append(extents)
        found.bytes += located.bytes
        found.extents += located.extents
        found.reach = reach
        return reach == run.end

    def _stored(self, place: str | list[Piece], rows: bytes) -> WalExtents:
        if isinstance(place, str):
            return WalExtents(place, rows)
        return WalExtents(self._store_url, rows, pieces=tuple(StoredPiece(*piece) for piece in place))

    def of_parts(self, stream: int, parts: Sequence[Part]) -> Sources:
        return self._sources(stream, parts[0].base, parts[-1].end, parts, (), ())

    def _sources(
        self,
        stream: int,
        base: int,
        end: int,
        parts: Sequence[Part],
        wal: tuple[WalExtents, ...],
        unreachable: tuple[tuple[int, int], ...],
    ) -> Sources:
        streams = self._ledger.streams
        start = streams.start(stream)
        below = [(base, min(start, end))] if base < start else []
        holes = list(streams.holes(stream).overlapping(base, end))
        frontier = self._ledger.generations.frontier(stream)
        return Sources(
            base,
            end,
            wal,
            tuple(parts),
            self._store_url,
            leave_out=(*below, *((hole[0], hole[1]) for hole in holes if _left_out(hole, frontier))),
            lost=tuple(hole for hole in holes if is_loss(hole[2])) + self._missing(stream, base, end),
            unreachable=unreachable,
        )

    def _missing(self, stream: int, base: int, end: int) -> tuple[tuple[int, int, str], ...]:
        found = self._log.missing.ranges.get(stream, ())
        return tuple((first, last, MISSING) for first, last in found if first < end and last > base)

    @staticmethod
    def _within_task(parts: Sequence[Part]) -> list[Part]:
        """The first parts, up to the bytes of one task; at least one."""
        taken: list[Part] = []
        size = 0
        for part in parts:
            if taken and size + part.bytes > limits.LAKE_TASK_BYTES:
                break
            taken.append(part)
            size += part.bytes
        return taken


def _left_out(hole: tuple[int, int, str], frontier: int) -> bool:
    """Whether the files may still have bytes or rows of a hole, which readers must then skip.

    A transaction marker has no bytes, and a part never has aborted records."""
    return hole[2] == DELETED or (hole[2] == ABORTED and hole[1] > frontier)

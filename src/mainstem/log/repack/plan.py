"""What to repack next: objects of the log behind the head, or rounds that are worth being copied once more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import RepackRound
from mainstem.log.extents import Rows, SealedExtents
from mainstem.log.index import ExtentIndex
from mainstem.ports.commitlog.port import LogObject

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RepackPlan:
    """Objects to be read, and what stands for them afterwards."""

    first: int  # numbers of the log's own objects
    end: int
    sources: tuple[str, ...]  # keys of repacked files, if those are read
    numbers: tuple[int, ...]  # of the objects to be read, in the order of the log
    bytes: int


@dataclass(frozen=True, slots=True)
class RepackOptions:
    """When and how fast."""

    on: bool = True
    after_objects: int = limits.REPACK_AFTER_OBJECTS
    least_bytes: int = limits.REPACK_LEAST_BYTES
    bytes_per_s: int = limits.REPACK_BYTES_PER_S  # 0 = as fast as it goes
    round_bytes: int = limits.REPACK_ROUND_BYTES
    merged_rounds: int = limits.REPACK_MERGED_ROUNDS
    file_bytes: int = limits.REPACKED_FILE_BYTES
    grace_s: float = limits.REPACK_GRACE_S


def waiting(objects: Sequence[LogObject], frontier: int) -> list[LogObject]:
    """The sealed objects of the log from the frontier on, up to the first that is not sealed.

    Without the last one: where several brokers write, it may yet turn out to have gone on after its seal."""
    found: list[LogObject] = []
    for one in objects[:-1]:
        if one.number >= frontier:
            if not one.sealed:
                break
            found.append(one)
    return found


def may_wait(sealed: Sequence[LogObject], options: RepackOptions) -> int:
    """How many objects wait before the oldest are repacked: a little is not worth it until it is in many."""
    if sum(one.size_bytes for one in sealed) >= options.least_bytes:
        return options.after_objects
    return max(options.after_objects, limits.REPACK_SMALL_OBJECTS_MAX)


def plan_log_objects(
    objects: Sequence[LogObject], frontier: int, options: RepackOptions
) -> RepackPlan | None:
    """The oldest that wait, if there are enough of them."""
    sealed = waiting(objects, frontier)
    if not sealed or len(sealed) < may_wait(sealed, options):
        return None
    taken = sealed[:1]
    size = sealed[0].size_bytes
    for one in sealed[1:]:
        if size + one.size_bytes > options.round_bytes:
            break
        taken.append(one)
        size += one.size_bytes
    return RepackPlan(frontier, taken[-1].number + 1, (), tuple(one.number for one in taken), size)


def plan_merge(
    rounds: Sequence[RepackRound], options: RepackOptions, left_alone: Callable[[RepackRound], bool]
) -> RepackPlan | None:
    """Neighbours that were copied equally often, if there are enough of them."""
    run: list[RepackRound] = []
    for one in rounds:
        if left_alone(one):
            run = []
            continue
        if run and run[-1].level != one.level:
            run = []
        run.append(one)
        if len(run) == options.merged_rounds:
            if one.level < limits.REPACK_LEVELS_MAX and _size(run) <= limits.REPACK_MERGED_BYTES_MAX:
                return plan_rounds(run)
            run = run[1:]
    return None


def plan_rounds(rounds: Sequence[RepackRound]) -> RepackPlan:
    """Copy what is needed of neighbours once more."""
    numbers = [range(one.number, one.number + len(one.files)) for one in rounds]
    return RepackPlan(
        rounds[0].first,
        rounds[-1].end,
        tuple(key for one in rounds for key in one.keys),
        tuple(number for some in numbers for number in some),
        _size(rounds),
    )


def _size(rounds: Sequence[RepackRound]) -> int:
    return sum(one.bytes for one in rounds)


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """Of every stream there is, by number: where it ends in the round that is made."""

    streams: Int64s
    ends: Int64s

    def between(self, first: int, end: int) -> StreamEnds:
        """Of streams first to end."""
        low, high = np.searchsorted(self.streams, (first, end))
        return StreamEnds(self.streams[low:high], self.ends[low:high])


async def ends_of_log_objects(ledger: Ledger, index: ExtentIndex, plan: RepackPlan) -> StreamEnds:
    """A stream ends where the objects after these have more of it, or where it ends now."""
    streams = ledger.streams
    # All of it of one moment; what is then done with it may take its time elsewhere.
    ends, alive = streams.end[: streams.count].copy(), streams.alive[: streams.count].copy()
    later = index.begins_after(ends, plan.end)
    await asyncio.to_thread(_lower, ends, later)
    return await _ends_of_streams(ledger, np.flatnonzero(ends > 0), ends[ends > 0], alive[ends > 0])


def _lower(ends: Int64s, later: Sequence[Rows]) -> None:
    for spans in later:
        ends[spans["stream"]] = spans["base"]


async def ends_of_rounds(ledger: Ledger, indexes: Sequence[SealedExtents]) -> StreamEnds:
    """A stream ends where the last of these rounds that knows it says so."""
    streams, ends = await asyncio.to_thread(_last_ends, indexes)
    return await _ends_of_streams(ledger, streams, ends, ledger.streams.alive[streams])


def _last_ends(indexes: Sequence[SealedExtents]) -> tuple[Int64s, Int64s]:
    spans = np.concatenate([one.spans for one in indexes])
    streams, which = np.unique(spans["stream"].astype(np.int64), return_inverse=True)
    ends = np.zeros(len(streams), np.int64)
    np.maximum.at(ends, which, spans["end"])
    return streams, ends


async def _ends_of_streams(
    ledger: Ledger, streams: Int64s, ends: Int64s, named: npt.NDArray[np.bool_]
) -> StreamEnds:
    """Without streams that are gone, unless a copy needs them. A few are looked at at a time."""
    aliases = ledger.aliases
    gone = np.flatnonzero(~named).tolist() if aliases.feeds else []
    for at in range(0, len(gone), limits.REPACK_STREAMS_AT_ONCE):
        for row in gone[at : at + limits.REPACK_STREAMS_AT_ONCE]:
            named[row] = aliases.reaching(int(streams[row]), 0, int(ends[row]))
        await asyncio.sleep(0)
    return StreamEnds(streams[named], ends[named])

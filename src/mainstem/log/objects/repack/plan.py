"""What to repack next: the oldest sealed objects of the log, or rounds worth copying again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import RepackRound
from mainstem.log.read.extents import Rows, SealedExtents
from mainstem.log.read.index import ExtentIndex
from mainstem.ports.commitlog.port import LogObject

# … with at least this many bytes, because fewer are not worth a round, …
REPACK_LEAST_BYTES = 16 * limits.MIB
REPACK_SMALL_OBJECTS_MAX = 256  # … or this many objects

REPACK_ROUND_BYTES = 128 * limits.MIB  # bytes of the log's objects in one round, but at least one object
REPACK_MERGED_ROUNDS = 16  # this many neighbouring rounds are merged into one …
REPACK_MERGED_BYTES_MAX = 8 * limits.GIB  # … unless it would be larger than this
REPACK_LEVELS_MAX = 2  # how often bytes are copied to make them contiguous
REPACK_GRACE_S = 60.0  # replaced files stay this long for current readers
REPACKED_FILE_BYTES = 32 * limits.MIB  # of payload, built in memory

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RepackPlan:
    """Objects to read, and the range of the log's objects that the result replaces."""

    first: int  # numbers of the log's own objects
    end: int
    sources: tuple[str, ...]  # keys of repacked files, if the plan reads those
    numbers: tuple[int, ...]  # of the objects to read, in the order of the log
    bytes: int


@dataclass(frozen=True, slots=True)
class RepackOptions:
    """When to repack, and how fast."""

    on: bool = True
    after_objects: int = limits.REPACK_AFTER_OBJECTS
    least_bytes: int = REPACK_LEAST_BYTES
    bytes_per_s: int = limits.REPACK_BYTES_PER_S  # 0: unlimited
    round_bytes: int = REPACK_ROUND_BYTES
    merged_rounds: int = REPACK_MERGED_ROUNDS
    file_bytes: int = REPACKED_FILE_BYTES
    grace_s: float = REPACK_GRACE_S


def waiting(objects: Sequence[LogObject], frontier: int) -> list[LogObject]:
    """The sealed objects of the log from the frontier on, up to the first that is not sealed.

    Without the last one: where several brokers write, commits after its seal may still turn up in it."""
    found: list[LogObject] = []
    for one in objects[:-1]:
        if one.number >= frontier:
            if not one.sealed:
                break
            found.append(one)
    return found


def may_wait(sealed: Sequence[LogObject], options: RepackOptions) -> int:
    """How many objects wait before the oldest are repacked: small objects are not worth it until there are many."""
    if sum(one.size_bytes for one in sealed) >= options.least_bytes:
        return options.after_objects
    return max(options.after_objects, REPACK_SMALL_OBJECTS_MAX)


def plan_log_objects(
    objects: Sequence[LogObject], frontier: int, options: RepackOptions, *, early: bool = False
) -> RepackPlan | None:
    """The oldest waiting objects, if there are enough of them, or any if `early`."""
    sealed = waiting(objects, frontier)
    if not sealed or (len(sealed) < may_wait(sealed, options) and not early):
        return None
    return plan_objects(sealed, frontier, options)


def plan_objects(sealed: Sequence[LogObject], frontier: int, options: RepackOptions) -> RepackPlan:
    """The first of some objects: as many as one round takes."""
    taken = [sealed[0]]
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
    """Adjacent rounds of the same level, if there are enough of them."""
    run: list[RepackRound] = []
    for one in rounds:
        if left_alone(one):
            run = []
            continue
        if run and run[-1].level != one.level:
            run = []
        run.append(one)
        if len(run) == options.merged_rounds:
            if one.level < REPACK_LEVELS_MAX and _size(run) <= REPACK_MERGED_BYTES_MAX:
                return plan_rounds(run)
            run = run[1:]
    return None


def plan_rounds(rounds: Sequence[RepackRound]) -> RepackPlan:
    """Copy what is needed of adjacent rounds again."""
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
    """Where each existing stream, by number, ends in the new round."""

    streams: Int64s
    ends: Int64s

    def between(self, first: int, end: int) -> StreamEnds:
        """The ends of the streams [first, end)."""
        low, high = np.searchsorted(self.streams, (first, end))
        return StreamEnds(self.streams[low:high], self.ends[low:high])


async def ends_of_log_objects(ledger: Ledger, index: ExtentIndex, plan: RepackPlan) -> StreamEnds:
    """A stream ends where later objects continue it, or at its current end."""
    streams = ledger.streams
    # A snapshot of one moment; the rest may run in a thread.
    ends, alive = streams.end[: streams.count].copy(), streams.alive[: streams.count].copy()
    later = index.begins_after(ends, plan.end)
    await asyncio.to_thread(_lower, ends, later)
    return await _ends_of_streams(ledger, np.flatnonzero(ends > 0), ends[ends > 0], alive[ends > 0])


def _lower(ends: Int64s, later: Sequence[Rows]) -> None:
    for spans in later:
        ends[spans["stream"]] = spans["base"]


async def ends_of_rounds(ledger: Ledger, indexes: Sequence[SealedExtents]) -> StreamEnds:
    """A stream ends where the last of these rounds that lists it says."""
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
    """Without deleted streams, unless an alias needs them. Checks a few streams at a time."""
    aliases = ledger.aliases
    gone = np.flatnonzero(~named).tolist() if aliases.feeds else []
    for at in range(0, len(gone), limits.REPACK_STREAMS_AT_ONCE):
        for row in gone[at : at + limits.REPACK_STREAMS_AT_ONCE]:
            named[row] = aliases.reaching(int(streams[row]), 0, int(ends[row]))
        await asyncio.sleep(0)
    return StreamEnds(streams[named], ends[named])

"""Generations: which parts serve the offsets of a stream instead of the log's own bytes.

The parts of a stream are in offset order without gaps, from the first to the *frontier*. Everything before the
frontier is in their files or deleted; everything from there on is in the log. Files that no part names any more
are *garbage* until they are deleted and a command says so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec

from mainstem.api.lake import Part, PartName
from mainstem.errors import InvalidInput, MainstemError, StalePlan, StreamNotFound, invariant
from mainstem.ledger.compactions import Compactions
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.parts import ObjectsForgotten, bad_parts, prefix_of
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import RecordsDeleted, Streams
from mainstem.ledger.tasks import Lease, Tasks
from mainstem.ledger.topics import TopicDeletedEvent, Topics


class SwapParts(Command, frozen=True, tag=93):
    """Serve a range of a stream from these parts, instead of the parts named, or of the log."""

    stream: int
    token: int  # that holds `parts/<stream>`
    sources: tuple[PartName, ...]  # none: the range was served by the log
    parts: tuple[Part, ...]


class RetireParts(Command, frozen=True, tag=94):
    """Retire the parts of these streams that are below the start offset."""

    streams: tuple[int, ...]


class ForgetObjects(Command, frozen=True, tag=95):
    """These files, which no part names any more, are deleted."""

    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PartsSwapped:
    stream: int
    frontier: int
    repeated: bool  # the same parts were published before


@dataclass(frozen=True, slots=True)
class PartsRetired:
    parts: int


@dataclass(frozen=True, slots=True)
class ServedPart:
    """A part, and what happened to its range since it was made."""

    part: Part
    stale: bool = False  # its files still hold records that were deleted, or lack columns declared since
    absent: int = 0  # live offsets, by the stream's holes, that were compacted away
    compacted: bool = False  # for each record, no older one with its key is left


class Garbage(NamedTuple):
    """A file that no part names any more."""

    key: str
    topic_id: bytes  # of the topic it belonged to
    position: int  # of the commit that retired it


class DeletedRange(NamedTuple):
    """What was deleted from a stream while the holder of a token wrote new parts."""

    stream: int
    token: int
    first: int
    end: int


class GenerationsState(msgspec.Struct, frozen=True, array_like=True):
    """All parts and garbage, in a checkpoint."""

    parts: list[tuple[int, list[tuple[Part, bool, int, bool]]]]  # stream, then the fields of `ServedPart`
    garbage: list[Garbage]
    deleted: list[DeletedRange]


def task_of(stream: int) -> str:
    """The task whose holder may swap a stream's parts."""
    return f"parts/{stream}"


def name_of(part: Part) -> PartName:
    return part.base, part.end, part.generation


class Generations(Section[GenerationsState]):
    """The parts of every stream that has any, and the garbage."""

    requires = (Streams, Topics, Tasks, Compactions)

    def __init__(self, streams: Streams, topics: Topics, tasks: Tasks, compactions: Compactions) -> None:
        self._streams = streams
        self._topics = topics
        self._tasks = tasks
        self._compactions = compactions  # of what the log's own bytes hold
        self._parts_sum = 0  # of the parts' hashes
        self.served: dict[int, list[ServedPart]] = {}  # by stream; only streams that have parts
        self._keys: set[str] = set()  # of the files that parts name
        self._garbage: Keyed[str, Garbage] = Keyed(_garbage_hash)
        self._deleted: Keyed[int, DeletedRange] = Keyed(_deleted_hash)  # by stream
        streams.count_absent(self.take_absent)

    # Reads

    def frontier(self, stream: int) -> int:
        """The offset from which the log's own bytes serve. Offsets before it are served by parts, or deleted."""
        served, start = self.served.get(stream), self._streams.start(stream)
        return max(served[-1].part.end, start) if served else start

    def serves(self, stream: int) -> bool:
        """Whether the stream has parts."""
        return stream in self.served

    def streams(self) -> Iterator[int]:
        """Streams that have parts, by number."""
        return iter(sorted(self.served))

    def parts(self, stream: int, start: int = 0, end: int | None = None) -> list[Part]:
        """The parts that serve an offset of [start, end), in order."""
        return [one.part for one in self._overlapping(stream, start, end)]

    def part_at(self, stream: int, offset: int) -> Part | None:
        """The part that serves an offset; None if the log's own bytes do."""
        served = self.served.get(stream)
        if served is None or offset >= served[-1].part.end:
            return None
        return served[bisect_right(served, offset, key=lambda one: one.part.end)].part

    def stale(self, stream: int) -> list[Part]:
        """The parts that still hold deleted records, in order."""
        return [one.part for one in self.served.get(stream, ()) if one.stale]

    def dirty(self, stream: int) -> list[Part]:
        """The parts that were never compacted, or not as a whole, in order."""
        return [one.part for one in self.served.get(stream, ()) if not one.compacted]

    def absent(self, stream: int) -> int:
        """How many records were compacted away above the start."""
        return sum(one.absent for one in self.served.get(stream, ()))

    def garbage(self) -> list[Garbage]:
        """By key."""
        return list(self._garbage)

    def knows(self, key: str) -> bool:
        """Whether a part names this file, or it is garbage."""
        return key in self._keys or key in self._garbage

    def retirable(self) -> list[int]:
        """Streams with a part below their start for which no lease is held."""
        return [stream for stream in self.streams() if self._below_start(stream)]

    def _overlapping(self, stream: int, start: int, end: int | None) -> list[ServedPart]:
        served = self.served.get(stream)
        if not served:
            return []
        low = bisect_right(served, start, key=lambda one: one.part.end)
        high = len(served)
        while end is not None and high > low and served[high - 1].part.base >= end:
            high -= 1
        return served[low:high]

    def _below_start(self, stream: int) -> int:
        """How many of the first parts are below the start; none while a lease holder rewrites them."""
        if self._tasks.get(task_of(stream)) is not None:
            return 0
        return bisect_right(
            self.served.get(stream, ()), self._streams.start(stream), key=lambda one: one.part.end
        )

    # Commands

    @applies(SwapParts)
    def swap(self, command: SwapParts, now: Moment) -> PartsSwapped | MainstemError:
        stream = command.stream
        owner = self._topics.of_stream(stream)
        if owner is None:
            return StreamNotFound(stream)
        if self._published(command):
            return PartsSwapped(stream, self.frontier(stream), repeated=True)
        lease = self._tasks.get(task_of(stream))
        if lease is None or lease.token != command.token:
            return StalePlan(f"the lease of {task_of(stream)!r} expired, or another holder has it")
        refusal = bad_parts(command.parts, prefix_of(owner, stream)) or self._bad_range(command)
        if refusal is not None:
            return refusal
        replaced = self._overlapping(stream, command.parts[0].base, command.parts[-1].end)
        refusal = self._bad_keys(command, replaced) or self._bad_counts(command, replaced, lease)
        if refusal is not None:
            return refusal
        self._swap(command, replaced, lease, owner.topic_id, now.position)
        if lease.reach and command.parts[-1].end >= lease.reach:
            self._tasks.drop(task_of(stream))
            self._deleted.pop(stream)
        return PartsSwapped(stream, self.frontier(stream), repeated=False)

    @applies(RetireParts)
    def retire(self, command: RetireParts, now: Moment) -> PartsRetired:
        retired = 0
        for stream in command.streams:
            owner = self._topics.of_stream(stream)
            gone = 0 if owner is None else self._below_start(stream)
            if owner is not None and gone:
                self._discard(self._replace(stream, 0, gone, []), owner.topic_id, now.position)
                retired += gone
        return PartsRetired(retired)

    @applies(ForgetObjects)
    def forget_objects(self, command: ForgetObjects, now: Moment) -> ObjectsForgotten:
        return ObjectsForgotten(sum(self._garbage.pop(key) is not None for key in command.keys))

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        """The files of the topic are garbage."""
        topic = event.topic
        for stream in topic.streams:
            self._tasks.drop(task_of(stream))
            self._deleted.pop(stream)
            if stream in self.served:
                dropped = self._replace(stream, 0, len(self.served[stream]), [])
                self._discard(dropped, topic.topic_id, now.position)

    # Events

    @reacts(RecordsDeleted)
    def on_records_deleted(self, event: RecordsDeleted, now: Moment) -> None:
        """Files that hold the deleted records must be rewritten."""
        stream = event.stream
        lease = self._tasks.get(task_of(stream))
        if lease is None and stream not in self.served:
            return
        for first, end in event.ranges:
            if lease is not None:
                noted = self._deleted.get(stream)
                low, high = first, end
                if noted is not None and noted.token == lease.token:
                    low, high = min(first, noted.first), max(end, noted.end)
                self._deleted.put(stream, DeletedRange(stream, lease.token, low, high))
            self._mark_stale(stream, first, end)

    def outdate(self, stream: int) -> None:
        """The files lack columns that are declared now: all must be rewritten.

        A worker that is writing files does not know the columns either, so it loses its lease."""
        self._tasks.drop(task_of(stream))
        self._deleted.pop(stream)
        self._mark_stale(stream, 0, self.frontier(stream))

    def take_absent(self, stream: int, start: int, floor: int) -> int:
        """The stream's start moves from `start` to `floor`: how many offsets between them were compacted away.

        In a part that the floor splits, they count as spread evenly."""
        taken = 0
        for one in self._overlapping(stream, start, floor):
            if one.absent:
                first, end = max(one.part.base, start), one.part.end
                share = one.absent * (min(end, floor) - first) // (end - first)
                self._change(stream, one, replace(one, absent=one.absent - share))
                taken += share
        return taken

    def _mark_stale(self, stream: int, first: int, end: int) -> None:
        start = self._streams.start(stream)
        for one in self._overlapping(stream, first, end):
            if one.part.records and one.part.end > start and not one.stale:
                self._change(stream, one, replace(one, stale=True))

    # Swapping

    def _published(self, command: SwapParts) -> bool:
        """Whether exactly these parts serve their range now: the swap is a retry."""
        if not command.parts:
            return False
        there = {
            name_of(part): part
            for part in self.parts(command.stream, command.parts[0].base, command.parts[-1].end)
        }
        return all(there.get(name_of(part)) == part for part in command.parts)

    def _bad_range(self, command: SwapParts) -> StalePlan | None:
        stream = command.stream
        base, end = command.parts[0].base, command.parts[-1].end
        if command.sources:
            now = tuple(name_of(part) for part in self.parts(stream, base, end))
            if now != command.sources or (now[0][0], now[-1][1]) != (base, end):
                return StalePlan("other parts than those that were read now serve the range")
            expected = max(generation for _, _, generation in now) + 1
        else:
            served = self.served.get(stream)
            start, stable_end = self._streams.start(stream), self._streams.stable_end(stream)
            reached = served[-1].part.end if served else min(base, start)
            if base != reached and not reached < base <= start:  # a gap below the start is allowed
                return StalePlan(f"the parts begin at {base}, but the log serves from {reached}")
            if end > stable_end:
                return StalePlan(f"the parts end at {end}, past the last stable offset {stable_end}")
            expected = 1
        if any(part.generation != expected for part in command.parts):
            return StalePlan(f"the parts are not of generation {expected}")
        return None

    def _bad_keys(self, command: SwapParts, replaced: list[ServedPart]) -> StalePlan | None:
        reused = {file.key for one in replaced for file in one.part.files}
        for part in command.parts:
            for file in part.files:
                if file.key not in reused and self.knows(file.key):
                    return StalePlan(f"the file {file.key!r} was published before, in another part")
        return None

    def _bad_counts(
        self, command: SwapParts, replaced: list[ServedPart], lease: Lease
    ) -> InvalidInput | StalePlan | None:
        """Check that the parts lack no records but those that were deleted by now."""
        if lease.compacts_before_ms:
            if self._streams.tracked(command.stream) is not None:
                return StalePlan("a topic with a cap or ttl cannot be compacted")
            return None
        if self._compactions.sparse(command.stream, command.parts[0].base, command.parts[-1].end):
            return None
        absent = sum(one.absent for one in replaced)
        missing = sum(max(0, self._live(command.stream, part) - part.records) for part in command.parts)
        if missing > absent:
            return InvalidInput(f"the parts lack {missing - absent} live records")
        return None

    def _swap(
        self, command: SwapParts, replaced: list[ServedPart], lease: Lease, topic_id: bytes, position: int
    ) -> None:
        stream = command.stream
        compacted = bool(replaced) and all(one.compacted for one in replaced)
        # From here on, the parts count what the log's own bytes lack.
        moved = self._compactions.take_absent(stream, command.parts[0].base, command.parts[-1].end)
        sparse = lease.compacts_before_ms > 0 or moved > 0 or any(one.absent for one in replaced)
        fresh = [
            ServedPart(
                part,
                self._holds_deleted(stream, part, lease.token, sparse),
                max(0, self._live(stream, part) - part.records) if sparse else 0,
                compacted or all(file.max_timestamp < lease.compacts_before_ms for file in part.files),
            )
            for part in command.parts
        ]
        removed = sum(one.absent for one in fresh) - sum(one.absent for one in replaced) - moved
        if removed > 0:
            self._streams.compacted(stream, removed)
        served = self.served.setdefault(stream, [])
        low = high = len(served)
        if replaced:
            low = served.index(replaced[0])
            high = low + len(replaced)
        elif served and served[-1].part.end < command.parts[0].base:
            low = 0  # the start is past all of them, and leaves a gap after them
        self._discard(self._replace(stream, low, high, fresh), topic_id, position)

    def _holds_deleted(self, stream: int, part: Part, token: int, sparse: bool) -> bool:
        """Whether records of the part may have been deleted while the token's holder made it."""
        noted = self._deleted.get(stream)
        touched = (
            noted is not None and noted.token == token and part.base < noted.end and part.end > noted.first
        )
        # A part with exactly as many records as there are live ones holds no deleted records.
        return touched and part.records > (0 if sparse else self._live(stream, part))

    def _live(self, stream: int, part: Part) -> int:
        """Offsets of a part's range that are not holes."""
        first = max(part.base, self._streams.start(stream))
        if first >= part.end:
            return 0
        return part.end - first - self._streams.holes(stream).covered(first, part.end)

    def _replace(self, stream: int, low: int, high: int, fresh: list[ServedPart]) -> list[str]:
        """Replace parts low..high by `fresh`. Returns the files that no part names any more."""
        served = self.served[stream]
        old = served[low:high]
        served[low:high] = fresh
        if not served:
            del self.served[stream]
        before = {file.key for one in old for file in one.part.files}
        after = {file.key for one in fresh for file in one.part.files}
        self._keys -= before
        self._keys |= after
        self._parts_sum += sum(served_digest(stream, one) for one in fresh)
        self._parts_sum -= sum(served_digest(stream, one) for one in old)
        return sorted(before - after)

    def _change(self, stream: int, old: ServedPart, new: ServedPart) -> None:
        served = self.served[stream]
        at = bisect_right(served, old.part.base, key=lambda one: one.part.base) - 1
        invariant(served[at] is old, "a part is changed in place")
        served[at] = new
        self._parts_sum += served_digest(stream, new) - served_digest(stream, old)

    def _discard(self, keys: Iterable[str], topic_id: bytes, position: int) -> None:
        for key in keys:
            self._garbage.put(key, Garbage(key, topic_id, position))

    # State as a whole

    @property
    def digest(self) -> int:
        return (self._parts_sum + self._garbage.digest + self._deleted.digest) & MASK

    def encode(self) -> GenerationsState:
        return GenerationsState(
            [
                (stream, [(one.part, one.stale, one.absent, one.compacted) for one in self.served[stream]])
                for stream in self.streams()
            ],
            list(self._garbage),
            list(self._deleted),
        )

    def load(self, state: GenerationsState) -> None:
        for stream, parts in state.parts:
            self.served[stream] = []
            self._replace(stream, 0, 0, [ServedPart(*one) for one in parts])
        for garbage in state.garbage:
            self._garbage.put(garbage.key, garbage)
        for deleted in state.deleted:
            self._deleted.put(deleted.stream, deleted)


def served_digest(stream: int, one: ServedPart) -> int:
    files = tuple((file.key, file.base, file.end, file.records, file.bytes) for file in one.part.files)
    return hash_fields(
        "part", stream, *name_of(one.part), one.part.records, files, one.stale, one.absent, one.compacted
    )


def _garbage_hash(garbage: Garbage) -> int:
    return hash_fields("garbage", garbage.key, garbage.topic_id)


def _deleted_hash(deleted: DeletedRange) -> int:
    return hash_fields("deleted", *deleted)

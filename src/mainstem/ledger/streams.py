"""Streams: where each one starts and ends and what it holds, as arrays indexed by stream number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import InvalidInput, MainstemError, StreamNotFound, invariant
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.digest import MASK
from mainstem.ledger.intervals import ABORTED, DELETED, MARKER, SOURCE_TRIM, Holes, is_loss
from mainstem.ledger.markers import StreamTransactions, StreamTransactionsState
from mainstem.ledger.passed_losses import Loss, PassedLosses
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.stream_columns import EPHEMERAL, FSYNC, StreamColumns
from mainstem.ledger.tracked_records import TrackedRecords

TrimReason = Literal["delete", "cap", "ttl"]


class Trim(Command, frozen=True, tag=10):
    """Remove the records below `offset`: on request ("delete", silent) or by retention ("cap", "ttl": loss)."""

    stream: int
    offset: int
    reason: TrimReason
    bytes: int = 0  # logical bytes removed, where the ledger does not track records itself
    # Losses below the offset are still reported after a delete.
    keeps_losses: bool = False


class DeleteRecords(Command, frozen=True, tag=11):
    """Remove single records on request: half-open offset ranges, already resolved by the proposer."""

    stream: int
    ranges: tuple[tuple[int, int], ...]
    bytes: int = 0


class RaiseCeilings(Command, frozen=True, tag=12):
    """Relaxed streams may publish offsets below these once this command is synced."""

    ceilings: tuple[tuple[int, int], ...]  # (stream, ceiling)


class MarkLost(Command, frozen=True, tag=13):
    """Stored bytes of these offsets are damaged; the offsets stay used."""

    stream: int
    start: int
    end: int
    reason: str = "damaged"


@dataclass(frozen=True, slots=True)
class RecordsRemoved:
    """The result of Trim, DeleteRecords and MarkLost: what they removed."""

    start: int  # the stream's start afterwards
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class CeilingsRaised:
    streams: int  # how many were raised; deleted streams and lower ceilings do not count


FULL = -1  # what `append` returns instead of an offset

_NO_HOLES = Holes(-1)  # stands in for streams without any; never written to

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class RecordsDeleted(NamedTuple):
    """An event: records of these ranges were deleted on request."""

    stream: int
    ranges: tuple[tuple[int, int], ...]


class RecordsDamaged(NamedTuple):
    """An event: records of this range are damaged."""

    stream: int
    start: int
    end: int


class StreamsState(msgspec.Struct, frozen=True, array_like=True):
    """All streams, in a checkpoint."""

    count: int
    columns: list[bytes]  # STATE_COLUMNS, little-endian
    holes: list[tuple[int, list[tuple[int, int, str]]]]  # by stream: (start, end, reason)
    tracked: list[tuple[int, int, bytes, bytes, bytes]]  # stream, tracked since, offsets, sizes, times
    transactions: StreamTransactionsState
    passed: list[tuple[int, list[Loss]]]  # by stream: losses below its start that deletes passed over


class Streams(StreamColumns, Section[StreamsState]):
    """Where each stream starts and ends and what it holds.

    Records are removed by three floors, each raised for its own reason, and by holes above them."""

    def __init__(self) -> None:
        super().__init__()
        self._holes: dict[int, Holes] = {}
        self.passed = PassedLosses()
        self._columns: dict[int, TrackedRecords] = {}
        self.transactions = StreamTransactions()
        self._watchers: dict[int, Callable[[int, int], None]] = {}
        self._absent: list[Callable[[int, int, int], int]] = []
        # Called with every range of records that is removed: (stream, start, end, bytes).
        self.on_removed: Callable[[int, int, int, int], None] | None = None

    # Life

    def open(self, streams: int, config: TopicConfig) -> range:
        """The next stream numbers, empty and configured."""
        numbers = range(self.count, self.count + streams)
        self._grow(numbers.stop)
        self.count = numbers.stop
        for stream in numbers:
            self.alive[stream] = True
            self.configure(stream, config)
        return numbers

    def configure(self, stream: int, config: TopicConfig) -> None:
        """Apply a config. A tighter cap evicts at once, unless the topic rejects."""
        self.adopt(stream, config)
        if config.tracked and stream not in self._columns and config.durability != "ephemeral":
            # Earlier records have no rows: each counts with the average size.
            self._columns[stream] = TrackedRecords(int(self.end[stream]))
        elif not config.tracked:
            self._columns.pop(stream, None)
        if not self.rejects[stream]:
            self._evict(stream)

    def close(self, stream: int) -> None:
        """The stream's topic is deleted: only its number stays used."""
        self.alive[stream] = self.plain[stream] = False
        self.delete_floor[stream] = self.end[stream]
        self.records[stream] = self.bytes[stream] = 0
        self._holes.pop(stream, None)
        self.passed.forget(stream)
        self._columns.pop(stream, None)
        self.transactions.forget(stream)
        self._watchers.pop(stream, None)

    def watch(self, stream: int, removed: Callable[[int, int], None]) -> None:
        """Call `removed` with every range of records that is removed from the stream, for whatever reason."""
        self._watchers[stream] = removed

    # Reads

    def exists(self, stream: int) -> bool:
        return 0 <= stream < self.count and bool(self.alive[stream])

    def start(self, stream: int) -> int:
        """The first offset that may hold a record."""
        floors = self._floors
        return max(floors[0][stream], floors[1][stream], floors[2][stream])

    def floors(self, stream: int) -> tuple[int, int, int]:
        """Below which offset records were deleted, evicted by a cap and expired."""
        deleted, evicted, expired = self._floors
        return deleted[stream], evicted[stream], expired[stream]

    def total_bytes(self) -> int:
        """Logical bytes of the live records of all streams."""
        return int(self.bytes[: self.count].sum())

    def relaxed(self, stream: int) -> bool:
        """Whether appends are acknowledged before they are synced."""
        return bool(self.durability[stream] != FSYNC)

    def ephemeral(self, stream: int) -> bool:
        return bool(self.durability[stream] == EPHEMERAL)

    def lost(self, stream: int) -> list[tuple[int, int, str]]:
        """Offsets at or above the start whose records are lost, as (start, end, reason)."""
        return [hole for hole in self.holes(stream) if is_loss(hole[2])]

    def deleted(self, stream: int) -> list[tuple[int, int]]:
        """Offsets above the start whose records were deleted."""
        return [(start, end) for start, end, reason in self.holes(stream) if reason == DELETED]

    def was_aborted(self, stream: int, offset: int) -> bool:
        """Whether the record at `offset` was part of an aborted transaction."""
        return any(reason == ABORTED for _, _, reason in self.holes(stream).overlapping(offset, offset + 1))

    def holes(self, stream: int) -> Holes:
        return self._holes.get(stream, _NO_HOLES)

    def next_loss(self, stream: int, offset: int) -> tuple[int, int, str] | None:
        """The first range of lost records that ends after `offset`, with the reason."""
        holes = self._holes.get(stream)
        return None if holes is None else holes.next_loss(offset)

    def deleted_between(self, stream: int, start: int, end: int) -> list[tuple[int, int]]:
        """The ranges of records that were deleted and have an offset in [start, end), whole."""
        holes = self._holes.get(stream)
        return [] if holes is None else holes.deleted(start, end)

    def stable_end(self, stream: int) -> int:
        """Where the records of open transactions begin; the end if there are none."""
        first = self.transactions.first_open(stream)
        return int(self.end[stream]) if first is None else max(first, self.start(stream))

    def tracked(self, stream: int) -> TrackedRecords | None:
        return self._columns.get(stream)

    def expired(self, stream: int, before_ms: int) -> list[tuple[int, int]]:
        """Live records of a tracked stream older than `before_ms`, as half-open ranges."""
        columns = self._columns.get(stream)
        return columns.expired(before_ms) if columns else []

    # Appends

    def append_plain(self, stream: int, count: int, size: int, max_timestamp: int) -> int:
        """Append to a `plain` stream. Returns the first offset."""
        base: int = self._end[stream]
        self._end[stream] = base + count
        self._records[stream] += count
        self._bytes[stream] += size
        if max_timestamp > self._max_timestamp[stream]:
            self._max_timestamp[stream] = max_timestamp
        return base

    def append(
        self, stream: int, count: int, size: int, max_timestamp: int, rows: npt.NDArray[np.void] | None
    ) -> int:
        """Append to any stream that exists in the log, within its caps. Returns the first offset, or FULL.

        `rows` are the records' sizes and times, if the slice has them."""
        columns = self._columns.get(stream)
        if columns is not None and rows is not None:
            size = int(rows["size"].sum(dtype=np.int64))
        if self.terminated[stream] or (self.rejects[stream] and self._overflows(stream, count, size)):
            return FULL
        base = self.append_plain(stream, count, size, max_timestamp)
        if columns is not None:
            if rows is not None:
                columns.append(base, rows["size"], rows["time"], size)
            else:
                columns.append(base, _spread(size, count), max_timestamp, size)
        if not self.plain[stream] and not self.rejects[stream]:
            self._evict(stream)
        return base

    def compacted(self, stream: int, records: int) -> None:
        """Compaction removed records. Their offsets do not become holes: there would be too many."""
        records = min(records, int(self.records[stream]))
        size = self._average(stream, records, 0)
        self.records[stream] -= records
        self.bytes[stream] -= size

    def count_absent(self, absent: Callable[[int, int, int], int]) -> None:
        """Also use `absent` to count the offsets of a removed range that compaction had removed before."""
        self._absent.append(absent)

    def append_alias(self, streams: Int64s, offsets: int, records: int, size: int, time_ms: int) -> None:
        """Append the same copies at the next `offsets` of each of these different `plain` streams.

        If there are fewer `records` than offsets, the caller makes the gaps."""
        self.end[streams] += offsets
        self.records[streams] += records
        self.bytes[streams] += size
        if records:
            self.max_timestamp[streams] = np.maximum(self.max_timestamp[streams], time_ms)

    def make_gap(self, stream: int, start: int, end: int) -> None:
        """Add offsets at the end of a stream for records that were lost before they were copied to it."""
        self._end[stream] = max(end, self._end[stream])
        self._make_hole(stream, start, end, SOURCE_TRIM)

    def take_marker(self, stream: int) -> int:
        """Use the next offset for a transaction marker, which is not a record."""
        offset: int = self._end[stream]
        self._end[stream] = offset + 1
        self._make_hole(stream, offset, offset + 1, MARKER)
        return offset

    def _overflows(self, stream: int, count: int, size: int) -> bool:
        cap_records, cap_bytes = self.cap_records[stream], self.cap_bytes[stream]
        return bool(
            (cap_records and self.records[stream] + count > cap_records)
            or (cap_bytes and self.bytes[stream] + size > cap_bytes)
        )

    # Removals

    def _evict(self, stream: int) -> None:
        """Drop the oldest records until the stream is within its caps."""
        start, end = self.start(stream), int(self.end[stream])
        floor = start
        excess = int(self.records[stream]) - int(self.cap_records[stream])
        if self.cap_records[stream] and excess > 0:
            floor = self.holes(stream).past(start, end, excess)
        excess = int(self.bytes[stream]) - int(self.cap_bytes[stream])
        if self.cap_bytes[stream] and excess > 0:
            floor = max(floor, self._floor_freeing(stream, start, excess))
        if floor > start:
            self._remove_below(stream, floor, 0)
            self.evict_floor[stream] = floor
            self._settle(stream)

    def _floor_freeing(self, stream: int, start: int, excess: int) -> int:
        """The lowest floor that frees `excess` bytes of a stream with a byte cap."""
        columns = self._columns[stream]
        untracked = int(self.bytes[stream]) - columns.bytes
        if excess > untracked:
            return columns.floor_freeing(excess - untracked)
        holes = self.holes(stream)
        records = columns.since - start - holes.covered(start, columns.since)
        return holes.past(start, columns.since, -(-excess * records // untracked))

    def trim(
        self, stream: int, offset: int, reason: str, stated_bytes: int, *, keeps_losses: bool = False
    ) -> tuple[int, int]:
        """Raise the floor of `reason`. Returns the number and bytes of the live records that this removes.

        `keeps_losses`: losses below it are still reported."""
        floors = {"delete": self.delete_floor, "cap": self.evict_floor, "ttl": self.expiry_floor}[reason]
        floor = min(offset, int(self.end[stream]))
        removed = (0, 0)
        if floor > self.start(stream):
            removed = self._remove_below(stream, floor, stated_bytes)
            if keeps_losses:
                self.passed.add(stream, self._losses_below(stream, floor))
        if floor > floors[stream]:
            floors[stream] = floor
            self._settle(stream)
        return removed

    def _losses_below(self, stream: int, floor: int) -> list[Loss]:
        holes = self.holes(stream).overlapping(self.start(stream), floor)
        return [(first, min(last, floor), reason) for first, last, reason in holes if is_loss(reason)]

    def _remove_below(self, stream: int, floor: int, stated_bytes: int) -> tuple[int, int]:
        """Remove the live records of [start, floor) from the counts and columns."""
        start, holes = self.start(stream), self.holes(stream)
        records = floor - start - holes.covered(start, floor)
        records -= sum(absent(stream, start, floor) for absent in self._absent)
        records = min(records, int(self.records[stream]))  # after compaction, records are counted, not listed
        columns = self._columns.get(stream)
        if columns is None:
            size = self._average(stream, records, stated_bytes)
        else:
            size = self._untracked_bytes(stream, columns, start, min(floor, columns.since))
            size += columns.cut(floor)
        self.records[stream] -= records
        self.bytes[stream] -= size
        if self.on_removed is not None:
            self.on_removed(stream, start, floor, size)
        if stream in self._watchers:
            self._watchers[stream](start, floor)
        return records, size

    def _untracked_bytes(self, stream: int, columns: TrackedRecords, start: int, end: int) -> int:
        """Bytes of the live records in [start, end) from before tracking began, by their average size."""
        first, holes = self.start(stream), self.holes(stream)
        if end <= start or first >= columns.since:
            return 0
        untracked = int(self.bytes[stream]) - columns.bytes
        records = columns.since - first - holes.covered(first, columns.since)
        return untracked * (end - start - holes.covered(start, end)) // records if records else 0

    def _average(self, stream: int, records: int, stated_bytes: int) -> int:
        """Bytes of some records of an untracked stream: as the proposer stated, or by the average size."""
        live, size = int(self.records[stream]), int(self.bytes[stream])
        if records >= live:
            return size
        return min(size, stated_bytes) if stated_bytes else size * records // live

    def punch(
        self, stream: int, ranges: tuple[tuple[int, int], ...], reason: str, stated_bytes: int
    ) -> tuple[int, int]:
        """Make holes of the live records in `ranges`. Returns their number and bytes."""
        floor, end = self.start(stream), int(self.end[stream])
        wanted = [(max(first, floor), min(last, end)) for first, last in ranges]
        records = size = 0
        asked = sum(max(0, last - first) for first, last in wanted)
        for first, last in wanted:
            if first < last:
                for fresh in list(self.holes(stream).live(first, last)):
                    # Shares of a running total, so that rounding loses none of the stated bytes.
                    before = stated_bytes * records // asked
                    records += fresh[1] - fresh[0]
                    part = stated_bytes * records // asked - before
                    size += self._punch_live(stream, fresh, reason, part)
        self._settle(stream)
        return records, size

    def _punch_live(self, stream: int, fresh: tuple[int, int], reason: str, stated_bytes: int) -> int:
        """Make one hole of records that are all live. Returns their bytes."""
        start, end = fresh
        columns = self._columns.get(stream)
        if columns is None:
            size = self._average(stream, end - start, stated_bytes)
        else:
            size = self._untracked_bytes(stream, columns, start, min(end, columns.since))
            size += columns.erase(start, end)
        self._make_hole(stream, start, end, reason)
        self.records[stream] -= min(end - start, int(self.records[stream]))  # some may be compacted away
        self.bytes[stream] -= size
        if self.on_removed is not None:
            self.on_removed(stream, start, end, size)
        if stream in self._watchers:
            self._watchers[stream](start, end)
        return size

    def _make_hole(self, stream: int, start: int, end: int, reason: str) -> None:
        holes = self._holes.get(stream)
        if holes is None:
            holes = self._holes[stream] = Holes(stream)
        holes.add(start, end, reason)

    def _settle(self, stream: int) -> None:
        """Move the start past the deleted records that follow it, and drop holes below it."""
        if stream in self.passed:
            self.passed.cut(stream, int(max(self.evict_floor[stream], self.expiry_floor[stream])))
        holes = self._holes.get(stream)
        if holes is None:
            return
        start = self.start(stream)
        holes.cut(start)
        reached = holes.deleted_prefix(start)
        if reached > start:
            self.delete_floor[stream] = reached
            holes.cut(reached)
            columns = self._columns.get(stream)
            if columns is not None:
                columns.cut(reached)
        self.transactions.cut(stream, reached)
        if not holes:
            del self._holes[stream]

    # Ceilings

    def raise_ceiling(self, stream: int, ceiling: int) -> bool:
        if not self.exists(stream) or ceiling <= self.ceiling[stream]:
            return False
        self.ceiling[stream] = ceiling
        return True

    def jump(self, unclean: bool) -> list[tuple[int, int, int]]:
        """Continue at the ceiling, because offsets below it may have been read and are lost now.

        Ephemeral streams always do, relaxed ones after an `unclean` shutdown. Returns (stream, old end, end)."""
        behind = self.alive[: self.count] & (self.ceiling[: self.count] > self.end[: self.count])
        reach = FSYNC if unclean else EPHEMERAL + 1
        jumped = []
        for stream in np.flatnonzero(behind & (self.durability[: self.count] < reach)).tolist():
            end, ceiling = int(self.end[stream]), int(self.ceiling[stream])
            self.end[stream] = ceiling
            reason = "ephemeral" if self.ephemeral(stream) else "unclean shutdown"
            self._make_hole(stream, end, ceiling, reason)
            invariant(self.start(stream) <= end, "a stream never starts past its end")
            jumped.append((stream, end, ceiling))
        return jumped

    # Commands

    @applies(Trim)
    def apply_trim(self, command: Trim, now: Moment) -> RecordsRemoved | MainstemError:
        stream = command.stream
        if not self.exists(stream):
            return StreamNotFound(stream)
        if command.offset < 0 or command.bytes < 0:
            return InvalidInput(f"invalid trim to offset {command.offset} that frees {command.bytes} bytes")
        removed = self.trim(
            stream, command.offset, command.reason, command.bytes, keeps_losses=command.keeps_losses
        )
        start = self.start(stream)
        if removed[0] and command.reason == "delete":
            # Only the part that the start splits: parts below it are retired as a whole.
            now.publish(RecordsDeleted(stream, ((start - 1, start),)))
        return RecordsRemoved(start, *removed)

    @applies(DeleteRecords)
    def apply_delete(self, command: DeleteRecords, now: Moment) -> RecordsRemoved | MainstemError:
        if command.bytes < 0:
            return InvalidInput(f"invalid delete that frees {command.bytes} bytes")
        outcome = self._apply_punch(command.stream, command.ranges, DELETED, command.bytes)
        if isinstance(outcome, RecordsRemoved) and outcome.records:
            now.publish(RecordsDeleted(command.stream, command.ranges))
        return outcome

    @applies(MarkLost)
    def apply_loss(self, command: MarkLost, now: Moment) -> RecordsRemoved | MainstemError:
        if not is_loss(command.reason):
            return InvalidInput("a loss needs a reason")
        outcome = self._apply_punch(command.stream, ((command.start, command.end),), command.reason, 0)
        if isinstance(outcome, RecordsRemoved) and outcome.records:
            now.publish(RecordsDamaged(command.stream, command.start, command.end))
        return outcome

    def _apply_punch(
        self, stream: int, ranges: tuple[tuple[int, int], ...], reason: str, size: int
    ) -> RecordsRemoved | MainstemError:
        if not self.exists(stream):
            return StreamNotFound(stream)
        for start, end in ranges:
            if not 0 <= start < end:
                return InvalidInput(f"[{start}, {end}) is not a range of offsets")
        removed = self.punch(stream, ranges, reason, size)
        return RecordsRemoved(self.start(stream), *removed)

    @applies(RaiseCeilings)
    def apply_ceilings(self, command: RaiseCeilings, now: Moment) -> CeilingsRaised | InvalidInput:
        for _, ceiling in command.ceilings:
            if not 0 <= ceiling <= limits.OFFSET_MAX:
                return InvalidInput(f"invalid ceiling {ceiling}")
        # A topic may have been deleted since the proposal: that must not reject the others.
        return CeilingsRaised(sum(self.raise_ceiling(*ceiling) for ceiling in command.ceilings))

    # State as a whole

    @property
    def digest(self) -> int:
        holes = sum(holes.digest for holes in self._holes.values())
        return (self.columns_digest() + holes + self.passed.digest + self.transactions.digest()) & MASK

    def encode(self) -> StreamsState:
        return StreamsState(
            self.count,
            self.encode_columns(),
            sorted((stream, list(holes)) for stream, holes in self._holes.items()),
            sorted((stream, *columns.encode()) for stream, columns in self._columns.items()),
            self.transactions.encode(),
            self.passed.encode(),
        )

    def load(self, state: StreamsState) -> None:
        """`Topics.load` sets the columns that are derived from the topics' configs."""
        self.load_columns(state.count, state.columns)
        for stream, holes in state.holes:
            for start, end, reason in holes:
                self._make_hole(stream, start, end, reason)
        for stream, since, offsets, sizes, times in state.tracked:
            self._columns[stream] = TrackedRecords.decode(since, offsets, sizes, times)
        self.transactions = StreamTransactions.decode(state.transactions)
        self.passed = PassedLosses.decode(state.passed)


def _spread(size: int, count: int) -> npt.NDArray[np.int64]:
    """A slice's bytes spread evenly over its records; the first ones take the remainder."""
    sizes = np.full(count, size // count if count else 0, np.int64)
    sizes[: size - int(sizes.sum())] += 1
    return sizes

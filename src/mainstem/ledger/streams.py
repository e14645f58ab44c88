"""Streams: where each one starts and ends and what it holds, as arrays indexed by stream number."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import numpy.typing as npt

from mainstem import limits
from mainstem.errors import invariant
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.digest import MASK
from mainstem.ledger.intervals import ABORTED, DELETED, MARKER, SOURCE_TRIM, Holes, is_loss
from mainstem.ledger.markers import StreamTransactions, StreamTransactionsState
from mainstem.ledger.passed_losses import Loss, PassedLosses
from mainstem.ledger.tracked_records import TrackedRecords

DURABILITY_CODES = {"ephemeral": 0, "memory": 1, "disk": 2, "fsync": 3}
EPHEMERAL = DURABILITY_CODES["ephemeral"]
FSYNC = DURABILITY_CODES["fsync"]

FULL = -1  # what `append` answers instead of an offset

_FIRST_STREAMS = 64
_NO_HOLES = Holes(-1)  # stands in for streams without any; never written to

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

# What a checkpoint and the digest hold, in this order. The rest follows from the topics' configs.
STATE_COLUMNS = (
    "end",
    "delete_floor",
    "evict_floor",
    "expiry_floor",
    "records",
    "bytes",
    "max_timestamp",
    "ceiling",
    "durability",
    "alive",
)
_CONFIG_COLUMNS = ("cap_records", "cap_bytes", "key_window_ms", "rejects", "plain")


class Streams:
    """Columns of every stream ever opened; only the first `count` rows mean anything.

    Records leave a stream by three floors, each raised for its own reason, and through holes above them."""

    def __init__(self) -> None:
        self.count = 0
        self.end: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # the next offset
        self.delete_floor: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # removed on request
        self.evict_floor: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # gave way to a cap
        self.expiry_floor: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # outlived their ttl
        self.records: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # live ones
        self.bytes: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # logical bytes of the live records
        self.max_timestamp: Int64s = np.full(_FIRST_STREAMS, -1, np.int64)  # -1 = never written
        self.ceiling: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # a relaxed stream publishes below it
        self.durability: npt.NDArray[np.uint8] = np.zeros(_FIRST_STREAMS, np.uint8)  # DURABILITY_CODES
        self.alive: Bools = np.zeros(_FIRST_STREAMS, np.bool_)
        self.cap_records: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # 0 = off
        self.cap_bytes: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # 0 = off
        self.key_window_ms: Int64s = np.zeros(_FIRST_STREAMS, np.int64)  # of idempotency keys
        self.rejects: Bools = np.zeros(_FIRST_STREAMS, np.bool_)  # a full stream takes no more
        self.plain: Bools = np.zeros(_FIRST_STREAMS, np.bool_)  # alive, in the log, no cap, not tracked
        self._holes: dict[int, Holes] = {}
        self.passed = PassedLosses()
        self._columns: dict[int, TrackedRecords] = {}
        self.transactions = StreamTransactions()
        self._watchers: dict[int, Callable[[int, int], None]] = {}
        self._absent: Callable[[int, int, int], int] = _none_absent
        # Told of every range of records that leaves a stream: (stream, start, end, bytes).
        self.on_removed: Callable[[int, int, int, int], None] | None = None
        self._bind()

    def _bind(self) -> None:
        # One item through a memoryview costs a third of one through numpy; single appends live on that.
        self._end = memoryview(self.end)  # type: ignore[arg-type]
        self._records = memoryview(self.records)  # type: ignore[arg-type]
        self._bytes = memoryview(self.bytes)  # type: ignore[arg-type]
        self._max_timestamp = memoryview(self.max_timestamp)  # type: ignore[arg-type]
        self.plain_view = memoryview(self.plain)  # type: ignore[arg-type]
        floors = (self.delete_floor, self.evict_floor, self.expiry_floor)
        self._floors: list[memoryview[int]] = [memoryview(floor) for floor in floors]  # type: ignore[arg-type]

    # Life

    def room(self, streams: int) -> bool:
        return self.count + streams <= limits.STREAMS_MAX

    def open(self, streams: int, config: TopicConfig) -> range:
        """The next stream numbers, empty and configured."""
        numbers = range(self.count, self.count + streams)
        self._grow(numbers.stop)
        self.count = numbers.stop
        for stream in numbers:
            self.alive[stream] = True
            self.configure(stream, config)
        return numbers

    def _grow(self, streams: int) -> None:
        capacity = len(self.end)
        if streams <= capacity:
            return
        more = max(streams, 2 * capacity) - capacity
        for name in STATE_COLUMNS + _CONFIG_COLUMNS:
            old = getattr(self, name)
            fill = -1 if name == "max_timestamp" else 0
            setattr(self, name, np.concatenate((old, np.full(more, fill, old.dtype))))
        self._bind()

    def configure(self, stream: int, config: TopicConfig) -> None:
        """Take a config over. A tighter cap evicts at once, unless the topic rejects."""
        self.adopt(stream, config)
        if config.tracked and stream not in self._columns and config.durability != "ephemeral":
            # Records from before have no rows: each counts as the average of them all.
            self._columns[stream] = TrackedRecords(int(self.end[stream]))
        elif not config.tracked:
            self._columns.pop(stream, None)
        if not self.rejects[stream]:
            self._evict(stream)

    def adopt(self, stream: int, config: TopicConfig) -> None:
        """Derive the columns that follow from the config."""
        self.durability[stream] = DURABILITY_CODES[config.durability]
        self.cap_records[stream] = config.cap_records
        self.cap_bytes[stream] = config.cap_bytes
        self.key_window_ms[stream] = config.idempotency_window_ms
        self.rejects[stream] = config.discard == "reject"
        capped = config.cap_records or config.cap_bytes or config.tracked
        self.plain[stream] = not capped and config.durability != "ephemeral"

    def close(self, stream: int) -> None:
        """The stream's topic is deleted: nothing is left but the numbers it used."""
        self.alive[stream] = self.plain[stream] = False
        self.delete_floor[stream] = self.end[stream]
        self.records[stream] = self.bytes[stream] = 0
        self._holes.pop(stream, None)
        self.passed.forget(stream)
        self._columns.pop(stream, None)
        self.transactions.forget(stream)
        self._watchers.pop(stream, None)

    def watch(self, stream: int, removed: Callable[[int, int], None]) -> None:
        """Have `removed` called with the range of any record that leaves the stream, for whatever reason."""
        self._watchers[stream] = removed

    # Reads

    def exists(self, stream: int) -> bool:
        return 0 <= stream < self.count and bool(self.alive[stream])

    def start(self, stream: int) -> int:
        """The first offset that may hold a record."""
        floors = self._floors
        return max(floors[0][stream], floors[1][stream], floors[2][stream])

    def total_bytes(self) -> int:
        """Logical bytes of the live records of all streams."""
        return int(self.bytes[: self.count].sum())

    def relaxed(self, stream: int) -> bool:
        """Acked before it is synced."""
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
        """Whether the record at `offset` was part of a transaction that was given up."""
        return any(reason == ABORTED for _, _, reason in self.holes(stream).overlapping(offset, offset + 1))

    def holes(self, stream: int) -> Holes:
        return self._holes.get(stream, _NO_HOLES)

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

    def holes_digest(self) -> int:
        return (sum(holes.digest for holes in self._holes.values()) + self.passed.digest) & MASK

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
        """Append to any stream that exists in the log, keeping its caps. Returns the first offset, or FULL.

        `rows` are the records' sizes and times, if the slice brought them."""
        columns = self._columns.get(stream)
        if columns is not None and rows is not None:
            size = int(rows["size"].sum(dtype=np.int64))
        if self.rejects[stream] and self._overflows(stream, count, size):
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
        """Records gave way to newer ones of their key. Their offsets are no holes: there would be too many."""
        records = min(records, int(self.records[stream]))
        size = self._average(stream, records, 0)
        self.records[stream] -= records
        self.bytes[stream] -= size

    def count_absent(self, absent: Callable[[int, int, int], int]) -> None:
        """Ask `absent` how many offsets of a range that leaves a stream were compacted away before."""
        self._absent = absent

    def append_alias(self, streams: Int64s, offsets: int, records: int, size: int, time_ms: int) -> None:
        """Give the next `offsets` of each of some `plain` streams, all different, to the same copies.

        Where fewer `records` than that are copied, the caller makes the gaps."""
        self.end[streams] += offsets
        self.records[streams] += records
        self.bytes[streams] += size
        if records:
            self.max_timestamp[streams] = np.maximum(self.max_timestamp[streams], time_ms)

    def make_gap(self, stream: int, start: int, end: int) -> None:
        """Offsets right at the end of a stream stand for records that were lost before they were copied to it."""
        self._end[stream] = max(end, self._end[stream])
        self._make_hole(stream, start, end, SOURCE_TRIM)

    def take_marker(self, stream: int) -> int:
        """Give the next offset to a transaction marker, which is no record."""
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
        """Raise the floor of `reason`. Returns the records and bytes that were live below it.

        `keeps_losses`: what was lost below it before is told of still."""
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
        """Take the live records of [start, floor) off the counts and columns."""
        start, holes = self.start(stream), self.holes(stream)
        records = floor - start - holes.covered(start, floor) - self._absent(stream, start, floor)
        records = min(records, int(self.records[stream]))  # what compaction left is counted, not listed
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
        """Bytes of the live records in [start, end) from before the stream was tracked: their average."""
        first, holes = self.start(stream), self.holes(stream)
        if end <= start or first >= columns.since:
            return 0
        untracked = int(self.bytes[stream]) - columns.bytes
        records = columns.since - first - holes.covered(first, columns.since)
        return untracked * (end - start - holes.covered(start, end)) // records if records else 0

    def _average(self, stream: int, records: int, stated_bytes: int) -> int:
        """Bytes of some records of an untracked stream: as the proposer stated, or else the average."""
        live, size = int(self.records[stream]), int(self.bytes[stream])
        if records >= live:
            return size
        return min(size, stated_bytes) if stated_bytes else size * records // live

    def punch(
        self, stream: int, ranges: tuple[tuple[int, int], ...], reason: str, stated_bytes: int
    ) -> tuple[int, int]:
        """Make holes of the live records in `ranges`. Returns how many they were, and their bytes."""
        floor, end = self.start(stream), int(self.end[stream])
        wanted = [(max(first, floor), min(last, end)) for first, last in ranges]
        records = size = 0
        asked = sum(max(0, last - first) for first, last in wanted)
        for first, last in wanted:
            if first < last:
                for fresh in list(self.holes(stream).live(first, last)):
                    # Shares of a running total, so that rounding loses nothing of the bytes stated.
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
        self.records[stream] -= end - start
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
        """Move the start over deleted records right behind it, and forget holes below it."""
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
        """Continue at the ceiling, where offsets below it may have been seen and are lost now.

        Ephemeral streams always, relaxed ones after an `unclean` shutdown. Returns (stream, old end, end)."""
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

    # Checkpoints

    def encode(self) -> StreamsState:
        return StreamsState(
            self.count,
            [getattr(self, name)[: self.count].tobytes() for name in STATE_COLUMNS],
            sorted((stream, list(holes)) for stream, holes in self._holes.items()),
            sorted((stream, *columns.encode()) for stream, columns in self._columns.items()),
            self.transactions.encode(),
            self.passed.encode(),
        )

    @classmethod
    def decode(cls, state: StreamsState) -> Streams:
        """The caller calls `adopt` for the streams of every topic afterwards."""
        streams = cls()
        streams._grow(state.count)
        streams.count = state.count
        for name, body in zip(STATE_COLUMNS, state.columns, strict=True):
            column = getattr(streams, name)
            column[: state.count] = np.frombuffer(body, column.dtype, state.count)
        for stream, holes in state.holes:
            for start, end, reason in holes:
                streams._make_hole(stream, start, end, reason)
        for stream, since, offsets, sizes, times in state.tracked:
            streams._columns[stream] = TrackedRecords.decode(since, offsets, sizes, times)
        streams.transactions = StreamTransactions.decode(state.transactions)
        streams.passed = PassedLosses.decode(state.passed)
        return streams


class StreamsState(msgspec.Struct, frozen=True, array_like=True):
    """Every stream, as a checkpoint holds it."""

    count: int
    columns: list[bytes]  # STATE_COLUMNS, little-endian
    holes: list[tuple[int, list[tuple[int, int, str]]]]  # by stream: (start, end, reason)
    tracked: list[tuple[int, int, bytes, bytes, bytes]]  # stream, tracked since, offsets, sizes, times
    transactions: StreamTransactionsState = StreamTransactionsState()
    passed: list[tuple[int, list[Loss]]] = []  # by stream: losses below its start that deletes passed over


def _none_absent(stream: int, start: int, end: int) -> int:
    return 0


def _spread(size: int, count: int) -> npt.NDArray[np.int64]:
    """A slice's bytes over its records, evenly; the first ones take what does not divide."""
    sizes = np.full(count, size // count if count else 0, np.int64)
    sizes[: size - int(sizes.sum())] += 1
    return sizes

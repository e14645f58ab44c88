"""Shares: the progress of every share group in every stream that it reads.

As with queues, each command first lets locks expire by ledger time, so that the holder of a record is decided at apply.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from mainstem import limits
from mainstem.errors import (
    InvalidInput,
    LimitReached,
    MainstemError,
    RecordNotHeld,
    ShareNotFound,
    StreamNotFound,
)
from mainstem.ledger.brokers import BrokerEpochEnded
from mainstem.ledger.digest import MASK, hash_fields, mix
from mainstem.ledger.intervals import DELETED, Holes
from mainstem.ledger.leases import Leases, LeasesState, ranges_of
from mainstem.ledger.namespaces import id_chars
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent

SHARES_MAX = 100_000  # partitions that share groups read, counted for each group


class Verdict(IntEnum):
    """What a member did with an acquired record, in Kafka's numbers."""

    GAP = 0  # there was no record
    ACCEPT = 1  # processed
    RELEASE = 2  # available again
    REJECT = 3  # never delivered again
    RENEW = 4  # the member's lock is extended


class OpenShare(Command, frozen=True, tag=136):
    """A share group begins to read streams at these offsets: (stream, offset).

    `reset`: also streams that it reads already; their state is discarded."""

    group: str
    starts: tuple[tuple[int, int], ...]
    reset: bool = False


class AcquireShare(Command, frozen=True, tag=137):
    """Lock the next records of a stream in [first, end) for a member, for `lock_ms`.

    The broker has read that range. It could not deliver records outside it that became available since."""

    group: str
    stream: int
    member: str
    broker: int  # that grants the lock: its restart ends it
    limit: int
    first: int
    end: int
    lock_ms: int
    deliveries_max: int  # a record that was delivered this often is archived
    in_flight_max: int  # nothing new is acquired while this many records are in flight
    aborted: bool = False  # also acquires records of aborted transactions: the group reads uncommitted


class SettleShare(Command, frozen=True, tag=138):
    """A member acknowledges records: (first, end, verdict). All of it applies, or nothing.

    Without any, the command only ends locks that have expired."""

    group: str
    stream: int
    member: str
    ranges: tuple[tuple[int, int, int], ...]
    lock_ms: int = 0  # of renewed locks
    deliveries_max: int = 0  # 0 = any number


class DeleteShare(Command, frozen=True, tag=139):
    """Delete the state of a share group for these streams; for all streams if none is named."""

    group: str
    streams: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SharesChanged:
    """The result of OpenShare and DeleteShare."""

    shares: int  # that were opened, or deleted


@dataclass(frozen=True, slots=True)
class ShareAcquired:
    """The result of AcquireShare."""

    runs: tuple[tuple[int, int, int], ...]  # (first, end, delivery count) of what the member acquired
    deadline_ms: int
    archived: int  # that had reached the delivery limit


@dataclass(frozen=True, slots=True)
class ShareSettled:
    """The result of SettleShare."""

    counts: tuple[int, ...]  # of records, by verdict
    archived: int  # released at the delivery limit
    relaxed: bool  # it need not survive a crash of the machine


_TOKEN = 1  # members are identified by name, so one token serves all
_NAMED_MAX = 2 * limits.SHARE_IN_FLIGHT_MAX  # offsets in one settlement: acquired ones, and gaps
_START = 7  # keeps the start's hash distinct from those of the leases

Ranges = tuple[tuple[int, int, int], ...]


class Share:
    """One share group's progress in one stream. `live` gives the offsets of a range that hold a record."""

    __slots__ = ("finished", "group", "leases", "number", "start", "stream")

    def __init__(self, group: str, stream: int, start: int) -> None:
        self.group = group
        self.stream = stream
        self.number = hash_fields("share", group, stream)  # the number under which its parts are hashed
        self.start = start
        self.finished = Holes(self.number)
        self.leases = Leases(self.number)
        self.leases.begin_at(start)

    @property
    def in_flight(self) -> int:
        """Records that were delivered and are not processed."""
        return self.leases.leased + self.leases.waiting

    @property
    def archived(self) -> int:
        """Records that reached the delivery limit."""
        return self.leases.buried

    def left(self, start: int, end: int) -> int:
        """Offsets in [start, end) of the stream that are not processed."""
        start = max(start, self.start)
        return max(end - start - self.finished.covered(start, end), 0)

    def next_offset(self, end: int, in_flight_max: int, holes: Holes, *, aborted: bool) -> int | None:
        """The lowest offset below `end` that a member would get now."""
        waiting = self.leases.lowest_waiting
        if waiting is not None and waiting < end:
            return waiting
        if self.in_flight >= in_flight_max:
            return None
        return next((first for first, _ in holes.live(self.leases.fresh, end, aborted=aborted)), None)

    def cut(self, floor: int) -> None:
        """The stream's records below `floor` were removed."""
        if floor > self.start:
            self.leases.forget(self.start, floor)
            if self.leases.fresh < floor:
                self.leases.begin_at(floor)
            self.finished.cut(floor)
            self.start = floor
            self._advance()

    def acquire(self, command: AcquireShare, now_ms: int, holes: Holes) -> tuple[Ranges, int]:
        """Lock the next records for a member. Returns (first, end, deliveries) of each run, and the deadline."""
        leases = self.leases
        fresh_before = leases.fresh
        room = max(command.in_flight_max - self.in_flight, 0)
        if any(holes.live(fresh_before, command.first, aborted=command.aborted)):
            room = 0  # fresh records come before the range: do not skip them
        offsets, deliveries = leases.take(
            command.limit,
            command.deliveries_max,
            lambda at: _first(holes.live(at, command.end, aborted=command.aborted), room),
            within=(command.first, command.end),
        )
        deadline_ms = now_ms + command.lock_ms
        leases.lease(_TOKEN, command.member, command.broker, deadline_ms, offsets)
        self._pass_over(offsets, fresh_before)
        spent = [offset for offset, _ in leases.exhausted()]
        if spent:
            leases.bury(spent)
            self._finished(spent)
        gone = [
            offset
            for offset in offsets
            if offset < fresh_before and holes.covers(offset, aborted=not command.aborted)
        ]
        if gone:  # deleted, or aborted, since an earlier delivery
            self._finish(gone)
        self._advance()
        lost = frozenset(gone)
        rows = (row for row in zip(offsets, deliveries, strict=True) if row[0] not in lost)
        return tuple(_runs(rows)), deadline_ms

    def _pass_over(self, taken: list[int], fresh_before: int) -> None:
        """Finish the offsets without a record between those that are acquired now."""
        at = fresh_before
        for first, last in ranges_of(offset for offset in taken if offset >= fresh_before):
            if at < first:
                self.finished.add(at, first, DELETED)
            at = last

    def settle(self, command: SettleShare, now_ms: int) -> list[int] | MainstemError:
        """How many records got each verdict, by its number."""
        verdicts = self._verdicts(command)
        if isinstance(verdicts, MainstemError):
            return verdicts
        by_kind: dict[Verdict, list[int]] = {kind: [] for kind in Verdict}
        for offset, kind in verdicts.items():
            by_kind[kind].append(offset)
        counts = [len(by_kind[kind]) for kind in Verdict]
        released = by_kind[Verdict.RELEASE]
        most = command.deliveries_max
        spent = [offset for offset in released if most and self.leases.deliveries(offset) >= most]
        if spent:
            released = [offset for offset in released if self.leases.deliveries(offset) < most]
            self.leases.exhaust(spent)
            self.leases.bury(spent)
            self._finished(spent)
        self._finish([*by_kind[Verdict.GAP], *by_kind[Verdict.ACCEPT], *by_kind[Verdict.REJECT]])
        self.leases.give_back(released, None)
        self.leases.extend(by_kind[Verdict.RENEW], now_ms + command.lock_ms)
        self._advance()
        return counts

    def _verdicts(self, command: SettleShare) -> dict[int, Verdict] | MainstemError:
        found: dict[int, Verdict] = {}
        named = 0
        for first, end, number in command.ranges:
            try:
                kind = Verdict(number)
            except ValueError:
                return InvalidInput(f"unknown verdict {number}")
            named += end - first
            if not 0 <= first < end or named > _NAMED_MAX:  # more than a member can hold
                return RecordNotHeld(self.group, first)
            for offset in range(first, end):
                grant = self.leases.holder(offset)
                if grant is None and kind is Verdict.GAP:
                    continue  # not delivered, because the offset has no record
                if grant is None or grant.node != command.member or offset in found:
                    return RecordNotHeld(self.group, offset)
                found[offset] = kind
        return found

    def _finish(self, offsets: list[int]) -> None:
        if offsets:
            self.leases.finish(offsets)
            self._finished(offsets)

    def _finished(self, offsets: list[int]) -> None:
        for first, last in ranges_of(offsets):
            self.finished.add(first, last, DELETED)

    def _advance(self) -> None:
        reached = self.finished.deleted_prefix(self.start)
        if reached > self.start:
            self.finished.cut(reached)
            self.start = reached

    # State

    @property
    def digest(self) -> int:
        start = mix(self.number, _START, self.start, 0)
        return (self.leases.digest + self.finished.digest + start) & MASK

    def encode(self) -> ShareState:
        finished = [(first, last) for first, last, _ in self.finished]
        return ShareState(self.group, self.stream, self.start, finished, self.leases.encode())

    @classmethod
    def decode(cls, state: ShareState) -> Share:
        share = cls(state.group, state.stream, state.start)
        for first, last in state.finished:
            share.finished.add(first, last, DELETED)
        share.leases = Leases.decode(state.leases)
        return share


class ShareState(msgspec.Struct, frozen=True, array_like=True):
    """A share, in a checkpoint."""

    group: str
    stream: int
    start: int
    finished: list[tuple[int, int]]
    leases: LeasesState


def _first(ranges: Iterator[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """The first `count` offsets of the ranges."""
    for first, last in ranges:
        if not count:
            return
        last = min(last, first + count)
        count -= last - first
        yield first, last


def _runs(rows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Merge consecutive offsets with the same delivery count."""
    run: tuple[int, int, int] | None = None
    for offset, deliveries in sorted(rows):
        if run is not None and run[1] == offset and run[2] == deliveries:
            run = run[0], offset + 1, deliveries
            continue
        if run is not None:
            yield run
        run = offset, offset + 1, deliveries
    if run is not None:
        yield run


_LASTING = (Verdict.GAP, Verdict.ACCEPT, Verdict.REJECT)


class Shares(Section[list[ShareState]]):
    """By group and stream."""

    requires = (Streams,)

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._shares: dict[str, dict[int, Share]] = {}
        self._count = 0

    # Reads

    def get(self, group: str, stream: int) -> Share | None:
        return self._shares.get(group, {}).get(stream)

    def has(self, group: str) -> bool:
        return group in self._shares

    def groups(self) -> list[str]:
        return sorted(self._shares)

    def of_group(self, group: str) -> dict[int, Share]:
        return dict(sorted(self._shares.get(group, {}).items()))

    def next_offset(self, share: Share, end: int, in_flight_max: int, *, aborted: bool) -> int | None:
        """The lowest offset below `end` that a member would get now, as of the last command."""
        return share.next_offset(end, in_flight_max, self._streams.holes(share.stream), aborted=aborted)

    # Commands

    @applies(OpenShare)
    def open(self, command: OpenShare, now: Moment) -> SharesChanged | MainstemError:
        group = command.group
        if not 1 <= id_chars(group) <= limits.NAME_CHARS_MAX:
            return InvalidInput(
                f"a group name has 1 to {limits.NAME_CHARS_MAX} characters, not {id_chars(group)}"
            )
        for stream, offset in command.starts:
            if not self._streams.exists(stream):
                return StreamNotFound(stream)
            if self._streams.ephemeral(stream):
                return InvalidInput("share groups cannot read an ephemeral topic")
            if not 0 <= offset <= limits.OFFSET_MAX:
                return InvalidInput(f"invalid start offset {offset}")
        known = self._shares.get(group, {})
        wanted = [row for row in dict(command.starts).items() if command.reset or row[0] not in known]
        added = sum(stream not in known for stream, _ in wanted)
        if self._count + added > SHARES_MAX:
            return LimitReached(f"all share groups together read at most {SHARES_MAX} partitions")
        for stream, offset in wanted:
            self._put(Share(group, stream, offset))
        return SharesChanged(len(wanted))

    @applies(AcquireShare)
    def acquire(self, command: AcquireShare, now: Moment) -> ShareAcquired | MainstemError:
        share = self._found(command.group, command.stream, now.time_ms)
        if isinstance(share, MainstemError):
            return share
        if not 1 <= command.limit <= limits.SHARE_IN_FLIGHT_MAX:
            return InvalidInput(
                f"a member acquires 1 to {limits.SHARE_IN_FLIGHT_MAX} records, not {command.limit}"
            )
        if not 0 <= command.in_flight_max <= limits.SHARE_IN_FLIGHT_MAX or command.deliveries_max < 1:
            return InvalidInput("a share group needs an in-flight limit, and a delivery limit of at least 1")
        if not limits.LEASE_MS_MIN <= command.lock_ms <= limits.LEASE_MS_MAX:
            return InvalidInput(f"invalid lock of {command.lock_ms} ms")
        if not 0 <= command.first <= command.end <= int(self._streams.end[command.stream]):
            return InvalidInput(f"[{command.first}, {command.end}) is not a range of offsets")
        before = share.archived
        runs, deadline_ms = share.acquire(command, now.time_ms, self._streams.holes(command.stream))
        return ShareAcquired(runs, deadline_ms, share.archived - before)

    @applies(SettleShare)
    def settle(self, command: SettleShare, now: Moment) -> ShareSettled | MainstemError:
        share = self._found(command.group, command.stream, now.time_ms)
        if isinstance(share, MainstemError):
            return share
        if command.lock_ms and not limits.LEASE_MS_MIN <= command.lock_ms <= limits.LEASE_MS_MAX:
            return InvalidInput(f"invalid lock of {command.lock_ms} ms")
        before = share.archived
        counts = share.settle(command, now.time_ms)
        if isinstance(counts, MainstemError):
            return counts
        # Losing a lock in a crash has the same effect as its expiry.
        lasting = any(counts[kind] for kind in _LASTING) or share.archived > before
        return ShareSettled(
            tuple(counts),
            share.archived - before,
            relaxed=not lasting or self._streams.relaxed(command.stream),
        )

    @applies(DeleteShare)
    def delete(self, command: DeleteShare, now: Moment) -> SharesChanged:
        streams = command.streams or tuple(self._shares.get(command.group, ()))
        return SharesChanged(sum(self._remove(command.group, stream) for stream in streams))

    @reacts(BrokerEpochEnded)
    def on_broker_epoch_ended(self, event: BrokerEpochEnded, now: Moment) -> None:
        """Locks that the broker granted end. Delivery counts stay."""
        if event.halted:
            return
        for shares in self._shares.values():
            for share in shares.values():
                share.leases.end_leases(event.broker)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for group in list(self._shares):
            for stream in event.topic.streams:
                self._remove(group, stream)

    def _found(self, group: str, stream: int, now_ms: int) -> Share | MainstemError:
        if not self._streams.exists(stream):
            return StreamNotFound(stream)
        share = self.get(group, stream)
        if share is None:
            return ShareNotFound(group)
        share.leases.settle(now_ms)
        share.cut(self._streams.start(stream))
        return share

    def _put(self, share: Share) -> None:
        shares = self._shares.setdefault(share.group, {})
        self._count += share.stream not in shares
        shares[share.stream] = share

    def _remove(self, group: str, stream: int) -> bool:
        shares = self._shares.get(group, {})
        if shares.pop(stream, None) is None:
            return False
        self._count -= 1
        if not shares:
            del self._shares[group]
        return True

    # State as a whole

    @property
    def digest(self) -> int:
        return sum(share.digest for shares in self._shares.values() for share in shares.values()) & MASK

    def encode(self) -> list[ShareState]:
        return [share.encode() for group in self.groups() for share in self.of_group(group).values()]

    def load(self, state: list[ShareState]) -> None:
        for share in state:
            self._put(Share.decode(share))

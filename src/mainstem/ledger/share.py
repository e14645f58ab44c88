"""One share: how far a share group is with one stream, record by record.

    below `start`       all is dealt with
    start … fresh       each offset is finished, or in the hands of `leases`: locked by a member, or to be had again
    from `fresh` on     never handed out

The lease machinery is that of queues. What differs is what becomes of a record that was dealt with: a queue deletes
it, a share notes that this group is through with it, as an interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from mainstem import limits
from mainstem.errors import InvalidInput, MainstemError, RecordNotHeld
from mainstem.ledger.digest import MASK, hash_fields, mix
from mainstem.ledger.intervals import DELETED, Holes
from mainstem.ledger.leases import Leases, LeasesState, ranges_of
from mainstem.ledger.share_commands import AcquireShare, SettleShare, Verdict

_TOKEN = 1  # members are told apart by name, so that one token does for all
_NAMED_MAX = 2 * limits.SHARE_IN_FLIGHT_MAX  # offsets in one settlement: those that were handed out, and gaps
_START = 7  # tells the start apart from what the leases hash

Ranges = tuple[tuple[int, int, int], ...]


class Share:
    """`live` says which offsets of a range hold a record of the stream."""

    __slots__ = ("finished", "group", "leases", "number", "start", "stream")

    def __init__(self, group: str, stream: int, start: int) -> None:
        self.group = group
        self.stream = stream
        self.number = hash_fields("share", group, stream)  # under which its parts are hashed
        self.start = start
        self.finished = Holes(self.number)
        self.leases = Leases(self.number)
        self.leases.begin_at(start)

    @property
    def in_flight(self) -> int:
        """Records that were handed out and are not dealt with."""
        return self.leases.leased + self.leases.waiting

    @property
    def archived(self) -> int:
        """Records given up because they were handed out too often."""
        return self.leases.buried

    def left(self, start: int, end: int) -> int:
        """Offsets of a stream that begins and ends there that are not dealt with."""
        start = max(start, self.start)
        return max(end - start - self.finished.covered(start, end), 0)

    def next_offset(self, end: int, in_flight_max: int, live: Holes) -> int | None:
        """The lowest offset below `end` that a member would get now."""
        waiting = self.leases.lowest_waiting
        if waiting is not None and waiting < end:
            return waiting
        if self.in_flight >= in_flight_max:
            return None
        return next((first for first, _ in live.live(self.leases.fresh, end)), None)

    def cut(self, floor: int) -> None:
        """Nothing is left below `floor`."""
        if floor > self.start:
            self.leases.forget(self.start, floor)
            if self.leases.fresh < floor:
                self.leases.begin_at(floor)
            self.finished.cut(floor)
            self.start = floor
            self._advance()

    def acquire(self, command: AcquireShare, now_ms: int, holes: Holes) -> tuple[Ranges, int]:
        """Lock the next records for a member. Returns (first, end, deliveries) of each run, and until when."""
        leases = self.leases
        fresh_before = leases.fresh
        room = max(command.in_flight_max - self.in_flight, 0)
        if any(holes.live(fresh_before, command.first)):
            room = 0  # records that were never handed out come before these: they are not passed over
        offsets, deliveries = leases.take(
            command.limit,
            command.deliveries_max,
            lambda at: _first(holes.live(at, command.end), room),
            within=(command.first, command.end),
        )
        deadline_ms = now_ms + command.lock_ms
        leases.lease(_TOKEN, command.member, command.broker, deadline_ms, offsets)
        self._pass_over(offsets, fresh_before)
        spent = [offset for offset, _ in leases.exhausted()]
        if spent:
            leases.bury(spent)
            self._finished(spent)
        gone = [offset for offset in offsets if offset < fresh_before and holes.covered(offset, offset + 1)]
        if gone:  # deleted, or their transaction was given up, since they were handed out before
            self._finish(gone)
        self._advance()
        lost = frozenset(gone)
        rows = (row for row in zip(offsets, deliveries, strict=True) if row[0] not in lost)
        return tuple(_runs(rows)), deadline_ms

    def _pass_over(self, taken: list[int], fresh_before: int) -> None:
        """What was never a record of the stream, between those that are handed out now, is finished."""
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
        self.leases.give_back_unread(by_kind[Verdict.UNREAD])
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
                return InvalidInput(f"no verdict on a record has the number {number}")
            named += end - first
            if not 0 <= first < end or named > _NAMED_MAX:  # more than a member can have
                return RecordNotHeld(self.group, first)
            for offset in range(first, end):
                grant = self.leases.holder(offset)
                if grant is None and kind is Verdict.GAP:
                    continue  # it was not handed out, since there is no record
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
    """A share, as a checkpoint holds it."""

    group: str
    stream: int
    start: int
    finished: list[tuple[int, int]]
    leases: LeasesState


def _first(ranges: Iterator[tuple[int, int]], count: int) -> Iterator[tuple[int, int]]:
    """As many offsets of the ranges as that."""
    for first, last in ranges:
        if not count:
            return
        last = min(last, first + count)
        count -= last - first
        yield first, last


def _runs(rows: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Consecutive offsets with the same number of deliveries as one."""
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

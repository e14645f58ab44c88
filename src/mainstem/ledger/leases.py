"""Leases: which records of one stream are leased, to whom and until when.

A record is *fresh* until it is leased for the first time: everything live from `fresh` on, except records that were
appended with a delay. Below it, every live record is in one of four states, and so is a delayed one above; only those
cost memory:

| state     | meaning                                                            |
|-----------|--------------------------------------------------------------------|
| leased    | held by a node until a deadline                                    |
| waiting   | returned, expired or due: leased again, lowest offset first        |
| delayed   | returned or appended with a delay: waiting from its due time on    |
| exhausted | leased as often as allowed: waits to be moved to another topic     |

The caller decides what happens to a finished record (a queue deletes it): see `forget`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from mainstem import limits
from mainstem.errors import invariant
from mainstem.ledger.digest import MASK, mix, mix_many

_WAITING, _LEASED, _DELAYED, _EXHAUSTED, _FRESH, _COPIED = range(6)

_FEW = 12  # offsets below which hashing one by one is cheaper than as arrays
_STALE_MIN = 64  # stale heap entries below which the heap is not rebuilt

Live = Callable[[int], Iterator[tuple[int, int]]]  # yields the live ranges from an offset on


class Grant:
    """The result of one claim: one token and one deadline for all its offsets."""

    __slots__ = ("broker", "deadline_ms", "held", "node", "offsets", "token")

    def __init__(self, token: int, node: str, broker: int, deadline_ms: int, offsets: list[int]) -> None:
        self.token = token
        self.node = node
        self.broker = broker  # the grant ends when this broker restarts, unless leases are durable
        self.deadline_ms = deadline_ms
        self.offsets = offsets  # as leased; those still held have this grant object in `_leased`
        self.held = len(offsets)


class Leases:
    """The lease state of one stream. Times are ledger times; every call gets the current one."""

    __slots__ = (
        "_ahead",
        "_copies",
        "_deadlines",
        "_delayed",
        "_deliveries",
        "_due",
        "_exhausted",
        "_leased",
        "_order",
        "_spent_grants",
        "_waiting",
        "_waiting_heap",
        "buried",
        "digest",
        "fresh",
        "stream",
    )

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.fresh = 0  # no offset from here on was ever leased
        self.buried = 0  # records moved away because they were exhausted
        self.digest = mix(stream, _FRESH, 0, 0)
        self._leased: dict[int, Grant] = {}
        self._waiting: set[int] = set()
        self._delayed: dict[int, int] = {}  # offset → due time
        self._exhausted: set[int] = set()
        self._copies: dict[int, tuple[int, int]] = {}  # exhausted offset → stream and offset of its copy
        self._deliveries: dict[int, int] = {}  # where unknown: 1 below `fresh`, 0 from there on
        # Offsets from `fresh` on that were appended with a delay, in order. Some may be finished meanwhile.
        self._ahead: deque[int] = deque()
        # Heaps may hold stale entries; the maps above are authoritative.
        self._waiting_heap: list[int] = []
        self._due: list[tuple[int, int]] = []
        self._deadlines: list[tuple[int, int, Grant]] = []
        self._order = 0  # breaks ties between grants with the same deadline
        self._spent_grants = 0  # grants in the heap that hold no offsets any more

    # Reads

    @property
    def leased(self) -> int:
        return len(self._leased)

    @property
    def set_aside(self) -> int:
        """Records that are neither leased nor available now."""
        return len(self._delayed) + len(self._exhausted)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def lowest_waiting(self) -> int | None:
        return min(self._waiting, default=None)

    @property
    def next_change_ms(self) -> int | None:
        """A time up to which nothing expires or comes due."""
        times = [heap[0][0] for heap in (self._due, self._deadlines) if heap]
        return min(times) if times else None

    @property
    def heap_entries(self) -> int:
        """Entries of the largest heap, including stale ones."""
        return max(len(self._waiting_heap), len(self._due), len(self._deadlines))

    def holder(self, offset: int) -> Grant | None:
        return self._leased.get(offset)

    def holders(self, limit: int) -> list[tuple[int, Grant]]:
        """Leased offsets and who holds each, lowest first."""
        return [(offset, self._leased[offset]) for offset in heapq.nsmallest(limit, self._leased)]

    def held_offsets(self, node: str, broker: int) -> list[int]:
        """Offsets that a broker leased to a node that still holds them, lowest first."""
        return sorted(
            offset for offset, grant in self._leased.items() if grant.node == node and grant.broker == broker
        )

    def delayed(self, limit: int) -> list[tuple[int, int]]:
        """Returned offsets and when each one is available again, soonest first."""
        return heapq.nsmallest(limit, self._delayed.items(), key=lambda row: (row[1], row[0]))

    def deliveries(self, offset: int) -> int:
        """How often a record was leased."""
        return self._deliveries.get(offset, 1 if offset < self.fresh else 0)

    def exhausted(self) -> list[tuple[int, int]]:
        """(offset, deliveries) of the exhausted records."""
        return [(offset, self.deliveries(offset)) for offset in sorted(self._exhausted)]

    def is_exhausted(self, offset: int) -> bool:
        return offset in self._exhausted

    def copy_of(self, offset: int) -> tuple[int, int] | None:
        """Stream and offset of an exhausted record's copy, if it has one."""
        return self._copies.get(offset)

    # Time

    def settle(self, now_ms: int) -> None:
        """Let leases expire and delays come due: a lease holds up to and including its deadline."""
        while self._deadlines and self._deadlines[0][0] < now_ms:
            self._end_grant(heapq.heappop(self._deadlines)[2])
        while self._due and self._due[0][0] <= now_ms:
            due_ms, offset = heapq.heappop(self._due)
            if self._delayed.get(offset) == due_ms:
                self._put_down([offset], _DELAYED)
                del self._delayed[offset]
                self._wait([offset])

    def _end_grant(self, grant: Grant) -> None:
        if not grant.held:
            self._spent_grants -= 1
            return
        held = [offset for offset in grant.offsets if self._leased.get(offset) is grant]
        self._put_down(held, _LEASED, [grant.token] * len(held))
        for offset in held:
            del self._leased[offset]
        grant.held = 0
        self._wait(held)

    def end_leases(self, broker: int) -> None:
        """A broker restarts: the records that it leased are available again."""
        ended = [entry for entry in self._deadlines if entry[2].broker == broker]
        if ended:
            self._deadlines = [entry for entry in self._deadlines if entry[2].broker != broker]
            heapq.heapify(self._deadlines)
            for _, _, grant in sorted(ended, key=lambda entry: entry[:2]):
                self._end_grant(grant)

    # Leasing

    def begin_at(self, offset: int) -> None:
        """Never lease fresh records below `offset`."""
        self._move_fresh(offset, self.buried)

    def take(
        self, limit: int, deliveries_max: int, live: Live, *, within: tuple[int, int] = (0, limits.OFFSET_MAX)
    ) -> tuple[list[int], list[int]]:
        """Up to `limit` offsets to lease now, and their new delivery counts: waiting ones in a range first.

        The caller leases all of them. `deliveries_max` 0 = any number; beyond it a record is exhausted."""
        self._reconsider(deliveries_max)
        offsets = self._take_waiting(limit, deliveries_max, *within) if self._waiting else []
        deliveries = [self._deliveries[offset] for offset in offsets]
        if len(offsets) < limit:
            fresh = self._take_fresh(limit - len(offsets), live)
            offsets += fresh
            deliveries += [1] * len(fresh)
        return offsets, deliveries

    def _reconsider(self, deliveries_max: int) -> None:
        """Make exhausted records available again if the limit was raised since then."""
        back = [
            offset
            for offset in sorted(self._exhausted)
            if not deliveries_max or self.deliveries(offset) < deliveries_max
        ]
        if back:
            self._drop_exhausted(back)
            self._wait(back)

    def _take_waiting(self, limit: int, deliveries_max: int, since: int, until: int) -> list[int]:
        taken: list[int] = []
        spent: list[int] = []
        below: list[int] = []
        heap, waiting = self._waiting_heap, self._waiting
        while heap and heap[0] < until and len(taken) < limit:
            offset = heapq.heappop(heap)
            if offset not in waiting:
                continue
            if offset < since:
                below.append(offset)
                continue
            waiting.remove(offset)
            exhausted = deliveries_max and self.deliveries(offset) >= deliveries_max
            (spent if exhausted else taken).append(offset)
        for offset in below:
            heapq.heappush(heap, offset)
        self._put_down(taken + spent, _WAITING)
        for offset in taken:
            self._deliveries[offset] = self._deliveries.get(offset, 1) + 1
        self._exhausted.update(spent)
        self._pick_up(spent, _EXHAUSTED)
        return taken

    def _take_fresh(self, limit: int, live: Live) -> list[int]:
        taken: list[int] = []
        fresh, ahead = self.fresh, self._ahead
        for first, last in live(self.fresh):
            while first < last and len(taken) < limit:
                while ahead and ahead[0] < first:
                    ahead.popleft()
                until = min(last, first + limit - len(taken), ahead[0] if ahead else last)
                taken += range(first, until)
                fresh = until
                if ahead and ahead[0] == until < last:  # delayed: it is not fresh
                    fresh = ahead.popleft() + 1
                first = fresh
            if len(taken) == limit:
                break
        if fresh != self.fresh:
            self._move_fresh(fresh, self.buried)
        return taken

    def delay(self, offsets: list[int], due_ms: int) -> None:
        """Records that were appended just now are available from `due_ms` on."""
        self._ahead.extend(offsets)
        self._deliveries.update(dict.fromkeys(offsets, 0))
        self._set_aside(offsets, due_ms)

    def _set_aside(self, offsets: list[int], due_ms: int) -> None:
        for offset in offsets:
            self._delayed[offset] = due_ms
            heapq.heappush(self._due, (due_ms, offset))
        self._pick_up(offsets, _DELAYED)

    def lease(self, token: int, node: str, broker: int, deadline_ms: int, offsets: list[int]) -> None:
        """Lease offsets that `take` returned."""
        if offsets:
            grant = Grant(token, node, broker, deadline_ms, offsets)
            self._leased.update(dict.fromkeys(offsets, grant))
            self._pick_up(offsets, _LEASED, [token] * len(offsets))
            self._push_grant(grant)

    def _push_grant(self, grant: Grant) -> None:
        heapq.heappush(self._deadlines, (grant.deadline_ms, self._order, grant))
        self._order += 1

    # Returning

    def held_by(
        self, node: str, offsets: Sequence[int], tokens: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """Which offsets the node holds now, under these tokens if any are given; and the others. In order."""
        held: dict[int, None] = {}
        others: list[int] = []
        leased = self._leased
        for at, offset in enumerate(offsets):
            grant = leased.get(offset)
            if (
                grant is None
                or grant.node != node
                or offset in held
                or (tokens and tokens[at] != grant.token)
            ):
                others.append(offset)
            else:
                held[offset] = None
        return list(held), others

    def give_back(self, offsets: list[int], due_ms: int | None) -> None:
        """Make leased offsets available again, at once or from `due_ms` on."""
        self._let_go(offsets)
        if due_ms is None:
            self._wait(offsets)
            return
        self._set_aside(offsets, due_ms)

    def exhaust(self, offsets: list[int]) -> None:
        """Leased offsets have reached the delivery limit."""
        self._let_go(offsets)
        self._exhausted.update(offsets)
        self._pick_up(offsets, _EXHAUSTED)

    def extend(self, offsets: list[int], deadline_ms: int) -> None:
        """Leased offsets get another deadline, and keep their token."""
        by_grant: dict[int, tuple[Grant, list[int]]] = {}
        for offset in offsets:
            grant = self._leased[offset]
            by_grant.setdefault(id(grant), (grant, []))[1].append(offset)
        for grant, moved in by_grant.values():
            self._release(grant, len(moved))
            longer = Grant(grant.token, grant.node, grant.broker, deadline_ms, moved)
            self._leased.update(dict.fromkeys(moved, longer))
            self._push_grant(longer)
        self._tidy_grants()

    def finish(self, offsets: list[int]) -> None:
        """Leased offsets are finished: forget them."""
        self._let_go(offsets)
        self._forget_deliveries(offsets)

    def bury(self, offsets: list[int]) -> None:
        """Exhausted offsets were copied to the dead letter topic, and are deleted here."""
        self._drop_exhausted(offsets)
        self._forget_deliveries(offsets)
        self._move_fresh(self.fresh, self.buried + len(offsets))

    def note_copies(self, copies: dict[int, tuple[int, int]]) -> int:
        """Record the streams and offsets of the copies of exhausted records. Returns how many of the records remain."""
        noted = [offset for offset in copies if offset in self._exhausted]
        for offset in noted:
            self.forget_copy(offset)
            self._copies[offset] = copies[offset]
            self.digest = (self.digest + self._copy_hash(offset)) & MASK
        return len(noted)

    def forget_copy(self, offset: int) -> None:
        if offset in self._copies:
            self.digest = (self.digest - self._copy_hash(offset)) & MASK
            del self._copies[offset]

    def _copy_hash(self, offset: int) -> int:
        stream, place = self._copies[offset]
        return mix(self.stream, _COPIED + 8 * stream, offset, place)

    def _drop_exhausted(self, offsets: list[int]) -> None:
        """Call it while the delivery counts are still known."""
        for offset in offsets:
            self.forget_copy(offset)
        self._put_down(offsets, _EXHAUSTED)
        self._exhausted.difference_update(offsets)

    def forget(self, start: int, end: int) -> None:
        """Records [start, end) were removed, for whatever reason, so no worker holds them."""
        end = min(end, max(self.fresh, self._ahead[-1] + 1 if self._ahead else 0))
        if start >= end or not (self._leased or self._waiting or self._delayed or self._exhausted):
            return
        if self._leased and (leased := _within(self._leased, start, end)):
            self.finish(leased)
        if self._exhausted and (gone := _within(self._exhausted, start, end)):
            self._drop_exhausted(gone)
            self._forget_deliveries(gone)
        for places, kind in ((self._waiting, _WAITING), (self._delayed, _DELAYED)):
            if places and (gone := _within(places, start, end)):
                self._put_down(gone, kind)
                self._forget_deliveries(gone)
                for offset in gone:
                    places.pop(offset) if isinstance(places, dict) else places.remove(offset)

    def _let_go(self, offsets: list[int]) -> None:
        grants = [self._leased.pop(offset) for offset in offsets]
        self._put_down(offsets, _LEASED, [grant.token for grant in grants])
        for grant in grants:
            self._release(grant, 1)
        self._tidy_grants()

    def _release(self, grant: Grant, count: int) -> None:
        grant.held -= count
        if not grant.held:
            self._spent_grants += 1

    def _tidy_grants(self) -> None:
        if self._spent_grants > _STALE_MIN and 2 * self._spent_grants > len(self._deadlines):
            self._deadlines = [entry for entry in self._deadlines if entry[2].held]
            heapq.heapify(self._deadlines)
            self._spent_grants = 0

    def _wait(self, offsets: list[int]) -> None:
        self._waiting.update(offsets)
        self._pick_up(offsets, _WAITING)
        if len(self._waiting_heap) + len(offsets) > 2 * len(self._waiting) + _STALE_MIN:
            self._waiting_heap = sorted(self._waiting)
        else:
            for offset in offsets:
                heapq.heappush(self._waiting_heap, offset)

    def _forget_deliveries(self, offsets: list[int]) -> None:
        if self._deliveries:
            for offset in offsets:
                self._deliveries.pop(offset, None)

    # The digest: a sum of one hash per record below `fresh`, deadlines left out

    def _pick_up(self, offsets: list[int], kind: int, tokens: list[int] | None = None) -> None:
        self.digest = (self.digest + self._hash(offsets, kind, tokens)) & MASK

    def _put_down(self, offsets: list[int], kind: int, tokens: list[int] | None = None) -> None:
        """Call it while the delivery counts are still known."""
        self.digest = (self.digest - self._hash(offsets, kind, tokens)) & MASK

    def _hash(self, offsets: list[int], kind: int, tokens: list[int] | None) -> int:
        known = self._deliveries
        if len(offsets) < _FEW:
            return sum(
                mix(self.stream, kind + 8 * known.get(offset, 1), offset, tokens[at] if tokens else 0)
                for at, offset in enumerate(offsets)
            )
        # One row if all are equal: numpy broadcasts it.
        counts = [known.get(offset, 1) for offset in offsets] if known else [1]
        ranks = kind + 8 * np.array(counts, np.uint64)
        owners = np.array(tokens or [0], np.uint64)
        return mix_many(self.stream, ranks, np.array(offsets, np.uint64), owners)

    def _move_fresh(self, fresh: int, buried: int) -> None:
        self.digest -= mix(self.stream, _FRESH, self.fresh, self.buried)
        self.fresh, self.buried = fresh, buried
        self.digest = (self.digest + mix(self.stream, _FRESH, fresh, buried)) & MASK

    # Checkpoints

    def encode(self) -> LeasesState:
        grants = [entry[2] for entry in self._deadlines if entry[2].held]
        rows = []
        for grant in grants:
            held = sorted(offset for offset in grant.offsets if self._leased.get(offset) is grant)
            rows.append((grant.token, grant.node, grant.broker, grant.deadline_ms, _packed(held)))
        delayed = sorted(self._delayed.items())
        counts = sorted(self._deliveries.items())
        return LeasesState(
            self.stream,
            self.fresh,
            self.buried,
            sorted(rows, key=lambda row: (row[3], row[4])),
            _packed(sorted(self._waiting)),
            _packed(sorted(self._exhausted)),
            (_packed([row[0] for row in delayed]), _packed([row[1] for row in delayed])),
            (_packed([row[0] for row in counts]), _packed([row[1] for row in counts])),
            sorted((offset, *copy) for offset, copy in self._copies.items()),
        )

    @classmethod
    def decode(cls, state: LeasesState) -> Leases:
        leases = cls(state.stream)
        leases._deliveries = dict(zip(*map(_unpacked, state.deliveries), strict=True))
        leases._move_fresh(state.fresh, state.buried)
        for token, node, broker, deadline_ms, offsets in state.grants:
            leases.lease(token, node, broker, deadline_ms, _unpacked(offsets))
        leases._wait(_unpacked(state.waiting))
        leases._exhausted.update(_unpacked(state.exhausted))
        leases._pick_up(sorted(leases._exhausted), _EXHAUSTED)
        for offset, due_ms in zip(*map(_unpacked, state.delayed), strict=True):
            leases._delayed[offset] = due_ms
            leases._due.append((due_ms, offset))
        heapq.heapify(leases._due)
        leases._pick_up(list(leases._delayed), _DELAYED)
        known = leases._leased.keys() | leases._waiting | leases._delayed.keys() | leases._exhausted
        leases._ahead.extend(sorted(offset for offset in known if offset >= leases.fresh))
        leases.note_copies({offset: (stream, place) for offset, stream, place in state.copies})
        return leases


class LeasesState(msgspec.Struct, frozen=True, array_like=True):
    """One stream's leases, in a checkpoint. Columns are 64-bit little-endian integers."""

    stream: int
    fresh: int
    buried: int
    grants: list[tuple[int, str, int, int, bytes]]  # token, node, broker, deadline, offsets still held
    waiting: bytes
    exhausted: bytes
    delayed: tuple[bytes, bytes]  # offsets, due times
    deliveries: tuple[bytes, bytes]  # offsets, counts other than 1
    copies: list[tuple[int, int, int]]  # offset, stream and offset of its copy


def deal_round_robin(count: int, limits: Sequence[int]) -> list[list[int]]:
    """Deal positions 0 to `count` to several claimers, one each in turn, up to each one's limit."""
    hands: list[list[int]] = [[] for _ in limits]
    wanting = [taker for taker, limit in enumerate(limits) if limit > 0]
    position = 0
    while wanting and position < count:
        for taker in wanting[: count - position]:
            hands[taker].append(position)
            position += 1
        wanting = [taker for taker in wanting if len(hands[taker]) < limits[taker]]
    return hands


def ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Half-open ranges that cover exactly these offsets."""
    found: list[tuple[int, int]] = []
    first = last = -1
    for offset in sorted(offsets):
        if offset != last:
            if last >= 0:
                found.append((first, last))
            first = offset
        last = offset + 1
    if last >= 0:
        found.append((first, last))
    return found


def _within(places: Collection[int], start: int, end: int) -> list[int]:
    if end - start <= len(places):
        return [offset for offset in range(start, end) if offset in places]
    return sorted(offset for offset in places if start <= offset < end)


def _packed(values: list[int]) -> bytes:
    return np.array(values, "<i8").tobytes()


def _unpacked(column: bytes) -> list[int]:
    invariant(len(column) % 8 == 0, "a column holds whole numbers")
    values: list[int] = np.frombuffer(column, "<i8").tolist()
    return values

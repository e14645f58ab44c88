"""Subscriptions: named cursors that know which records of a stream were acknowledged, one by one.

A subscription has a *mark*: every record below it is acknowledged. Above the mark, acknowledged records are disjoint
ranges. The mark moves over ranges that it reaches, and over offsets without a record (deleted ones, markers of
transactions), so that an acknowledged subscription has no ranges.

A cluster has one broker at a time that serves the consumers of a subscription. It takes the subscription over with a
*term*, each higher than the one before. Its changes name its term, and those of earlier terms are refused.

An open transaction *holds* the records that it acknowledges: nobody else can acknowledge them in a transaction. They
are acknowledged when it commits, and free again when it aborts.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator

import msgspec

from mainstem import limits
from mainstem.errors import (
    InvalidInput,
    InvalidName,
    LimitReached,
    MainstemError,
    StreamNotFound,
    SubscriptionMoved,
    SubscriptionNotFound,
    TransactionConflict,
)
from mainstem.ledger.digest import MASK, hash_fields, mix
from mainstem.ledger.section import Command, Moment, Section, applies, reacts
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import TopicDeletedEvent

SUBSCRIPTIONS_MAX = 1_000_000
SUBSCRIPTIONS_PER_STREAM_MAX = 10_000
ACKED_RANGES_MAX = 100_000  # of one subscription; more are refused until the gaps are acknowledged
ACKED_RANGES_PER_COMMAND_MAX = 100_000
SUBSCRIPTION_PROPERTIES_BYTES_MAX = 16 * limits.KIB

Range = tuple[int, int]  # half-open
Properties = tuple[tuple[str, str], ...]
Live = Callable[[int], int]  # the first offset that holds a record, from an offset on


class AddSubscription(Command, frozen=True, tag=240):
    """Create a subscription whose records below `mark` are acknowledged. An existing one stays as it is."""

    stream: int
    name: str
    mark: int
    properties: Properties = ()


class AckRecords(Command, frozen=True, tag=241):
    """Acknowledge every record below `mark`, and the records of the ranges."""

    stream: int
    name: str
    mark: int = 0
    ranges: tuple[Range, ...] = ()
    term: int = 0  # of the broker that serves the subscription; 0: not on behalf of its consumers


class MoveSubscription(Command, frozen=True, tag=242):
    """Forget what was acknowledged: the records below `mark` are, the others are not. Without a term, it ends the
    present one."""

    stream: int
    name: str
    mark: int
    term: int = 0  # as in AckRecords


class ServeSubscription(Command, frozen=True, tag=280):
    """A broker serves the consumers of a subscription from now on. Refused if another one took over meanwhile."""

    stream: int
    name: str
    after: int  # the term that the broker knows


class RemoveSubscription(Command, frozen=True, tag=243):
    stream: int
    name: str


class PutSubscriptionProperties(Command, frozen=True, tag=249):
    """Replace the properties of a subscription."""

    stream: int
    name: str
    properties: Properties


class SubscriptionState(msgspec.Struct, frozen=True, array_like=True):
    """One subscription in a checkpoint."""

    stream: int
    name: str
    mark: int
    ranges: list[Range]
    properties: Properties
    held: list[tuple[int, list[Range]]]  # by producer of a transaction
    term: int


class AckedRecords:
    """What one subscription acknowledged. `seed` keeps the digests of subscriptions distinct."""

    __slots__ = ("_ends", "_starts", "digest", "mark", "seed")

    def __init__(self, mark: int, seed: int = 0) -> None:
        self.seed = seed
        self.mark = mark  # every record below is acknowledged
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.digest = self._hash(-1, mark)

    def __len__(self) -> int:
        """Ranges above the mark."""
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int):
            return False
        if offset < self.mark:
            return True
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ends[at]

    def covered(self, end: int) -> int:
        """How many offsets from the mark up to `end` are in a range."""
        high = bisect_left(self._starts, end)
        return sum(min(end, self._ends[at]) - self._starts[at] for at in range(high))

    def unacked(self, first: int, end: int) -> list[Range]:
        """The parts of [first, end) that are not acknowledged."""
        found: list[Range] = []
        at = max(first, self.mark)
        for index in range(bisect_right(self._ends, at), len(self._starts)):
            if self._starts[index] >= end:
                break
            if at < self._starts[index]:
                found.append((at, self._starts[index]))
            at = max(at, self._ends[index])
        if at < end:
            found.append((at, end))
        return found

    def move(self, mark: int) -> None:
        """Forget the ranges, and begin at `mark`."""
        self.digest = self._hash(-1, mark)
        self.mark = mark
        self._starts.clear()
        self._ends.clear()

    def add(self, first: int, end: int) -> None:
        """Acknowledge [first, end)."""
        first = max(first, self.mark)
        if first >= end:
            return
        low = bisect_left(self._ends, first)
        high = bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
            for at in range(low, high):
                self.digest -= self._hash(self._starts[at], self._ends[at])
        self._starts[low:high] = [first]
        self._ends[low:high] = [end]
        self.digest = (self.digest + self._hash(first, end)) & MASK

    def raise_mark(self, mark: int, live: Live) -> None:
        """Acknowledge everything below `mark`, then whatever the mark reaches."""
        old = self.mark
        mark = live(max(mark, old))
        gone = 0
        while gone < len(self._starts) and self._starts[gone] <= mark:
            mark = live(max(mark, self._ends[gone]))
            self.digest -= self._hash(self._starts[gone], self._ends[gone])
            gone += 1
        if gone:
            del self._starts[:gone], self._ends[:gone]
        if mark != old:
            self.digest += self._hash(-1, mark) - self._hash(-1, old)
            self.mark = mark
        self.digest &= MASK

    def reseed(self, seed: int) -> None:
        self.seed = seed
        self.digest = (self._hash(-1, self.mark) + sum(self._hash(*each) for each in self)) & MASK

    def _hash(self, first: int, end: int) -> int:
        return mix(self.seed, first & MASK, end, 0)


class StoredSubscription:
    """One subscription of a stream."""

    __slots__ = ("acked", "held", "name", "properties", "stream", "term")

    def __init__(self, stream: int, name: str, mark: int, properties: Properties) -> None:
        self.stream = stream
        self.name = name
        self.properties = properties
        self.acked = AckedRecords(mark, hash_fields("subscription", stream, name, properties))
        self.held: dict[int, list[Range]] = {}  # what open transactions acknowledge, by their producer
        self.term = 0  # how often it was taken over, or moved by others; -1: it is removed

    @property
    def digest(self) -> int:
        held = sum(hash_fields("held", self.acked.seed, *row) for row in self.held.items())
        return (self.acked.digest + held + mix(self.acked.seed, self.term, 0, 2)) & MASK

    def held_by(self, producer: int, first: int, end: int) -> list[Range]:
        """The parts of [first, end) that a transaction holds."""
        ranges = self.held[producer]
        at = bisect_right(ranges, first, key=lambda one: one[1])
        found = []
        while at < len(ranges) and ranges[at][0] < end:
            found.append((max(first, ranges[at][0]), min(end, ranges[at][1])))
            at += 1
        return found

    def left(self, first: int, end: int) -> list[Range]:
        """The parts of [first, end) that are neither acknowledged nor held."""
        left = self.acked.unacked(first, end)
        for ranges in self.held.values():
            left = _without(left, ranges)
        return left

    def describe(self, properties: Properties) -> None:
        """Replace the properties. The acknowledged records stay the same object, which consumers use."""
        self.properties = properties
        self.acked.reseed(hash_fields("subscription", self.stream, self.name, properties))


class Subscriptions(Section[list[SubscriptionState]]):
    """By stream and name."""

    requires = (Streams,)

    def __init__(self, streams: Streams) -> None:
        self._streams = streams
        self._by_stream: dict[int, dict[str, StoredSubscription]] = {}
        self._by_name: dict[str, set[int]] = {}  # their streams; follows from the others
        self.count = 0

    def get(self, stream: int, name: str) -> StoredSubscription | None:
        return self._by_stream.get(stream, {}).get(name)

    def of_stream(self, stream: int) -> list[StoredSubscription]:
        """By name."""
        found = self._by_stream.get(stream, {})
        return [found[name] for name in sorted(found)]

    def streams_of(self, name: str) -> list[int]:
        """The streams that have a subscription of this name."""
        return sorted(self._by_name.get(name, ()))

    def __iter__(self) -> Iterator[StoredSubscription]:
        """In no order."""
        return (one for names in self._by_stream.values() for one in names.values())

    @applies(AddSubscription)
    def create(self, command: AddSubscription, now: Moment) -> StoredSubscription | MainstemError:
        stream, name = command.stream, command.name
        if not self._streams.exists(stream):
            return StreamNotFound(stream)
        if not 1 <= len(name) <= limits.NAME_CHARS_MAX:
            return InvalidName(
                f"a subscription has a name of 1 to {limits.NAME_CHARS_MAX} characters, not {len(name)}"
            )
        refusal = _bad_properties(command.properties)
        if refusal is not None:
            return refusal
        found = self.get(stream, name)
        if found is not None:
            return found
        if (
            len(self._by_stream.get(stream, ())) >= SUBSCRIPTIONS_PER_STREAM_MAX
            or self.count >= SUBSCRIPTIONS_MAX
        ):
            return LimitReached(
                f"there are {SUBSCRIPTIONS_PER_STREAM_MAX} subscriptions of this partition, or "
                f"{SUBSCRIPTIONS_MAX} in all, the maximum: delete some"
            )
        if not 0 <= command.mark <= limits.OFFSET_MAX:
            return InvalidInput(f"{command.mark} is not an offset")
        return self._put(StoredSubscription(stream, name, command.mark, command.properties))

    @applies(AckRecords)
    def ack(self, command: AckRecords, now: Moment) -> int | MainstemError:
        """Returns the new mark."""
        found = self._served(command.stream, command.name, command.term)
        if isinstance(found, MainstemError):
            return found
        end = int(self._streams.end[command.stream])
        if command.mark > end or any(not 0 <= first < last <= end for first, last in command.ranges):
            return InvalidInput("only records that exist can be acknowledged")
        acked = found.acked
        if len(command.ranges) > ACKED_RANGES_PER_COMMAND_MAX:
            return InvalidInput(f"a command acknowledges at most {ACKED_RANGES_PER_COMMAND_MAX} ranges")
        # Ranges that touch the mark reduce their number, so these always pass.
        fills_gap = command.mark > acked.mark or any(first <= acked.mark for first, _ in command.ranges)
        if len(acked) >= ACKED_RANGES_MAX and not fills_gap:
            return LimitReached(
                f"{len(acked)} ranges of records are acknowledged out of order, the maximum: "
                f"acknowledge the record at offset {acked.mark} first"
            )
        for first, last in command.ranges:
            acked.add(first, last)
        acked.raise_mark(max(command.mark, self._streams.start(command.stream)), self._live(command.stream))
        return acked.mark

    def hold(
        self, stream: int, name: str, producer: int, mark: int, ranges: tuple[Range, ...], term: int
    ) -> MainstemError | None:
        """A transaction acknowledges what is left below `mark`, and the ranges, if it commits."""
        found = self._served(stream, name, term)
        if isinstance(found, MainstemError):
            return found
        end = int(self._streams.end[stream])
        if not 0 <= mark <= end or any(not 0 <= first < last <= end for first, last in ranges):
            return InvalidInput("only records that exist can be acknowledged")
        wanted = [*found.acked.unacked(found.acked.mark, mark), *ranges]
        others = [rows for owner, rows in found.held.items() if owner != producer]
        for first, last in wanted:
            if not found.acked.unacked(first, last) or any(_overlap(rows, first, last) for rows in others):
                return TransactionConflict(
                    f"records {first} to {last - 1} are acknowledged, or another transaction acknowledges them"
                )
        held = merged([*found.held.get(producer, ()), *wanted])
        if len(held) + sum(map(len, others)) > ACKED_RANGES_MAX:
            return LimitReached(
                f"open transactions acknowledge at most {ACKED_RANGES_MAX} ranges of records of a subscription"
            )
        if held:
            found.held[producer] = held
        return None

    def release(self, stream: int, name: str, producer: int, *, commit: bool) -> None:
        """A transaction ended: what it holds is acknowledged, or free again."""
        found = self.get(stream, name)
        held = None if found is None else found.held.pop(producer, None)
        if found is not None and held is not None and commit:
            for first, last in held:
                found.acked.add(first, last)
            found.acked.raise_mark(self._streams.start(stream), self._live(stream))

    @applies(MoveSubscription)
    def move(self, command: MoveSubscription, now: Moment) -> int | MainstemError:
        """Returns the new mark."""
        found = self._served(command.stream, command.name, command.term)
        if isinstance(found, MainstemError):
            return found
        if not 0 <= command.mark <= int(self._streams.end[command.stream]):
            return InvalidInput(f"the partition has no offset {command.mark}")
        if not command.term:
            found.term += 1  # the broker that serves it has to begin again
        found.acked.move(command.mark)
        found.held.clear()
        return command.mark

    @applies(ServeSubscription)
    def serve(self, command: ServeSubscription, now: Moment) -> int | MainstemError:
        """Returns the new term."""
        found = self._served(command.stream, command.name, command.after, first=True)
        if isinstance(found, MainstemError):
            return found
        found.term += 1
        return found.term

    def _served(
        self, stream: int, name: str, term: int, *, first: bool = False
    ) -> StoredSubscription | MainstemError:
        """The subscription, if `term` is its present one. 0 is any term, unless it has to be the `first`."""
        found = self.get(stream, name)
        if found is None:
            return SubscriptionNotFound(name)
        if term != found.term and (term or first):
            return SubscriptionMoved(name)
        return found

    @applies(PutSubscriptionProperties)
    def put_properties(self, command: PutSubscriptionProperties, now: Moment) -> MainstemError | None:
        found = self.get(command.stream, command.name)
        if found is None:
            return SubscriptionNotFound(command.name)
        refusal = _bad_properties(command.properties)
        if refusal is None:
            found.describe(command.properties)
        return refusal

    @applies(RemoveSubscription)
    def remove(self, command: RemoveSubscription, now: Moment) -> MainstemError | None:
        if self.get(command.stream, command.name) is None:
            return SubscriptionNotFound(command.name)
        self._drop(command.stream, command.name)
        return None

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        for stream in event.topic.streams:
            for name in list(self._by_stream.get(stream, ())):
                self._drop(stream, name)

    def _live(self, stream: int) -> Live:
        """Skip offsets that hold no record any more, up to where a transaction is open."""
        holes, stable = self._streams.holes(stream), self._streams.stable_end(stream)
        if not len(holes):
            return lambda offset: offset

        def first_live(offset: int) -> int:
            if offset >= stable:
                return offset
            return next((first for first, _ in holes.live(offset, stable)), stable)

        return first_live

    def _put(self, one: StoredSubscription) -> StoredSubscription:
        self._by_stream.setdefault(one.stream, {})[one.name] = one
        self._by_name.setdefault(one.name, set()).add(one.stream)
        self.count += 1
        return one

    def _drop(self, stream: int, name: str) -> None:
        names = self._by_stream[stream]
        names.pop(name).term = -1
        self.count -= 1
        if not names:
            del self._by_stream[stream]
        self._by_name[name].discard(stream)
        if not self._by_name[name]:
            del self._by_name[name]

    def _all(self) -> Iterable[StoredSubscription]:
        return (names[name] for _, names in sorted(self._by_stream.items()) for name in sorted(names))

    @property
    def digest(self) -> int:
        return sum(one.digest for names in self._by_stream.values() for one in names.values()) & MASK

    def encode(self) -> list[SubscriptionState]:
        return [
            SubscriptionState(
                one.stream,
                one.name,
                one.acked.mark,
                list(one.acked),
                one.properties,
                sorted(one.held.items()),
                one.term,
            )
            for one in self._all()
        ]

    def load(self, state: list[SubscriptionState]) -> None:
        for row in state:
            one = self._put(StoredSubscription(row.stream, row.name, row.mark, row.properties))
            for first, last in row.ranges:
                one.acked.add(first, last)
            one.held = dict(row.held)
            one.term = row.term


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets as disjoint ranges in order."""
    found: list[Range] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((first, end))
    return found


def _overlap(ranges: list[Range], first: int, end: int) -> bool:
    """Whether sorted disjoint ranges have an offset of [first, end)."""
    at = bisect_right(ranges, first, key=lambda one: one[1])
    return at < len(ranges) and ranges[at][0] < end


def _without(left: list[Range], ranges: list[Range]) -> list[Range]:
    """`left` without the offsets of `ranges`, which are sorted and disjoint."""
    found: list[Range] = []
    for first, end in left:
        at = bisect_right(ranges, first, key=lambda one: one[1])
        while at < len(ranges) and ranges[at][0] < end:
            if first < ranges[at][0]:
                found.append((first, ranges[at][0]))
            first = ranges[at][1]
            at += 1
        if first < end:
            found.append((first, end))
    return found


def _bad_properties(properties: Properties) -> InvalidInput | None:
    if sum(len(word.encode()) for row in properties for word in row) <= SUBSCRIPTION_PROPERTIES_BYTES_MAX:
        return None
    return InvalidInput(
        f"the properties of a subscription have at most {SUBSCRIPTION_PROPERTIES_BYTES_MAX} bytes"
    )

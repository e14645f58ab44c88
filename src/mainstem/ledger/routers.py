"""Routers: what is written to one topic is copied to another.

A router has a *leg* for each partition of its source. Legs whose copies are the stored bytes under other offsets share
feeds (feeds.py) and are moved on by `Forward`; the others append what they copy, and note it in the same entry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import msgspec
import numpy as np

from mainstem import limits
from mainstem.errors import (
    InvalidInput,
    MainstemError,
    Rejected,
    RouterCycle,
    RouterNotFound,
    StreamNotFound,
    TopicFull,
    TopicIncompatible,
    TopicNotFound,
)
from mainstem.ledger.aliases import Aliases, AliasesState
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.digest import MASK, hash_fields, mix
from mainstem.ledger.feeds import GAP, Feed
from mainstem.ledger.hops import Hops, HopState
from mainstem.ledger.intervals import JUMPED, is_loss
from mainstem.ledger.results import Forwarded, RouterDeleted, RouterPut
from mainstem.ledger.router_commands import (
    DeleteRouter,
    Forward,
    Guarantee,
    NoteForwarded,
    PassOver,
    PutRouter,
)
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import Topic

_TAG = 1 << 44  # beside a number, so that legs hash like nothing else


class KnownTopics(Protocol):
    def by_id(self, topic_id: bytes) -> Topic | None: ...


class LegState(msgspec.Struct, frozen=True, array_like=True):
    number: int
    source: int
    dest: int
    cursor: int
    copies: int
    feed: int  # 0 = none
    mark: int


class RouterState(msgspec.Struct, frozen=True, array_like=True):
    name: str
    source: bytes
    dest: bytes
    preserve_node: bool
    preserve_tag: bool
    match: tuple[bytes, bool] | None
    allow_cycle: bool
    guarantee: Guarantee
    legs: list[LegState]


class RoutersState(msgspec.Struct, frozen=True, array_like=True):
    next_leg: int = 1
    routers: list[RouterState] = []
    hops: list[HopState] = []
    aliases: AliasesState = AliasesState()


@dataclass(slots=True, eq=False)
class Leg:
    """One partition's way from source to destination."""

    number: int
    router: Router
    source: int  # streams
    dest: int
    own_cursor: int  # while it is in no feed
    own_copies: int = 0  # made outside of the feed it is in
    feed: Feed | None = None
    mark: int = 0  # copies of the feed when it joined

    @property
    def cursor(self) -> int:
        """The next offset of the source to copy."""
        return self.own_cursor if self.feed is None else self.feed.cursor

    @property
    def copies(self) -> int:
        return self.own_copies + (0 if self.feed is None else self.feed.copies - self.mark)

    @property
    def digest(self) -> int:
        if self.feed is None:
            return mix(_TAG | self.number, self.own_cursor, self.own_copies, 0)
        return mix(_TAG | self.number, self.mark, self.own_copies, self.feed.number)


@dataclass(slots=True, eq=False)
class Router:
    name: str
    source: bytes  # topic ids
    dest: bytes
    preserve_node: bool = True
    preserve_tag: bool = True
    match: tuple[bytes, bool] | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"
    legs: list[Leg] = field(default_factory=list)

    @property
    def verbatim(self) -> bool:
        """Its copies are the records as they are stored."""
        return (
            self.match is None
            and self.preserve_node
            and self.preserve_tag
            and self.guarantee == "at_least_once"
        )

    @property
    def copies(self) -> int:
        return sum(leg.copies for leg in self.legs)

    @property
    def digest(self) -> int:
        return hash_fields(
            "router",
            self.name,
            self.source,
            self.dest,
            self.preserve_node,
            self.preserve_tag,
            self.match,
            self.allow_cycle,
            self.guarantee,
        )


class Routers:
    """Commands return what they did, or the error that refuses them."""

    def __init__(self, streams: Streams, topics: KnownTopics, aliases: Aliases | None = None) -> None:
        self._streams = streams
        self._topics = topics
        self.aliases = aliases or Aliases()
        self.hops = Hops()
        self._by_name: dict[str, Router] = {}
        self._legs: dict[int, Leg] = {}
        self._of_source: dict[int, list[Leg]] = {}  # by stream
        self._of_dest: dict[int, list[Leg]] = {}
        self._feeds: dict[int, list[Feed]] = {}  # by source stream, those with members
        self._loose: dict[int, set[int]] = {}  # by source stream: legs that are in no feed
        self._next_leg = 1
        self._digest = 0  # of routers and legs
        streams.on_removed = self._removed

    # Reads

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Router | None:
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """By name bytes."""
        return sorted(self._by_name, key=str.encode)

    def leg(self, number: int) -> Leg | None:
        return self._legs.get(number)

    def from_stream(self, stream: int) -> list[Leg]:
        """The legs that read from a stream."""
        return self._of_source.get(stream, [])

    def to_stream(self, stream: int) -> list[Leg]:
        return self._of_dest.get(stream, [])

    def sources(self) -> set[int]:
        """The streams that routers read from."""
        return set(self._of_source)

    def loose(self, stream: int) -> list[Leg]:
        """Legs from a stream that are in no feed, in the order they were made."""
        return [self._legs[number] for number in sorted(self._loose.get(stream, ()))]

    def forwards(self, stream: int) -> bool:
        """Whether `Forward` has anybody to move on."""
        return stream in self._feeds or any(map(self.aliased, self.loose(stream)))

    def lowest_cursor(self, stream: int) -> int | None:
        """How far the hindmost leg from a stream has come."""
        cursors = [feed.cursor for feed in self._feeds.get(stream, ())]
        cursors += [leg.own_cursor for leg in self.loose(stream)]
        return min(cursors, default=None)

    def of_topic(self, topic_id: bytes) -> list[Router]:
        """The routers from or to a topic."""
        return [router for router in self._by_name.values() if topic_id in (router.source, router.dest)]

    def aliased(self, leg: Leg) -> bool:
        """Whether `Forward` moves the leg on. Else its copies are appended: they differ from what is stored,
        or the destination must know the size and time of each record, or one of the two is in memory only."""
        streams = self._streams
        return bool(leg.router.verbatim and streams.plain[leg.dest] and not streams.ephemeral(leg.source))

    def refusal(
        self, name: str, source: bytes | None, dest: bytes | None, *, allow_cycle: bool
    ) -> TopicIncompatible | RouterCycle | None:
        """Why there can be no such router. None for an id stands for a topic that does not exist yet."""
        for other in self._by_name.values():
            if other.name != name and other.dest == dest and other.source != source:
                topic = self._name(other.dest)
                return TopicIncompatible(
                    f"router {other.name!r} feeds topic {topic!r} from another source",
                    topic=topic,
                    reason="router_dest_fan_in",
                )
        existing = self._by_name.get(name)
        if existing is not None and (existing.source, existing.dest) != (source, dest):
            return TopicIncompatible(
                f"router {name!r} leads from {self._name(existing.source)!r} to {self._name(existing.dest)!r}: "
                "delete it first",
                topic=self._name(existing.dest),
                reason="router_repoint_forbidden",
            )
        if allow_cycle or (existing is not None and not existing.allow_cycle):
            return None
        path = self._path(dest, source) if source is not None and dest is not None else None
        return RouterCycle([self._name(step) for step in (*path, path[0])]) if path else None

    def _path(self, start: bytes, goal: bytes) -> list[bytes] | None:
        """Topics from `start` to `goal`, each fed by the one before it; a shortest way."""
        onward: dict[bytes, list[bytes]] = {}
        if not any(router.dest == goal for router in self._by_name.values()):
            return None
        for name in sorted(self._by_name):
            onward.setdefault(self._by_name[name].source, []).append(self._by_name[name].dest)
        paths = [[start]]
        seen = {start}
        for path in paths:
            if path[-1] == goal:
                return path
            for step in onward.get(path[-1], ()):
                if step not in seen:
                    seen.add(step)
                    paths.append([*path, step])
        return None

    def _name(self, topic_id: bytes) -> str:
        topic = self._topics.by_id(topic_id)
        return topic.name if topic else topic_id.hex()

    # Routers

    def put(self, command: PutRouter) -> RouterPut | MainstemError:
        source, dest = self._topics.by_id(command.source), self._topics.by_id(command.dest)
        if source is None or dest is None:
            return TopicNotFound((command.source if source is None else command.dest).hex())
        if source is dest:
            return InvalidInput("a router leads from one topic to another")
        refusal = self.refusal(command.name, command.source, command.dest, allow_cycle=command.allow_cycle)
        if refusal is not None:
            return refusal
        router = self._by_name.get(command.name)
        created = router is None
        if router is None:
            router = self._by_name[command.name] = Router(command.name, command.source, command.dest)
            self._digest += router.digest
            for partition, stream in enumerate(source.streams):
                cursor = int(self._streams.end[stream])
                if self._streams.ephemeral(stream) and partition < len(command.starts):
                    cursor = command.starts[partition]
                self._add_leg(router, stream, dest.streams[partition % len(dest.streams)], cursor)
        self._digest -= router.digest
        router.preserve_node, router.preserve_tag = command.preserve_node, command.preserve_tag
        router.match, router.guarantee = command.match, command.guarantee
        router.allow_cycle = command.allow_cycle
        self._digest = (self._digest + router.digest) & MASK
        for leg in router.legs:
            if not router.verbatim:
                self._part(leg)
            elif leg.feed is None:
                self._regroup(leg.source)  # at once, while what is below its cursor is all there is
        return RouterPut(command.name, created)

    def _add_leg(self, router: Router, source: int, dest: int, cursor: int) -> None:
        leg = Leg(self._next_leg, router, source, dest, cursor)
        self._next_leg += 1
        router.legs.append(leg)
        self._take_in(leg)
        self._digest += leg.digest

    def _take_in(self, leg: Leg) -> None:
        self._legs[leg.number] = leg
        self._of_source.setdefault(leg.source, []).append(leg)
        self._of_dest.setdefault(leg.dest, []).append(leg)
        if leg.feed is None:
            self._loose.setdefault(leg.source, set()).add(leg.number)

    def grow(self, topic: Topic) -> None:
        """A topic may have got more partitions: what is written there is copied from the first record on."""
        for router in self._by_name.values():
            dest = self._topics.by_id(router.dest)
            if router.source == topic.topic_id and dest is not None:
                for partition in range(len(router.legs), len(topic.streams)):
                    dest_stream = dest.streams[partition % len(dest.streams)]
                    self._add_leg(router, topic.streams[partition], dest_stream, 0)

    def delete(self, command: DeleteRouter) -> RouterDeleted:
        router = self._by_name.get(command.name)
        if router is not None:
            self._remove(router)
        return RouterDeleted(router is not None)

    def forget_topic(self, topic: Topic) -> None:
        """The topic is deleted: so are its routers."""
        for router in self.of_topic(topic.topic_id):
            self._remove(router)
        self.aliases.forget_streams(topic.streams)
        for stream in topic.streams:
            self.hops.forget(stream)

    def _remove(self, router: Router) -> None:
        for leg in router.legs:
            self._part(leg)
            self._digest -= leg.digest
            del self._legs[leg.number]
            self._drop(self._of_source, leg.source, leg)
            self._drop(self._of_dest, leg.dest, leg)
            loose = self._loose[leg.source]
            loose.discard(leg.number)
            if not loose:
                del self._loose[leg.source]
            if leg.source not in self._of_source:
                self.hops.forget(leg.source)
        self._digest = (self._digest - router.digest) & MASK
        del self._by_name[router.name]

    @staticmethod
    def _drop(legs: dict[int, list[Leg]], stream: int, leg: Leg) -> None:
        legs[stream].remove(leg)
        if not legs[stream]:
            del legs[stream]

    # Feeds

    def _part(self, leg: Leg) -> None:
        """Take a leg out of its feed; it stands where the feed stood."""
        feed = leg.feed
        if feed is None:
            return
        self._digest -= leg.digest
        leg.own_cursor, leg.own_copies = leg.cursor, leg.copies
        self.aliases.leave(feed, leg.number, leg.dest)
        leg.feed = None
        self._digest = (self._digest + leg.digest) & MASK
        self._loose.setdefault(leg.source, set()).add(leg.number)
        if not len(feed.dests):
            self._feeds[leg.source].remove(feed)
            if not self._feeds[leg.source]:
                del self._feeds[leg.source]

    def _join(self, leg: Leg, feed: Feed) -> None:
        self._digest -= leg.digest
        leg.own_copies, leg.feed, leg.mark = leg.copies, feed, feed.copies
        self.aliases.join(feed, leg.number, leg.dest, int(self._streams.end[leg.dest]))
        self._digest = (self._digest + leg.digest) & MASK
        self._loose[leg.source].discard(leg.number)

    def _regroup(self, source: int) -> None:
        """Have each leg in a feed if it may be, and legs that stand at the same offset in the same one."""
        for feed in list(self._feeds.get(source, ())):
            for number in feed.legs[~self._streams.plain[feed.dests]].tolist():
                self._part(self._legs[number])
        for number in sorted(self._loose.get(source, ())):
            leg = self._legs[number]
            if self.aliased(leg):
                self._join(leg, self._feed_for(leg))

    def _feed_for(self, leg: Leg) -> Feed:
        """One that stands where the leg stands and does not reach its stream yet; else a new one."""
        feeds = self._feeds.setdefault(leg.source, [])
        for feed in feeds:
            if feed.cursor == leg.own_cursor and not feed.reaches(leg.dest):
                return feed
        feed = self.aliases.open(leg.source, leg.own_cursor, self._bytes_below(leg.source, leg.own_cursor))
        feeds.append(feed)
        return feed

    def _bytes_below(self, stream: int, offset: int) -> int:
        """Bytes of the live records below an offset: all there are at the end, else by their average."""
        streams = self._streams
        start, end, size = streams.start(stream), int(streams.end[stream]), int(streams.bytes[stream])
        live = int(streams.records[stream])
        if offset >= end or not live:
            return size
        below = max(0, offset - start - streams.holes(stream).covered(start, offset)) if offset > start else 0
        return size * min(below, live) // live

    def _removed(self, stream: int, start: int, end: int, size: int) -> None:
        """Records left a stream: keep count of the bytes below the cursors of its feeds."""
        for feed in self._feeds.get(stream, ()):
            below = min(end, feed.cursor) - start
            if below > 0:
                feed.below = max(0, feed.below - size * below // (end - start))

    # Forwarding

    def forward(self, command: Forward) -> Forwarded | MainstemError:
        source = command.stream
        if not self._streams.exists(source):
            return StreamNotFound(source)
        if self._streams.ephemeral(source) or not 0 <= command.end <= limits.OFFSET_MAX:
            return InvalidInput(f"there is nothing to forward up to {command.end} from stream {source}")
        self._regroup(source)
        end = min(command.end, self._streams.stable_end(source))
        ends: dict[int, int] = {}
        copies = 0
        for feed in list(self._feeds.get(source, ())):
            if feed.cursor < end:
                copies += self._advance(feed, end, command.time_ms, ends)
        self._merge(source)
        self._cut_hops(source)
        return Forwarded(copies, ends)

    def _advance(self, feed: Feed, end: int, time_ms: int, ends: dict[int, int]) -> int:
        """Move a feed on. Returns how many copies that made."""
        streams, dests = self._streams, feed.dests
        parts = self._parts(feed.source, feed.cursor, end)
        size = self._size_of(feed, end)
        pieces: list[tuple[int, int, int]] = []
        for origin, first, last, _ in parts:
            if origin == GAP:
                pieces.append((GAP, 0, last - first))
            else:
                pieces += self.aliases.resolve(feed.source, first, last)
        copies = sum(last - first for origin, first, last, _ in parts if origin != GAP)
        feed.cursor = end
        if not pieces:
            return 0
        bases = streams.end[dests]
        self.aliases.extend(feed, bases, pieces, time_ms)
        streams.append_alias(dests, sum(piece[2] for piece in pieces), copies, size, time_ms)
        self._fill_in(feed, bases, parts)
        for dest, reached in zip(dests.tolist(), streams.end[dests].tolist(), strict=True):
            ends[dest] = reached
        return copies * len(dests)

    def _parts(self, source: int, cursor: int, end: int) -> list[tuple[int, int, int, int]]:
        """What of [cursor, end) is to be forwarded, in order: (source, first, last, hop), or (GAP, 0, count, 0)."""
        streams = self._streams
        parts: list[tuple[int, int, int, int]] = []
        at = cursor
        evicted = min(end, int(max(streams.evict_floor[source], streams.expiry_floor[source])))
        if evicted > at:
            parts.append((GAP, 0, evicted - at, 0))
        at = min(end, max(at, streams.start(source)))
        for first, last, reason in [*streams.holes(source).overlapping(at, end), (end, end, "")]:
            if first > at:
                parts += [
                    (source, *piece)
                    for piece in self.hops.pieces(source, at, first)
                    if piece[2] + 1 < limits.ROUTER_HOPS_MAX
                ]
            if is_loss(reason):
                parts.append((GAP, 0, lost_records(max(first, at), min(last, end), reason), 0))
            at = max(at, last)
        return parts

    def _size_of(self, feed: Feed, end: int) -> int:
        """Bytes of the live records from the feed's cursor to `end`: exact once all is forwarded."""
        streams, source = self._streams, feed.source
        start, last = streams.start(source), int(streams.end[source])
        if feed.cursor <= start:
            feed.below = 0
        pending = max(0, int(streams.bytes[source]) - feed.below)
        holes, at = streams.holes(source), max(feed.cursor, start)
        share = pending
        if end < last:
            live = last - at - holes.covered(at, last)
            taken = max(0, end - at - holes.covered(at, end)) if end > at else 0
            share = pending * taken // live if live else 0
        feed.below += share
        return share

    def _fill_in(
        self,
        feed: Feed,
        bases: np.ndarray[tuple[int], np.dtype[np.int64]],
        parts: list[tuple[int, int, int, int]],
    ) -> None:
        """Make the gaps of the streams that were forwarded to, and note what may be forwarded further."""
        onward = [dest in self._of_source for dest in feed.dests.tolist()]
        gaps = any(origin == GAP for origin, _, _, _ in parts)
        if not gaps and not any(onward):
            return
        for dest, base, goes_on in zip(feed.dests.tolist(), bases.tolist(), onward, strict=True):
            at = base
            for origin, first, last, hop in parts:
                if origin == GAP:
                    self._streams.make_gap(dest, at, at + last - first)
                elif goes_on:
                    self.hops.note(dest, at, at + last - first, hop + 1)
                at += last - first

    def _merge(self, source: int) -> None:
        """Legs that caught up share a feed again."""
        feeds = self._feeds.get(source, [])
        for feed in feeds[1:]:
            first = feeds[0]
            if feed.cursor != first.cursor:
                continue
            for number, dest in zip(feed.legs.tolist(), feed.dests.tolist(), strict=True):
                if not first.reaches(dest):
                    self._part(self._legs[number])
                    self._join(self._legs[number], first)

    def _cut_hops(self, source: int) -> None:
        if source in self.hops:
            self.hops.cut(source, min(leg.cursor for leg in self._of_source[source]))

    # Copying

    def note(self, command: NoteForwarded, before: object) -> Forwarded | MainstemError:
        """Move a leg past what the last slice of the append run right `before` holds copies of."""
        if not isinstance(before, AppendOutcome) or not len(before.code):
            return InvalidInput("copies are noted in the entry that appends them")
        if before.code[-1] == AppendCode.FULL:
            return TopicFull("the topic copied to is full and rejects")
        if before.code[-1] != AppendCode.OK:
            return Rejected("the topic copied to did not take the records")
        leg = self._movable(command.leg, command.start, command.end)
        if isinstance(leg, MainstemError):
            return leg
        base = int(before.base[-1])
        self._note_hop(leg, command.start, command.end, base, command.copies)
        return self._move(leg, command.end, command.copies, {leg.dest: base + command.copies})

    def pass_over(self, command: PassOver) -> Forwarded | MainstemError:
        leg = self._movable(command.leg, command.start, command.end)
        if isinstance(leg, MainstemError):
            return leg
        if not 0 <= command.lost <= limits.OFFSET_MAX or command.copies < 0:
            return InvalidInput(f"{command.lost} lost records and {command.copies} copies")
        if command.copies and command.base >= 0:
            self._note_hop(leg, command.start, command.end, command.base, command.copies)
        ends: dict[int, int] = {}
        if command.lost and not self._streams.ephemeral(leg.dest):
            base = int(self._streams.end[leg.dest])
            self._streams.make_gap(leg.dest, base, base + command.lost)
            ends[leg.dest] = base + command.lost
        return self._move(leg, command.end, command.copies, ends)

    def _note_hop(self, leg: Leg, start: int, end: int, base: int, copies: int) -> None:
        """Remember how far copies have come, if they may be copied on. Those of one command came equally far."""
        if leg.dest in self._of_source:
            hop = next(self.hops.pieces(leg.source, start, end))[2]
            self.hops.note(leg.dest, base, base + copies, hop + 1)

    def _movable(self, number: int, start: int, end: int) -> Leg | MainstemError:
        leg = self._legs.get(number)
        if leg is None:
            return RouterNotFound(str(number))
        if leg.cursor != start or not start < end <= limits.OFFSET_MAX:
            return Rejected(f"a router stands at {leg.cursor} and cannot go from {start} to {end}")
        return leg

    def _move(self, leg: Leg, end: int, copies: int, ends: dict[int, int]) -> Forwarded:
        self._part(leg)
        self._digest -= leg.digest
        leg.own_cursor = end
        leg.own_copies += copies
        self._digest = (self._digest + leg.digest) & MASK
        self._cut_hops(leg.source)
        return Forwarded(copies, ends)

    # State as a whole

    def digest(self) -> int:
        feeds = sum(
            hash_fields("feed", feed.number, feed.source, feed.cursor, feed.below, feed.end, feed.copies)
            for feeds in self._feeds.values()
            for feed in feeds
        )
        return (self._digest + feeds + self.hops.digest() + self.aliases.digest) & MASK

    def encode(self) -> RoutersState:
        return RoutersState(
            self._next_leg,
            [_encoded(self._by_name[name]) for name in self.names()],
            self.hops.encode(),
            self.aliases.encode(self._streams.start),
        )

    @classmethod
    def decode(cls, state: RoutersState, streams: Streams, topics: KnownTopics) -> Routers:
        routers = cls(streams, topics, Aliases.decode(state.aliases))
        routers._next_leg = state.next_leg
        routers.hops = Hops(state.hops)
        legs = []
        for one in state.routers:
            router = routers._by_name[one.name] = Router(
                one.name,
                one.source,
                one.dest,
                one.preserve_node,
                one.preserve_tag,
                one.match,
                one.allow_cycle,
                one.guarantee,
            )
            routers._digest += router.digest
            for stored in one.legs:
                feed = routers.aliases.feeds[stored.feed] if stored.feed else None
                leg = Leg(
                    stored.number,
                    router,
                    stored.source,
                    stored.dest,
                    stored.cursor,
                    stored.copies,
                    feed,
                    stored.mark,
                )
                router.legs.append(leg)
                legs.append(leg)
        for leg in sorted(legs, key=lambda leg: leg.number):
            routers._take_in(leg)
            routers._loose.setdefault(leg.source, set())
            routers._digest += leg.digest
        for _, feed in sorted(routers.aliases.feeds.items()):
            if len(feed.dests):
                routers._feeds.setdefault(feed.source, []).append(feed)
        routers._digest &= MASK
        return routers


def _encoded(router: Router) -> RouterState:
    legs = [
        LegState(
            leg.number,
            leg.source,
            leg.dest,
            leg.own_cursor,
            leg.own_copies,
            leg.feed.number if leg.feed else 0,
            leg.mark if leg.feed else 0,
        )
        for leg in router.legs
    ]
    return RouterState(
        router.name,
        router.source,
        router.dest,
        router.preserve_node,
        router.preserve_tag,
        router.match,
        router.allow_cycle,
        router.guarantee,
        legs,
    )


def lost_records(start: int, end: int, reason: str) -> int:
    """How many offsets of a destination stand for a loss of its source: one a record. Where a stream jumped
    to its ceiling most offsets never held one, and nobody knows how many did: that counts as one."""
    return 1 if reason in JUMPED else end - start

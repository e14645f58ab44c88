"""Legs: how far each router has come with each partition of its source, and how it goes on.

Legs whose copies are the stored bytes under other offsets share feeds (fan_out.py) and are moved on by `Forward`. The
others append what they copy, and note it in the same entry.
"""

from __future__ import annotations

from collections.abc import Callable

from mainstem import limits
from mainstem.errors import InvalidInput, MainstemError, Rejected, RouterNotFound, StreamNotFound, TopicFull
from mainstem.ledger.aliases import Aliases
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.fan_out import GAP, FanOut, Int64s
from mainstem.ledger.hop_counts import HopCounts
from mainstem.ledger.intervals import JUMPED, is_loss
from mainstem.ledger.results import Forwarded
from mainstem.ledger.router import RouterPartition
from mainstem.ledger.router_commands import Forward, NoteForwarded, PassOver
from mainstem.ledger.streams import Streams


class RouterPartitions:
    """Commands return what they did, or the error that refuses them."""

    def __init__(self, streams: Streams, aliases: Aliases, hops: HopCounts) -> None:
        self._streams = streams
        self.aliases = aliases
        self.hops = hops
        self._legs: dict[int, RouterPartition] = {}
        self._of_source: dict[int, list[RouterPartition]] = {}  # by stream
        self._of_dest: dict[int, list[RouterPartition]] = {}
        self._feeds: dict[int, list[FanOut]] = {}  # by source stream, those with members
        self._loose: dict[int, set[int]] = {}  # by source stream: legs that are in no feed
        self._digest = 0
        self.frontier: Callable[[int], int] = lambda stream: 0  # where the log's own bytes of a stream begin
        for _, feed in sorted(aliases.feeds.items()):
            if len(feed.dests):
                self._feeds.setdefault(feed.source, []).append(feed)
        streams.on_removed = self._removed

    # Reads

    def get(self, number: int) -> RouterPartition | None:
        return self._legs.get(number)

    def from_stream(self, stream: int) -> list[RouterPartition]:
        """The legs that read from a stream."""
        return self._of_source.get(stream, [])

    def to_stream(self, stream: int) -> list[RouterPartition]:
        return self._of_dest.get(stream, [])

    def sources(self) -> set[int]:
        """The streams that routers read from."""
        return set(self._of_source)

    def loose(self, stream: int) -> list[RouterPartition]:
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

    def aliased(self, leg: RouterPartition) -> bool:
        """Whether `Forward` moves the leg on. Else its copies are appended: they differ from what is stored,
        or the destination must know the size and time of each record, or one of the two is in memory only, or
        the log may have given up the bytes the leg has come to."""
        streams = self._streams
        return bool(
            leg.router.verbatim
            and streams.plain[leg.dest]
            and not streams.ephemeral(leg.source)
            and not self._behind(leg.source, leg.cursor)
        )

    def _behind(self, source: int, cursor: int) -> bool:
        """Whether parts of a table serve the offset, so that the log need not have its bytes any more."""
        return self._streams.start(source) < self.frontier(source) > cursor

    # Coming and going

    def add(self, leg: RouterPartition) -> None:
        """Take in a leg, new or from a checkpoint; in the order of their numbers."""
        self._legs[leg.number] = leg
        self._of_source.setdefault(leg.source, []).append(leg)
        self._of_dest.setdefault(leg.dest, []).append(leg)
        if leg.feed is None:
            self._loose.setdefault(leg.source, set()).add(leg.number)
        self._digest = (self._digest + leg.digest) & MASK

    def remove(self, leg: RouterPartition) -> None:
        self.part(leg)
        self._digest = (self._digest - leg.digest) & MASK
        del self._legs[leg.number]
        for legs, stream in ((self._of_source, leg.source), (self._of_dest, leg.dest)):
            legs[stream].remove(leg)
            if not legs[stream]:
                del legs[stream]
        loose = self._loose[leg.source]
        loose.discard(leg.number)
        if not loose:
            del self._loose[leg.source]
        if leg.source not in self._of_source:
            self.hops.forget(leg.source)

    # Feeds

    def part(self, leg: RouterPartition) -> None:
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

    def _join(self, leg: RouterPartition, feed: FanOut) -> None:
        self._digest -= leg.digest
        leg.own_copies, leg.feed, leg.mark, leg.noted = leg.copies, feed, feed.copies, None
        self.aliases.join(feed, leg.number, leg.dest, int(self._streams.end[leg.dest]))
        self._digest = (self._digest + leg.digest) & MASK
        self._loose[leg.source].discard(leg.number)

    def regroup(self, source: int) -> None:
        """Have each leg in a feed if it may be, and legs that stand at the same offset in the same one."""
        for feed in list(self._feeds.get(source, ())):
            behind = self._behind(source, feed.cursor)
            for number in feed.legs[behind | ~self._streams.plain[feed.dests]].tolist():
                self.part(self._legs[number])
        for number in sorted(self._loose.get(source, ())):
            leg = self._legs[number]
            if self.aliased(leg):
                self._join(leg, self._feed_for(leg))

    def _feed_for(self, leg: RouterPartition) -> FanOut:
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
        self.regroup(source)
        end = min(command.end, self._streams.stable_end(source))
        ends: dict[int, int] = {}
        copies = 0
        for feed in list(self._feeds.get(source, ())):
            if feed.cursor < end:
                copies += self._advance(feed, end, command.time_ms, ends)
        self._merge(source)
        self._cut_hops(source)
        return Forwarded(copies, ends)

    def _advance(self, feed: FanOut, end: int, time_ms: int, ends: dict[int, int]) -> int:
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
        lost = lost_below_start(streams, source, cursor, end)
        if lost:
            parts.append((GAP, 0, lost, 0))
        at = min(end, max(cursor, streams.start(source)))
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

    def _size_of(self, feed: FanOut, end: int) -> int:
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
        feed: FanOut,
        bases: Int64s,
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
                    self.part(self._legs[number])
                    self._join(self._legs[number], first)

    def _cut_hops(self, source: int) -> None:
        if source in self.hops:
            self.hops.cut(source, min(leg.cursor for leg in self._of_source[source]))

    # Copying

    def takes(self, command: NoteForwarded) -> bool:
        """Whether the copies that the command notes may be appended."""
        return not command.once or isinstance(
            self._movable(command.leg, command.start, command.end), RouterPartition
        )

    def note(self, command: NoteForwarded, before: object) -> Forwarded | MainstemError:
        """Move a leg past what the last slice of the append run right `before` holds copies of."""
        if not isinstance(before, AppendOutcome) or not len(before.code):
            return InvalidInput("copies are noted in the entry that appends them")
        leg = self._movable(command.leg, command.start, command.end)
        if isinstance(leg, MainstemError):
            return leg
        if before.code[-1] == AppendCode.FULL:
            return TopicFull("the topic copied to is full and rejects")
        if before.code[-1] != AppendCode.OK:
            return Rejected("the topic copied to did not take the records")
        base = int(before.base[-1])
        self._note_hop(leg, command.start, command.end, base, command.copies)
        noted = (command.start, base, command.copies)
        return self._move(leg, command.end, command.copies, {leg.dest: base + command.copies}, noted)

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
        noted = leg.noted if not command.lost else None
        return self._move(leg, command.end, command.copies, ends, noted)

    def lost(self, stream: int, start: int, end: int) -> None:
        """Records are damaged. Copies that a leg appended last are made again: a crash may leave the entry that
        notes them whole and damage their bytes, before anybody was told that they are durable."""
        for leg in self.to_stream(stream):
            if leg.noted is not None and start <= leg.noted[1] and leg.noted[1] + leg.noted[2] <= end:
                self._move(leg, leg.noted[0], -leg.noted[2], {}, None)

    def _note_hop(self, leg: RouterPartition, start: int, end: int, base: int, copies: int) -> None:
        """Remember how far copies have come, if they may be copied on. Those of one command came equally far."""
        if leg.dest in self._of_source:
            hop = next(self.hops.pieces(leg.source, start, end))[2]
            self.hops.note(leg.dest, base, base + copies, hop + 1)

    def _movable(self, number: int, start: int, end: int) -> RouterPartition | MainstemError:
        leg = self._legs.get(number)
        if leg is None:
            return RouterNotFound(str(number))
        if leg.cursor != start or not start < end <= limits.OFFSET_MAX:
            return Rejected(f"a router stands at {leg.cursor} and cannot go from {start} to {end}")
        return leg

    def _move(
        self,
        leg: RouterPartition,
        end: int,
        copies: int,
        ends: dict[int, int],
        noted: tuple[int, int, int] | None,
    ) -> Forwarded:
        self.part(leg)
        self._digest -= leg.digest
        leg.own_cursor, leg.noted = end, noted
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


def lost_below_start(streams: Streams, source: int, cursor: int, end: int) -> int:
    """How many offsets of a destination stand for what its source gave up, from `cursor` on and before `end`."""
    reached = min(end, max(cursor, int(max(streams.evict_floor[source], streams.expiry_floor[source]))))
    passed = [loss for loss in streams.passed.above(source, reached) if loss[0] < end]
    return (
        reached - cursor + sum(lost_records(first, min(last, end), reason) for first, last, reason in passed)
    )


def lost_records(start: int, end: int, reason: str) -> int:
    """How many offsets of a destination stand for a loss of its source: one a record. Where a stream jumped
    to its ceiling most offsets never held one, and nobody knows how many did: that counts as one."""
    return 1 if reason in JUMPED else end - start

"""Router partitions: how far each router has copied each partition of its source, and how it continues.

Router partitions that copy the stored bytes unchanged share fan-outs (fan_out.py), and `Forward` advances them. The
others append their copies, and record that in the same entry.
"""

from __future__ import annotations

from operator import attrgetter

from mainstem import limits
from mainstem.errors import InvalidInput, MainstemError, Rejected, RouterNotFound, StreamNotFound, TopicFull
from mainstem.ledger.aliases import Aliases
from mainstem.ledger.appends import AppendCode, AppendOutcome
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.fan_out import GAP, FanOut, Int64s
from mainstem.ledger.generations import Generations
from mainstem.ledger.intervals import JUMPED, is_loss
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.router import Forwarded, HopCounts, HopState, RouterPartition
from mainstem.ledger.streams import Streams


class RouterPartitions:
    """Commands return a result, or the error that rejects them."""

    def __init__(self, streams: Streams, generations: Generations) -> None:
        self._streams = streams
        self._generations = generations
        self.aliases = Aliases()
        self.hops = HopCounts()
        self._legs: Keyed[int, RouterPartition] = Keyed(attrgetter("digest"))
        self._of_source: dict[int, list[RouterPartition]] = {}  # by stream
        self._of_dest: dict[int, list[RouterPartition]] = {}
        self._fan_outs: dict[int, list[FanOut]] = {}  # by source stream, those with members
        self._loose: dict[int, set[int]] = {}  # by source stream: router partitions that are not in a fan-out
        streams.on_removed = self._removed

    def load(self, aliases: Aliases, hops: list[HopState]) -> None:
        """Load the state of a checkpoint. The caller adds the router partitions."""
        self.aliases = aliases
        self.hops.load(hops)
        for _, fan_out in sorted(aliases.feeds.items()):
            if len(fan_out.dests):
                self._fan_outs.setdefault(fan_out.source, []).append(fan_out)

    # Reads

    def get(self, number: int) -> RouterPartition | None:
        return self._legs.get(number)

    def from_stream(self, stream: int) -> list[RouterPartition]:
        """The router partitions that read from a stream."""
        return self._of_source.get(stream, [])

    def to_stream(self, stream: int) -> list[RouterPartition]:
        return self._of_dest.get(stream, [])

    def sources(self) -> set[int]:
        """The streams that routers read from."""
        return set(self._of_source)

    def loose(self, stream: int) -> list[RouterPartition]:
        """Router partitions of a stream that are not in a fan-out, oldest first."""
        return [self._legs[number] for number in sorted(self._loose.get(stream, ()))]

    def forwards(self, stream: int) -> bool:
        """Whether `Forward` would advance a router partition."""
        return stream in self._fan_outs or any(map(self.aliased, self.loose(stream)))

    def lowest_cursor(self, stream: int) -> int | None:
        """The lowest cursor of the router partitions of a stream."""
        cursors = [fan_out.cursor for fan_out in self._fan_outs.get(stream, ())]
        cursors += [leg.own_cursor for leg in self.loose(stream)]
        return min(cursors, default=None)

    def aliased(self, leg: RouterPartition) -> bool:
        """Whether `Forward` advances the router partition. Otherwise its copies are appended: they differ from the
        stored bytes, or the destination needs the size and time of each record, or one of the two is ephemeral, or the
        log may have deleted the bytes at the cursor."""
        streams = self._streams
        return bool(
            leg.router.verbatim
            and streams.plain[leg.dest]
            and not streams.ephemeral(leg.source)
            and not self._behind(leg.source, leg.cursor)
        )

    def _behind(self, source: int, cursor: int) -> bool:
        """Whether parts of a table serve the offset, so that the log may have deleted its bytes."""
        return self._streams.start(source) < self._generations.frontier(source) > cursor

    # Add and remove

    def add(self, leg: RouterPartition) -> None:
        """Add a router partition, new or from a checkpoint, in the order of their numbers."""
        self._legs.put(leg.number, leg)
        self._of_source.setdefault(leg.source, []).append(leg)
        self._of_dest.setdefault(leg.dest, []).append(leg)
        if leg.fan_out is None:
            self._loose.setdefault(leg.source, set()).add(leg.number)

    def remove(self, leg: RouterPartition) -> None:
        self.part(leg)
        self._legs.pop(leg.number)
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

    # Fan-outs

    def part(self, leg: RouterPartition) -> None:
        """Remove a router partition from its fan-out. It continues at the fan-out's cursor."""
        fan_out = leg.fan_out
        if fan_out is None:
            return
        leg.own_cursor, leg.own_copies = leg.cursor, leg.copies
        self.aliases.leave(fan_out, leg.number, leg.dest)
        leg.fan_out = None
        self._legs.put(leg.number, leg)
        self._loose.setdefault(leg.source, set()).add(leg.number)
        if not len(fan_out.dests):
            self._fan_outs[leg.source].remove(fan_out)
            if not self._fan_outs[leg.source]:
                del self._fan_outs[leg.source]

    def _join(self, leg: RouterPartition, fan_out: FanOut) -> None:
        leg.own_copies, leg.fan_out, leg.mark, leg.noted = leg.copies, fan_out, fan_out.copies, None
        self.aliases.join(fan_out, leg.number, leg.dest, int(self._streams.end[leg.dest]))
        self._legs.put(leg.number, leg)
        self._loose[leg.source].discard(leg.number)

    def regroup(self, source: int) -> None:
        """Put each eligible router partition into a fan-out, those with equal cursors into the same one."""
        for fan_out in list(self._fan_outs.get(source, ())):
            behind = self._behind(source, fan_out.cursor)
            for number in fan_out.legs[behind | ~self._streams.plain[fan_out.dests]].tolist():
                self.part(self._legs[number])
        for number in sorted(self._loose.get(source, ())):
            leg = self._legs[number]
            if self.aliased(leg):
                self._join(leg, self._fan_out_for(leg))

    def _fan_out_for(self, leg: RouterPartition) -> FanOut:
        """A fan-out with the same cursor that does not reach the destination yet, or a new one."""
        fan_outs = self._fan_outs.setdefault(leg.source, [])
        for fan_out in fan_outs:
            if fan_out.cursor == leg.own_cursor and not fan_out.reaches(leg.dest):
                return fan_out
        fan_out = self.aliases.open(leg.source, leg.own_cursor, self._bytes_below(leg.source, leg.own_cursor))
        fan_outs.append(fan_out)
        return fan_out

    def _bytes_below(self, stream: int, offset: int) -> int:
        """Bytes of the live records below an offset: exact at the end of the stream, else by the average size."""
        streams = self._streams
        start, end, size = streams.start(stream), int(streams.end[stream]), int(streams.bytes[stream])
        live = int(streams.records[stream])
        if offset >= end or not live:
            return size
        below = max(0, offset - start - streams.holes(stream).covered(start, offset)) if offset > start else 0
        return size * min(below, live) // live

    def _removed(self, stream: int, start: int, end: int, size: int) -> None:
        """Records were removed from a stream: update the bytes below the cursors of its fan-outs."""
        for fan_out in self._fan_outs.get(stream, ()):
            below = min(end, fan_out.cursor) - start
            if below > 0:
                fan_out.below = max(0, fan_out.below - size * below // (end - start))

    # Forwarding

    def forward(self, source: int, until: int, time_ms: int) -> Forwarded | MainstemError:
        if not self._streams.exists(source):
            return StreamNotFound(source)
        if self._streams.ephemeral(source) or not 0 <= until <= limits.OFFSET_MAX:
            return InvalidInput(f"stream {source} has nothing to forward up to {until}")
        self.regroup(source)
        end = min(until, self._streams.stable_end(source))
        ends: dict[int, int] = {}
        copies = 0
        for fan_out in list(self._fan_outs.get(source, ())):
            if fan_out.cursor < end:
                copies += self._advance(fan_out, end, time_ms, ends)
        self._merge(source)
        self._cut_hops(source)
        return Forwarded(copies, ends)

    def _advance(self, fan_out: FanOut, end: int, time_ms: int, ends: dict[int, int]) -> int:
        """Advance a fan-out. Returns how many copies that made."""
        streams, dests = self._streams, fan_out.dests
        parts = self._parts(fan_out.source, fan_out.cursor, end)
        size = self._size_of(fan_out, end)
        pieces: list[tuple[int, int, int]] = []
        for origin, first, last, _ in parts:
            if origin == GAP:
                pieces.append((GAP, 0, last - first))
            else:
                pieces += self.aliases.resolve(fan_out.source, first, last)
        copies = sum(last - first for origin, first, last, _ in parts if origin != GAP)
        fan_out.cursor = end
        if not pieces:
            return 0
        bases = streams.end[dests]
        self.aliases.extend(fan_out, bases, pieces, time_ms)
        streams.append_alias(dests, sum(piece[2] for piece in pieces), copies, size, time_ms)
        self._fill_in(fan_out, bases, parts)
        for dest, reached in zip(dests.tolist(), streams.end[dests].tolist(), strict=True):
            ends[dest] = reached
        return copies * len(dests)

    def _parts(self, source: int, cursor: int, end: int) -> list[tuple[int, int, int, int]]:
        """The pieces of [cursor, end) to forward, in order: (source, first, last, hop), or (GAP, 0, count, 0)."""
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

    def _size_of(self, fan_out: FanOut, end: int) -> int:
        """Bytes of the live records from the fan-out's cursor to `end`: exact once all is forwarded."""
        streams, source = self._streams, fan_out.source
        start, last = streams.start(source), int(streams.end[source])
        if fan_out.cursor <= start:
            fan_out.below = 0
        pending = max(0, int(streams.bytes[source]) - fan_out.below)
        holes, at = streams.holes(source), max(fan_out.cursor, start)
        share = pending
        if end < last:
            live = last - at - holes.covered(at, last)
            taken = max(0, end - at - holes.covered(at, end)) if end > at else 0
            share = pending * taken // live if live else 0
        fan_out.below += share
        return share

    def _fill_in(
        self,
        fan_out: FanOut,
        bases: Int64s,
        parts: list[tuple[int, int, int, int]],
    ) -> None:
        """Make the gaps in the destination streams, and store the hop counts of what may be forwarded further."""
        onward = [dest in self._of_source for dest in fan_out.dests.tolist()]
        gaps = any(origin == GAP for origin, _, _, _ in parts)
        if not gaps and not any(onward):
            return
        for dest, base, goes_on in zip(fan_out.dests.tolist(), bases.tolist(), onward, strict=True):
            at = base
            for origin, first, last, hop in parts:
                if origin == GAP:
                    self._streams.make_gap(dest, at, at + last - first)
                elif goes_on:
                    self.hops.note(dest, at, at + last - first, hop + 1)
                at += last - first

    def _merge(self, source: int) -> None:
        """Merge the fan-outs of router partitions that have caught up."""
        fan_outs = self._fan_outs.get(source, [])
        for fan_out in fan_outs[1:]:
            first = fan_outs[0]
            if fan_out.cursor != first.cursor:
                continue
            for number, dest in zip(fan_out.legs.tolist(), fan_out.dests.tolist(), strict=True):
                if not first.reaches(dest):
                    self.part(self._legs[number])
                    self._join(self._legs[number], first)

    def _cut_hops(self, source: int) -> None:
        if source in self.hops:
            self.hops.cut(source, min(leg.cursor for leg in self._of_source[source]))

    # Copying

    def stands_at(self, number: int, start: int, end: int) -> bool:
        """Whether a router partition can move from `start` to `end`."""
        return isinstance(self._movable(number, start, end), RouterPartition)

    def note(
        self, number: int, start: int, end: int, copies: int, before: object
    ) -> Forwarded | MainstemError:
        """Move a router partition past the records whose copies are the last slice of the append run right `before`."""
        if not isinstance(before, AppendOutcome) or not len(before.code):
            return InvalidInput("copies must be recorded in the entry that appends them")
        leg = self._movable(number, start, end)
        if isinstance(leg, MainstemError):
            return leg
        if before.code[-1] == AppendCode.FULL:
            return TopicFull("the router's destination topic is full and rejects records")
        if before.code[-1] != AppendCode.OK:
            return Rejected("the router's destination topic did not accept the records")
        base = int(before.base[-1])
        self._note_hop(leg, start, end, base, copies)
        return self._move(leg, end, copies, {leg.dest: base + copies}, (start, base, copies))

    def pass_over(
        self, number: int, start: int, end: int, lost: int, copies: int, base: int
    ) -> Forwarded | MainstemError:
        leg = self._movable(number, start, end)
        if isinstance(leg, MainstemError):
            return leg
        if not 0 <= lost <= limits.OFFSET_MAX or copies < 0:
            return InvalidInput(f"invalid numbers of lost records ({lost}) and copies ({copies})")
        if copies and base >= 0:
            self._note_hop(leg, start, end, base, copies)
        ends: dict[int, int] = {}
        if lost and not self._streams.ephemeral(leg.dest):
            gap = int(self._streams.end[leg.dest])
            self._streams.make_gap(leg.dest, gap, gap + lost)
            ends[leg.dest] = gap + lost
        return self._move(leg, end, copies, ends, None if lost else leg.noted)

    def lost(self, stream: int, start: int, end: int) -> None:
        """Records are damaged. The last copies of a router partition are repeated: a crash may leave the entry that
        records them whole and damage their bytes, before any client learned that they are durable."""
        for leg in self.to_stream(stream):
            if leg.noted is not None and start <= leg.noted[1] and leg.noted[1] + leg.noted[2] <= end:
                self._move(leg, leg.noted[0], -leg.noted[2], {}, None)

    def _note_hop(self, leg: RouterPartition, start: int, end: int, base: int, copies: int) -> None:
        """Store the hop count of copies that may be copied further. All copies of one command have the same."""
        if leg.dest in self._of_source:
            hop = next(self.hops.pieces(leg.source, start, end))[2]
            self.hops.note(leg.dest, base, base + copies, hop + 1)

    def _movable(self, number: int, start: int, end: int) -> RouterPartition | MainstemError:
        leg = self._legs.get(number)
        if leg is None:
            return RouterNotFound(str(number))
        if leg.cursor != start or not start < end <= limits.OFFSET_MAX:
            return Rejected(f"the router's cursor is {leg.cursor}: it cannot move from {start} to {end}")
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
        leg.own_cursor, leg.noted = end, noted
        leg.own_copies += copies
        self._legs.put(leg.number, leg)
        self._cut_hops(leg.source)
        return Forwarded(copies, ends)

    # State as a whole

    def digest(self) -> int:
        fan_outs = sum(
            hash_fields(
                "fan_out",
                fan_out.number,
                fan_out.source,
                fan_out.cursor,
                fan_out.below,
                fan_out.end,
                fan_out.copies,
            )
            for fan_outs in self._fan_outs.values()
            for fan_out in fan_outs
        )
        return (self._legs.digest + fan_outs + self.hops.digest + self.aliases.digest) & MASK


def lost_below_start(streams: Streams, source: int, cursor: int, end: int) -> int:
    """How many offsets of a destination represent records that its source deleted in [cursor, end)."""
    reached = min(end, max(cursor, int(max(streams.evict_floor[source], streams.expiry_floor[source]))))
    passed = [loss for loss in streams.passed.above(source, reached) if loss[0] < end]
    return (
        reached - cursor + sum(lost_records(first, min(last, end), reason) for first, last, reason in passed)
    )


def lost_records(start: int, end: int, reason: str) -> int:
    """How many offsets of a destination represent a loss of its source: one per record. Where a stream jumped to its
    ceiling, most offsets never held a record and their number is unknown: that counts as one."""
    return 1 if reason in JUMPED else end - start

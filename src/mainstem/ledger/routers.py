"""Routers: rules that copy the records of one topic to another."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import msgspec

from mainstem.errors import (
    InvalidInput,
    MainstemError,
    RouterCycle,
    TopicIncompatible,
    TopicNotFound,
)
from mainstem.ledger.aliases import Aliases, AliasesState
from mainstem.ledger.digest import MASK
from mainstem.ledger.generations import Generations
from mainstem.ledger.keyed import Keyed
from mainstem.ledger.router import Forwarded, Guarantee, HopState, Router, RouterPartition, RouterState
from mainstem.ledger.router_partitions import RouterPartitions
from mainstem.ledger.section import Command, Moment, Section, admits_append, applies, reacts
from mainstem.ledger.streams import RecordsDamaged, Streams
from mainstem.ledger.topics import PartitionsAdded, TopicDeletedEvent, Topics


class PutRouter(Command, frozen=True, tag=80):
    """Copy the records of one topic to another, from now on; or change a router."""

    name: str
    source: bytes  # topic ids
    dest: bytes
    preserve_node: bool = True
    preserve_tag: bool = True
    match: tuple[bytes, bool] | None = None  # (tag, whether it is a prefix)
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"
    starts: tuple[int, ...] = ()  # ends by partition of an ephemeral source, which the ledger does not know


class DeleteRouter(Command, frozen=True, tag=81):
    name: str


class Forward(Command, frozen=True, tag=82):
    """Advance every router that copies a stream's records unchanged up to `end`.

    The ledger knows which routers these are, so the command has the same size for one router and for a thousand."""

    stream: int
    end: int  # high watermark of the source; nothing above it is copied
    time_ms: int  # of the copies


class NoteForwarded(Command, frozen=True, tag=83):
    """The slice right before this command holds copies of records in [start, end) for this router partition."""

    leg: int
    start: int
    end: int
    copies: int
    # Reject the whole append run before this command unless the cursor is `start`: another broker may have made these
    # copies.
    once: bool = False


class PassOver(Command, frozen=True, tag=84):
    """A router partition has nothing (more) to append for [start, end).

    `lost` records were removed before they could be copied: as many offsets of the destination stay empty."""

    leg: int
    start: int
    end: int
    lost: int = 0
    copies: int = 0  # already appended to an ephemeral destination …
    base: int = -1  # … from this offset on


@dataclass(frozen=True, slots=True)
class RouterPut:
    name: str
    created: bool


@dataclass(frozen=True, slots=True)
class RouterDeleted:
    existed: bool


class RoutersState(msgspec.Struct, frozen=True, array_like=True):
    next_leg: int
    routers: list[RouterState]
    hops: list[HopState]
    aliases: AliasesState


class Routers(Section[RoutersState]):
    """Commands return a result, or the error that rejects them."""

    requires = (Streams, Topics, Generations)

    def __init__(self, streams: Streams, topics: Topics, generations: Generations) -> None:
        self._streams = streams
        self._topics = topics
        self.legs = RouterPartitions(streams, generations)
        self._by_name: Keyed[str, Router] = Keyed(attrgetter("digest"))
        self._next_leg = 1

    # Reads

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Router | None:
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """By name bytes."""
        return sorted(self._by_name.keys(), key=str.encode)

    def of_topic(self, topic_id: bytes) -> list[Router]:
        """The routers from or to a topic."""
        return [router for router in self._by_name.unordered() if topic_id in (router.source, router.dest)]

    def refusal(
        self, name: str, source: bytes | None, dest: bytes | None, *, allow_cycle: bool
    ) -> TopicIncompatible | RouterCycle | None:
        """Why such a router cannot exist, or None. An id of None means a topic that does not exist yet."""
        for other in self._by_name.unordered():
            if other.name != name and other.dest == dest and other.source != source:
                topic = self._name(other.dest)
                return TopicIncompatible(
                    f"router {other.name!r} copies to topic {topic!r} from another source",
                    topic=topic,
                    reason="router_dest_fan_in",
                )
        existing = self._by_name.get(name)
        if existing is not None and (existing.source, existing.dest) != (source, dest):
            return TopicIncompatible(
                f"router {name!r} copies from {self._name(existing.source)!r} to {self._name(existing.dest)!r}: "
                "delete it first",
                topic=self._name(existing.dest),
                reason="router_repoint_forbidden",
                router=name,
                existing_source=self._name(existing.source),
                existing_dest=self._name(existing.dest),
            )
        if allow_cycle or (existing is not None and not existing.allow_cycle):
            return None
        path = self._path(dest, source) if source is not None and dest is not None else None
        return RouterCycle([self._name(step) for step in (path[-1], *path)]) if path else None

    def _path(self, start: bytes, goal: bytes) -> list[bytes] | None:
        """Topics from `start` to `goal`, each copied from the one before it: a shortest path."""
        onward: dict[bytes, list[bytes]] = {}
        if not any(router.dest == goal for router in self._by_name.unordered()):
            return None
        for router in self._by_name:
            onward.setdefault(router.source, []).append(router.dest)
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

    # Commands

    @applies(PutRouter)
    def put(self, command: PutRouter, now: Moment) -> RouterPut | MainstemError:
        source, dest = self._topics.by_id(command.source), self._topics.by_id(command.dest)
        if source is None or dest is None:
            return TopicNotFound((command.source if source is None else command.dest).hex())
        if source is dest:
            return InvalidInput("a router needs two different topics")
        refusal = self.refusal(command.name, command.source, command.dest, allow_cycle=command.allow_cycle)
        if refusal is not None:
            return refusal
        router = self._by_name.get(command.name)
        created = router is None
        if router is None:
            router = Router(command.name, command.source, command.dest)
            for partition, stream in enumerate(source.streams):
                cursor = int(self._streams.end[stream])
                if self._streams.ephemeral(stream) and partition < len(command.starts):
                    cursor = command.starts[partition]
                self._add_leg(router, stream, dest.streams[partition % len(dest.streams)], cursor)
        router.preserve_node, router.preserve_tag = command.preserve_node, command.preserve_tag
        router.match, router.guarantee = command.match, command.guarantee
        router.allow_cycle = command.allow_cycle
        self._by_name.put(router.name, router)
        for leg in router.legs:
            if not router.verbatim:
                self.legs.part(leg)
            elif leg.fan_out is None:
                self.legs.regroup(leg.source)  # now, while the bytes below its cursor are known exactly
        return RouterPut(command.name, created)

    def _add_leg(self, router: Router, source: int, dest: int, cursor: int) -> None:
        leg = RouterPartition(self._next_leg, router, source, dest, cursor)
        self._next_leg += 1
        router.legs.append(leg)
        self.legs.add(leg)

    @reacts(PartitionsAdded)
    def on_partitions_added(self, event: PartitionsAdded, now: Moment) -> None:
        """New partitions are copied from the first record on."""
        topic = event.topic
        for router in self._by_name.unordered():
            dest = self._topics.by_id(router.dest)
            if router.source == topic.topic_id and dest is not None:
                for partition in range(len(router.legs), len(topic.streams)):
                    dest_stream = dest.streams[partition % len(dest.streams)]
                    self._add_leg(router, topic.streams[partition], dest_stream, 0)

    @applies(DeleteRouter)
    def delete(self, command: DeleteRouter, now: Moment) -> RouterDeleted:
        router = self._by_name.get(command.name)
        if router is not None:
            self._remove(router)
        return RouterDeleted(router is not None)

    @applies(Forward)
    def forward(self, command: Forward, now: Moment) -> Forwarded | MainstemError:
        return self.legs.forward(command.stream, command.end, command.time_ms)

    @admits_append(NoteForwarded)
    def admits(self, command: NoteForwarded) -> bool:
        """Whether the copies that the command notes may be appended."""
        return not command.once or self.legs.stands_at(command.leg, command.start, command.end)

    @applies(NoteForwarded)
    def note(self, command: NoteForwarded, now: Moment) -> Forwarded | MainstemError:
        return self.legs.note(command.leg, command.start, command.end, command.copies, now.before)

    @applies(PassOver)
    def pass_over(self, command: PassOver, now: Moment) -> Forwarded | MainstemError:
        return self.legs.pass_over(
            command.leg, command.start, command.end, command.lost, command.copies, command.base
        )

    @reacts(RecordsDamaged)
    def on_records_damaged(self, event: RecordsDamaged, now: Moment) -> None:
        self.legs.lost(event.stream, event.start, event.end)

    @reacts(TopicDeletedEvent)
    def on_topic_deleted(self, event: TopicDeletedEvent, now: Moment) -> None:
        """The routers of a deleted topic are deleted."""
        topic = event.topic
        for router in self.of_topic(topic.topic_id):
            self._remove(router)
        self.legs.aliases.forget_streams(topic.streams)
        for stream in topic.streams:
            self.legs.hops.forget(stream)

    def _remove(self, router: Router) -> None:
        for leg in router.legs:
            self.legs.remove(leg)
        self._by_name.pop(router.name)

    # State as a whole

    @property
    def digest(self) -> int:
        return (self._by_name.digest + self.legs.digest()) & MASK

    def encode(self) -> RoutersState:
        return RoutersState(
            self._next_leg,
            [self._by_name[name].encode() for name in self.names()],
            self.legs.hops.encode(),
            self.legs.aliases.encode(self._streams.start),
        )

    def load(self, state: RoutersState) -> None:
        self._next_leg = state.next_leg
        self.legs.load(Aliases.decode(state.aliases), state.hops)
        for one in state.routers:
            self._by_name.put(one.name, Router.decode(one, self.legs.aliases.feeds))
        legs = [leg for router in self._by_name.unordered() for leg in router.legs]
        for leg in sorted(legs, key=lambda leg: leg.number):
            self.legs.add(leg)

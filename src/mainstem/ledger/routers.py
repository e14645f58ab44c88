"""Routers: what is written to one topic is copied to another."""

from __future__ import annotations

from typing import Protocol

import msgspec

from mainstem.errors import InvalidInput, MainstemError, RouterCycle, TopicIncompatible, TopicNotFound
from mainstem.ledger.aliases import Aliases, AliasesState
from mainstem.ledger.digest import MASK
from mainstem.ledger.hop_counts import HopCounts, HopState
from mainstem.ledger.results import RouterDeleted, RouterPut
from mainstem.ledger.router import Router, RouterPartition, RouterState
from mainstem.ledger.router_commands import DeleteRouter, PutRouter
from mainstem.ledger.router_partitions import RouterPartitions
from mainstem.ledger.streams import Streams
from mainstem.ledger.topics import Topic


class KnownTopics(Protocol):
    def by_id(self, topic_id: bytes) -> Topic | None: ...


class RoutersState(msgspec.Struct, frozen=True, array_like=True):
    next_leg: int = 1
    routers: list[RouterState] = []
    hops: list[HopState] = []
    aliases: AliasesState = AliasesState()


class Routers:
    """Commands return what they did, or the error that refuses them."""

    def __init__(self, streams: Streams, topics: KnownTopics, legs: RouterPartitions | None = None) -> None:
        self._streams = streams
        self._topics = topics
        self.legs = legs or RouterPartitions(streams, Aliases(), HopCounts())
        self._by_name: dict[str, Router] = {}
        self._next_leg = 1
        self._digest = 0

    # Reads

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Router | None:
        return self._by_name.get(name)

    def names(self) -> list[str]:
        """By name bytes."""
        return sorted(self._by_name, key=str.encode)

    def of_topic(self, topic_id: bytes) -> list[Router]:
        """The routers from or to a topic."""
        return [router for router in self._by_name.values() if topic_id in (router.source, router.dest)]

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

    # Commands

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
                self.legs.part(leg)
            elif leg.feed is None:
                self.legs.regroup(leg.source)  # at once, while what is below its cursor is all there is
        return RouterPut(command.name, created)

    def _add_leg(self, router: Router, source: int, dest: int, cursor: int) -> None:
        leg = RouterPartition(self._next_leg, router, source, dest, cursor)
        self._next_leg += 1
        router.legs.append(leg)
        self.legs.add(leg)

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
        self.legs.aliases.forget_streams(topic.streams)
        for stream in topic.streams:
            self.legs.hops.forget(stream)

    def _remove(self, router: Router) -> None:
        for leg in router.legs:
            self.legs.remove(leg)
        self._digest = (self._digest - router.digest) & MASK
        del self._by_name[router.name]

    # State as a whole

    def digest(self) -> int:
        return (self._digest + self.legs.digest()) & MASK

    def encode(self) -> RoutersState:
        return RoutersState(
            self._next_leg,
            [self._by_name[name].encode() for name in self.names()],
            self.legs.hops.encode(),
            self.legs.aliases.encode(self._streams.start),
        )

    @classmethod
    def decode(cls, state: RoutersState, streams: Streams, topics: KnownTopics) -> Routers:
        aliases = Aliases.decode(state.aliases)
        routers = cls(streams, topics, RouterPartitions(streams, aliases, HopCounts(state.hops)))
        routers._next_leg = state.next_leg
        for one in state.routers:
            router = routers._by_name[one.name] = Router.decode(one, aliases.feeds)
            routers._digest = (routers._digest + router.digest) & MASK
        legs = [leg for router in routers._by_name.values() for leg in router.legs]
        for leg in sorted(legs, key=lambda leg: leg.number):
            routers.legs.add(leg)
        return routers

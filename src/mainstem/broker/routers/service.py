"""Routers: copy the records of one topic to another, outside the write path.

A source is forwarded soon after a write to it. A read of a destination first forwards everything, upstream topics
first, so that the read sees all earlier writes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from mainstem import events, limits
from mainstem.broker.cluster.service import Cluster
from mainstem.broker.namespaces import split, split_id
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.routers.copying import RouterCopier
from mainstem.broker.routers.tag_matching import Match
from mainstem.broker.streams import ClientActivity, StreamService
from mainstem.broker.topics.floors import expire
from mainstem.broker.topics.names import valid_name, valid_router_name
from mainstem.broker.topics.service import TopicService
from mainstem.errors import (
    InvalidInput,
    InvalidName,
    MainstemError,
    NotFound,
    RouterNotFound,
    Throttled,
    TopicNotFound,
)
from mainstem.ledger.router import Guarantee, Router
from mainstem.ledger.routers import DeleteRouter, Forward, PutRouter, RouterDeleted, RouterPut
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock

ROUTER_PAUSE_S_MIN = 0.002  # before a round, so that it forwards records that arrive together …
ROUTER_PAUSE_S_PER_LEG = 50e-6  # … and longer with more work, so that writers get most of the time
ROUTER_RETRY_S = 1.0  # before a full destination is tried again

_log = events.named("routers")


@dataclass(frozen=True, slots=True)
class RouterSettings:
    source: str
    dest: str
    preserve_node: bool = True
    preserve_tag: bool = True
    create_dest: bool = True
    match: Match | None = None
    allow_cycle: bool = False
    guarantee: Guarantee = "at_least_once"


@dataclass(frozen=True, slots=True)
class RouterInfo:
    name: str
    source: str
    dest: str
    preserve_node: bool
    preserve_tag: bool
    match: Match | None
    allow_cycle: bool
    guarantee: Guarantee
    forwarded_total: int


class StreamForwarder:
    """Forwards one source stream soon after records become readable in it.

    Writes that follow each other closely are forwarded together. A round begins at once if no other records would join
    it: only one client sends requests, and sent nothing during the round before."""

    __slots__ = ("_activity", "_again", "_due", "_forward", "_running", "_tasks", "_timer", "legs", "stream")

    def __init__(
        self,
        stream: int,
        activity: ClientActivity,
        forward: Callable[[int], Awaitable[None]],
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self.stream = stream
        self.legs = 0
        self._activity = activity
        self._forward = forward
        self._tasks = tasks  # rounds under way, of all forwarders
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        self._again = False  # more records became readable during the round

    def changed(self) -> None:
        """Runs in the middle of a commit."""
        if self._running:
            self._again = True
        elif self._timer is None:
            lone = self._activity.lone(asyncio.get_running_loop().time())
            self._schedule(0.0 if lone else ROUTER_PAUSE_S_MIN)

    def _schedule(self, pause_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(self._due, loop.time() + pause_s), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._running = True
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self.legs * ROUTER_PAUSE_S_PER_LEG
        task = loop.create_task(self._round())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _round(self) -> None:
        try:
            await self._forward(self.stream)
        finally:
            self._running = False
        if self._again:
            self._again = False
            self._schedule(ROUTER_PAUSE_S_MIN)

    def stop(self) -> None:
        self._again = False
        if self._timer is not None:
            self._timer.cancel()


class RouterService:
    """The `Routing` of a broker."""

    def __init__(
        self,
        log: Log,
        clock: Clock,
        streams: StreamService,
        topics: TopicService,
        cluster: Cluster,
        *,
        routers_max: int,
    ) -> None:
        self._log = log
        self._clock = clock
        self._streams = streams
        self._topics = topics
        self._cluster = cluster
        self._routers_max = routers_max  # 0: unlimited
        self._copying = RouterCopier(log, clock, streams)
        self._locks: dict[int, asyncio.Lock] = {}  # by source stream: one forward at a time
        self._feeders: dict[int, StreamForwarder] | None = None  # None: not started
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        self._retry_task = PeriodicTask("routers", ROUTER_RETRY_S, self._retry)

    def start(self) -> None:
        """Forward in the background from now on."""
        self._feeders = {}
        self._retry_task.start()
        self._watch_sources()
        for feeder in self._feeders.values():
            feeder.changed()

    async def close(self) -> None:
        """Forward from ephemeral sources. The rest is forwarded after the next start."""
        await self._retry_task.stop()
        for feeder in (self._feeders or {}).values():
            feeder.stop()
            self._streams.unwatch((feeder.stream,), feeder)
        self._feeders = None
        if self._log.refusal is None:
            for stream in list(self._sources()):
                if self._log.ledger.streams.ephemeral(stream):
                    await self._forward(stream)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Routers

    async def put(self, name: str, settings: RouterSettings) -> bool:
        """Create or change a router. Returns whether it is new.

        Raises InvalidName, InvalidInput, TopicNotFound, TopicIncompatible, Throttled, RouterCycle."""
        _check_names(name, settings)
        async with self._changing:
            topics, routers = self._streams, self._log.ledger.routers
            source, dest = topics.get(settings.source), topics.get(settings.dest)
            if dest is None and not settings.create_dest:
                raise TopicNotFound(settings.dest)
            ids = (source.topic_id if source else None, dest.topic_id if dest else None)
            refusal = routers.refusal(name, *ids, allow_cycle=True)
            if refusal is not None:
                raise refusal
            bound = self._routers_max
            if bound and routers.get(name) is None and len(routers) >= bound:
                raise Throttled(
                    "max_routers", bound, f"there are {bound} routers, the maximum of this server"
                )
            refusal = routers.refusal(name, *ids, allow_cycle=settings.allow_cycle)
            if refusal is not None:
                raise refusal
            source, dest = await self._topic(settings.source), await self._topic(settings.dest)
            made: RouterPut = await self._propose_put(name, settings, source, dest)
        self._watch_sources()
        return made.created

    async def _propose_put(
        self, name: str, settings: RouterSettings, source: Topic, dest: Topic
    ) -> RouterPut:
        match = settings.match
        ephemeral = source.config.durability == "ephemeral"
        command = PutRouter(
            name,
            source.topic_id,
            dest.topic_id,
            settings.preserve_node,
            settings.preserve_tag,
            None if match is None else (match.text, match.prefix),
            settings.allow_cycle,
            settings.guarantee,
            tuple(self._log.streams.of(stream).bounds(stream)[1] for stream in source.streams)
            if ephemeral
            else (),
        )
        async with self._paused(source):
            made: RouterPut = await self._log.propose(command)
        return made

    async def _topic(self, name: str) -> Topic:
        """The topic, created if it does not exist."""
        return await self._topics.find_or_create(name)

    async def get(self, name: str) -> RouterInfo:
        """Raises RouterNotFound. Forwards first, so that the total includes all earlier writes."""
        info = self.info(name)
        await self.drain(info.dest)
        return self.info(name)

    def info(self, name: str) -> RouterInfo:
        """Raises RouterNotFound."""
        router = self._log.ledger.routers.get(name)
        if router is None:
            raise RouterNotFound(name)
        return self._info(router)

    def all(self) -> list[RouterInfo]:
        """By name bytes."""
        routers = self._log.ledger.routers
        return [self.info(name) for name in routers.names()]

    def _info(self, router: Router) -> RouterInfo:
        return RouterInfo(
            router.name,
            self._streams.topic_of_id(router.source).name,
            self._streams.topic_of_id(router.dest).name,
            router.preserve_node,
            router.preserve_tag,
            None if router.match is None else Match(*router.match),
            router.allow_cycle,
            router.guarantee,
            router.copies,
        )

    async def delete(self, name: str) -> bool:
        """Returns whether the router existed."""
        router = self._log.ledger.routers.get(name)
        source = None if router is None else self._streams.get_by_id(router.source)
        if source is None:
            return False
        async with self._paused(source):
            deleted: RouterDeleted = await self._log.propose(DeleteRouter(name))
        self._watch_sources()
        return deleted.existed

    @contextlib.asynccontextmanager
    async def _paused(self, source: Topic) -> AsyncIterator[None]:
        """No forward of this source runs inside the context."""
        async with contextlib.AsyncExitStack() as held:
            for stream in source.streams:
                await held.enter_async_context(self._lock(stream))
            yield

    # Routing

    async def drain(self, topic: str) -> None:
        """Copy everything that routers have for this topic now, so that the next read sees it.

        "Now" includes writes acknowledged by any broker. Readers do not wait for the broker that copies."""
        found = self._destination_topic(topic)
        if found is not None and self._cluster.shared:
            await self._log.barrier()
            found = self._destination_topic(topic)
        if found is None:
            return
        sources, cyclic = self._upstream(found)
        for _ in range(limits.ROUTER_HOPS_MAX if cyclic else 1):
            for stream in sources:
                await self._forward(stream)
            if not any(map(self._pending, sources)):
                return

    def copies_to(self, topic: str) -> bool:
        """Whether a router copies to the topic, as far as this broker knows."""
        return self._destination_topic(topic) is not None

    def _destination_topic(self, topic: str) -> Topic | None:
        """The topic, if a router copies to it."""
        legs = self._log.ledger.routers.legs
        found = self._streams.get(topic) if len(self._log.ledger.routers) else None
        if found is None or not any(legs.to_stream(stream) for stream in found.streams):
            return None
        return found

    async def forget(self, topic: str) -> list[str]:
        """The sorted names of the topic's routers, which the ledger deletes with the topic."""
        found = self._streams.get(topic)
        if found is None:
            return []
        return sorted(router.name for router in self._log.ledger.routers.of_topic(found.topic_id))

    def _upstream(self, topic: Topic) -> tuple[list[int], bool]:
        """The streams that reach a topic, upstream first; and whether there is a cycle."""
        routers = self._log.ledger.routers
        order: dict[int, None] = {}
        cyclic = False
        path: list[tuple[int, list[int]]] = []

        def feeding(stream: int) -> list[int]:
            return sorted({leg.source for leg in routers.legs.to_stream(stream)})

        for stream in topic.streams:
            path.append((stream, feeding(stream)))
            while path:
                below, sources = path[-1]
                if not sources:
                    path.pop()
                    if path:
                        order.setdefault(below)
                    continue
                source = sources.pop()
                if any(source == on_path for on_path, _ in path):
                    cyclic = True
                    order.setdefault(source)
                elif source not in order:
                    path.append((source, feeding(source)))
        return list(order), cyclic

    # Forwarding

    def _sources(self) -> set[int]:
        return self._log.ledger.routers.legs.sources()

    def _watch_sources(self) -> None:
        """Watch the streams that routers read from."""
        if self._feeders is None:
            return
        routers = self._log.ledger.routers
        sources = self._sources()
        for stream in sources - self._feeders.keys():
            activity = self._streams.client_activity
            feeder = StreamForwarder(stream, activity, self._forward_in_turn, self._tasks)
            self._feeders[stream] = feeder
            self._streams.watch((stream,), feeder)
        for stream in self._feeders.keys() - sources:
            feeder = self._feeders.pop(stream)
            feeder.stop()
            self._streams.unwatch((stream,), feeder)
            self._locks.pop(stream, None)
        for stream, feeder in self._feeders.items():
            feeder.legs = len(routers.legs.from_stream(stream))

    def _turn(self, stream: int) -> bool:
        """Whether this broker copies from the stream in the background."""
        return self._cluster.runs_here(f"copies of {stream}")

    async def _forward_in_turn(self, stream: int) -> None:
        if self._turn(stream):
            await self._forward(stream)

    async def _retry(self) -> None:
        """Forward what is left after a full destination, an error or new partitions."""
        self._watch_sources()
        for stream in filter(self._turn, self._sources()):
            await self._forward(stream)

    def _lock(self, stream: int) -> asyncio.Lock:
        lock = self._locks.get(stream)
        if lock is None:
            lock = self._locks[stream] = asyncio.Lock()
        return lock

    def _pending(self, stream: int) -> bool:
        lowest = self._log.ledger.routers.legs.lowest_cursor(stream)
        if lowest is None:
            return False
        try:
            return lowest < self._log.streams.of(stream).stable_end(stream)
        except NotFound:
            return False

    async def _forward(self, stream: int) -> None:
        """Forward everything that is readable now. Waits for a running one, whose copies may not be readable yet."""
        lock = self._lock(stream)
        if not lock.locked() and not self._pending(stream):
            return
        async with lock:
            if not self._pending(stream) or self._log.refusal is not None:
                return
            try:
                await self._forward_now(stream)
            except NotFound:
                return  # a topic or router was deleted in the meantime
            except MainstemError as error:
                _log.warning("forwarding failed", stream=stream, error=str(error))

    async def _forward_now(self, stream: int) -> None:
        ledger = self._log.ledger
        source = ledger.topics.of_stream(stream)
        if source is None:
            return
        if source.config.ttl_ms:
            await expire(
                self._log, source, stream, self._clock.now_ms()
            )  # expired records must not be copied
        end = self._log.streams.of(stream).stable_end(stream)
        if ledger.routers.legs.forwards(stream):
            await self._log.propose(Forward(stream, end, self._clock.now_ms()))
        for leg in ledger.routers.legs.loose(stream):
            await self._copying.advance(leg)


def _check_names(name: str, settings: RouterSettings) -> None:
    if not valid_router_name(split_id(name)[1]):
        raise InvalidName(
            f"invalid router name {name[:64]!r}: use 1 to {limits.NAME_CHARS_MAX} letters, digits and . _ : > -, "
            "starting with a letter or digit"
        )
    for topic in (settings.source, settings.dest):
        if not valid_name(split(topic)[1]):
            raise InvalidName(f"invalid topic name {topic[:64]!r}")
    if settings.source == settings.dest:
        raise InvalidInput("a router needs two different topics: source and dest are the same")

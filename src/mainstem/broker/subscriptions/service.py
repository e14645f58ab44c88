"""The subscriptions of all partitions: who consumes, from where on, and how much is left."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from mainstem.broker.streams import StreamService, stream_of
from mainstem.broker.subscriptions.acks import Acks
from mainstem.broker.subscriptions.compacted import CompactedViews
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import MessageEntryReader
from mainstem.broker.subscriptions.subscription import Subscription, SubscriptionType
from mainstem.errors import LimitReached, SubscriptionBusy, SubscriptionNotFound
from mainstem.ledger.namespaces import qualify_id, split_id
from mainstem.ledger.subscriptions import (
    AckedRecords,
    AckRecords,
    AddSubscription,
    MoveSubscription,
    Properties,
    PutSubscriptionProperties,
    RemoveSubscription,
    ServeSubscription,
    StoredSubscription,
)
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock

__all__ = ["SubscriptionService", "SubscriptionSummary", "SubscriptionType"]


RETURN_S_MAX = 60.0  # of the consumers of a subscription that is not durable, after it was moved


class SubscriptionSummary(NamedTuple):
    name: str
    type: SubscriptionType | None  # None: nobody has consumed on this broker
    durable: bool
    mark: int
    backlog: int
    unacked: int  # entries that consumers hold
    consumers: tuple[SubscriptionConsumer, ...]
    properties: Properties
    ranges: int  # of acknowledged records above the mark
    active: SubscriptionConsumer | None  # the one that gets records, if only one does
    delayed: int  # entries that are not due yet, of those that were read


class SubscriptionService:
    def __init__(self, log: Log, clock: Clock, streams: StreamService) -> None:
        self._log = log
        self._shared = log.shared
        self._clock = clock
        self._streams = streams
        self._stored = log.ledger.subscriptions
        self._running: dict[tuple[int, str], Subscription] = {}
        self.compacted = CompactedViews(log, streams)

    # Consuming

    async def open(
        self,
        topic: Topic,
        partition: int,
        name: str,
        *,
        start: int,
        durable: bool = True,
        properties: Properties = (),
        compacted: bool = False,
    ) -> Subscription:
        """A subscription to join. A new one starts at `start`. `compacted`: it reads the compacted view.

        A partition of -1 is the only one of its topic. A topic in memory only has no durable subscriptions."""
        stream = stream_of(topic, max(partition, 0))
        durable = durable and topic.config.durability != "ephemeral"
        running = self._running.get((stream, name))
        stored = self._stored.get(stream, name)
        if running is not None and running.durable == durable and (running.is_of(stored) or not durable):
            await self._serve(running)
            await self._choose_reader(running, compacted)
            return running
        if running is not None:
            if running.durable == durable:  # it was deleted, and created again
                running.disconnect_all()
            if running.consumers:
                raise SubscriptionBusy(f"subscription {name!r} has consumers that are not durable")
            await self._end(running)
        reader = MessageEntryReader(self._streams, stream)
        volatile: AckedRecords | None = None
        if durable:
            if stored is None:
                stored = await self._create(stream, name, start, properties)
            acked = stored.acked
        else:
            stored = None
            acked = volatile = AckedRecords(start)
        found = self._running.get((stream, name))
        if found is not None:  # another consumer was faster
            await self._serve(found)
            return found
        acks = Acks(self._log, stream, name, volatile)
        opened = Subscription(
            name,
            stream,
            partition,
            acked,
            acks,
            reader,
            self._clock.now_ms,
            stored,
            ended=partial(self._ended, stream),
        )
        self._running[stream, name] = opened
        self._streams.watch([stream], opened)
        await self._serve(opened)
        await self._choose_reader(opened, compacted)
        return opened

    async def _serve(self, subscription: Subscription) -> None:
        """Take the consumers over from whichever broker served them, and wait until a move is done. Raises
        SubscriptionMoved, SubscriptionNotFound."""
        async with subscription.changing:
            stored = subscription.stored
            if stored is None or not subscription.superseded:
                return
            subscription.disconnect_all()
            term = stored.term
            if self._shared:
                term = await self._log.propose(ServeSubscription(stored.stream, stored.name, term))
            subscription.serve(term)

    async def _choose_reader(self, subscription: Subscription, compacted: bool) -> None:
        """What the first consumer asks for holds until the last one is gone."""
        if subscription.consumers:
            return
        stream = subscription.stream
        if compacted:
            subscription.reader = await self.compacted.reader(stream, subscription.pass_over)
        else:
            subscription.reader = MessageEntryReader(self._streams, stream)

    def _ended(self, stream: int) -> bool:
        topic = self._streams.of_stream(stream)
        return topic is not None and topic.config.terminated

    def wake(self, streams: tuple[int, ...]) -> None:
        """The topic of these streams is terminated: notify the consumers that have read everything."""
        for subscription in self._running.values():
            if subscription.stream in streams:
                subscription.changed()

    async def _create(self, stream: int, name: str, mark: int, properties: Properties) -> StoredSubscription:
        created: StoredSubscription = await self._log.propose(AddSubscription(stream, name, mark, properties))
        return created

    def check_limits(self, topic: Topic, stream: int, name: str) -> None:
        """Raises SubscriptionBusy, LimitReached if the topic allows no further consumer of a subscription."""
        config = topic.config
        if config.consumers_max:
            consumers = sum(len(one.consumers) for one in self._running.values() if one.stream == stream)
            if consumers >= config.consumers_max:
                raise SubscriptionBusy(f"topic {topic.name!r} has {consumers} consumers: that is its limit")
        running = self._running.get((stream, name))
        here = 0 if running is None else len(running.consumers)
        if 0 < config.subscription_consumers_max <= here:
            raise SubscriptionBusy(f"subscription {name!r} has {here} consumers: that is its limit")
        self._check_count(topic, stream, name)

    def _check_count(self, topic: Topic, stream: int, name: str) -> None:
        most = topic.config.subscriptions_max
        if most and not self.exists(stream, name) and len(self._stored.of_stream(stream)) >= most:
            raise LimitReached(f"topic {topic.name!r} has {most} subscriptions: that is its limit")

    def limit(self, streams: tuple[int, ...] | None = None) -> None:
        """Make the limits of topics hold for the consumers that are here: of these streams, or of all."""
        for subscription in self._running.values():
            if subscription.consumers and (streams is None or subscription.stream in streams):
                topic = self._streams.of_stream(subscription.stream)
                if topic is not None:
                    subscription.limit(topic.config)

    async def leave(self, subscription: Subscription, consumer: SubscriptionConsumer | None) -> None:
        """A consumer goes. A subscription that is not durable ends with its last consumer. None: it never came."""
        if consumer is not None:
            subscription.leave(consumer)
        if not subscription.durable and not subscription.consumers and not subscription.sought:
            await self._end(subscription)

    async def _end(self, subscription: Subscription) -> None:
        if self._running.get((subscription.stream, subscription.name)) is subscription:
            del self._running[subscription.stream, subscription.name]
            self._streams.unwatch([subscription.stream], subscription)
        await subscription.close()

    async def close(self) -> None:
        await self.compacted.close()
        for subscription in list(self._running.values()):
            await self._end(subscription)

    # Changes

    async def create(
        self, topic: Topic, partition: int, name: str, start: int, properties: Properties = ()
    ) -> bool:
        """Returns False if it existed. Raises InvalidName, LimitReached."""
        stream = stream_of(topic, partition)
        if self._stored.get(stream, name) is not None:
            return False
        self._check_count(topic, stream, name)
        await self._create(stream, name, start, properties)
        return True

    async def move(self, topic: Topic, partition: int, name: str, mark: int) -> None:
        """Deliver the records from `mark` on, again if need be. Consumers are disconnected, and may return.

        Raises SubscriptionNotFound."""
        stream = stream_of(topic, partition)
        running = self._running.get((stream, name))
        if running is None:
            await self._log.propose(MoveSubscription(stream, name, mark, 0))
            return
        async with (
            running.changing
        ):  # a consumer that is back before it is done would get records from before the move
            self._expect_back(running)
            await running.settled()
            if running.durable:
                term = 0 if running.superseded else running.term
                await self._log.propose(MoveSubscription(stream, name, mark, term))
            else:
                running.acked.move(mark)
            running.rewind()

    def _expect_back(self, subscription: Subscription) -> None:
        """Disconnect the consumers, which may return: one that is not durable stays for a while."""
        subscription.sought = True
        subscription.disconnect_all()
        if not subscription.durable:
            asyncio.get_running_loop().call_later(RETURN_S_MAX, self._end_unless_used, subscription)

    def _end_unless_used(self, subscription: Subscription) -> None:
        place = subscription.stream, subscription.name
        if not subscription.consumers and self._running.get(place) is subscription:
            del self._running[place]
            self._streams.unwatch([subscription.stream], subscription)

    async def skip(self, topic: Topic, partition: int, name: str, mark: int) -> None:
        """Acknowledge everything below `mark`. Raises SubscriptionNotFound."""
        stream = stream_of(topic, partition)
        await self.skip_stream(stream, name, min(mark, self._streams.bounds(stream)[1]))

    async def skip_stream(self, stream: int, name: str, mark: int) -> None:
        """The same, where `mark` is at most the end of the stream."""
        running = self._running.get((stream, name))
        if running is not None and not running.superseded:
            await running.skip_to(mark)
        else:
            await self._log.propose(AckRecords(stream, name, mark))

    def redeliver(self, stream: int, name: str) -> None:
        """Deliver again what consumers hold."""
        running = self._running.get((stream, name))
        if running is not None:
            for consumer in list(running.consumers):
                running.redeliver(consumer, None)

    def after_unacked(self, stream: int, name: str, count: int) -> int:
        """The offset after the next `count` records that a subscription has not acknowledged."""
        end = self._streams.bounds(stream)[1]
        acked = self._acked(stream, name)
        for first, last in acked.unacked(acked.mark, end):
            if last - first >= count:
                return first + count
            count -= last - first
        return end

    def next_unacked(self, stream: int, name: str) -> int:
        """The first offset that a subscription has not acknowledged; the end if there is none."""
        end = self._streams.bounds(stream)[1]
        acked = self._acked(stream, name)
        return next((first for first, _ in acked.unacked(acked.mark, end)), end)

    def has_unacked(self, stream: int, name: str, first: int, end: int) -> bool:
        """Whether a subscription has something to acknowledge in [first, end)."""
        return bool(self._acked(stream, name).unacked(first, end))

    def _acked(self, stream: int, name: str) -> AckedRecords:
        running = self._running.get((stream, name))
        stored = self._stored.get(stream, name)
        if running is None and stored is None:
            raise SubscriptionNotFound(name)
        return stored.acked if stored is not None else running.acked  # type: ignore[union-attr]  # one of them

    async def put_properties(self, topic: Topic, partition: int, name: str, properties: Properties) -> None:
        """Replace the properties. Raises SubscriptionNotFound, InvalidInput."""
        await self._log.propose(PutSubscriptionProperties(stream_of(topic, partition), name, properties))

    def marks(self, stream: int) -> list[tuple[str, int]]:
        """The durable subscriptions of a stream, and below which offset each acknowledged everything."""
        return [(one.name, one.acked.mark) for one in self._stored.of_stream(stream)]

    async def delete(self, topic: Topic, partition: int, name: str, *, force: bool = False) -> None:
        """Raises SubscriptionNotFound, and SubscriptionBusy if it has consumers, unless `force`."""
        stream = stream_of(topic, partition)
        running = self._running.get((stream, name))
        if running is None and self._stored.get(stream, name) is None:
            raise SubscriptionNotFound(name)
        if running is not None:
            if running.consumers and not force:
                raise SubscriptionBusy(f"subscription {name!r} has consumers: close them first")
            running.disconnect_all()
            await running.settled()
            await self._end(running)
        if self._stored.get(stream, name) is not None:
            await self._log.propose(RemoveSubscription(stream, name))

    def disconnect(self, streams: tuple[int, ...]) -> None:
        """Consumers of these streams have to connect again."""
        for subscription in list(self._running.values()):
            if subscription.stream in streams:
                self._expect_back(subscription)

    def forget(self, streams: tuple[int, ...] | list[int]) -> None:
        """The topic of these streams is deleted."""
        for subscription in list(self._running.values()):
            if subscription.stream in streams:
                del self._running[subscription.stream, subscription.name]
                self._streams.unwatch([subscription.stream], subscription)
                subscription.disconnect_all()

    # State

    def running(self, stream: int, name: str) -> Subscription | None:
        return self._running.get((stream, name))

    def streams(self) -> set[int]:
        """Those with consumers at this broker."""
        return {stream for (stream, _), running in self._running.items() if running.consumers}

    def exists(self, stream: int, name: str) -> bool:
        running = self._running.get((stream, name))
        # A durable one that was served here may be deleted: then it is stored no more.
        return self.is_stored(stream, name) or (running is not None and not running.durable)

    def is_stored(self, stream: int, name: str) -> bool:
        """Whether there is a durable subscription of this name."""
        return self._stored.get(stream, name) is not None

    def of_stream(self, stream: int) -> list[SubscriptionSummary]:
        """By name."""
        end = self._streams.bounds(stream)[1]
        found: dict[str, SubscriptionSummary] = {}
        for stored in self._stored.of_stream(stream):
            acked = stored.acked
            backlog = max(0, end - acked.mark - acked.covered(end))
            running = self._running.get((stream, stored.name))
            consumers = () if running is None else tuple(running.consumers)
            found[stored.name] = SubscriptionSummary(
                stored.name,
                None if running is None else running.type,
                True,
                acked.mark,
                backlog,
                0 if running is None else running.unacked,
                consumers,
                stored.properties,
                len(acked),
                None if running is None else running.active,
                0 if running is None else running.delayed,
            )
        for (number, name), running in self._running.items():
            if number == stream and name not in found and (running.consumers or not running.durable):
                found[name] = SubscriptionSummary(
                    name,
                    running.type,
                    running.durable,
                    running.acked.mark,
                    running.backlog(end),
                    running.unacked,
                    tuple(running.consumers),
                    (),
                    len(running.acked),
                    running.active,
                    running.delayed,
                )
        return [found[name] for name in sorted(found)]

    # Subscriptions as consumer groups: the same name in several topics is one group

    def groups(self) -> dict[str, int]:
        """The ids of the durable ones, and how many consumers each has on this broker."""
        found: dict[str, int] = {}
        for stored in self._stored:
            topic = self._streams.of_stream(stored.stream)
            if topic is not None:
                group = qualify_id(topic.namespace, stored.name)
                running = self._running.get((stored.stream, stored.name))
                found[group] = found.get(group, 0) + (0 if running is None else len(running.consumers))
        return found

    def of_group(self, group: str) -> list[tuple[Topic, int, SubscriptionSummary]]:
        """Its subscriptions, by topic and partition."""
        namespace, name = split_id(group)
        found = []
        for stream in self._stored.streams_of(name):
            topic = self._streams.of_stream(stream)
            if topic is not None and topic.namespace == namespace:
                summary = next(one for one in self.of_stream(stream) if one.name == name)
                found.append((topic, topic.streams.index(stream), summary))
        return sorted(found, key=lambda row: (row[0].name, row[1]))

    @property
    def consumers(self) -> int:
        """The consumers of all subscriptions of this broker."""
        return sum(len(running.consumers) for running in self._running.values())

"""Deletes topics and subscriptions that nobody uses, after a time that the topic's settings give.

Only the broker that serves a topic knows how long it has been unused, and counts from its own start: a restart begins
the time again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from mainstem import events
from mainstem.broker.cluster.service import Cluster
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.subscriptions.service import SubscriptionService, SubscriptionSummary
from mainstem.errors import NotFound, SubscriptionBusy, SubscriptionNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock

INACTIVITY_EVERY_S = 10.0

_log = events.named("inactivity")
_Seen = tuple[float, tuple[int, ...]]  # since when it is unused, and what it looked like


class Inactivity:
    def __init__(
        self,
        log: Log,
        clock: Clock,
        subscriptions: SubscriptionService,
        cluster: Cluster,
        delete_topic: Callable[[str], Awaitable[object]],
    ) -> None:
        self._log = log
        self._clock = clock
        self._subscriptions = subscriptions
        self._cluster = cluster
        self._delete_topic = delete_topic
        self._unused: dict[
            tuple[bytes, str], _Seen
        ] = {}  # by topic id and subscription; "": the topic itself
        self.has_producers: Callable[[int], bool] = lambda stream: False
        self.rounds = PeriodicTask("inactivity", INACTIVITY_EVERY_S, self.sweep)

    async def sweep(self) -> int:
        """Delete what has been unused for long enough. Returns the number of deleted topics and subscriptions."""
        seen: dict[tuple[bytes, str], _Seen] = {}
        deleted = 0
        for topic in list(self._log.ledger.topics):
            if _has_limit(topic.config) and self._cluster.coordinates("pulsar", topic.name):
                try:
                    deleted += await self._sweep_topic(topic, seen)
                except NotFound:
                    continue  # deleted meanwhile
        self._unused = seen
        return deleted

    async def _sweep_topic(self, topic: Topic, seen: dict[tuple[bytes, str], _Seen]) -> int:
        found = [self._subscriptions.of_stream(stream) for stream in topic.streams]
        ends = tuple(self._log.streams.of(stream).bounds(stream)[1] for stream in topic.streams)
        expiry_ms, inactive_ms = topic.config.subscription_expiry_ms, topic.config.inactive_ms
        deleted = 0
        if expiry_ms:
            for partition, rows in enumerate(found):
                for row in rows:
                    key = topic.topic_id, f"{partition} {row.name}"
                    if row.consumers or not row.durable or not self._old(key, (row.mark,), expiry_ms, seen):
                        continue
                    deleted += await self._delete_subscription(topic, partition, row.name)
        if (
            inactive_ms
            and not self._used(topic, found)
            and self._old((topic.topic_id, ""), ends, inactive_ms, seen)
        ):
            await self._delete_topic(topic.name)
            _log.info("inactive topic deleted", topic=topic.name)
            deleted += 1
        return deleted

    def _used(self, topic: Topic, found: list[list[SubscriptionSummary]]) -> bool:
        rows = [row for one in found for row in one]
        if any(row.consumers for row in rows) or any(map(self.has_producers, topic.streams)):
            return True
        if topic.config.inactive_mode == "delete_when_no_subscriptions":
            return bool(rows)
        return any(row.backlog for row in rows)

    def _old(
        self,
        key: tuple[bytes, str],
        state: tuple[int, ...],
        limit_ms: int,
        seen: dict[tuple[bytes, str], _Seen],
    ) -> bool:
        """Whether something has been unused and unchanged for that long."""
        now = self._clock.monotonic()
        since, before = self._unused.get(key, (now, state))
        if before != state:
            since = now
        seen[key] = since, state
        return (now - since) * 1000 >= limit_ms

    async def _delete_subscription(self, topic: Topic, partition: int, name: str) -> int:
        try:
            await self._subscriptions.delete(topic, partition, name)
        except (SubscriptionNotFound, SubscriptionBusy):
            return 0  # a client was faster
        _log.info("unused subscription deleted", topic=topic.name, subscription=name)
        return 1


def _has_limit(config: TopicConfig) -> bool:
    return bool(config.subscription_expiry_ms or config.inactive_ms)

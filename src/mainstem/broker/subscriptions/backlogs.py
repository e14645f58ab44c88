"""Backlogs: what subscriptions have left to read, and the limits of topics on it.

| setting                         | above it                                                     |
|---------------------------------|--------------------------------------------------------------|
| `mainstem.subscription.ttl.ms`  | older records count as acknowledged, in every subscription   |
| `mainstem.backlog.bytes`, `.ms` | producers are refused, or the oldest records are acknowledged |

Sizes and ages are those of stored slices, as retention counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mainstem import events
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.subscriptions.service import SubscriptionService
from mainstem.errors import (
    BacklogFull,
    BacklogHeld,
    BrokerFenced,
    NotFound,
    SubscriptionNotFound,
    Unavailable,
    described,
)
from mainstem.ledger.config import BacklogPolicy, TopicConfig
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock

BACKLOGS_EVERY_S = 10.0

_log = events.named("backlogs")


class Backlogs:
    def __init__(
        self, log: Log, clock: Clock, subscriptions: SubscriptionService, refused: dict[int, BacklogFull]
    ) -> None:
        self._log = log
        self._clock = clock
        self._subscriptions = subscriptions
        self._refused = refused  # by stream: why its producers are refused
        self.on_refused: Callable[[int], None] | None = None  # producers of a stream are refused from now on
        self.skipping = PeriodicTask("backlogs", BACKLOGS_EVERY_S, self.skip)  # on one broker of a cluster
        self.refusing = PeriodicTask("backlog quotas", BACKLOGS_EVERY_S, self.refuse)  # on each

    async def skip(self) -> int:
        """Acknowledge what is older than a TTL, or over a quota that evicts. Returns how often."""
        skipped = 0
        for topic, stream in self._limited():
            try:
                floor = await self._skipped_to(topic.config, stream)
                for name, mark in self._subscriptions.marks(stream):
                    if mark < floor:
                        await self._subscriptions.skip_stream(stream, name, floor)
                        skipped += 1
            except (NotFound, SubscriptionNotFound):
                continue  # deleted in the meantime
            except (Unavailable, BrokerFenced):
                raise  # it would fail for every topic
            except Exception as error:  # noqa: BLE001 - one partition's failure must not stop the others
                _log.warning("backlog check failed", topic=topic.name, error=described(error))
        return skipped

    async def refuse(self) -> None:
        """Find the partitions whose producers are refused, and notify consumers whose limits changed."""
        self._subscriptions.limit()
        over: dict[int, BacklogFull] = {}
        for topic, stream in self._limited():
            try:
                reason = await self._reason(topic, stream)
            except NotFound:
                continue
            if reason is not None:
                over[stream] = reason
        fresh = over.keys() - self._refused.keys()
        self._refused.clear()
        self._refused.update(over)
        for stream in fresh:
            _log.warning("producers refused", stream=stream, reason=str(over[stream]))
            if self.on_refused is not None:
                self.on_refused(stream)

    async def check(self, topic: Topic, stream: int) -> None:
        """Raises BacklogFull if producers of a partition are refused now."""
        reason = await self._reason(topic, stream) if _has_limit(topic.config) else None
        if reason is None:
            self._refused.pop(stream, None)
        else:
            self._refused[stream] = reason
            raise reason

    def _limited(self) -> Iterator[tuple[Topic, int]]:
        for topic in list(self._log.ledger.topics):
            if _has_limit(topic.config) and topic.config.durability != "ephemeral":
                for stream in topic.streams:
                    yield topic, stream

    async def _skipped_to(self, config: TopicConfig, stream: int) -> int:
        """Below this offset every subscription has acknowledged everything."""
        floor = 0
        if config.subscription_ttl_ms:
            since = self._clock.now_ms() - config.subscription_ttl_ms
            floor = await self._log.streams.of(stream).offset_at(stream, since)
        for policy, quota in await self._quotas(config, stream):
            if policy == "consumer_backlog_eviction":
                floor = max(floor, quota)
        return floor

    async def _reason(self, topic: Topic, stream: int) -> BacklogFull | None:
        slowest = min((mark for _, mark in self._subscriptions.marks(stream)), default=None)
        if slowest is None:
            return None
        for policy, quota in await self._quotas(topic.config, stream):
            if slowest < quota and policy == "producer_exception":
                return BacklogFull(topic.name)
            if slowest < quota and policy == "producer_request_hold":
                return BacklogHeld(topic.name)
        return None

    async def _quotas(self, config: TopicConfig, stream: int) -> list[tuple[BacklogPolicy, int]]:
        """For each quota the offset that the mark of a subscription must have reached."""
        found: list[tuple[BacklogPolicy, int]] = []
        if config.backlog_bytes:
            floor = await self._log.retention_floor(
                stream, keep_after_ms=None, keep_bytes=config.backlog_bytes
            )
            found.append((config.backlog_bytes_policy, floor))
        if config.backlog_ms:
            since = self._clock.now_ms() - config.backlog_ms
            floor = await self._log.retention_floor(stream, keep_after_ms=since, keep_bytes=None)
            found.append((config.backlog_ms_policy, floor))
        return found


def _has_limit(config: TopicConfig) -> bool:
    return bool(config.subscription_ttl_ms or config.backlog_bytes or config.backlog_ms)

"""Retention: deletes records that are over a topic's time and size limits.

The ledger enforces caps and TTL floors, which must be exact; `retention.ms` and `retention.bytes` apply to whole
slices, as Kafka's do to whole segments. Each trim is a command that names the offset, so repeating it has no
effect.
"""

from __future__ import annotations

from mainstem import events
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.topics.floors import expire_due, expire_untracked, expired_to
from mainstem.errors import BrokerFenced, NotFound, Unavailable, described
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.streams import TrimReason
from mainstem.log.log import Log
from mainstem.ports.clock import Clock

RETENTION_EVERY_S = 30.0
EXPIRIES_EVERY_S = 1.0  # of records with a ttl of their own; reads over HTTP do not wait for it

_events = events.named("retention")


class Retention:
    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self.rounds = PeriodicTask("retention", RETENTION_EVERY_S, self.enforce)
        self.expiries = PeriodicTask("expiries", EXPIRIES_EVERY_S, self.expire_due)

    async def expire_due(self) -> None:
        """Delete records whose own time to live is over."""
        for stream in self._log.ledger.record_times.due_streams(self._log.now_ms()):
            await expire_due(self._log, stream)

    async def enforce(self) -> int:
        """Trim every partition that is over a limit. Returns how many were trimmed."""
        trimmed = 0
        for topic in list(self._log.ledger.topics):
            for stream in topic.streams:
                try:
                    trimmed += await self._enforce_stream(stream, topic.config)
                except NotFound:
                    continue  # deleted in the meantime
                except (Unavailable, BrokerFenced):
                    raise  # it would fail for every topic
                except Exception as error:  # noqa: BLE001 - one partition's failure must not stop the others
                    _events.warning("retention failed", topic=topic.name, error=described(error))
        if trimmed:
            await self._log.collect()
        return trimmed

    async def _enforce_stream(self, stream: int, config: TopicConfig) -> bool:
        now = self._clock.now_ms()
        moved = False
        if config.ttl_ms:
            await expire_untracked(self._log, stream, config, now)
            expired = expired_to(*self._log.streams.of(stream).state(stream), now - config.ttl_ms)
            moved |= await self._trim(stream, expired, "ttl")
        if config.durability == "ephemeral":
            return moved
        if config.retention_ms >= 0 and "delete" in config.cleanup_policy:
            floor = await self._log.retention_floor(
                stream, keep_after_ms=now - config.retention_ms, keep_bytes=None
            )
            moved |= await self._trim(stream, self._without_backlog(stream, floor, config), "ttl")
        if config.retention_bytes >= 0 and "delete" in config.cleanup_policy:
            floor = await self._log.retention_floor(
                stream, keep_after_ms=None, keep_bytes=config.retention_bytes
            )
            moved |= await self._trim(stream, self._without_backlog(stream, floor, config), "cap")
        return moved

    def _without_backlog(self, stream: int, floor: int, config: TopicConfig) -> int:
        """The floor, or what every durable subscription has acknowledged, if that is less and the topic says so."""
        if not config.keep_backlog:
            return floor
        marks = [one.acked.mark for one in self._log.ledger.subscriptions.of_stream(stream)]
        return min([floor, *marks])

    async def _trim(self, stream: int, floor: int, reason: TrimReason) -> bool:
        if floor <= self._log.streams.of(stream).bounds(stream)[0]:
            return False
        await self._log.streams.of(stream).trim(stream, floor, reason)
        return True

"""The current contents of a partition, without expired records."""

from __future__ import annotations

from dataclasses import dataclass

from mainstem.broker.streams import stream_of
from mainstem.broker.topics.floors import expire_due, expire_untracked, expired_records, floors_of
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """Sequence numbers are offsets + 1: 0 is before the first record."""

    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    last_write_ms: int | None


class PartitionSummaries:
    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def settled(self, topic: Topic, partition: int = 0) -> PartitionSummary:
        """Like `state`, after expiring records from before the topic had its ttl, and those with a ttl of their own."""
        stream = stream_of(topic, partition)
        await expire_due(self._log, stream)
        if topic.config.ttl_ms:
            await expire_untracked(self._log, stream, topic.config, self._clock.now_ms())
        return self.state(topic, partition)

    def state(self, topic: Topic, partition: int = 0) -> PartitionSummary:
        """Raises PartitionNotFound, or NotFound if the topic was deleted in the meantime."""
        stream = stream_of(topic, partition)
        floors = floors_of(self._log, stream, topic.config, self._clock.now_ms())
        streams, number = self._log.streams.of(stream).state(stream)
        missing = self._log.missing.count(stream)
        count, size = max(0, int(streams.records[number]) - missing), int(streams.bytes[number])
        if floors.expires_before_ms is not None:
            expired, expired_bytes = expired_records(streams, number, floors.expires_before_ms)
            count, size = max(0, count - expired), size - expired_bytes
        latest = int(streams.max_timestamp[number])
        # Counts records that are written but not synced yet.
        return PartitionSummary(floors.end, floors.start + 1, count, size, latest if latest >= 0 else None)

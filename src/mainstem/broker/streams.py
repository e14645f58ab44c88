"""Partitions by stream number: what doors and features need that read many of them. `read` is the one way out.

A request resolves its partitions to streams once. Only reads that need a file are coroutines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from mainstem import limits
from mainstem.broker.decoding import decode_bounded
from mainstem.errors import NotFound, OffsetOutOfRange, PartitionNotFound, RecordsLost, TopicNotFound
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.read.extents import ReadChunk
from mainstem.log.read.views import View
from mainstem.log.read.visibility import VisibilityWatcher
from mainstem.log.streams.stores import StreamStore
from mainstem.log.write.client_activity import LONE_QUIET_S as LONE_QUIET_S
from mainstem.log.write.client_activity import ClientActivity as ClientActivity
from mainstem.log.write.delivery import LEADER_EPOCH
from mainstem.records.decoding import decode_records
from mainstem.records.header import walk

__all__ = [
    "LEADER_EPOCH",
    "ReadChunk",
    "StreamService",
    "View",
    "VisibilityWatcher",
    "find_stream",
    "stream_of",
]


def find_stream(topic: Topic | None, partition: int) -> int:
    """The stream of a partition; -1 if the topic or the partition does not exist."""
    if topic is None or not 0 <= partition < len(topic.streams):
        return -1
    return topic.streams[partition]


def stream_of(topic: Topic, partition: int) -> int:
    """The stream of a partition. Raises PartitionNotFound."""
    stream = find_stream(topic, partition)
    if stream < 0:
        raise PartitionNotFound(topic.name, partition, len(topic.streams))
    return stream


class StreamService:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._stores = log.streams
        self._columns = log.ledger.streams
        self._topics = log.ledger.topics
        self.client_activity = log.client_activity  # which client sent something last: the doors note it

    def store(self, stream: int) -> StreamStore:
        """Where the records of a stream are."""
        # Plain streams are in the log; a column is read faster than a call.
        return self._stores.durable if self._columns.plain[stream] else self._stores.of(stream)

    def get(self, name: str) -> Topic | None:
        return self._topics.names.get(name) or self._topics.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        return self._topics.ids.get(topic_id)

    def of_stream(self, stream: int) -> Topic | None:
        """The topic of a stream."""
        return self._topics.of_stream(stream)

    def topic(self, name: str) -> Topic:
        """Raises TopicNotFound."""
        topic = self.get(name)
        if topic is None:
            raise TopicNotFound(name)
        return topic

    def topic_of_id(self, topic_id: bytes) -> Topic:
        """Raises TopicNotFound."""
        topic = self.get_by_id(topic_id)
        if topic is None:
            raise TopicNotFound(topic_id.hex())
        return topic

    def of(self, name: str, partition: int) -> int:
        """The stream of a partition. Raises TopicNotFound, PartitionNotFound."""
        return stream_of(self.topic(name), partition)

    def topics(self) -> list[Topic]:
        """Every topic, by name."""
        return list(self._topics)

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    @property
    def partitions(self) -> int:
        """The number of partitions of all topics."""
        return self._log.ledger.topics.partitions

    @property
    def topics_state(self) -> int:
        """A number that changes when a topic is created, changed or deleted."""
        return self._topics.digest

    def start(self, stream: int) -> int:
        """The start offset."""
        # Every answer to a Produce names it.
        return (
            self._columns.start(stream)
            if self._columns.plain_view[stream]
            else self._stores.of(stream).start(stream)
        )

    def bounds(self, stream: int) -> tuple[int, int]:
        """The start offset and the high watermark. Raises NotFound if the topic is deleted."""
        return self.store(stream).bounds(stream)

    def known_end(self, stream: int) -> int:
        """The visible end as far as this broker knows; -1 if it knows no such stream."""
        try:
            return self.bounds(stream)[1]
        except NotFound:
            return -1

    def stable_end(self, stream: int, end: int) -> int:
        """The last stable offset; `end` is the high watermark."""
        return min(end, self.store(stream).stable_end(stream))

    def aborted(self, stream: int, first: int, end: int) -> list[tuple[int, int]]:
        """Aborted transactions that have records in [first, end): (producer, first offset) of each."""
        transactions = self._columns.transactions
        if stream not in transactions.touched:
            return []
        return [(one.producer, one.first) for one in transactions.aborted(stream, first, end)]

    def read_cached(
        self, stream: int, offset: int, max_bytes: int, view: View = View.STORED
    ) -> ReadChunk | None:
        """What `read` returns, if it is in memory; None if it needs a file. Raises like `read`."""
        return self.store(stream).read_cached(stream, offset, min(max_bytes, limits.READ_BYTES_MAX), view)

    async def read(
        self,
        stream: int,
        offset: int,
        max_bytes: int,
        *,
        max_wait_ms: int = 0,
        view: View = View.STORED,
    ) -> ReadChunk:
        """Batches from `offset` on: at least one if there is any. At the end it waits up to `max_wait_ms` for one.

        `View.STORED` includes the markers of transactions, and the records of open and aborted ones. Raises
        OffsetOutOfRange, RecordsLost, NotFound."""
        return await self.store(stream).read(
            stream,
            offset,
            min(max_bytes, limits.READ_BYTES_MAX),
            min(max_wait_ms, limits.READ_WAIT_MS_MAX) / 1000,
            view,
        )

    async def read_undeleted(self, stream: int, offset: int, max_bytes: int) -> ReadChunk:
        """As `read`, but batches come as they were written, deleted records included."""
        return await self.store(stream).stored(stream, offset, max_bytes)

    async def at_time(self, stream: int, time_ms: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with a timestamp of `time_ms` or later."""
        offset = await self.store(stream).offset_at(stream, time_ms)
        while offset < self.bounds(stream)[1]:
            try:
                chunk = await self.read(stream, offset, max_bytes=1)
            except RecordsLost as loss:
                offset = loss.end
                continue
            try:
                late, reached = await decode_bounded(
                    asyncio.to_thread,
                    chunk.batches,
                    offset,
                    chunk.next_offset,
                    partial(_first_late, offset, time_ms),
                )
            except RecordsLost as loss:
                offset = loss.end
                continue
            if late is not None:
                return late
            offset = max(reached, offset + 1)
        return None

    async def batch_time(self, stream: int, offset: int) -> int | None:
        """The latest time in the batch that has an offset; None if it can no longer be read."""
        try:
            chunk = await self.read(stream, offset, max_bytes=1)
        except (OffsetOutOfRange, RecordsLost):
            return None
        headers = (header for slice in chunk.batches for header in walk(slice))
        return next(
            (row.max_timestamp for row in headers if row.base_offset <= offset < row.next_offset), None
        )

    async def of_latest_time(self, stream: int) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the latest timestamp."""
        time_ms = await self.store(stream).latest_time(stream)
        return None if time_ms is None else await self.at_time(stream, time_ms)

    def watch(self, streams: Sequence[int], watcher: VisibilityWatcher) -> None:
        """Notify `watcher` whenever records become readable in one of the streams, until `unwatch`."""
        self._log.visibility.watch(streams, watcher)

    def unwatch(self, streams: Sequence[int], watcher: VisibilityWatcher) -> None:
        self._log.visibility.unwatch(streams, watcher)


def _first_late(
    offset: int, time_ms: int, batches: Sequence[memoryview], decoded_max: int
) -> tuple[int, int] | None:
    for slice in batches:
        for record in decode_records(slice, offset, decoded_max):
            if record.timestamp_ms >= time_ms:
                return record.offset, record.timestamp_ms
    return None

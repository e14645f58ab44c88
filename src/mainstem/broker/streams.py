"""Partitions by stream number: what a door needs that reads and writes many of them in one request.

A request names its partitions once; from then on they are streams, and nothing here is a coroutine but the
reads that need a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mainstem import limits
from mainstem.errors import PartitionNotFound, RecordsLost, TooLarge, TopicNotFound
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.read.chunks import ReadChunk
from mainstem.log.read.views import View
from mainstem.log.read.visibility import VisibilityWatcher
from mainstem.log.write.delivery import LEADER_EPOCH
from mainstem.records.decoding import decode_records

__all__ = ["LEADER_EPOCH", "ReadChunk", "StreamService", "View", "VisibilityWatcher", "stream_of"]


def stream_of(topic: Topic, partition: int) -> int:
    """The stream of a partition. Raises PartitionNotFound."""
    if not 0 <= partition < len(topic.streams):
        raise PartitionNotFound(topic.name, partition, len(topic.streams))
    return topic.streams[partition]


class StreamService:
    def __init__(self, log: Log) -> None:
        self._log = log

    def get(self, name: str) -> Topic | None:
        return self._log.ledger.topics.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        return self._log.ledger.topics.by_id(topic_id)

    def of_stream(self, stream: int) -> Topic | None:
        """Whose partition a stream is."""
        return self._log.ledger.topics.of_stream(stream)

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
        return list(self._log.ledger.topics)

    @property
    def partitions(self) -> int:
        """Of all topics."""
        return self._log.ledger.topics.partitions

    @property
    def topics_state(self) -> int:
        """Equal as long as no topic is made, changed or deleted."""
        return self._log.ledger.topics.digest

    def start(self, stream: int) -> int:
        """The first offset still there."""
        return self._log.streams.of(stream).start(stream)

    def bounds(self, stream: int) -> tuple[int, int]:
        """The first offset still there and the visible end. Raises NotFound once the topic is deleted."""
        return self._log.streams.of(stream).bounds(stream)

    def stable_end(self, stream: int, end: int) -> int:
        """Up to where a reader may go who wants nothing of an open transaction; `end` is the visible end."""
        return min(end, self._log.streams.of(stream).stable_end(stream))

    def aborted(self, stream: int, first: int, end: int) -> list[tuple[int, int]]:
        """Aborted transactions that have records in [first, end): (producer, first offset) of each."""
        found = self._log.ledger.streams.transactions.aborted(stream, first, end)
        return [(one.producer, one.first) for one in found]

    def read_cached(self, stream: int, offset: int, max_bytes: int) -> ReadChunk | None:
        """What `read` returns, if memory has it; None if it takes a file. Raises as `read` does."""
        return self._log.streams.of(stream).read_cached(
            stream, offset, min(max_bytes, limits.READ_BYTES_MAX), View.STORED
        )

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
        return await self._log.streams.of(stream).read(
            stream,
            offset,
            min(max_bytes, limits.READ_BYTES_MAX),
            min(max_wait_ms, limits.READ_WAIT_MS_MAX) / 1000,
            view,
        )

    async def at_time(self, stream: int, time_ms: int) -> tuple[int, int] | None:
        """Offset and time of the first record of `time_ms` or later."""
        offset = await self._log.streams.of(stream).offset_at(stream, time_ms)
        while offset < self.bounds(stream)[1]:
            try:
                chunk = await self.read(stream, offset, max_bytes=1)
            except RecordsLost as loss:
                offset = loss.end
                continue
            for slice in chunk.batches:
                found = await _first_at(slice, offset, time_ms)
                if found is not None:
                    return found
            offset = max(chunk.next_offset, offset + 1)
        return None

    async def of_latest_time(self, stream: int) -> tuple[int, int] | None:
        """Offset and time of the first record that has the latest time of all."""
        time_ms = await self._log.streams.of(stream).latest_time(stream)
        return None if time_ms is None else await self.at_time(stream, time_ms)

    def watch(self, streams: Sequence[int], watcher: VisibilityWatcher) -> None:
        """Tell `watcher` whenever something becomes visible in one of the streams, until `unwatch`."""
        self._log.visibility.watch(streams, watcher)

    def unwatch(self, streams: Sequence[int], watcher: VisibilityWatcher) -> None:
        self._log.visibility.unwatch(streams, watcher)


async def _first_at(slice: memoryview, offset: int, time_ms: int) -> tuple[int, int] | None:
    """Offset and time of the first record of `time_ms` or later."""

    def first(decoded_max: int) -> tuple[int, int] | None:
        records = decode_records(slice, offset, decoded_max)
        return next(((record[0], record[1]) for record in records if record[1] >= time_ms), None)

    try:
        return first(limits.DECODED_INLINE_BYTES_MAX)
    except TooLarge:
        return await asyncio.to_thread(first, limits.BATCH_DECODED_BYTES_MAX)

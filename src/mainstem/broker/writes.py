"""Writes that may create their topic: one batch with one timestamp, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mainstem import limits
from mainstem.broker.append import AppendRequest, Appends, check_size, promise, record_rows, sized
from mainstem.broker.streams import StreamService, stream_of
from mainstem.broker.topics.floors import expire
from mainstem.broker.topics.service import TopicService
from mainstem.errors import InvalidBatch, NotFound, TooLarge, TopicExists, TopicNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.idempotency import slice_fields
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records.building import build_batch, build_lone, build_plain
from mainstem.records.header import SliceFacts, check_slice
from mainstem.records.rewrite import with_append_time

Header = tuple[str, bytes | None]


@dataclass(slots=True)
class NewRecords:
    """Records to append. A record's size is that of its value and of its "meta" header."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Sequence[Header]] | None = None
    sizes: Sequence[int] = field(default_factory=list)


class WriteOutcome(NamedTuple):
    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    timestamp_ms: int
    created: bool  # this write created the topic
    duplicate: bool  # a retry of an earlier write, whose base and count these are
    fsync: bool  # the write waited for an fsync

    @property
    def head_seq(self) -> int:
        """The last sequence number right after the write."""
        return self.base + self.count


class WriteService:
    def __init__(
        self,
        log: Log,
        clock: Clock,
        streams: StreamService,
        topics: TopicService,
        appends: Appends,
    ) -> None:
        self._log = log
        self._clock = clock
        self._streams = streams
        self._topics = topics
        self._appends = appends

    async def write(
        self,
        name: str,
        records: NewRecords | bytearray,
        *,
        partition: int = 0,
        idempotency_key: bytes | None = None,
        create: bool | None = None,
        config: Callable[[], TopicConfig],
    ) -> WriteOutcome:
        """Append records, or one RecordBatch v2. Creates a missing topic with `config`, unless `create` or its
        auto_create forbids it.

        Raises TopicNotFound, InvalidBatch, TooLarge, TopicFull, Throttled."""
        created = False
        topic = self._streams.get(name)
        if topic is None:
            topic, created = await self._create(name, config(), create)
        return await self._append(topic, records, partition, idempotency_key, created)

    async def _create(self, name: str, config: TopicConfig, create: bool | None) -> tuple[Topic, bool]:
        if not (config.auto_create if create is None else create):
            raise TopicNotFound(name)
        try:
            await self._topics.make(name, config)
        except TopicExists:
            return self._streams.topic(name), False  # another write was first
        return self._streams.topic(name), True

    async def _append(
        self,
        topic: Topic,
        records: NewRecords | bytearray,
        partition: int,
        idempotency_key: bytes | None,
        created: bool,
    ) -> WriteOutcome:
        stream = stream_of(topic, partition)
        if isinstance(records, NewRecords):
            request = await self._of_values(topic, stream, records)
        else:
            request = await self._of_batch(topic, stream, records)
        facts = request.facts
        if idempotency_key is not None and topic.config.idempotency_window_ms:
            producer, sequence, epoch = slice_fields(idempotency_key)
            facts = facts._replace(
                producer=producer, base_sequence=sequence, producer_epoch=epoch, keyed=True
            )
            request = AppendRequest(stream, request.batches, facts, request.size, request.records)
        placed = promise()
        try:
            self._appends.append(topic, request, placed)
            base, duplicate = await placed
        except NotFound:
            raise TopicNotFound(topic.name) from None
        count = facts.count
        if duplicate:
            # The retry may have a different number of records than the first attempt.
            count = self._log.streams.of(stream).keyed_count(stream, facts, base) or count
        return WriteOutcome(
            base, count, facts.max_timestamp, created, duplicate, topic.config.durability == "fsync"
        )

    async def _of_values(self, topic: Topic, stream: int, records: NewRecords) -> AppendRequest:
        config = topic.config
        size = sum(records.sizes)
        if config.discard == "reject" and (config.cap_records or config.cap_bytes):
            await self._check_cap(topic, stream, len(records.values), size)
        now = self._clock.now_ms()
        batch = _batch(records, now)
        if len(batch) > limits.BATCH_BYTES_MAX:
            raise TooLarge(f"the batch has {len(batch)} bytes, over the limit of {limits.BATCH_BYTES_MAX}")
        facts = SliceFacts(len(records.values), 1, now, -1, -1, -1, False, False)
        rows = record_rows(records.sizes, now) if config.tracked else b""
        return AppendRequest(stream, batch, facts, size, rows)

    async def _of_batch(self, topic: Topic, stream: int, batch: bytearray) -> AppendRequest:
        config = topic.config
        check_size(batch, config)
        facts = check_slice(memoryview(batch), batch_bytes_max=config.max_message_bytes)
        if facts.batches != 1 or facts.control or facts.transactional or facts.producer != -1:
            raise InvalidBatch("send one batch of plain records, with producer fields of -1")
        if config.timestamp_type == "LogAppendTime":
            now = self._clock.now_ms()
            batch = bytearray(with_append_time(memoryview(batch), now))
            facts = facts._replace(max_timestamp=now)
        # Decoded even if no rows are needed: the batch is untrusted, and stored batches must be readable.
        if len(batch) > limits.RENDERED_ON_LOOP_BYTES_MAX:
            rows, size = await asyncio.to_thread(sized, batch)
        else:
            rows, size = sized(batch)
        return AppendRequest(stream, batch, facts, size, rows if config.tracked else b"")

    async def _check_cap(self, topic: Topic, stream: int, count: int, size: int) -> None:
        """Raises TooLarge for what can never fit a topic that rejects; removes expired records to make room."""
        config = topic.config
        if (config.cap_records and count > config.cap_records) or (
            config.cap_bytes and size > config.cap_bytes
        ):
            raise TooLarge(
                f"{count} records of {size} bytes can never fit topic {topic.name!r}, which is capped at "
                f"{config.cap_records or 'any'} records and {config.cap_bytes or 'any'} bytes"
            )
        if config.ttl_ms:
            await expire(self._log, topic, stream, self._clock.now_ms())


def _batch(records: NewRecords, now: int) -> bytearray:
    values = records.values
    if records.keys is None and records.headers is None:
        if len(values) == 1 and values[0] is not None:
            return build_lone(values[0], now)
        if len(values) > limits.INTERPRETED_RECORDS_MAX:
            return build_plain(values, now)
    return build_batch(values, keys=records.keys, headers=records.headers, timestamps_ms=now)

"""Writes that may make their topic: all records of one as one batch, at one time, or nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mainstem import limits
from mainstem.broker.partition_summaries import stream_of
from mainstem.errors import NotFound, Throttled, TooLarge, TopicExists, TopicNotFound
from mainstem.ledger.appends import RECORD
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.idempotency import slice_fields
from mainstem.ledger.topics import Topic
from mainstem.records.building import build_batch, build_lone, build_plain
from mainstem.records.header import SliceFacts

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

Header = tuple[str, bytes | None]


@dataclass(slots=True)
class NewRecords:
    """What to append. A record's size is that of its value and of its "meta" header."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Sequence[Header]] | None = None
    sizes: Sequence[int] = field(default_factory=list)


class WriteOutcome(NamedTuple):
    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    timestamp_ms: int
    created: bool  # this write made the topic
    duplicate: bool  # an earlier write with the same idempotency key; base and count are of that one
    fsync: bool  # the answer waited for an fsync

    @property
    def head_seq(self) -> int:
        """The last sequence number right after the write."""
        return self.base + self.count


class WriteService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._log = broker.log

    async def write(
        self,
        name: str,
        records: NewRecords,
        *,
        partition: int = 0,
        idempotency_key: bytes | None = None,
        create: bool | None = None,
        config: Callable[[], TopicConfig],
    ) -> WriteOutcome:
        """Append. An absent topic is made as `config` says, unless `create` or its auto_create forbids.

        Raises TopicNotFound, TooLarge, TopicFull, Throttled."""
        created = False
        topic = self._broker.streams.get(name)
        if topic is None:
            topic, created = await self._made(name, config(), create)
        return await self._append(topic, records, partition, idempotency_key, created)

    async def _made(self, name: str, config: TopicConfig, create: bool | None) -> tuple[Topic, bool]:
        if not (config.auto_create if create is None else create):
            raise TopicNotFound(name)
        try:
            await self._broker.make_topic(name, config)
        except TopicExists:
            return self._broker.streams.topic(name), False  # another write was first
        return self._broker.streams.topic(name), True

    async def _append(
        self,
        topic: Topic,
        records: NewRecords,
        partition: int,
        idempotency_key: bytes | None,
        created: bool,
    ) -> WriteOutcome:
        stream = stream_of(topic, partition)
        config = topic.config
        size = sum(records.sizes)
        if self._broker.options.total_bytes_max:
            self._check_total(size)
        if config.discard == "reject" and (config.cap_records or config.cap_bytes):
            await self._check_cap(topic, stream, len(records.values), size)
        now = self._broker.clock.now_ms()
        batch = _batch(records, now)
        if len(batch) > limits.BATCH_BYTES_MAX:
            raise TooLarge(f"the batch has {len(batch)} bytes, over the limit of {limits.BATCH_BYTES_MAX}")
        facts = SliceFacts(len(records.values), 1, now, -1, -1, -1, False, False)
        if idempotency_key is not None and config.idempotency_window_ms:
            producer, sequence, epoch = slice_fields(idempotency_key)
            facts = facts._replace(
                producer=producer, base_sequence=sequence, producer_epoch=epoch, keyed=True
            )
        rows = _rows(records.sizes, now) if config.tracked else b""
        try:
            base, duplicate = await self._broker.place_sized(topic, stream, batch, facts, size, rows)
        except NotFound:
            raise TopicNotFound(topic.name) from None
        count = facts.count
        if duplicate:
            # The retry may hold another number of records than the write it repeats.
            count = self._log.keyed_count(stream, facts, base) or count
        return WriteOutcome(base, count, now, created, duplicate, config.durability == "fsync")

    def _check_total(self, size: int) -> None:
        bound = self._broker.options.total_bytes_max
        if self._log.ledger.streams.total_bytes() + size > bound:
            raise Throttled(
                "max_total_bytes", bound, f"the server holds up to {bound} bytes of records: delete some"
            )

    async def _check_cap(self, topic: Topic, stream: int, count: int, size: int) -> None:
        """Raises TooLarge for what can never fit a topic that rejects; makes room of what is expired."""
        config = topic.config
        if (config.cap_records and count > config.cap_records) or (
            config.cap_bytes and size > config.cap_bytes
        ):
            raise TooLarge(
                f"{count} records of {size} bytes can never fit topic {topic.name!r}, which is capped at "
                f"{config.cap_records or 'any'} records and {config.cap_bytes or 'any'} bytes"
            )
        if config.ttl_ms:
            await self._broker.expire(topic, stream)


def _batch(records: NewRecords, now: int) -> bytearray:
    values = records.values
    if records.keys is None and records.headers is None:
        if len(values) == 1 and values[0] is not None:
            return build_lone(values[0], now)
        if len(values) > limits.INTERPRETED_RECORDS_MAX:
            return build_plain(values, now)
    return build_batch(values, keys=records.keys, headers=records.headers, timestamps_ms=now)


def _rows(sizes: Sequence[int], time_ms: int) -> bytes:
    """A size and a time for each record, packed as the ledger takes them."""
    rows = np.empty(len(sizes), RECORD)
    rows["size"] = sizes
    rows["time"] = time_ms
    return rows.tobytes()

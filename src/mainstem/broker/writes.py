"""Writes that may create their topic: one batch with one timestamp, all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import msgspec

from mainstem import limits
from mainstem.broker.append import AppendRequest, Appends, check_size, promise, record_rows, sized
from mainstem.broker.streams import StreamService, stream_of
from mainstem.broker.topics.floors import expire
from mainstem.broker.topics.service import TopicService
from mainstem.errors import InvalidBatch, InvalidRecordTime, NotFound, TooLarge, TopicExists, TopicNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.idempotency import slice_fields
from mainstem.ledger.record_times import TimeRecords
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records.building import build_batch, build_plain
from mainstem.records.decoding import decode_records
from mainstem.records.header import SliceFacts, check_slice
from mainstem.records.interpreted import build_lone
from mainstem.records.partitioner import partition_of
from mainstem.records.rewrite import with_append_time

Header = tuple[str, bytes | None]


class RecordTime(NamedTuple):
    """Times of one record; 0 means none."""

    delay_ms: int  # a job is not handed out before
    ttl_ms: int  # the record is deleted after


@dataclass(slots=True)
class NewRecords:
    """Records to append. A record's size is that of its value and of its "meta" header."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Sequence[Header]] | None = None
    sizes: Sequence[int] = field(default_factory=list)
    times: Sequence[RecordTime] | None = None

    def by_partition(self, partitions: int, sticky: int) -> dict[int, list[int]]:
        """The rows of each partition, chosen by key; records without a key go to `sticky`."""
        keys: Sequence[bytes | None] = self.keys or (None,) * len(self.values)
        rows: dict[int, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(sticky if key is None else partition_of(key, partitions), []).append(row)
        return rows

    def only(self, rows: Sequence[int]) -> NewRecords:
        """The records in these rows."""
        return NewRecords(
            [self.values[row] for row in rows],
            None if self.keys is None else [self.keys[row] for row in rows],
            None if self.headers is None else [self.headers[row] for row in rows],
            [self.sizes[row] for row in rows],
            None if self.times is None else [self.times[row] for row in rows],
        )


class PlacedRecord(NamedTuple):
    partition: int
    seq: int


class WriteOutcome(NamedTuple):
    base: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    timestamp_ms: int
    created: bool  # this write created the topic
    duplicate: bool  # a retry of an earlier write, whose base and count these are
    fsync: bool  # the write waited for an fsync
    partition: int | None = None  # of the first record, if the topic has several
    placed: tuple[PlacedRecord, ...] = ()  # every record, if they are in several partitions

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
        self._write_lone = log.direct.write_lone
        self._clock = clock
        self._streams = streams
        self._topics = topics
        self._appends = appends
        self._next_partition = 0  # of a write without keys

    async def write(
        self,
        name: str,
        records: NewRecords | bytearray,
        *,
        partition: int | None = None,
        idempotency_key: bytes | None = None,
        create: bool | None = None,
        config: Callable[[], TopicConfig],
        time: RecordTime | None = None,
        lone: bool = False,
    ) -> WriteOutcome:
        """Append records, or one RecordBatch v2. Creates a missing topic with `config`, unless `create` or its
        auto_create forbids it.

        Without a `partition`, each record goes to the partition of its key, and all records without a key go to one
        partition. The records of each partition are appended together or not at all. `time`: of each record of a batch.
        `lone`: nothing else is written on behalf of the same request.

        Raises TopicNotFound, InvalidBatch, TooLarge, TopicFull, Throttled."""
        created = False
        topic = self._streams.get(name)
        times = records.times if isinstance(records, NewRecords) else time and [time]
        if topic is None:
            if times is not None:
                _check_times(name, config(), times)
            topic, created = await self._create(name, config(), create)
        if times is not None:
            _check_times(name, topic.config, times)
        if partition is None and len(topic.streams) > 1 and topic.config.type != "queue":
            return await self._append_by_key(topic, records, idempotency_key, created, time)
        return await self._append(topic, records, partition or 0, idempotency_key, created, time, lone=lone)

    async def _append_by_key(
        self,
        topic: Topic,
        records: NewRecords | bytearray,
        idempotency_key: bytes | None,
        created: bool,
        time: RecordTime | None,
    ) -> WriteOutcome:
        count = len(topic.streams)
        if idempotency_key is not None:
            sticky = partition_of(idempotency_key, count)  # a retry must reach the same partition
        else:
            sticky = self._next_partition = (self._next_partition + 1) % count
        if isinstance(records, NewRecords):
            rows = records.by_partition(count, sticky)
            parts: dict[int, NewRecords | bytearray] = {
                partition: records if len(rows) == 1 else records.only(chosen)
                for partition, chosen in rows.items()
            }
        else:
            _check_batch(topic, records)
            rows, parts = await asyncio.to_thread(split_batch, records, count, sticky)
        outcomes = await asyncio.gather(
            *(
                self._append(topic, part, partition, idempotency_key, created, time)
                for partition, part in parts.items()
            )
        )
        if len(outcomes) == 1:
            return outcomes[0]
        placed: dict[int, PlacedRecord] = {}
        for partition, outcome in zip(parts, outcomes, strict=True):
            for at, row in enumerate(rows[partition]):
                placed[row] = PlacedRecord(partition, outcome.base + at + 1)
        return outcomes[0]._replace(
            count=len(placed),
            duplicate=all(outcome.duplicate for outcome in outcomes),
            placed=tuple(placed[row] for row in sorted(placed)),
        )

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
        time: RecordTime | None,
        *,
        lone: bool = False,
    ) -> WriteOutcome:
        stream = stream_of(topic, partition)
        if isinstance(records, NewRecords):
            request = await self._of_values(topic, stream, records)
        else:
            request = await self._of_batch(topic, stream, records, time)
        facts = request.facts
        if idempotency_key is not None and topic.config.idempotency_window_ms:
            producer, sequence, epoch = slice_fields(idempotency_key)
            facts = facts._replace(
                producer=producer, base_sequence=sequence, producer_epoch=epoch, keyed=True
            )
            request = msgspec.structs.replace(request, facts=facts)
        placed = promise()
        try:
            self._appends.append(topic, request, placed)
            if lone:
                self._write_lone()
            base, duplicate = await placed
        except NotFound:
            raise TopicNotFound(topic.name) from None
        count = facts.count
        if duplicate:
            # The retry may have a different number of records than the first attempt.
            count = self._log.streams.of(stream).keyed_count(stream, facts, base) or count
        fsync = topic.config.durability == "fsync"
        several = len(topic.streams) > 1
        return WriteOutcome(
            base, count, facts.max_timestamp, created, duplicate, fsync, partition if several else None
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
        then = None if records.times is None else TimeRecords(stream, tuple(_time_rows(records.times)))
        return AppendRequest(stream, batch, facts, size, rows, then)

    async def _of_batch(
        self, topic: Topic, stream: int, batch: bytearray, time: RecordTime | None
    ) -> AppendRequest:
        config = topic.config
        facts = _check_batch(topic, batch)
        if config.timestamp_type == "LogAppendTime":
            now = self._clock.now_ms()
            batch = bytearray(with_append_time(memoryview(batch), now))
            facts = facts._replace(max_timestamp=now)
        # Decoded even if no rows are needed: the batch is untrusted, and stored batches must be readable.
        if len(batch) > limits.RENDERED_ON_LOOP_BYTES_MAX:
            rows, size = await asyncio.to_thread(sized, batch)
        else:
            rows, size = sized(batch)
        then = None if time is None else TimeRecords(stream, ((0, facts.count, *time),))
        return AppendRequest(stream, batch, facts, size, rows if config.tracked else b"", then)

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


def _check_times(name: str, config: TopicConfig, times: Sequence[RecordTime]) -> None:
    """Raises InvalidRecordTime."""
    if config.durability == "ephemeral":
        raise InvalidRecordTime(
            f"topic {name!r} is ephemeral: its records take no delay_ms and no ttl_ms", (0,)
        )
    for row, time in enumerate(times):
        if time.delay_ms and config.type != "queue":
            raise InvalidRecordTime(f"topic {name!r} is not a queue: its records take no delay_ms", (row,))
        if max(time) > limits.NACK_DELAY_MS_MAX:
            raise InvalidRecordTime(f"delay_ms and ttl_ms are up to {limits.NACK_DELAY_MS_MAX}", (row,))


def _time_rows(times: Sequence[RecordTime]) -> Iterator[tuple[int, int, int, int]]:
    """Runs of records with the same times, as the ledger takes them."""
    first = 0
    for time, run in groupby(times):
        last = first + len(list(run))
        if time.delay_ms or time.ttl_ms:
            yield first, last, time.delay_ms, time.ttl_ms
        first = last


def _check_batch(topic: Topic, batch: bytearray) -> SliceFacts:
    """Raises InvalidBatch, TooLarge."""
    check_size(batch, topic.config)
    facts = check_slice(memoryview(batch), batch_bytes_max=topic.config.max_message_bytes)
    if facts.batches != 1 or facts.control or facts.transactional or facts.producer != -1:
        raise InvalidBatch("send one batch of plain records, with producer fields of -1")
    return facts


def split_batch(
    batch: bytearray, partitions: int, sticky: int
) -> tuple[dict[int, list[int]], dict[int, NewRecords | bytearray]]:
    """The rows and the batch of each partition. Records without a key go to `sticky`. Raises InvalidBatch."""
    records = list(decode_records(batch))
    rows: dict[int, list[int]] = {}
    for row, record in enumerate(records):
        chosen = sticky if record.key is None else partition_of(record.key, partitions)
        rows.setdefault(chosen, []).append(row)
    if len(rows) < 2:
        return rows or {sticky: []}, {next(iter(rows), sticky): batch}  # an invalid batch is rejected later
    parts: dict[int, NewRecords | bytearray] = {}
    for partition, chosen_rows in rows.items():
        own = [records[row] for row in chosen_rows]
        parts[partition] = build_batch(
            [record.value for record in own],
            keys=[record.key for record in own],
            headers=[record.headers for record in own],
            timestamps_ms=[record.timestamp_ms for record in own],
        )
    return rows, parts


def _batch(records: NewRecords, now: int) -> bytearray:
    values = records.values
    if records.keys is None and records.headers is None:
        if len(values) == 1 and values[0] is not None:
            return build_lone(values[0], now)
        if len(values) > limits.INTERPRETED_RECORDS_MAX:
            return build_plain(values, now)
    return build_batch(values, keys=records.keys, headers=records.headers, timestamps_ms=now)

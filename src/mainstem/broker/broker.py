"""The broker: what the doors' calls mean. Doors and the embedded client use this class and nothing below it.

Every method that changes something returns once the change is durable to the class of its topic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mainstem import limits
from mainstem.broker.activity import Activity
from mainstem.broker.backups import Backups
from mainstem.broker.catalog import Catalog
from mainstem.broker.client_quotas import ClientQuotaService
from mainstem.broker.cluster import Cluster
from mainstem.broker.deletes import DeleteService
from mainstem.broker.diff import Diffs
from mainstem.broker.floors import expire_untracked, expired_to
from mainstem.broker.lake import Lake
from mainstem.broker.log_clock import LogClock
from mainstem.broker.opening import open_log
from mainstem.broker.partition_summaries import PartitionSummaries
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.queues import QueueService
from mainstem.broker.recompression import Recompression
from mainstem.broker.retention import Retention
from mainstem.broker.routers import RouterService
from mainstem.broker.routing import Routing
from mainstem.broker.share.shares import ShareService
from mainstem.broker.shared_cursors import SharedCursorReader
from mainstem.broker.sinks import SinkService
from mainstem.broker.store_clock import clock_off_ms
from mainstem.broker.streams import StreamService
from mainstem.broker.topic_tables import TopicTables
from mainstem.broker.topics import TopicService
from mainstem.broker.transactions import TransactionService
from mainstem.broker.watch import WatchService
from mainstem.broker.writes import WriteService
from mainstem.errors import (
    GroupNotFound,
    InvalidBatch,
    InvalidInput,
    PartitionNotFound,
    TooLarge,
    TopicNotFound,
)
from mainstem.ledger.appends import RECORD
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import CommitOffsets, DeleteOffsets
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.repack.plan import RepackOptions
from mainstem.log.tiering import HotRetention
from mainstem.log.waiters import Placed, Waiter, promise
from mainstem.ports.clock import Clock, Random, SystemClock, SystemRandom
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.files import Lock
from mainstem.ports.objectstore.open import open_store
from mainstem.records.building import build_batch, build_lone
from mainstem.records.decoding import decode_records, record_sizes_and_times
from mainstem.records.header import Slice, SliceFacts, check_slice, walk
from mainstem.records.rewrite import with_append_time


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    data_dir: Path
    broker_id: int | None = None  # None: 1, or the number that a shared log gives
    node: str = "local"
    default_config: TopicConfig = field(default_factory=TopicConfig)  # of topics made without a word
    segment_bytes: int = limits.SEGMENT_BYTES
    checkpoint_every_bytes: int = limits.CHECKPOINT_EVERY_BYTES
    tail_cache_bytes: int = limits.TAIL_CACHE_BYTES
    sync_every_ms: int = 0  # relaxed topics are synced in the background this often; 0 = left to the kernel
    repack: RepackOptions = field(default_factory=RepackOptions)
    topics_max: int = limits.TOPICS_MAX  # more are not made; 0 = the ledger's own bound
    routers_max: int = limits.ROUTERS_MAX  # 0 = unlimited
    total_bytes_max: int = 0  # of live records, as caps count them; 0 = unlimited
    objects: str = ""  # URL of the object store; none: a folder of the data directory
    hot: HotRetention | None = None  # of a log whose older files go to `objects`: what the disk keeps of it
    place: SharedPlace | None = None  # where a log stands that other brokers write to as well
    zone: str = ""  # where this broker runs, for clients that say where they are
    trusts_log: bool = False  # open it although digests disagree: to repair it
    lake_topics: str = "tables"  # whose records become Parquet: tables' and compacted ones, or "all"

    @property
    def objects_url(self) -> str:
        if self.place is not None and not self.objects:
            return self.place.store
        return self.objects or (self.data_dir / "objects").absolute().as_uri()


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionState:
    partition: int
    start: int  # first offset still there
    end: int  # next offset a reader will see appended
    records: int
    bytes: int  # logical bytes of the live records
    max_timestamp_ms: int  # -1 = never written


class Appended(NamedTuple):  # made for every append, where a frozen dataclass costs a microsecond more
    base_offset: int
    records: int
    timestamp_ms: int
    duplicate: bool = False  # an idempotent retry; the offset is the original one


@dataclass(frozen=True, slots=True)
class Fetched:
    """Whole batches, stamped with offset and epoch. May begin before the offset asked for."""

    batches: tuple[memoryview, ...]
    next_offset: int  # where to read on
    start: int
    end: int


class Broker:
    def __init__(self, log: Log, options: BrokerOptions, clock: Clock, random: Random) -> None:
        self._log = log
        self._options = options
        self._own_clock = clock
        if log.sharing is not None:
            clock = LogClock(clock, log)
        self._clock = clock
        self._random = random
        self.cluster = Cluster(log, clock, zone=options.zone, node=options.node)
        self._clock_rounds = PeriodicTask("clock", limits.CLOCK_CHECK_S, self.check_clock)
        self._lock: Lock | None = None  # of the directory, where the log is elsewhere
        self._retention = Retention(log, clock)
        self.transactions = TransactionService(log, clock)
        self.streams = StreamService(log)
        self.client_quotas = ClientQuotaService(log, clock)
        self.shares = ShareService(log, clock, self.streams)
        self._recompression = Recompression()
        self._topics = TopicService(self)
        self.activity = Activity(clock)
        self.states = PartitionSummaries(log, clock)
        self.writes = WriteService(self)
        self.sinks = SinkService(self)
        self.diffs = Diffs(log, clock)
        self.deletes = DeleteService(self)
        self.queues = QueueService(log, clock, random, log.broker, self._topics.get_or_create)
        self.watching = WatchService(self)
        self.routers = RouterService(self)
        self.routing: Routing = self.routers
        self.objects = log.objects or open_store(options.objects_url)
        self.catalog = Catalog(log, random, self.objects, options.objects_url)
        self._shared_cursors = SharedCursorReader(self)
        self.backups = Backups(log, options.data_dir, clock)
        self.topic_tables = TopicTables(self)
        self.lake = Lake(
            log, self.objects, options.objects_url, clock, random, all_topics=options.lake_topics == "all"
        )

    @classmethod
    async def open(
        cls, options: BrokerOptions, clock: Clock | None = None, random: Random | None = None
    ) -> Broker:
        """Take the data directory, recover it and be ready to serve."""
        clock = clock or SystemClock()
        random = random or SystemRandom()
        log, lock = await open_log(options, clock, random)
        broker = cls(log, options, clock, random)
        broker._lock = lock
        if broker.cluster.shared:
            await broker.check_clock()  # before anything it does depends on it
        await broker.catalog.relocate_tables()
        broker.start_rounds()
        return broker

    def start_rounds(self) -> None:
        """Do what comes up again and again, as far as it falls to this broker."""
        self._log.maintains = partial(self.cluster.runs_here, "upkeep")
        for rounds in self._rounds:
            rounds.when = partial(self.cluster.runs_here_on_trusted_clock, rounds.name)
            rounds.start()
        if self.cluster.shared:
            self._clock_rounds.start()
        self.routers.start()

    async def check_clock(self) -> None:
        """Find out whether what depends on the time may be left to this broker."""
        self.cluster.take_clock(await clock_off_ms(self.objects, self._own_clock, self._random))

    @property
    def _rounds(self) -> tuple[PeriodicTask, ...]:
        return (self._retention.rounds, self.transactions.rounds, self.sinks.rounds, self.lake.rounds)

    async def close(self) -> None:
        """Drain, sync, checkpoint and release the directory."""
        await self.cluster.leave()
        await self.queues.close()
        await self.shares.close()
        await self.routers.close()
        for rounds in (*self._rounds, self._clock_rounds):
            await rounds.stop()
        await self.watching.close()
        try:
            await self._log.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    @property
    def log(self) -> Log:
        return self._log

    @property
    def clock(self) -> Clock:
        return self._clock

    @property
    def random(self) -> Random:
        return self._random

    @property
    def options(self) -> BrokerOptions:
        return self._options

    @property
    def last_position(self) -> int:
        """Position of the newest commit applied."""
        return self._log.ledger.position - 1

    # Topics

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        config: TopicConfig | None = None,
        exist_ok: bool = False,
        dry_run: bool = False,
    ) -> Topic:
        """Raises InvalidName, InvalidInput, TopicExists (unless `exist_ok`). `dry_run` does nothing more."""
        return await self._topics.create(
            name, partitions=partitions, config=config, exist_ok=exist_ok, dry_run=dry_run
        )

    async def make_topic(self, name: str, config: TopicConfig) -> Topic:
        """As `create_topic`, by the HTTP door's rules: its names, and a bound. Raises Throttled as well."""
        return await self._topics.make(name, config)

    async def get_or_create_topic(self, name: str) -> Topic:
        """The topic that copies go to or come from, made if there is none yet. Raises as `make_topic`."""
        return await self._topics.get_or_create(name)

    async def delete_topic(self, name: str) -> Topic:
        """Raises TopicNotFound."""
        return await self._topics.delete(name)

    async def alter_topic(self, name: str, config: TopicConfig) -> Topic:
        """Replace the config. Raises TopicNotFound, InvalidConfig."""
        return await self._topics.alter(name, config)

    async def change_topic(
        self, name: str, change: Callable[[TopicConfig], TopicConfig], *, dry_run: bool = False
    ) -> Topic:
        """Replace the config by what `change` makes of it; none undoes another made at the same time.

        Raises TopicNotFound, InvalidConfig. `dry_run` does nothing more."""
        return await self._topics.change(name, change, dry_run=dry_run)

    async def add_partitions(self, name: str, total: int, *, dry_run: bool = False) -> Topic:
        """Grow a topic to `total` partitions; it never shrinks. `dry_run` only raises what it would raise."""
        return await self._topics.add_partitions(name, total, dry_run=dry_run)

    def topic(self, name: str) -> Topic:
        """Raises TopicNotFound."""
        return self._topics.get(name)

    def topics(self, prefix: str = "") -> list[Topic]:
        """By name bytes."""
        return self._topics.all(prefix)

    def partition(self, name: str, partition: int = 0) -> PartitionState:
        """Raises TopicNotFound, PartitionNotFound."""
        stream = self.stream(name, partition)
        start, end = self._log.bounds(stream)
        streams = self._log.ledger.streams
        if streams.ephemeral(stream):
            return PartitionState(partition, start, end, end - start, self._log.held_bytes(stream), -1)
        return PartitionState(
            partition,
            start,
            end,
            int(streams.records[stream]),
            int(streams.bytes[stream]),
            int(streams.max_timestamp[stream]),
        )

    def stream(self, name: str, partition: int = 0) -> int:
        """The number of a partition's stream. Raises TopicNotFound, PartitionNotFound."""
        return self._stream_and_config(name, partition)[0]

    def _stream_and_config(self, name: str, partition: int) -> tuple[int, TopicConfig]:
        topic = self._log.ledger.topics.get(name)
        if topic is None:
            raise TopicNotFound(name)
        if not 0 <= partition < len(topic.streams):
            raise PartitionNotFound(name, partition, len(topic.streams))
        return topic.streams[partition], topic.config

    # Writing

    async def append(self, name: str, batches: bytearray, partition: int = 0) -> Appended:
        """Append record batches as they came off the wire. Takes ownership of the buffer and stamps it."""
        placing, facts = self.place(self.streams.topic(name), partition, batches)
        base, duplicate = await placing
        return Appended(base, facts.count, facts.max_timestamp, duplicate)

    def place(
        self, topic: Topic, partition: int, batches: Slice, joins: str | None = None
    ) -> tuple[Awaitable[Placed], SliceFacts]:
        """As `append`, but in line at once: what is placed later comes later in the log.

        Raises what is wrong with the batches; awaiting raises what the ledger refuses."""
        placed = promise()
        return placed, self.place_for(placed, topic, partition, batches, joins, resumes=False)

    def place_for(
        self,
        waiter: Waiter,
        topic: Topic,
        partition: int,
        batches: Slice,
        joins: str | None = None,
        *,
        resumes: bool = True,
    ) -> SliceFacts:
        """As `place`, but it is the waiter who is told.

        `joins`: the transactional id whose transaction the partition becomes part of by it. `resumes`: a producer of
        whom nothing is known may be at any place in its sequence, as in Kafka: it was idle for long, or its topic was
        made again. Who joins begins at the beginning: each of its transactions does."""
        if not 0 <= partition < len(topic.streams):
            raise PartitionNotFound(topic.name, partition, len(topic.streams))
        config = topic.config
        facts = check_slice(memoryview(batches), batch_bytes_max=config.max_message_bytes)
        if facts.control:
            raise InvalidBatch("control batches are written by the broker alone")
        if joins is not None:
            facts = self.transactions.joining(joins, facts)
        elif resumes and facts.base_sequence > 0 and self._may_resume(facts, topic.streams[partition]):
            facts = facts._replace(resumes=True)
        if config.timestamp_type == "LogAppendTime":
            now = self._clock.now_ms()
            batches = _with_append_time(memoryview(batches), now)
            facts = facts._replace(max_timestamp=now)
        self._place(waiter, topic.streams[partition], config, batches, facts, len(batches))
        return facts

    def _may_resume(self, facts: SliceFacts, stream: int) -> bool:
        return self._log.ledger.producers.may_have_forgotten(facts.producer, stream)

    async def append_values(
        self,
        name: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
        timestamps_ms: int | Sequence[int] | None = None,
        partition: int = 0,
    ) -> Appended:
        """Append records given as Python values, all or nothing, as one batch."""
        stream, config = self._stream_and_config(name, partition)
        if not values:
            raise InvalidInput("there is nothing to append: give at least one record")
        now = self._clock.now_ms()
        value = values[0]
        bare = keys is None and headers is None and timestamps_ms is None
        if bare and len(values) == 1 and value is not None:
            batch, latest, size = build_lone(value, now), now, len(value)
        else:
            if timestamps_ms is None or config.timestamp_type == "LogAppendTime":
                timestamps_ms = now
            batch = build_batch(values, keys=keys, headers=headers, timestamps_ms=timestamps_ms)
            latest = timestamps_ms if isinstance(timestamps_ms, int) else max(timestamps_ms)
            size = sum(map(len, filter(None, values)))
        if len(batch) > config.max_message_bytes:
            raise TooLarge(
                f"the batch has {len(batch)} bytes, over the topic's max.message.bytes of "
                f"{config.max_message_bytes}: send fewer records at once, or raise that setting"
            )
        facts = SliceFacts(len(values), 1, latest, -1, -1, -1, False, False)
        placed = promise()
        self._place(placed, stream, config, batch, facts, size)
        base, _ = await placed
        return Appended(base, len(values), latest)

    def _place(
        self, waiter: Waiter, stream: int, config: TopicConfig, slice: Slice, facts: SliceFacts, size: int
    ) -> None:
        if config.compression_type == "producer" and not self._recompression.busy(stream):
            self._append(waiter, stream, config, slice, facts, size)
        else:
            self._recompression.place(
                waiter,
                stream,
                config,
                slice,
                lambda packed: self._append(waiter, stream, config, packed, facts, size),
            )

    def _append(
        self, waiter: Waiter, stream: int, config: TopicConfig, slice: Slice, facts: SliceFacts, size: int
    ) -> None:
        records = b""
        if config.tracked:
            records, size = _record_rows(slice)
        self._log.append_for(waiter, stream, slice, facts, size, records)

    def place_sized(
        self, topic: Topic, stream: int, slice: Slice, facts: SliceFacts, size: int, rows: bytes
    ) -> Awaitable[Placed]:
        """Append a batch this process built: `size` is what caps count, `rows` are packed RECORD rows."""
        config = topic.config
        if config.compression_type == "producer" and not self._recompression.busy(stream):
            return self._log.append(stream, slice, facts, size, rows)
        placed = promise()
        self._recompression.place(
            placed,
            stream,
            config,
            slice,
            lambda packed: self._log.append_for(placed, stream, packed, facts, size, rows),
        )
        return placed

    # Reading

    async def fetch(
        self,
        name: str,
        offset: int,
        *,
        partition: int = 0,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        max_wait_ms: int = 0,
    ) -> Fetched:
        """Batches from `offset` on; at least one if there is any, whatever its size.

        At the end it waits up to `max_wait_ms` for an append. Raises OffsetOutOfRange, RecordsLost."""
        stream = self.stream(name, partition)
        max_bytes = min(max_bytes, limits.READ_BYTES_MAX)
        wait_s = min(max_wait_ms, limits.READ_WAIT_MS_MAX) / 1000
        chunk = await self._log.read(stream, offset, max_bytes, wait_s)
        start, end = self._log.bounds(stream)
        return Fetched(chunk.batches, chunk.next_offset, start, end)

    async def read(
        self,
        name: str,
        offset: int,
        *,
        partition: int = 0,
        max_records: int = 256,
        max_bytes: int = limits.READ_BYTES_DEFAULT,
        max_wait_ms: int = 0,
    ) -> list[Record]:
        """Decoded records from `offset` on. Empty only at the end: deleted records are passed over."""
        found: list[Record] = []
        while True:
            fetched = await self.fetch(
                name, offset, partition=partition, max_bytes=max_bytes, max_wait_ms=max_wait_ms
            )
            for slice in fetched.batches:
                wanted = islice(decode_records(slice, offset), max_records - len(found))
                found += [Record(*record) for record in wanted]
                if len(found) >= max_records:
                    break
            if found or fetched.next_offset == offset:
                return found
            offset = fetched.next_offset

    async def offset_at(self, name: str, timestamp_ms: int, partition: int = 0) -> int:
        """The first offset whose record time is at or after `timestamp_ms`; the end if none is."""
        return await self._log.offset_at(self.stream(name, partition), timestamp_ms)

    async def trim(self, name: str, offset: int, partition: int = 0) -> int:
        """Delete the records below `offset`. Returns the new start."""
        stream = self.stream(name, partition)
        await self._log.trim(stream, offset, "delete")
        await self._log.collect()
        return self._log.bounds(stream)[0]

    async def expire(self, topic: Topic, stream: int) -> None:
        """Apply the topic's ttl to one stream now."""
        now = self._clock.now_ms()
        await expire_untracked(self._log, stream, topic.config, now)
        streams, number = self._log.state_of(stream)
        floor = expired_to(streams, number, now - topic.config.ttl_ms)
        if floor > streams.start(number):
            await self._log.trim(stream, floor, "ttl")

    async def enforce_retention(self) -> int:
        """Apply time and size limits now, to every topic. Returns how many partitions were trimmed."""
        return await self._retention.enforce()

    # Cursors

    async def take(self, name: str, group: str, *, partition: int = 0, limit: int = 1) -> list[Record]:
        """Consume the next records of a group's shared cursor: nobody else gets them. Empty at the end."""
        return await self._shared_cursors.take(name, group, partition=partition, limit=limit)

    async def commit_offset(
        self, group: str, name: str, offset: int, partition: int = 0, metadata: str = ""
    ) -> None:
        """Store a group's next offset to read."""
        await self._log.propose(CommitOffsets(group, ((self.stream(name, partition), offset, metadata),)))

    def committed(self, group: str, name: str, partition: int = 0) -> int | None:
        """The group's next offset to read, None if it never committed."""
        cursor = self._log.ledger.cursors.get(group, self.stream(name, partition))
        return None if cursor is None else cursor.offset

    def groups(self) -> list[str]:
        return sorted(self._log.ledger.cursors.groups())

    async def delete_group(self, group: str) -> None:
        """Forget a group's positions. Raises GroupNotFound."""
        if group not in self.groups():
            raise GroupNotFound(group)
        await self._log.propose(DeleteOffsets(group))


def _with_append_time(slice: memoryview, time_ms: int) -> bytearray:
    stamped = bytearray()
    for header in walk(slice):
        stamped += with_append_time(slice[header.position : header.end], time_ms)
    return stamped


def _record_rows(slice: Slice) -> tuple[bytes, int]:
    """A size and a time for each record, packed as the ledger takes them, and the sum of the sizes."""
    sizes, times = record_sizes_and_times(memoryview(slice))
    rows = np.empty(len(sizes), RECORD)
    rows["size"] = sizes
    rows["time"] = times
    return rows.tobytes(), int(sizes.sum())

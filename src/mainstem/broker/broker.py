"""The broker: what the doors' calls mean. Doors and the embedded client use this class and nothing below it.

Every method that changes something returns once the change is durable to the class of its topic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mainstem import limits
from mainstem.broker.append import Appended, Appends, promise
from mainstem.broker.client_quotas import ClientQuotaService
from mainstem.broker.cluster.clock import LogClock
from mainstem.broker.cluster.service import Cluster
from mainstem.broker.cluster.store_clock import clock_off_ms
from mainstem.broker.decoding import Decoding
from mainstem.broker.diff import Diffs
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.service import GroupPeers, Groups
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.queues.service import QueueService
from mainstem.broker.read import Fetched, Reads, Record
from mainstem.broker.routers.service import RouterService
from mainstem.broker.security import Security
from mainstem.broker.share.shares import ShareService
from mainstem.broker.storage.backups import Backups
from mainstem.broker.storage.opening import open_log
from mainstem.broker.streams import StreamService
from mainstem.broker.tables.catalog import Catalog
from mainstem.broker.tables.lake import Lake
from mainstem.broker.tables.topic_tables import TopicTables
from mainstem.broker.topics.activity import Activity
from mainstem.broker.topics.deletes import DeleteService
from mainstem.broker.topics.partition_summaries import PartitionSummaries
from mainstem.broker.topics.retention import Retention
from mainstem.broker.topics.service import TopicService
from mainstem.broker.transactions.service import TransactionService
from mainstem.broker.transactions.sinks import SinkService
from mainstem.broker.watch import WatchService
from mainstem.broker.writes import WriteService
from mainstem.errors import GroupNotFound
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import CommitOffsets, DeleteOffsets
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import HotRetention
from mainstem.ports.clock import Clock, Random, SystemClock, SystemRandom
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.files import Lock
from mainstem.ports.objectstore.open import open_store


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
    partitions_max: int = limits.PARTITIONS_MAX  # of all topics; 0 = unlimited
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
class PartitionState:
    partition: int
    start: int  # first offset still there
    end: int  # next offset a reader will see appended
    records: int
    bytes: int  # logical bytes of the live records
    max_timestamp_ms: int  # -1 = never written


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
        self.appends = Appends(log, clock, self.streams, self.transactions)
        self.decoding = Decoding()
        self.reads = Reads(log, self.streams, self.decoding)
        self.security = Security(log)
        self.client_quotas = ClientQuotaService(log, clock)
        self.shares = ShareService(log, clock, self.streams)
        self._topics = TopicService(
            log,
            clock,
            random,
            options.default_config,
            topics_max=options.topics_max,
            partitions_max=options.partitions_max,
        )
        self.activity = Activity(clock)
        self.states = PartitionSummaries(log, clock)
        self.writes = WriteService(
            log, clock, self.streams, self._topics, self.appends, total_bytes_max=options.total_bytes_max
        )
        self.sinks = SinkService(log, clock, self.appends, self.transactions)
        self.diffs = Diffs(log, clock, self.decoding)
        self.deletes = DeleteService(log, clock)
        self.queues = QueueService(log, clock, random, self._topics)
        self.routers = RouterService(
            log, clock, self.streams, self._topics, self.cluster, routers_max=options.routers_max
        )
        self.routing = self.routers
        self.watching = WatchService(self.streams, self.diffs, self.routers, self.activity)
        self.objects = log.objects or open_store(options.objects_url)
        self.catalog = Catalog(log, random, self.objects, options.objects_url)
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
        self.decoding.close()
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
    def identity(self) -> bytes:
        """Tells this broker's log from every other one."""
        return self._log.identity

    async def barrier(self) -> None:
        """Apply all that any broker of the log had committed when this was called, and show it to readers."""
        await self._log.barrier()

    def open_groups(
        self, peers: GroupPeers | None = None, options: GroupOptions | None = None, clock: Clock | None = None
    ) -> Groups:
        """Coordinate consumer groups; `peers` says which ones. Starts with `Groups.start`."""
        groups = Groups(self._log, clock or self._clock, options, peers=peers)
        self.cluster.on_change(groups.hand_over)
        return groups

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

    async def delete_topic(self, name: str) -> Topic:
        """Raises TopicNotFound."""
        topic = await self._topics.delete(name)
        self.activity.forget(topic.topic_id)
        self.queues.forget(topic.streams)
        return topic

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
        stream = self.streams.of(name, partition)
        store = self._log.streams.of(stream)
        return PartitionState(partition, *store.bounds(stream), *store.usage(stream))

    def stream(self, name: str, partition: int = 0) -> int:
        """The number of a partition's stream. Raises TopicNotFound, PartitionNotFound."""
        return self.streams.of(name, partition)

    # Writing

    async def append(self, name: str, batches: bytearray, partition: int = 0) -> Appended:
        """Append record batches as they came off the wire. Takes ownership of the buffer and stamps it."""
        placed = promise()
        facts = self.appends.batches(self.topic(name), partition, batches, placed, resumes=False)
        base, duplicate = await placed
        return Appended(base, facts.count, facts.max_timestamp, duplicate)

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
        return await self.appends.values(
            self.topic(name), partition, values, keys=keys, headers=headers, timestamps_ms=timestamps_ms
        )

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
        """Batches from `offset` on: see `Reads.batches`."""
        return await self.reads.batches(
            name, offset, partition=partition, max_bytes=max_bytes, max_wait_ms=max_wait_ms
        )

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
        """Decoded records from `offset` on: see `Reads.records`."""
        return await self.reads.records(
            name,
            offset,
            partition=partition,
            max_records=max_records,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
        )

    async def offset_at(self, name: str, timestamp_ms: int, partition: int = 0) -> int:
        """The first offset whose record time is at or after `timestamp_ms`; the end if none is."""
        stream = self.stream(name, partition)
        return await self._log.streams.of(stream).offset_at(stream, timestamp_ms)

    async def trim(self, name: str, offset: int, partition: int = 0) -> int:
        """Delete the records below `offset`. Returns the new start."""
        stream = self.stream(name, partition)
        await self._log.streams.of(stream).trim(stream, offset, "delete")
        await self._log.collect()
        return self._log.streams.of(stream).bounds(stream)[0]

    async def enforce_retention(self) -> int:
        """Apply time and size limits now, to every topic. Returns how many partitions were trimmed."""
        return await self._retention.enforce()

    # Cursors

    async def take(self, name: str, group: str, *, partition: int = 0, limit: int = 1) -> list[Record]:
        """Consume the next records of a group's shared cursor: nobody else gets them. Empty at the end."""
        return await self.reads.take(name, group, partition=partition, limit=limit)

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

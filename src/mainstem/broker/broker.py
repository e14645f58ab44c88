"""The broker: the operations behind the doors. Doors and the embedded client use this class and nothing below it.

Every method that changes something returns once the change is as durable as its topic requires.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mainstem import events, limits
from mainstem.broker.access.administration import AccessAdministration
from mainstem.broker.access.audit import Audit
from mainstem.broker.access.authentication import Authentication
from mainstem.broker.access.options import AccessOptions
from mainstem.broker.access.principal import Principal
from mainstem.broker.access.rules import Access, Operation, ResourceType
from mainstem.broker.access.service import Security
from mainstem.broker.append import Appended, Appends, promise
from mainstem.broker.broker_metrics import broker_metrics
from mainstem.broker.broker_settings import BrokerSettingsService
from mainstem.broker.buckets.service import BucketService
from mainstem.broker.buckets.table_files import TableFiles
from mainstem.broker.cluster.clock import LogClock
from mainstem.broker.cluster.service import Cluster
from mainstem.broker.cluster.store_clock import clock_off_ms
from mainstem.broker.decoding import Decoding
from mainstem.broker.diff import Diffs
from mainstem.broker.erasures.service import ERASURE_STEP_EVERY_S, ErasureService
from mainstem.broker.erasures.table_files import TableErasure
from mainstem.broker.exclusive_producers import ExclusiveProducers
from mainstem.broker.groups.lags import GroupLags
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.service import Groups
from mainstem.broker.namespaces import NamespaceService, shown_id
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.broker.queues.service import QueueService
from mainstem.broker.rates import RateService
from mainstem.broker.read import Fetched, Reads, Record
from mainstem.broker.reports import LakeReports, PipelineReports
from mainstem.broker.routers.service import RouterService
from mainstem.broker.schemas.service import SchemaService, SubjectSchemas
from mainstem.broker.schemas.topic_schemas import TopicSchemaService
from mainstem.broker.share.shares import ShareService
from mainstem.broker.sql import SqlService
from mainstem.broker.storage.backups import Backups
from mainstem.broker.storage.opening import open_log
from mainstem.broker.storage.storage_map import StorageMaps
from mainstem.broker.streams import StreamService
from mainstem.broker.subscriptions.backlogs import Backlogs
from mainstem.broker.subscriptions.inactivity import Inactivity
from mainstem.broker.subscriptions.service import SubscriptionService
from mainstem.broker.topics.activity import Activity
from mainstem.broker.topics.deletes import DeleteService
from mainstem.broker.topics.partition_summaries import PartitionSummaries
from mainstem.broker.topics.retention import Retention
from mainstem.broker.topics.service import TopicService
from mainstem.broker.transactions.atomic_writes import AtomicWrites
from mainstem.broker.transactions.producer_rights import ProducerRights
from mainstem.broker.transactions.service import TransactionService
from mainstem.broker.transactions.sinks import SinkService
from mainstem.broker.watch import WatchService
from mainstem.broker.writes import WriteService
from mainstem.errors import InvalidInput, MainstemError, StoreUnreachable
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import CommitOffsets
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.tiering import HotRetention
from mainstem.log.recovery import RecoveryProgress
from mainstem.metrics import Metric
from mainstem.ports.clock import Clock, Random, SteadyClock, SystemClock, SystemRandom
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.files import Lock
from mainstem.ports.objectstore.open import open_store
from mainstem.tables.catalog import Catalog
from mainstem.tables.lake import Lake
from mainstem.tables.registry import RegistryColumns
from mainstem.tables.s3_locations import S3Locations
from mainstem.tables.topic_tables import TopicTables

CLOCK_CHECK_S = 30.0

_log = events.named("broker")


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    data_dir: Path
    broker_id: int | None = None  # None: 1, or the number that a shared log gives
    node: str = "local"
    default_config: TopicConfig = field(
        default_factory=TopicConfig
    )  # of topics that are created without settings
    segment_bytes: int = limits.SEGMENT_BYTES
    checkpoint_every_bytes: int = limits.CHECKPOINT_EVERY_BYTES
    tail_cache_bytes: int = limits.TAIL_CACHE_BYTES
    sync_every_ms: int = 0  # relaxed topics are synced in the background this often; 0 = left to the kernel
    repack: RepackOptions = field(default_factory=RepackOptions)
    topics_max: int = limits.TOPICS_MAX  # no more are created; 0 = the ledger's own limit
    partitions_max: int = limits.PARTITIONS_MAX  # of all topics; 0 = unlimited
    routers_max: int = limits.ROUTERS_MAX  # 0 = unlimited
    total_bytes_max: int = 0  # of live records, in logical bytes; 0 = unlimited
    objects: str = ""  # URL of the object store; empty: a folder of the data directory
    table_locations: tuple[str, ...] = ()  # URLs outside the store below which users may have tables
    hot: HotRetention | None = None  # what stays on disk if older files go to `objects`
    place: SharedPlace | None = None  # location of a shared log
    workers: bool = False  # other processes of this machine are brokers over the same directory
    zone: str = ""  # of this broker, for clients that send theirs
    trusts_log: bool = False  # open it although digests disagree: to repair it
    access: AccessOptions = field(default_factory=AccessOptions)
    groups: GroupOptions = field(default_factory=GroupOptions)
    audit: str = "auto"  # the audit log: on, off, or auto, which is on while clients must authenticate
    clock_step_ms: int = (
        limits.CLOCK_STEP_MS_MAX
    )  # the largest jump ahead of the clock that is followed; 0: any
    accept_missing: bool = False  # record what missing files held as lost, for good
    recovery: RecoveryProgress = field(default_factory=RecoveryProgress)  # of the log, while it is opened
    lake_topics: str = "tables"  # topics to convert to Parquet: "tables" (with compacted ones), or "all"

    @property
    def objects_url(self) -> str:
        if self.place is not None and not self.objects:
            return self.place.store
        return self.objects or (self.data_dir / "objects").absolute().as_uri()


@dataclass(frozen=True, slots=True)
class PartitionState:
    partition: int
    start: int  # first offset that can be read
    end: int  # offset of the next record
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
        self._clock_task = PeriodicTask("clock", CLOCK_CHECK_S, self.check_clock)
        self._lock: Lock | None = None  # of the directory, if the log is elsewhere
        self.retention = Retention(log, clock)
        self.groups = Groups(log, clock, options.groups, random, self.cluster)
        self.cluster.on_change(self.groups.hand_over)
        self.group_lags = GroupLags(log, self.groups)
        self.lake_reports = LakeReports(log, clock)
        self.pipeline_reports = PipelineReports(log, clock)
        self.transactions = TransactionService(log, clock)
        self.streams = StreamService(log)
        self.namespaces = NamespaceService(log, options.default_config)
        self.decoding = Decoding()
        self.schemas = SchemaService(log)
        self.topic_schemas = TopicSchemaService(log, self.schemas)
        self.appends = Appends(
            log,
            clock,
            self.streams,
            self.transactions,
            self.namespaces,
            self.schemas,
            total_bytes_max=options.total_bytes_max,
        )
        self.reads = Reads(log, self.streams, self.decoding)
        self.security = Security(log)
        self.access = Access(self.security, options.access, log.ledger.namespaces)
        self.administration = AccessAdministration(self.security, options.access, clock)
        self.authentication = Authentication(self.security, options.access, clock)
        self.rates = RateService(log, clock)
        self.audit = Audit(self, options.audit)
        self.shares = ShareService(log, clock, self.streams)
        self.settings = BrokerSettingsService(log)
        self.subscriptions = SubscriptionService(log, clock, self.streams)
        self.exclusive_producers = ExclusiveProducers(log)
        self.backlogs = Backlogs(log, clock, self.subscriptions, self.appends.refused)
        self.inactivity = Inactivity(log, clock, self.subscriptions, self.cluster, self.delete_topic)
        self._topics = TopicService(
            log,
            clock,
            random,
            self.namespaces,
            topics_max=options.topics_max,
            partitions_max=options.partitions_max,
        )
        self.activity = Activity(clock)
        log.order_appends(self._priority_of, self._saves_cost)
        self.states = PartitionSummaries(log, clock)
        self.writes = WriteService(log, clock, self.streams, self._topics, self.appends)
        self.sinks = SinkService(log, clock, self.appends, self.transactions)
        self.atomic_writes = AtomicWrites(log, clock, self.appends, self.transactions)
        self.diffs = Diffs(log, clock, self.streams, self.decoding)
        self.deletes = DeleteService(log, clock, self.streams)
        self.queues = QueueService(log, clock, random, self.streams, self._topics)
        self.routers = RouterService(
            log, clock, self.streams, self._topics, self.cluster, routers_max=options.routers_max
        )
        self.watching = WatchService(self.streams, self.diffs, self.routers, self.activity)
        self.objects = log.objects or open_store(options.objects_url)
        self.catalog = Catalog(log, random, self.objects, options.objects_url, options.table_locations)
        self.backups = Backups(log, options.data_dir, clock)
        columns = RegistryColumns(log, SubjectSchemas(self.schemas))
        self.lake = Lake(
            log,
            self.objects,
            options.objects_url,
            columns,
            clock,
            random,
            all_topics=options.lake_topics == "all",
        )
        self.sql = SqlService(log, self.streams, self.lake, columns, options.objects_url)
        self.storage_maps = StorageMaps(log, self.lake.store_url)
        self._lake_rounds = PeriodicTask("lake", limits.LAKE_COLLECT_EVERY_S, self.lake.collect)
        self.buckets = BucketService(log, self.objects, clock, random)
        self.table_files = TableFiles(
            log, self.objects, self.streams, self.catalog, S3Locations(self.objects, self.catalog)
        )
        self._bucket_rounds = PeriodicTask("buckets", limits.LAKE_COLLECT_EVERY_S, self.buckets.collect)
        self.erasures = ErasureService(
            log,
            clock,
            random,
            self.deletes,
            self.routers,
            self.objects,
            TableErasure(log, self.objects, options.objects_url, self.catalog, clock),
            options.data_dir,
        )
        self._erasure_rounds = PeriodicTask("erasures", ERASURE_STEP_EVERY_S, self.erasures.round)
        self.topic_tables = TopicTables(
            log, self._topics, self.catalog, self.lake.store_url, columns, clock, random
        )

    @classmethod
    async def open(
        cls, options: BrokerOptions, clock: Clock | None = None, random: Random | None = None
    ) -> Broker:
        """Open the data directory, recover the log and get ready to serve."""
        elapsed_s = SystemClock.boottime if clock is None else None
        clock = SteadyClock(clock or SystemClock(), elapsed_s, options.clock_step_ms)
        random = random or SystemRandom()
        log, lock = await open_log(options, clock, random)
        broker = cls(log, options, clock, random)
        broker._lock = lock
        if log.ledger_ahead_ms > limits.CLOCK_STEP_MS_MAX:
            _log.error(
                "ledger time ahead of clock",
                ahead_ms=log.ledger_ahead_ms,
                action="check the system clock; if it is right, it was wrong once, and leases run on monotonic time",
            )
        if broker.cluster.shared:
            await broker.check_clock()  # before anything depends on the clock
        await broker.catalog.relocate_tables()
        with contextlib.suppress(StoreUnreachable):  # the next start tries again
            await broker.erasures.tidy()
        broker.start_periodic_tasks()
        return broker

    def _priority_of(self, stream: int) -> int:
        topic = self.streams.of_stream(stream)
        return 0 if topic is None else self.activity.priority(topic.topic_id, topic.config)

    def _saves_cost(self, stream: int) -> bool:
        topic = self.streams.of_stream(stream)
        return topic is not None and topic.config.wal_profile == "cost"

    def start_periodic_tasks(self) -> None:
        """Start the periodic tasks. Each runs on one broker of a cluster at a time."""
        self._log.maintains = partial(self.cluster.runs_here, "upkeep")
        for task in self._periodic_tasks:
            task.runs_here = partial(self.cluster.runs_here_on_trusted_clock, task.name)
            task.start()
        if self.cluster.shared:
            self._clock_task.start()
        self.backlogs.refusing.start()
        self.inactivity.rounds.start()
        self.groups.start()
        self.routers.start()
        self.audit.start()

    async def check_clock(self) -> None:
        """Check whether this broker may do work that depends on the clock."""
        own = self._own_clock
        source = own.source if isinstance(own, SteadyClock) else own
        off_ms = await clock_off_ms(self.objects, source, self._random)
        if isinstance(own, SteadyClock) and not off_ms:
            own.accept()  # the store's clock, which all brokers have in common, agrees
        self.cluster.take_clock(off_ms)

    @property
    def clock_ahead_ms(self) -> int:
        """How far the system clock is ahead of the time that the server keeps, or ledger time ahead of the clock."""
        own = self._own_clock
        refused = own.refused_ms if isinstance(own, SteadyClock) else 0
        return max(refused, self._log.ledger_ahead_ms)

    @property
    def _periodic_tasks(self) -> tuple[PeriodicTask, ...]:
        return (
            self.retention.rounds,
            self.retention.expiries,
            self.backlogs.skipping,
            self.transactions.rounds,
            self.sinks.rounds,
            self._lake_rounds,
            self._bucket_rounds,
            self._erasure_rounds,
        )

    async def close(self) -> None:
        """Drain, sync, checkpoint and release the directory."""
        await self.audit.close()
        await self.groups.stop()
        await self.cluster.leave()
        await self.queues.close()
        await self.shares.close()
        await self.subscriptions.close()
        await self.routers.close()
        for task in (*self._periodic_tasks, self.backlogs.refusing, self.inactivity.rounds, self._clock_task):
            await task.stop()
        await self.watching.close()
        await self.sql.close()
        self.decoding.close()
        self.appends.close()
        self.schemas.close()
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
        """Identifies this broker's log."""
        return self._log.identity

    async def barrier(self) -> None:
        """Apply everything that any broker had committed before the call, and make it readable."""
        await self._log.barrier()

    async def refresh(self) -> None:
        """As `barrier`, for an answer about what exists now. Without a store, the answer is what this broker knows."""
        await self._log.refresh()

    async def catch_up(self) -> None:
        """As `barrier`, but only where clients take several brokers for one server: workers that share their ports."""
        await self._log.catch_up()

    @property
    def ledger_time_ms(self) -> int:
        """The time by which leases and transactions end."""
        return self._log.now_ms()

    @property
    def position(self) -> int:
        """How many commits are applied."""
        return self._log.ledger.position

    @property
    def unwritable(self) -> MainstemError | None:
        """Why writes are refused now, if so."""
        return self._log.unwritable

    @property
    def last_position(self) -> int:
        """Position of the newest commit applied."""
        return self._log.ledger.position - 1

    def metrics(self) -> Iterator[Metric]:
        """What the server holds and did, apart from its doors."""
        return broker_metrics(self)

    def compact_now(self) -> None:
        """Compact topics without waiting for the next round."""
        if self._log.repacker is not None:
            self._log.repacker.wake()

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
        """Raises InvalidName, InvalidInput, TopicExists (unless `exist_ok`). `dry_run` only checks."""
        return await self._topics.create(
            name, partitions=partitions, config=config, exist_ok=exist_ok, dry_run=dry_run
        )

    async def make_topic(self, name: str, config: TopicConfig) -> Topic:
        """Like `create_topic`, with the name rules and the topic limit of the HTTP door. Raises Throttled too."""
        return await self._topics.make(name, config)

    async def delete_topic(self, name: str, *, if_empty: bool = False) -> Topic:
        """Raises TopicNotFound; with `if_empty`, TopicNotEmpty."""
        topic = await self._topics.delete(name, if_empty=if_empty)
        self.activity.forget(topic.topic_id)
        self.queues.forget(topic.streams)
        self.subscriptions.forget(topic.streams)
        return topic

    async def alter_topic(self, name: str, config: TopicConfig) -> Topic:
        """Replace the config. Raises TopicNotFound, InvalidConfig."""
        return await self._topics.alter(name, config)

    async def change_topic(
        self, name: str, change: Callable[[TopicConfig], TopicConfig], *, dry_run: bool = False
    ) -> Topic:
        """Replace the config by the result of `change`. Concurrent changes do not overwrite each other.

        Raises TopicNotFound, InvalidConfig. `dry_run` only checks."""
        changed = await self._topics.change(name, change, dry_run=dry_run)
        self.subscriptions.limit(changed.streams)
        return changed

    async def add_partitions(self, name: str, total: int, *, dry_run: bool = False) -> Topic:
        """Grow a topic to `total` partitions; it never shrinks. `dry_run` only checks."""
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

    def producer_rights(
        self, principal: Principal, host: str, transactional_id: str | None = None
    ) -> ProducerRights:
        """Which producer ids a client may write with, in requests that name this transactional id."""

        def may_write(id: str) -> bool:
            kind = ResourceType.TRANSACTIONAL_ID
            return self.access.allows(principal, host, Operation.WRITE, kind, shown_id(id))

        ledger = self._log.ledger
        return ProducerRights(ledger.transactions, ledger.producers, principal, may_write, transactional_id)

    async def append(self, name: str, batches: bytearray, partition: int = 0) -> Appended:
        """Append received record batches. Takes ownership of the buffer and stamps it."""
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
        """Append Python values as one batch, all or nothing."""
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
        """The first offset with a timestamp of `timestamp_ms` or later; the end offset if there is none."""
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
        return await self.retention.enforce()

    # Cursors

    async def take(self, name: str, group: str, *, partition: int = 0, limit: int = 1) -> list[Record]:
        """Consume the next records at a group's shared cursor. No other caller gets them. Empty at the end."""
        return await self.reads.take(name, group, partition=partition, limit=limit)

    async def commit_offset(
        self, group: str, name: str, offset: int, partition: int = 0, metadata: str = ""
    ) -> None:
        """Store a group's next offset to read."""
        await self._log.propose(self._committed(group, name, offset, partition, metadata))

    def commit_offset_now(
        self, group: str, name: str, offset: int, partition: int = 0
    ) -> tuple[asyncio.Future[None], int] | None:
        """As `commit_offset`, in the calling thread, without the event loop: see `Committer.propose_now`."""
        return self._log.direct.propose_now(self._committed(group, name, offset, partition))

    def _committed(
        self, group: str, name: str, offset: int, partition: int, metadata: str = ""
    ) -> CommitOffsets:
        if offset < 0:
            raise InvalidInput(f"{offset} is not an offset that can be committed")
        return CommitOffsets(group, ((self.stream(name, partition), offset, metadata),))

    def committed(self, group: str, name: str, partition: int = 0) -> int | None:
        """The group's next offset to read, None if it never committed."""
        cursor = self._log.ledger.cursors.get(group, self.stream(name, partition))
        return None if cursor is None else cursor.offset

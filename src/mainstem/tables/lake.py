"""The lake: leases tasks, makes the parts that they write serve reads, and reports progress."""

from __future__ import annotations

from typing import NamedTuple

from mainstem import events, limits
from mainstem.api.lake import (
    CollectResult,
    LakeStatus,
    LeasedTask,
    PartitionProgress,
    Plan,
    PlanRequest,
    Publication,
    Sources,
    TopicProgress,
)
from mainstem.errors import InvalidInput, StalePlan
from mainstem.ledger.generations import PartsSwapped, SwapParts, task_of
from mainstem.ledger.parts import prefix_of
from mainstem.ledger.streams import MarkLost
from mainstem.ledger.tasks import ExtendTask, ReleaseTask, TaskLeased
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random
from mainstem.ports.objectstore.open import public_url
from mainstem.ports.objectstore.port import ObjectStore
from mainstem.records.undecodable import UNDECODABLE
from mainstem.tables.garbage import LakeGarbage
from mainstem.tables.planning import LakePlanner
from mainstem.tables.record_locations import RecordLocator
from mainstem.tables.registry import RegistryColumns

_events = events.named("lake")


class TopicLag(NamedTuple):
    topic: str
    records: int  # not in a Parquet file yet
    table_records: int | None  # not in the topic's table yet; None: it has no table


class Lake:
    def __init__(
        self,
        log: Log,
        store: ObjectStore,
        store_url: str,
        columns: RegistryColumns,
        clock: Clock,
        random: Random,
        *,
        all_topics: bool,
    ) -> None:
        self._log = log
        self._clock = clock
        self.store = store
        self.store_url = public_url(store_url)
        self._record_locator = RecordLocator(log, self.store_url)
        self._planning = LakePlanner(log, self._record_locator, columns, clock, random, all_topics=all_topics)
        self._garbage = LakeGarbage(log, store, clock)

    async def plan(self, request: PlanRequest) -> Plan:
        """Lease the tasks that are due, one lease a stream. Raises InvalidInput."""
        return await self._planning.plan(request)

    async def sources(self, stream: int, start: int, end: int) -> Sources:
        """Where the committed records of [start, end), or of a prefix of it, are.

        Raises OffsetOutOfRange, NotFound."""
        return await self._record_locator.readable(stream, start, end)

    async def publish(self, publication: Publication) -> int:
        """Serve a range from these parts. Returns the frontier. Raises StalePlan, InvalidInput, NotFound."""
        await self._check_files(publication)
        self._check_tables(publication)
        await self._mark_undecodable(publication)
        swapped: PartsSwapped = await self._log.propose(
            SwapParts(publication.stream, publication.token, publication.sources, publication.parts)
        )
        return swapped.frontier

    async def _mark_undecodable(self, publication: Publication) -> None:
        """Record what the parts lack before they serve reads: from then on no reader meets the batches."""
        stream, parts = publication.stream, publication.parts
        lease = self._log.ledger.tasks.get(task_of(stream))
        if not publication.undecodable or not parts or lease is None or lease.token != publication.token:
            return  # if the lease is over, the swap is refused
        for start, end in publication.undecodable:
            start, end = max(start, parts[0].base), min(end, parts[-1].end)
            if start < end:
                await self._log.propose(MarkLost(stream, start, end, UNDECODABLE))
                _events.error("undecodable records", stream=stream, start=start, end=end)

    async def extend(self, stream: int, token: int, lease_ms: int) -> int:
        """Extend the lease of a stream's tasks to `lease_ms` from now. Returns the deadline. Raises StalePlan."""
        leased: TaskLeased = await self._log.propose(ExtendTask(task_of(stream), token, lease_ms))
        return leased.deadline_ms

    async def release(self, stream: int, token: int) -> None:
        """Release a stream's tasks. Does nothing if the lease has expired."""
        await self._log.propose(ReleaseTask(task_of(stream), token))

    async def collect(self) -> CollectResult:
        """Delete garbage, in the log and among the part files."""
        files = await self._garbage.collect()
        return CollectResult(await self._log.collect(), files)

    async def _check_files(self, publication: Publication) -> None:
        """Check that the store has the files before the ledger serves records from them."""
        owner = self._log.ledger.topics.of_stream(publication.stream)
        files = [file for part in publication.parts for file in part.files]
        if owner is None or not files:
            return
        if len(files) > limits.SWAP_FILES_MAX:
            raise InvalidInput(f"a publication may have 1 to {limits.SWAP_FILES_MAX} parts and files")
        folder = prefix_of(owner, publication.stream)
        if not all(file.key.startswith(folder) for file in files):
            raise InvalidInput(f"the keys of this stream's files must start with {folder!r}")
        # The keys of one publication share a long prefix, so the listing has few other files.
        named = _shared_start([file.key for file in files])
        stored = {found.key: found.size_bytes async for found in self.store.list(named)}
        for file in files:
            if stored.get(file.key) != file.bytes:
                raise StalePlan(
                    f"the store has {stored.get(file.key, 'no')} bytes of {file.key!r}, not {file.bytes}"
                )

    def _check_tables(self, publication: Publication) -> None:
        """Reject parts that were merged across the published end of a table: its next snapshot would both replace and
        append. A new plan keeps the two sides apart. Raises StalePlan."""
        owner = self._log.ledger.topics.of_stream(publication.stream)
        if owner is None:
            return
        shown_to = self._log.ledger.tables.shown_to(owner.topic_id, publication.stream)
        if shown_to & {end for _, end, _ in publication.sources[:-1]}:
            raise StalePlan(f"a table of topic {owner.name!r} published some of these parts meanwhile")

    # Status

    def status(self) -> LakeStatus:
        ledger = self._log.ledger
        # Most topics of a large server have no parts, so this check must be cheap.
        parts = ledger.generations.parts
        topics = [
            self.progress(topic)
            for topic in ledger.topics
            if self._planning.wanted(topic) or any(map(parts, topic.streams))
        ]
        return LakeStatus(
            self.store_url,
            topics,
            [LeasedTask(lease.task, lease.holder, lease.deadline_ms) for lease in ledger.tasks],
            len(ledger.generations.garbage()),
            self._clock.now_ms(),
        )

    def lags(self) -> list[TopicLag]:
        """The lag of every topic that is materialised."""
        ledger = self._log.ledger
        found = []
        for topic in ledger.topics:
            if not self._planning.wanted(topic):
                continue
            ends = [(stream, self._log.streams.of(stream).stable_end(stream)) for stream in topic.streams]
            frontier = ledger.generations.frontier
            table = ledger.tables.of_topic(topic.topic_id)
            found.append(
                TopicLag(
                    topic.name,
                    sum(max(0, end - frontier(stream)) for stream, end in ends),
                    None
                    if table is None
                    else sum(max(0, end - table.stream(stream).to) for stream, end in ends),
                )
            )
        return found

    def progress(self, topic: Topic) -> TopicProgress:
        """The progress of one topic."""
        partitions = [self._partition(number, stream) for number, stream in enumerate(topic.streams)]
        return TopicProgress(
            topic.name,
            topic.topic_id.hex(),
            self._planning.wanted(topic),
            partitions,
            sum(one.lag_records for one in partitions),
            sum(one.file_bytes for one in partitions),
        )

    def _partition(self, partition: int, stream: int) -> PartitionProgress:
        generations = self._log.ledger.generations
        start, end = (
            self._log.streams.of(stream).bounds(stream)[0],
            self._log.streams.of(stream).stable_end(stream),
        )
        parts = generations.parts(stream)
        reached = generations.frontier(stream)
        return PartitionProgress(
            partition,
            stream,
            start,
            end,
            reached,
            max(0, end - reached),
            len(parts),
            sum(len(part.files) for part in parts),
            sum(part.bytes for part in parts),
            sum(part.records for part in parts),
            len(generations.stale(stream)),
            sorted({part.generation for part in parts}),
            self._published_to(stream),
        )

    def _published_to(self, stream: int) -> int | None:
        topic = self._log.ledger.topics.of_stream(stream)
        table = self._log.ledger.tables.of_topic(topic.topic_id) if topic is not None else None
        return None if table is None else table.stream(stream).to


def _shared_start(keys: list[str]) -> str:
    """The common prefix of the keys: that of the first and the last in order."""
    first, last = min(keys), max(keys)
    same = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), None)
    return first[:same]

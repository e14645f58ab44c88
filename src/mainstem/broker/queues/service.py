"""Queues: jobs are claimed under a lease, then acknowledged, returned, or available again when the lease expires.

The ledger decides who holds a job when it applies a claim. A claim with volatile leases is answered once it is
written; one with durable leases once it is synced, or with an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from mainstem import limits
from mainstem.broker.queues.dead_letters import DeadLetters
from mainstem.broker.queues.job_errors import JobErrors
from mainstem.broker.queues.jobs import JobReader
from mainstem.broker.queues.signals import QueueSignal, QueueSignals
from mainstem.broker.streams import StreamService, stream_of
from mainstem.broker.topics.floors import expire_due, expired_to
from mainstem.broker.topics.service import TopicService
from mainstem.errors import (
    Closed,
    InvalidInput,
    MainstemError,
    NotAQueue,
    NotFound,
    TooLarge,
    TopicNotFound,
)
from mainstem.ledger.leases import ranges_of
from mainstem.ledger.queues import (
    Ack,
    Claim,
    ExpireLeases,
    Extend,
    JobsChanged,
    JobsClaimed,
    JobsGranted,
    Nack,
)
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random
from mainstem.records.decoding import Headers

LEASES_SHOWN = 500
QUEUE_NODE_BYTES_MAX = 128
CLAIMERS_SERVED_MAX = 1_000  # claims served by one commit, where claims are collected

_TOKEN_BYTES = 8


class ClaimedJob(NamedTuple):
    """A job leased to one claimer, up to and including the deadline."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    deliveries: int  # how often it was delivered, this time included
    token: int  # of the lease
    deadline_ms: int


class Claims(NamedTuple):
    jobs: list[ClaimedJob]
    ready: int  # jobs that can still be claimed


class QueueCounts(NamedTuple):
    ready: int
    in_flight: int
    dead_lettered: int


class LeasedJob(NamedTuple):
    """A job that is leased, or was returned with a delay."""

    offset: int
    node: str  # "" = not leased, but delayed
    until_ms: int  # end of the lease or of the delay
    deliveries: int
    token: int


class _Claimer(NamedTuple):
    node: str
    limit: int
    lease_ms: int
    token: int
    granted: asyncio.Future[tuple[JobsGranted, JobsClaimed]]


class QueueService:
    """Every method raises TopicNotFound, PartitionNotFound or NotAQueue for a name that is not a queue."""

    def __init__(
        self, log: Log, clock: Clock, random: Random, streams: StreamService, topics: TopicService
    ) -> None:
        self._log = log
        self._clock = clock
        self._random = random
        self._broker_id = log.broker
        self._reader = JobReader(streams)
        self._errors = JobErrors()
        self._dead_letters = DeadLetters(log, clock, self._reader, topics, self._errors)
        self._wake_signals = QueueSignals(log, clock, self._expire)
        self._gathering: dict[int, list[_Claimer]] = {}  # by stream: claims to serve together
        self._servings: dict[asyncio.Task[None], list[_Claimer]] = {}

    async def close(self) -> None:
        self._wake_signals.close()
        servings = dict(self._servings)
        for task in servings:
            task.cancel()
        await asyncio.gather(*servings, return_exceptions=True)
        for gathered in servings.values():
            _refuse(gathered, Closed("the broker is closing"))

    # Claiming

    async def claim(
        self, name: str, node: str, *, limit: int = 1, lease_ms: int | None = None, partition: int = 0
    ) -> Claims:
        """Lease up to `limit` jobs to a node: returned ones first, then new ones, by offset.

        `limit` and `lease_ms` are clamped to their bounds; `lease_ms` defaults to the topic's setting."""
        topic, stream = self._queue(name, partition)
        check_node(node)
        limit = min(max(limit, 1), limits.CLAIM_JOBS_MAX)
        lease_ms = clamped_lease(topic.config.lease_ms if lease_ms is None else lease_ms)
        try:
            await self._expire_records(topic, stream)
            while True:
                granted, claimed = await self._grant(topic, stream, node, limit, lease_ms)
                jobs = await self._jobs(stream, granted)
                if claimed.exhausted:
                    await self._dead_letters.move(topic, stream)
                # All claimed jobs may be deleted or lost in the meantime: then claim again.
                if jobs or not granted.offsets:
                    break
        except NotFound:
            raise TopicNotFound(name) from None
        wake_signal = self._wake_signals.get(stream)
        if wake_signal is not None:
            wake_signal.arm()
        return Claims(jobs, self._ready(stream) if claimed.exhausted else claimed.ready)

    async def _grant(
        self, topic: Topic, stream: int, node: str, limit: int, lease_ms: int
    ) -> tuple[JobsGranted, JobsClaimed]:
        # Never 0, which means no token.
        token = int.from_bytes(self._random.token(_TOKEN_BYTES), "little") | 1
        if not topic.config.claim_jitter_ms:
            command = Claim(stream, ((node, limit, lease_ms, token),), self._broker_id)
            claimed: JobsClaimed = await self._log.streams.of(stream).change_queue(command)
            return claimed.grants[0], claimed
        claimer = _Claimer(node, limit, lease_ms, token, asyncio.get_running_loop().create_future())
        gathered = self._gathering.get(stream)
        if gathered is None or len(gathered) >= CLAIMERS_SERVED_MAX:
            gathered = self._gathering[stream] = []
            task = asyncio.create_task(self._serve(stream, gathered, topic.config.claim_jitter_ms / 1000))
            self._servings[task] = gathered
            task.add_done_callback(self._servings.pop)
        gathered.append(claimer)
        return await claimer.granted

    async def _serve(self, stream: int, gathered: list[_Claimer], after_s: float) -> None:
        """Serve the collected claimers in one pass, a job each in turn."""
        try:
            await asyncio.sleep(after_s)
            if self._gathering.get(stream) is gathered:
                del self._gathering[stream]
            waiting = [claimer for claimer in gathered if not claimer.granted.done()]
            if not waiting:
                return
            claimers = tuple((c.node, c.limit, c.lease_ms, c.token) for c in waiting)
            claimed: JobsClaimed = await self._log.streams.of(stream).change_queue(
                Claim(stream, claimers, self._broker_id)
            )
            for claimer, granted in zip(waiting, claimed.grants, strict=True):
                if not claimer.granted.done():
                    claimer.granted.set_result((granted, claimed))
                else:  # the claimer left while the jobs were leased to it
                    await self._log.streams.of(stream).change_queue(
                        Nack(stream, claimer.node, tuple(granted.offsets))
                    )
        except MainstemError as error:
            _refuse(gathered, error)

    async def _jobs(self, stream: int, granted: JobsGranted) -> list[ClaimedJob]:
        if not granted.offsets:
            return []
        records = await self._reader.read(stream, granted.offsets)
        jobs = [
            ClaimedJob(*record, deliveries, granted.token, granted.deadline_ms)
            for record, deliveries in zip(records, granted.deliveries, strict=True)
            if record is not None
        ]
        if len(jobs) < len(records):
            # Offsets without a record are not jobs: delete them.
            missing = set(granted.offsets).difference(job.offset for job in jobs)
            await self._log.streams.of(stream).delete(stream, tuple(ranges_of(missing)), 0)
        return jobs

    async def _expire_records(self, topic: Topic, stream: int) -> None:
        await expire_due(self._log, stream)
        if topic.config.ttl_ms:
            streams, number = self._log.streams.of(stream).state(stream)
            floor = expired_to(streams, number, self._clock.now_ms() - topic.config.ttl_ms)
            if floor > streams.start(number):
                await self._log.streams.of(stream).trim(stream, floor, "ttl")

    # Settling

    async def ack(
        self, name: str, node: str, offsets: Sequence[int], tokens: Sequence[int] = (), partition: int = 0
    ) -> JobsChanged:
        """Delete the jobs that the node holds now, under these tokens if any are given; skip the others."""
        stream = self._settled_queue(name, partition, node, offsets, tokens)
        return await self._settle(name, stream, Ack(stream, node, tuple(offsets), tuple(tokens)))

    async def nack(
        self,
        name: str,
        node: str,
        offsets: Sequence[int],
        tokens: Sequence[int] = (),
        *,
        delay_ms: int = 0,
        partition: int = 0,
        error: str | None = None,
    ) -> JobsChanged:
        """Return jobs: they can be claimed again after the delay. `error`: why they failed."""
        stream = self._settled_queue(name, partition, node, offsets, tokens)
        delay_ms = min(max(delay_ms, 0), limits.NACK_DELAY_MS_MAX)
        command = Nack(stream, node, tuple(offsets), tuple(tokens), delay_ms)
        returned = await self._settle(name, stream, command)
        if error:
            for offset in returned.offsets:
                self._errors.note(stream, offset, error)
        return returned

    async def extend(
        self,
        name: str,
        node: str,
        offsets: Sequence[int],
        tokens: Sequence[int] = (),
        *,
        lease_ms: int,
        partition: int = 0,
    ) -> JobsChanged:
        """Extend leases to `lease_ms` from now."""
        stream = self._settled_queue(name, partition, node, offsets, tokens)
        command = Extend(stream, node, tuple(offsets), clamped_lease(lease_ms), tuple(tokens))
        return await self._settle(name, stream, command)

    async def _settle(self, name: str, stream: int, command: Ack | Nack | Extend) -> JobsChanged:
        try:
            changed: JobsChanged = await self._log.streams.of(stream).change_queue(command)
        except NotFound:
            raise TopicNotFound(name) from None
        wake_signal = self._wake_signals.get(stream)
        if wake_signal is not None:
            wake_signal.changed()
        return changed

    def _settled_queue(
        self, name: str, partition: int, node: str, offsets: Sequence[int], tokens: Sequence[int]
    ) -> int:
        _, stream = self._queue(name, partition)
        check_node(node)
        if len(offsets) > limits.CLAIM_JOBS_MAX:
            raise TooLarge(f"a request names at most {limits.CLAIM_JOBS_MAX} jobs, not {len(offsets)}")
        if tokens and len(tokens) != len(offsets):
            raise InvalidInput(f"{len(tokens)} lease ids for {len(offsets)} jobs: send one per job, or none")
        return stream

    # State

    async def state(self, name: str, partition: int = 0) -> QueueCounts:
        """How many jobs can be claimed now, how many are leased, and how many became dead letters so far."""
        _, stream = self._queue(name, partition)
        queues, number = self._log.streams.of(stream).queue(stream)
        leases = queues.leases(number)
        due_ms = leases.next_change_ms if leases else None
        if due_ms is not None and due_ms <= self._log.now_ms() and self._log.refusal is None:
            await self._expire(stream)
        return QueueCounts(queues.ready(number), queues.in_flight(number), queues.dead_lettered(number))

    async def _expire(self, stream: int) -> None:
        await self._log.streams.of(stream).change_queue(ExpireLeases(stream))

    def ready(self, name: str, partition: int = 0) -> int:
        """Available jobs as of the last command, without checking the clock."""
        return self._ready(self._queue(name, partition)[1])

    def _ready(self, stream: int) -> int:
        queues, number = self._log.streams.of(stream).queue(stream)
        return queues.ready(number)

    def holds(self, name: str, offset: int, token: int, partition: int = 0) -> bool:
        """Whether the lease with this token is still held."""
        _, stream = self._queue(name, partition)
        queues, number = self._log.streams.of(stream).queue(stream)
        leases = queues.leases(number)
        grant = leases.holder(offset) if leases else None
        return grant is not None and grant.token == token

    def held(self, name: str, partition: int = 0) -> list[LeasedJob]:
        """The first leased jobs, then the first delayed ones."""
        _, stream = self._queue(name, partition)
        queues, number = self._log.streams.of(stream).queue(stream)
        leases = queues.leases(number)
        if leases is None:
            return []
        shown = LEASES_SHOWN
        leased = [
            LeasedJob(offset, grant.node, grant.deadline_ms, leases.deliveries(offset), grant.token)
            for offset, grant in leases.holders(shown)
        ]
        delayed = [
            LeasedJob(offset, "", due_ms, leases.deliveries(offset), 0)
            for offset, due_ms in leases.delayed(shown)
        ]
        return leased + delayed

    def wake_signal(self, name: str, partition: int = 0) -> QueueSignal:
        """A signal for when a claim may get jobs again. Release it with `QueueSignal.leave`."""
        return self._wake_signals.open(self._queue(name, partition)[1])

    def forget(self, streams: Sequence[int]) -> None:
        """The topic of these streams is deleted."""
        for stream in streams:
            self._reader.forget(stream)
            self._dead_letters.forget(stream)

    def _queue(self, name: str, partition: int) -> tuple[Topic, int]:
        topic = self._log.ledger.topics.get(name)
        if topic is None:
            raise TopicNotFound(name)
        if topic.config.type != "queue":
            raise NotAQueue(name)
        return topic, stream_of(topic, partition)


def _refuse(claimers: list[_Claimer], error: MainstemError) -> None:
    for claimer in claimers:
        if not claimer.granted.done():
            claimer.granted.set_exception(error)


def check_node(node: str) -> None:
    if not 1 <= len(node.encode()) <= QUEUE_NODE_BYTES_MAX:
        raise InvalidInput(f"a node's name has 1 to {QUEUE_NODE_BYTES_MAX} bytes")


def clamped_lease(lease_ms: int) -> int:
    return min(max(lease_ms, limits.LEASE_MS_MIN), limits.LEASE_MS_MAX)

"""Transactions: several partitions and group offsets change together, or not at all."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from mainstem import limits
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.errors import ProducerUnknown, TransactionNotFound
from mainstem.ledger.producers import AllocateProducer, ExpireProducers, ProducerAllocated
from mainstem.ledger.transactions import (
    AddGroupToTransaction,
    AddStreamsToTransaction,
    EndTransaction,
    ExpireTransactions,
    ForgetTransactionalIds,
    InitProducer,
    ProducerInitialised,
    Transaction,
    TransactionEnded,
    TransactionOffsets,
    TransactionPhase,
    TransactionsExpired,
)
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records.header import SliceFacts

__all__ = ["ProducerInfo", "ProducerStamp", "TransactionInfo", "TransactionPhase", "TransactionService"]

_log = logging.getLogger("mainstem.transactions")


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transactional id, and its present or last transaction."""

    id: str
    producer: int
    epoch: int
    timeout_ms: int
    phase: TransactionPhase
    started_ms: int  # -1 = there was none yet
    partitions: dict[str, list[int]]  # by topic, of the open transaction


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """A producer that wrote to a partition."""

    producer: int
    epoch: int
    last_sequence: int
    heard_ms: int  # when it last wrote, to the minute
    last_offset: int  # where its last batch begins
    open_since: int  # first offset of its open transaction in the partition; -1 = none


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """Who writes: a transactional id, and the producer id and epoch it was given."""

    id: str
    producer: int
    epoch: int


class TransactionService:
    """What a transactional producer may do; the ledger decides, this proposes and times out."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self.rounds = PeriodicTask("transactions", limits.TRANSACTIONS_CHECK_EVERY_S, self.enforce)

    # Producers

    async def new_producer(self) -> tuple[int, int]:
        """A producer id and epoch for a producer that is idempotent and no more."""
        allocated: ProducerAllocated = await self._log.propose(AllocateProducer())
        return allocated.producer, 0

    async def initialise(
        self, id: str, timeout_ms: int, producer: int = -1, epoch: int = -1
    ) -> tuple[int, int]:
        """The producer id and epoch to write with. Earlier epochs are fenced, what they left open is aborted.

        Raises ProducerFenced if `producer` and `epoch` are given and a newer one has taken over,
        InvalidTransactionTimeout, LimitReached."""
        started: ProducerInitialised = await self._log.propose(InitProducer(id, timeout_ms, producer, epoch))
        return started.producer, started.epoch

    # One transaction. All of these raise ProducerUnknown, ProducerFenced

    async def add_partitions(self, stamp: ProducerStamp, streams: Sequence[int]) -> None:
        """Begin or widen a transaction. Raises StreamNotFound, LimitReached."""
        await self._log.propose(
            AddStreamsToTransaction(stamp.id, stamp.producer, stamp.epoch, tuple(streams))
        )

    async def add_group(self, stamp: ProducerStamp, group: str) -> None:
        """Begin or widen a transaction by a group's offsets. Raises LimitReached."""
        await self._log.propose(AddGroupToTransaction(stamp.id, stamp.producer, stamp.epoch, group))

    async def commit_offsets(
        self,
        stamp: ProducerStamp,
        group: str,
        offsets: Sequence[tuple[int, int, str]],
        leader_epochs: Sequence[int] = (),
        *,
        joins: bool = False,
    ) -> None:
        """Positions (stream, next offset, metadata) that count if the transaction commits.

        Raises InvalidTransaction unless `add_group` was called in this transaction, or this `joins` by itself."""
        await self._log.propose(
            TransactionOffsets(
                stamp.id, stamp.producer, stamp.epoch, group, tuple(offsets), tuple(leader_epochs), joins
            )
        )

    def joining(self, id: str, facts: SliceFacts) -> SliceFacts:
        """The same batch, so that its partition becomes part of the id's transaction without `add_partitions`.

        Raises ProducerUnknown if its producer is another id's: who may write for the one may not for the other."""
        holder = self._log.ledger.transactions.of_producer(facts.producer)
        if holder is not None and holder.id != id:
            raise ProducerUnknown(f"transactional id {id[:64]!r} is not held by producer {facts.producer}")
        return facts._replace(joins=True)

    async def end(self, stamp: ProducerStamp, *, commit: bool, bump: bool = False) -> ProducerStamp:
        """Commit or abort. Returns what to write with from now on: `bump` makes it another, which fences all
        that was sent before. Raises InvalidTransaction if there is nothing to end."""
        ended: TransactionEnded = await self._log.propose(
            EndTransaction(stamp.id, stamp.producer, stamp.epoch, commit, bump)
        )
        return ProducerStamp(stamp.id, ended.producer, ended.epoch) if bump else stamp

    async def abort(self, id: str) -> bool:
        """Abort what an id has open, as if its time were over: its producer is fenced. False if nothing is open.

        Raises TransactionNotFound."""
        info = self.describe(id)
        expired: TransactionsExpired = await self._log.propose(
            ExpireTransactions(((id, info.producer, info.epoch),), resumable=True)
        )
        return bool(expired.ids)

    # Looking

    def pending(self, group: str) -> set[int]:
        """Streams whose position in the group an open transaction may change."""
        return self._log.ledger.transactions.pending(group)

    def describe(self, id: str) -> TransactionInfo:
        """Raises TransactionNotFound."""
        one = self._log.ledger.transactions.get(id)
        if one is None:
            raise TransactionNotFound(id)
        return self._info(one)

    def all(self) -> list[TransactionInfo]:
        """By id."""
        found = [self._info(one) for one in self._log.ledger.transactions]
        return sorted(found, key=lambda info: info.id)

    def producers(self, stream: int) -> list[ProducerInfo]:
        """Producers that wrote to a stream and are remembered, by id."""
        ledger = self._log.ledger
        return [
            ProducerInfo(*facts, open_since=ledger.streams.transactions.open_since(stream, facts[0]))
            for facts in ledger.producers.of_stream(stream)
        ]

    def _info(self, one: Transaction) -> TransactionInfo:
        partitions: dict[str, list[int]] = {}
        for stream in one.streams:
            topic = self._log.ledger.topics.of_stream(stream)
            if topic is not None:
                partitions.setdefault(topic.name, []).append(topic.streams.index(stream))
        return TransactionInfo(
            one.id, one.producer, one.epoch, one.timeout_ms, one.phase, one.started_ms, partitions
        )

    # Timeouts

    async def enforce(self) -> tuple[str, ...]:
        """Abort what takes longer than its producer allowed, forget ids long unused. Returns what expired."""
        now = self._clock.now_ms()
        ledger = self._log.ledger
        if ledger.producers.any_idle_since(now - limits.PRODUCER_IDLE_MS):
            await self._log.propose(ExpireProducers(now - limits.PRODUCER_IDLE_MS))
        idle = next(iter(ledger.transactions), None)
        if idle is not None and idle.updated_ms < now - limits.TRANSACTIONAL_ID_IDLE_MS and not idle.open:
            await self._log.propose(ForgetTransactionalIds(now - limits.TRANSACTIONAL_ID_IDLE_MS))
        late = tuple(
            (one.id, one.producer, one.epoch)
            for one in ledger.transactions.open()
            if one.started_ms + one.timeout_ms <= now
        )
        if not late:
            return ()
        expired: TransactionsExpired = await self._log.propose(ExpireTransactions(late, resumable=True))
        for id in expired.ids:
            _log.warning("transaction timed out and was aborted", extra={"transactional_id": id})
        return expired.ids

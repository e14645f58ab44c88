"""Transactions: changes of several partitions and group offsets that take effect together, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mainstem import events
from mainstem.broker.periodic_tasks import PeriodicTask
from mainstem.errors import InvalidTransaction, ProducerUnknown, TransactionNotFound
from mainstem.ledger.producers import AllocateProducer, ExpireProducers, ProducerAllocated
from mainstem.ledger.subscriptions import Range
from mainstem.ledger.transactional_ids import Transaction, TransactionPhase
from mainstem.ledger.transactions import (
    TWO_PHASE_TIMEOUT_MS,
    AckInTransaction,
    AddGroupToTransaction,
    AddStreamsToTransaction,
    BeginTransaction,
    EndTransaction,
    ExpireTransactions,
    ForgetTransactionalIds,
    InitProducer,
    ProducerInitialised,
    TransactionBegun,
    TransactionEnded,
    TransactionOffsets,
    TransactionsExpired,
)
from mainstem.log.log import Log
from mainstem.ports.clock import Clock
from mainstem.records.header import SliceFacts

PRODUCER_IDLE_MS = 7 * 24 * 3600 * 1000
TRANSACTIONAL_ID_IDLE_MS = 7 * 24 * 3600 * 1000  # an id unused for this long is deleted
TRANSACTION_WRITES_KEPT = 1_000  # beyond these, those of ended transactions are dropped
TRANSACTIONS_CHECK_EVERY_S = 1.0  # interval of checks for timed-out transactions

__all__ = [
    "OwnedTransaction",
    "ProducerInfo",
    "ProducerStamp",
    "StartedProducer",
    "TransactionInfo",
    "TransactionPhase",
    "TransactionService",
    "TransactionWrites",
]

_log = events.named("transactions")


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transactional id, and its present or last transaction."""

    id: str
    producer: int
    epoch: int
    timeout_ms: int
    phase: TransactionPhase
    started_ms: int  # -1 = no transaction yet
    partitions: dict[str, list[int]]  # by topic, of the open transaction


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """A producer that wrote to a partition."""

    producer: int
    epoch: int
    last_sequence: int
    heard_ms: int  # time of its last write, to the minute
    last_offset: int  # where its last batch begins
    open_since: int  # first offset of its open transaction in the partition; -1 = none


class StartedProducer(NamedTuple):
    """What a producer writes with."""

    producer: int
    epoch: int
    kept: tuple[int, int] | None = None  # the producer and epoch that wrote the transaction it has kept


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """The writer: a transactional id with its producer id and epoch."""

    id: str
    producer: int
    epoch: int


@dataclass(frozen=True, slots=True)
class OwnedTransaction:
    """An open transaction with an id that is used once."""

    stamp: ProducerStamp
    owner: str  # the principal that began it


class TransactionWrites:
    """The sequence numbers of the batches that an open transaction writes."""

    def __init__(self, stamp: ProducerStamp, next_sequence: Callable[[int, int], int]) -> None:
        self.id = stamp.id
        self._stamp = stamp
        self._next_sequence = next_sequence
        self._next: dict[int, int] = {}  # by stream
        self.failed: set[int] = set()  # streams that take no more batches of the transaction

    def next_batch(self, stream: int) -> tuple[int, int, int]:
        """Producer, epoch and sequence number of the next batch. Raises InvalidTransaction."""
        if stream in self.failed:
            raise InvalidTransaction("an earlier message of the transaction was not stored: abort it")
        number = self._next.get(stream)
        if number is None:
            number = self._next[stream] = self._next_sequence(self._stamp.producer, stream)
        return self._stamp.producer, self._stamp.epoch, number

    def wrote(self, stream: int, count: int) -> None:
        """A batch of `count` records is on its way."""
        self._next[stream] += count


class TransactionService:
    """The calls of transactional producers. Proposes commands to the ledger, and enforces timeouts."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._writes: dict[int, TransactionWrites] = {}  # by producer
        self.rounds = PeriodicTask("transactions", TRANSACTIONS_CHECK_EVERY_S, self.enforce)

    # Producers

    async def new_producer(self, owner: str = "") -> tuple[int, int]:
        """A producer id and epoch for an idempotent producer without transactions, of this principal."""
        allocated: ProducerAllocated = await self._log.propose(AllocateProducer(owner))
        return allocated.producer, 0

    async def initialise(
        self, id: str, timeout_ms: int, producer: int = -1, epoch: int = -1
    ) -> tuple[int, int]:
        """The producer id and epoch to write with. Fences earlier epochs, and aborts what they left open.

        Raises ProducerFenced if `producer` and `epoch` are given and a newer producer took over,
        InvalidTransactionTimeout, LimitReached."""
        started: ProducerInitialised = await self._log.propose(InitProducer(id, timeout_ms, producer, epoch))
        return started.producer, started.epoch

    async def begin(self, id: str, timeout_ms: int, owner: str) -> int:
        """Begin a transaction with an id that is used once. Returns its producer id, whose epoch is 0.

        Raises InvalidTransactionTimeout, LimitReached."""
        begun: TransactionBegun = await self._log.propose(BeginTransaction(id, timeout_ms, owner))
        return begun.producer

    def of_producer(self, producer: int) -> OwnedTransaction | None:
        """The open transaction of a producer id that `begin` returned."""
        one = self._log.ledger.transactions.of_producer(producer)
        if one is None or one.owner is None:
            return None
        return OwnedTransaction(ProducerStamp(one.id, producer, one.epoch), one.owner)

    def writes(self, transaction: OwnedTransaction) -> TransactionWrites:
        """Numbers the batches that clients of this broker write in a transaction."""
        producer = transaction.stamp.producer
        found = self._writes.get(producer)
        if found is None:
            if len(self._writes) >= TRANSACTION_WRITES_KEPT:
                of_producer = self._log.ledger.transactions.of_producer
                self._writes = {key: one for key, one in self._writes.items() if of_producer(key) is not None}
            found = self._writes[producer] = TransactionWrites(
                transaction.stamp, self._log.ledger.producers.next_sequence
            )
        return found

    def write_failed(self, producer: int, stream: int) -> None:
        """A batch of a transaction was refused, which leaves a gap in its numbers."""
        found = self._writes.get(producer)
        if found is not None:
            found.failed.add(stream)

    async def initialise_two_phase(
        self, id: str, producer: int = -1, epoch: int = -1, *, keep: bool = False
    ) -> StartedProducer:
        """The same for a producer whose transactions never time out. With `keep`, an open transaction stays open, and
        the producer can only commit or abort it."""
        started: ProducerInitialised = await self._log.propose(
            InitProducer(id, TWO_PHASE_TIMEOUT_MS, producer, epoch, two_phase=True, keep=keep)
        )
        return StartedProducer(started.producer, started.epoch, started.kept)

    # One transaction. All of these raise ProducerUnknown, ProducerFenced

    async def add_partitions(self, stamp: ProducerStamp, streams: Sequence[int]) -> None:
        """Add partitions to a transaction; begins one if none is open. Raises StreamNotFound, LimitReached."""
        await self._log.propose(
            AddStreamsToTransaction(stamp.id, stamp.producer, stamp.epoch, tuple(streams))
        )

    async def add_group(self, stamp: ProducerStamp, group: str) -> None:
        """Add a group to a transaction; begins one if none is open. Raises LimitReached."""
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
        """Offsets (stream, next offset, metadata) that are committed with the transaction.

        Raises InvalidTransaction unless `add_group` was called in this transaction, or this `joins` by itself."""
        await self._log.propose(
            TransactionOffsets(
                stamp.id, stamp.producer, stamp.epoch, group, tuple(offsets), tuple(leader_epochs), joins
            )
        )

    async def acknowledge(
        self,
        stamp: ProducerStamp,
        stream: int,
        subscription: str,
        mark: int,
        ranges: Sequence[Range],
        term: int = 0,
    ) -> None:
        """Acknowledge what is left below `mark`, and the ranges, when the transaction commits.

        Raises SubscriptionNotFound, SubscriptionMoved, InvalidInput, TransactionConflict, LimitReached."""
        await self._log.propose(
            AckInTransaction(
                stamp.id, stamp.producer, stamp.epoch, stream, subscription, mark, tuple(ranges), term
            )
        )

    def joining(self, id: str, facts: SliceFacts) -> SliceFacts:
        """The batch, marked so that its append adds its partition to the id's transaction, without `add_partitions`.

        Raises ProducerUnknown if its producer belongs to another id, for which the client may not be authorised."""
        holder = self._log.ledger.transactions.of_producer(facts.producer)
        if holder is not None and holder.id != id:
            raise ProducerUnknown(f"producer {facts.producer} does not hold transactional id {id[:64]!r}")
        return facts._replace(joins=True)

    async def end(self, stamp: ProducerStamp, *, commit: bool, bump: bool = False) -> ProducerStamp:
        """Commit or abort. Returns the stamp for later writes: with `bump` it has a new epoch, which fences everything
        sent before. Raises InvalidTransaction if no transaction is open."""
        ended: TransactionEnded = await self._log.propose(
            EndTransaction(stamp.id, stamp.producer, stamp.epoch, commit, bump)
        )
        return ProducerStamp(stamp.id, ended.producer, ended.epoch) if bump else stamp

    async def abort(self, id: str) -> bool:
        """Abort an id's open transaction as if it had timed out, and fence its producer. False if none is open.

        Raises TransactionNotFound."""
        info = self.describe(id)
        expired: TransactionsExpired = await self._log.propose(
            ExpireTransactions(((id, info.producer, info.epoch),), resumable=True)
        )
        return bool(expired.ids)

    # Descriptions

    def pending(self, group: str) -> set[int]:
        """Streams whose offset in the group an open transaction may commit."""
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
        """Abort transactions that timed out, and forget unused ids. Returns the expired transactional ids."""
        now = self._log.now_ms()
        ledger = self._log.ledger
        if ledger.producers.any_idle_since(now - PRODUCER_IDLE_MS):
            await self._log.propose(ExpireProducers(now - PRODUCER_IDLE_MS))
        idle = next((one for one in ledger.transactions if not one.open), None)
        if idle is not None and idle.updated_ms < now - TRANSACTIONAL_ID_IDLE_MS:
            await self._log.propose(ForgetTransactionalIds(now - TRANSACTIONAL_ID_IDLE_MS))
        late = tuple(
            (one.id, one.producer, one.epoch)
            for one in ledger.transactions.open()
            if one.timeout_ms != TWO_PHASE_TIMEOUT_MS and one.started_ms + one.timeout_ms <= now
        )
        if not late:
            return ()
        expired: TransactionsExpired = await self._log.propose(ExpireTransactions(late, resumable=True))
        for id in expired.ids:
            _log.warning("transaction timed out", transactional_id=id)
        return expired.ids

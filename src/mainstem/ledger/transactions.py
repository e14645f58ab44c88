"""Transactions: who may write in one, what it covers, and how it ends: everywhere at once, by one command.

A transactional id names a producer across its restarts. Each start bumps the epoch, which fences the start
before it and aborts what that one left open. All checks are made here, at apply: they hold whoever proposes.

Clients of Kafka's transaction.version 2 have their epoch bumped at each end as well (`EndTransaction.bump`), and
name no partition before they write to it: the slice itself joins (`SLICE_JOINS`). Late requests of a transaction
that has ended then meet an epoch that is over, and cannot begin another by mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from mainstem import limits
from mainstem.errors import (
    InvalidInput,
    InvalidTransaction,
    InvalidTransactionTimeout,
    LimitReached,
    MainstemError,
    ProducerFenced,
    ProducerUnknown,
    StreamNotFound,
)
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.cursors import CommitOffsets, Cursor, Cursors
from mainstem.ledger.digest import hash_fields
from mainstem.ledger.intervals import ABORTED
from mainstem.ledger.keyed import LatestByKey
from mainstem.ledger.markers import Marker
from mainstem.ledger.namespaces import id_chars
from mainstem.ledger.producers import Producers
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.streams import Streams


class InitProducer(Command, frozen=True, tag=50):
    """Give a transactional id its next epoch: older ones are fenced, and what they left open is aborted."""

    id: str
    timeout_ms: int
    producer: int = -1  # that the caller believes it has; -1 = it starts anew
    epoch: int = -1


class AddStreamsToTransaction(Command, frozen=True, tag=51):
    """Begin a transaction, or widen it, by streams about to be written to."""

    id: str
    producer: int
    epoch: int
    streams: tuple[int, ...]


class AddGroupToTransaction(Command, frozen=True, tag=52):
    """Begin a transaction, or widen it, by a group whose positions are about to be given."""

    id: str
    producer: int
    epoch: int
    group: str


class TransactionOffsets(Command, frozen=True, tag=53):
    """A group's positions that count once the transaction commits; as in CommitOffsets."""

    id: str
    producer: int
    epoch: int
    group: str
    offsets: tuple[tuple[int, int, str], ...]
    leader_epochs: tuple[int, ...] = ()
    joins: bool = False  # the group need not have been added: this adds it


class EndTransaction(Command, frozen=True, tag=54):
    """Commit or abort all of a transaction at once. A marker takes one offset in each of its streams.

    `bump`: the producer goes on with another epoch, so that nothing it sent before can come late into what
    follows. Then an abort needs nothing open: what it is to abort may still be on its way."""

    id: str
    producer: int
    epoch: int
    commit: bool
    bump: bool = False


class ExpireTransactions(Command, frozen=True, tag=55):
    """Abort transactions that took too long, and fence their producers: (id, producer, epoch)."""

    transactions: tuple[tuple[str, int, int], ...]
    resumable: bool = False  # a bumping abort lets the producer go on with the next epoch


class ForgetTransactionalIds(Command, frozen=True, tag=56):
    """Forget transactional ids that were not used since `before_ms` (a ledger time) and have nothing open."""

    before_ms: int


Marked = tuple[int, int, int]  # stream, the transaction's first offset in it (-1 = none), its marker's offset


@dataclass(frozen=True, slots=True)
class ProducerInitialised:
    producer: int
    epoch: int
    marked: tuple[Marked, ...]  # of the transaction that an earlier epoch left open


@dataclass(frozen=True, slots=True)
class TransactionJoined:
    streams: int  # of the transaction, all told


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    committed: bool
    marked: tuple[Marked, ...]  # empty if it had ended so before
    producer: int = -1  # that the id goes on with, and its epoch; -1 = as before
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class TransactionsExpired:
    ids: tuple[str, ...]  # that were still open
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class TransactionalIdsForgotten:
    ids: int


EPOCH_MAX = (1 << 15) - 1  # it only ever fences: a producer that would need it gets a new id instead

_OK = int(AppendCode.OK)
_FENCED = int(AppendCode.PRODUCER_FENCED)
_INVALID = int(AppendCode.INVALID_TRANSACTION)


Position = tuple[int, str, int]  # next offset to read, metadata, leader epoch
Identity = tuple[int, int]  # a producer and its epoch


class TransactionPhase(IntEnum):
    """Where a transactional id stands. There is nothing between open and ended."""

    EMPTY = 0  # never had a transaction in this epoch
    OPEN = 1
    COMMITTED = 2
    ABORTED = 3


@dataclass(slots=True)
class Transaction:
    """A transactional id, and its present or last transaction."""

    id: str
    producer: int
    epoch: int
    timeout_ms: int
    last_epoch: int = -1  # the one before: a producer that missed the answer to its bump still knows this one
    phase: TransactionPhase = TransactionPhase.EMPTY
    started_ms: int = -1  # ledger time
    updated_ms: int = 0
    streams: dict[int, None] = field(default_factory=dict)  # a dict for its fixed order
    offsets: dict[str, dict[int, Position]] = field(default_factory=dict)  # group → stream → position
    ended_as: Identity | None = None  # whom the last end bumped, as a retry of it would say

    @property
    def open(self) -> bool:
        return self.phase is TransactionPhase.OPEN


class TransactionState(msgspec.Struct, frozen=True, array_like=True):
    """One transactional id, as a checkpoint holds it."""

    id: str
    producer: int
    epoch: int
    timeout_ms: int
    last_epoch: int
    phase: int
    started_ms: int
    updated_ms: int
    streams: list[int]
    offsets: list[tuple[str, list[tuple[int, Position]]]]  # group, then by stream
    ended_as: Identity | None


class Transactions(Section[list[TransactionState]]):
    """Transactional ids, longest unused first. Commands return a result, or the error that refuses them."""

    requires = (Streams, Producers, Cursors)

    def __init__(self, streams: Streams, producers: Producers, cursors: Cursors) -> None:
        self._streams = streams
        self._producers = producers
        self._cursors = cursors
        self._by_id: LatestByKey[str, Transaction] = LatestByKey(_hash)
        self._by_producer: dict[int, Transaction] = {}
        self._open: dict[str, Transaction] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._by_id)

    def get(self, id: str) -> Transaction | None:
        return self._by_id.get(id)

    def of_producer(self, producer: int) -> Transaction | None:
        return self._by_producer.get(producer)

    def open(self) -> Iterator[Transaction]:
        """Those that are open, by when they began."""
        return iter(self._open.values())

    def pending(self, group: str) -> set[int]:
        """Streams whose position in this group an open transaction is about to change."""
        return {stream for one in self._open.values() for stream in one.offsets.get(group, ())}

    # Appends

    def judge(self, producer: int, epoch: int, stream: int, *, transactional: bool, joins: bool) -> int:
        """Whether this producer may append now: an append code. Asked for every slice of a producer."""
        one = self._by_producer.get(producer)
        if one is None:
            return _INVALID if transactional else _OK
        if epoch != one.epoch:
            return _FENCED
        if transactional:
            if one.open and stream in one.streams:
                return _OK
            return _OK if joins and self._has_room(one, (stream,)) else _INVALID
        # All that a producer writes during a transaction is part of it: readers tell aborted records by that.
        return _INVALID if self._streams.transactions.is_open(stream, producer) else _OK

    def join(self, producer: int, stream: int, time_ms: int) -> None:
        """A slice that joins was appended: its stream is part of the transaction, which it may have begun."""
        one = self._by_producer[producer]
        if not one.open or stream not in one.streams:
            self._begin(one, time_ms)
            one.streams[stream] = None

    def _has_room(self, one: Transaction, streams: Iterable[int]) -> bool:
        known = one.streams if one.open else {}
        return len(known.keys() | set(streams)) <= limits.TRANSACTION_STREAMS_MAX

    # Commands

    @applies(InitProducer)
    def initialise(self, command: InitProducer, now: Moment) -> ProducerInitialised | MainstemError:
        """Give a transactional id its next epoch, fencing whoever has the present one."""
        refusal = self._bad_initialisation(command)
        if refusal:
            return refusal
        one = self._by_id.get(command.id)
        if one is None:
            one = Transaction(command.id, -1, 0, command.timeout_ms)
            self._give_new_producer(one)
            marked: tuple[Marked, ...] = ()
        elif command.epoch >= 0 and _bumped_before(one, command):
            marked = ()  # a retry: its bump is applied already
        else:
            marked = self._end(one, False, one.epoch + 1, now.time_ms) if one.open else ()
            self._bump(one)
        one.timeout_ms = command.timeout_ms
        one.phase = TransactionPhase.EMPTY
        one.started_ms = -1
        one.ended_as = None
        self._touch(one, now.time_ms)
        return ProducerInitialised(one.producer, one.epoch, marked)

    def _bad_initialisation(self, command: InitProducer) -> MainstemError | None:
        if not 1 <= len(command.id) <= limits.TRANSACTIONAL_ID_CHARS_MAX:
            return InvalidInput(
                f"a transactional id has 1 to {limits.TRANSACTIONAL_ID_CHARS_MAX} characters, "
                f"not {len(command.id)}"
            )
        if not 1 <= command.timeout_ms <= limits.TRANSACTION_TIMEOUT_MS_MAX:
            return InvalidTransactionTimeout(
                f"a transaction may take 1 to {limits.TRANSACTION_TIMEOUT_MS_MAX} ms, "
                f"not {command.timeout_ms}"
            )
        one = self._by_id.get(command.id)
        if one is None:
            return self._by_id.refusal(command.id, limits.TRANSACTIONAL_IDS_MAX, "transactional ids")
        latest = command.producer == one.producer and command.epoch == one.epoch
        if command.producer < 0 or latest or (_bumped_before(one, command) and not one.open):
            return None
        return _fenced(one)

    def _bump(self, one: Transaction) -> None:
        if one.epoch >= EPOCH_MAX - 1:
            self._by_producer.pop(one.producer, None)
            self._give_new_producer(one)
        else:
            one.last_epoch, one.epoch = one.epoch, one.epoch + 1

    def _give_new_producer(self, one: Transaction) -> None:
        one.producer = self._producers.allocate()
        one.epoch, one.last_epoch = 0, -1
        self._by_producer[one.producer] = one

    @applies(AddStreamsToTransaction)
    def add_streams(self, command: AddStreamsToTransaction, now: Moment) -> TransactionJoined | MainstemError:
        """The producer is going to write to these streams. Begins a transaction if none is open."""
        one = self._find(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        for stream in command.streams:
            if not self._streams.exists(stream):
                return StreamNotFound(stream)
            if self._streams.ephemeral(stream):
                return InvalidInput("an ephemeral topic takes no part in transactions")
        if not self._has_room(one, command.streams):
            return LimitReached(f"a transaction has at most {limits.TRANSACTION_STREAMS_MAX} partitions")
        self._begin(one, now.time_ms)
        one.streams.update(dict.fromkeys(command.streams))
        return TransactionJoined(len(one.streams))

    @applies(AddGroupToTransaction)
    def add_group(self, command: AddGroupToTransaction, now: Moment) -> TransactionJoined | MainstemError:
        """The producer is going to commit positions of this group. Begins a transaction if none is open."""
        one = self._find(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        refusal = _bad_group(one, command.group)
        if refusal:
            return refusal
        self._begin(one, now.time_ms)
        one.offsets.setdefault(command.group, {})
        return TransactionJoined(len(one.streams))

    def _begin(self, one: Transaction, time_ms: int) -> None:
        if not one.open:
            one.phase = TransactionPhase.OPEN
            one.started_ms = time_ms
            one.streams, one.offsets = {}, {}
            one.ended_as = None
            self._open[one.id] = one
        self._touch(one, time_ms)

    @applies(TransactionOffsets)
    def add_offsets(self, command: TransactionOffsets, now: Moment) -> TransactionJoined | MainstemError:
        """Positions that become the group's own if the transaction commits."""
        one = self._find(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        refusal = self._bad_offsets(one, command)
        if refusal:
            return refusal
        if command.joins:
            self._begin(one, now.time_ms)
        positions = one.offsets.setdefault(command.group, {})
        epochs = command.leader_epochs or (-1,) * len(command.offsets)
        for (stream, offset, metadata), epoch in zip(command.offsets, epochs, strict=True):
            positions[stream] = (offset, metadata, epoch)
        self._touch(one, now.time_ms)
        return TransactionJoined(len(one.streams))

    def _bad_offsets(self, one: Transaction, command: TransactionOffsets) -> MainstemError | None:
        if command.joins:
            refusal = _bad_group(one, command.group)
            if refusal:
                return refusal
        elif not one.open or command.group not in one.offsets:
            return InvalidTransaction(
                f"the offsets of group {command.group!r} are no part of a transaction of {command.id!r} now: "
                "add them to it first"
            )
        wrong = self._cursors.refusal(CommitOffsets(command.group, command.offsets, command.leader_epochs))
        held = sum(map(len, one.offsets.values()))
        if wrong is None and held + len(command.offsets) > limits.TRANSACTION_OFFSETS_MAX:
            return LimitReached(f"a transaction commits at most {limits.TRANSACTION_OFFSETS_MAX} offsets")
        return wrong

    @applies(EndTransaction)
    def end(self, command: EndTransaction, now: Moment) -> TransactionEnded | MainstemError:
        """Commit or abort, in every stream and group at once. Doing it again the same way changes nothing."""
        if command.bump:
            return self._end_and_bump(command, now.time_ms)
        one = self._find(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        if one.open:
            marked = self._end(one, command.commit, one.epoch, now.time_ms)
            self._touch(one, now.time_ms)
            return TransactionEnded(command.commit, marked)
        if one.phase is _phase_of(command):
            return TransactionEnded(command.commit, ())
        return _no_open_transaction(one, command.commit)

    def _end_and_bump(self, command: EndTransaction, time_ms: int) -> TransactionEnded | MainstemError:
        repeated = self._by_id.get(command.id)
        if repeated is not None and repeated.ended_as == (command.producer, command.epoch):
            if repeated.phase is not _phase_of(command):
                return _no_open_transaction(repeated, command.commit)
            return TransactionEnded(command.commit, (), repeated.producer, repeated.epoch)
        one = self._find(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        marked: tuple[Marked, ...] = ()
        if one.open:
            # Readers of markers learn of the next epoch by them, as from Kafka's.
            marked = self._end(one, command.commit, min(one.epoch + 1, EPOCH_MAX), time_ms)
        elif command.commit:
            return _no_open_transaction(one, command.commit)
        one.phase = _phase_of(command)
        self._succeed(one)
        self._touch(one, time_ms)
        return TransactionEnded(command.commit, marked, one.producer, one.epoch)

    def _succeed(self, one: Transaction) -> None:
        """Bump the epoch of an id whose transaction is over, and remember whom a retry of its end would name."""
        ended_as = one.producer, one.epoch
        self._bump(one)
        one.ended_as = ended_as

    @applies(ExpireTransactions)
    def expire(self, command: ExpireTransactions, now: Moment) -> TransactionsExpired:
        """Abort and fence the transactions named, if they are still the ones that are open."""
        expired: list[str] = []
        marked: list[Marked] = []
        for id, producer, epoch in command.transactions:
            one = self._by_id.get(id)
            if one is not None and one.open and (one.producer, one.epoch) == (producer, epoch):
                fencing = min(epoch + 1, EPOCH_MAX)
                marked += self._end(one, False, fencing, now.time_ms)
                if command.resumable:
                    self._succeed(one)
                else:
                    one.last_epoch, one.epoch = epoch, fencing
                self._touch(one, now.time_ms)
                expired.append(id)
        return TransactionsExpired(tuple(expired), tuple(marked))

    @applies(ForgetTransactionalIds)
    def forget(self, command: ForgetTransactionalIds, now: Moment) -> TransactionalIdsForgotten:
        idle = []
        for one in self._by_id:
            if one.updated_ms >= command.before_ms:
                break  # ledger time never runs back, so the others were used later
            if not one.open:
                idle.append(one)
        for one in idle:
            self._drop(one)
        return TransactionalIdsForgotten(len(idle))

    def unbroken(self, id: str, producer: int, epoch: int) -> bool:
        """Whether nothing ended what the id wrote since it was given this producer and epoch."""
        one = self._by_id.get(id)
        return (
            one is not None
            and (one.producer, one.epoch) == (producer, epoch)
            and one.phase in (TransactionPhase.EMPTY, TransactionPhase.OPEN)
        )

    def extend(self, id: str, time_ms: int) -> bool:
        """Let the time that the id's transaction may take begin anew. False if none is open."""
        one = self._open.pop(id, None)
        if one is None:
            return False
        self._open[id] = one
        one.started_ms = time_ms
        self._touch(one, time_ms)
        return True

    def finish(self, id: str, commit: bool, time_ms: int) -> tuple[Marked, ...]:
        """End what the id has open, if anything, and forget the id and what it wrote with: it is used once."""
        one = self._by_id.get(id)
        if one is None:
            return ()
        self._producers.forget(one.producer, one.streams)
        marked = self._end(one, commit, one.epoch, time_ms) if one.open else ()
        self._drop(one)
        return marked

    def _drop(self, one: Transaction) -> None:
        self._by_id.pop(one.id)
        del self._by_producer[one.producer]

    def _find(self, id: str, producer: int, epoch: int) -> Transaction | ProducerUnknown | ProducerFenced:
        one = self._by_id.get(id)
        if one is None or one.producer != producer:
            return ProducerUnknown(
                f"transactional id {id[:64]!r} is not held by producer {producer}: initialise it again"
            )
        return one if one.epoch == epoch else _fenced(one)

    def _end(self, one: Transaction, commit: bool, epoch: int, time_ms: int) -> tuple[Marked, ...]:
        """Put a marker into every stream of an open transaction, and its offsets into force."""
        marked = []
        for stream in one.streams:
            if not self._streams.exists(stream):
                continue  # its topic was deleted meanwhile
            writes = self._streams.transactions.close(stream, one.producer)
            if writes is not None and not commit:
                self._streams.punch(stream, writes.ranges(), ABORTED, writes.bytes)
            offset = self._streams.take_marker(stream)
            first = -1 if writes is None else writes.first
            marker = Marker(offset, one.producer, epoch, commit, time_ms)
            self._streams.transactions.mark(stream, marker, first)
            marked.append((stream, first, offset))
        if commit:
            for group, positions in one.offsets.items():
                for stream, (offset, metadata, leader_epoch) in positions.items():
                    self._cursors.put_checked(group, stream, Cursor(offset, metadata, time_ms, leader_epoch))
        one.phase = TransactionPhase.COMMITTED if commit else TransactionPhase.ABORTED
        one.streams, one.offsets = {}, {}
        del self._open[one.id]
        return tuple(marked)

    def _touch(self, one: Transaction, time_ms: int) -> None:
        one.updated_ms = time_ms
        self._by_id.put(one.id, one)

    # State as a whole

    @property
    def digest(self) -> int:
        return self._by_id.digest

    def encode(self) -> list[TransactionState]:
        return [
            TransactionState(
                one.id,
                one.producer,
                one.epoch,
                one.timeout_ms,
                one.last_epoch,
                int(one.phase),
                one.started_ms,
                one.updated_ms,
                list(one.streams),
                _positions(one),
                one.ended_as,
            )
            for one in self
        ]

    def load(self, state: list[TransactionState]) -> None:
        for stored in state:
            one = Transaction(
                stored.id,
                stored.producer,
                stored.epoch,
                stored.timeout_ms,
                stored.last_epoch,
                TransactionPhase(stored.phase),
                stored.started_ms,
                stored.updated_ms,
                dict.fromkeys(stored.streams),
                {group: dict(positions) for group, positions in stored.offsets},
                stored.ended_as,
            )
            self._by_producer[one.producer] = one
            self._by_id.put(one.id, one)
        begun = sorted((one for one in self if one.open), key=lambda one: one.started_ms)
        self._open = {one.id: one for one in begun}


def _positions(one: Transaction) -> list[tuple[str, list[tuple[int, Position]]]]:
    return [(group, list(positions.items())) for group, positions in one.offsets.items()]


def _hash(one: Transaction) -> int:
    return hash_fields(
        "transaction",
        one.id,
        one.producer,
        one.epoch,
        one.last_epoch,
        one.timeout_ms,
        int(one.phase),
        list(one.streams),
        _positions(one),
        one.ended_as,
    )


def _bumped_before(one: Transaction, command: InitProducer) -> bool:
    """Whether the producer that asks for its next epoch is the one that has it already, and missed the answer."""
    return (command.producer, command.epoch) in (one.ended_as, (one.producer, one.last_epoch))


def _phase_of(command: EndTransaction) -> TransactionPhase:
    return TransactionPhase.COMMITTED if command.commit else TransactionPhase.ABORTED


def _bad_group(one: Transaction, group: str) -> InvalidInput | LimitReached | None:
    """Why a group's offsets cannot become part of the present or next transaction."""
    if not 1 <= id_chars(group) <= limits.NAME_CHARS_MAX:
        return InvalidInput(f"a group name has 1 to {limits.NAME_CHARS_MAX} characters")
    if one.open and group not in one.offsets and len(one.offsets) >= limits.TRANSACTION_GROUPS_MAX:
        return LimitReached(f"a transaction has at most {limits.TRANSACTION_GROUPS_MAX} groups")
    return None


def _no_open_transaction(one: Transaction, commit: bool) -> InvalidTransaction:
    return InvalidTransaction(f"{one.id!r} has no open transaction to {'commit' if commit else 'abort'}")


def _fenced(one: Transaction) -> ProducerFenced:
    return ProducerFenced(
        f"a newer producer has taken over transactional id {one.id[:64]!r}, or its transaction took too long"
    )

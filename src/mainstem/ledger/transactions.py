"""Transactions: who may write in one, what it covers, and how it ends: in all streams and groups by one command.

A transactional id names a producer across its restarts. Each start bumps the epoch, which fences the previous start
and aborts what it left open. All checks run here, at apply, so they hold for every proposer.

For clients of Kafka's transaction.version 2, each end bumps the epoch too (`EndTransaction.bump`), and a slice adds its
partition to the transaction (`SLICE_JOINS`). So late requests of an ended transaction are fenced and begin no new one.

A transaction of a Pulsar client (`BeginTransaction`) has an id of its own, which is forgotten when it ends. Besides
writing, it acknowledges records of subscriptions.

With two-phase commit (KIP-939) another system decides how a transaction ends. It never times out, and a producer that
starts again can keep it (`InitProducer.keep`): it then takes no more writes, and can only be ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
from mainstem.ledger.digest import MASK, hash_fields
from mainstem.ledger.intervals import ABORTED
from mainstem.ledger.keyed import LatestByKey
from mainstem.ledger.markers import Marker
from mainstem.ledger.namespaces import id_chars
from mainstem.ledger.producers import Producers
from mainstem.ledger.section import Command, Moment, Section, applies
from mainstem.ledger.streams import Streams
from mainstem.ledger.subscriptions import Range, Subscriptions
from mainstem.ledger.transactional_ids import (
    Identity,
    Transaction,
    TransactionPhase,
    TransactionState,
    hash_of,
    restored,
    state_of,
)

TRANSACTIONAL_IDS_MAX = 100_000
TRANSACTIONAL_ID_CHARS_MAX = 1024
TRANSACTION_STREAMS_MAX = 100_000  # partitions one transaction may write to
TRANSACTION_GROUPS_MAX = 1_000  # groups whose offsets one transaction may commit
TRANSACTION_OFFSETS_MAX = 100_000
TRANSACTION_SUBSCRIPTIONS_MAX = 1_000  # whose records one transaction may acknowledge
ENDED_TRANSACTIONS_KEPT = (
    10_000  # outcomes of transactions with an id of their own, for clients that repeat the end
)
TRANSACTION_OWNER_CHARS_MAX = 1_024
TWO_PHASE_TIMEOUT_MS = 2**31 - 1  # the timeout of transactions that never time out


class InitProducer(Command, frozen=True, tag=50):
    """Give a transactional id its next epoch: older ones are fenced, and what they left open is aborted, or kept."""

    id: str
    timeout_ms: int
    producer: int = -1  # the id that the caller has; -1 = none
    epoch: int = -1
    two_phase: bool = False  # its transactions never time out
    keep: bool = False  # keep an open transaction, so that the producer can commit or abort it


class AddStreamsToTransaction(Command, frozen=True, tag=51):
    """Add streams that the producer will write to. Begins a transaction if none is open."""

    id: str
    producer: int
    epoch: int
    streams: tuple[int, ...]


class AddGroupToTransaction(Command, frozen=True, tag=52):
    """Add a group whose offsets the producer will commit. Begins a transaction if none is open."""

    id: str
    producer: int
    epoch: int
    group: str


class TransactionOffsets(Command, frozen=True, tag=53):
    """A group's offsets, which are committed with the transaction; as in CommitOffsets."""

    id: str
    producer: int
    epoch: int
    group: str
    offsets: tuple[tuple[int, int, str], ...]
    leader_epochs: tuple[int, ...] = ()
    joins: bool = False  # add the group if necessary


class EndTransaction(Command, frozen=True, tag=54):
    """Commit or abort a transaction. A marker takes one offset in each of its streams. A retry has no effect.

    `bump`: the producer continues with a new epoch, so that late requests cannot enter its next transaction. Then an
    abort does not need an open transaction: the writes to abort may arrive later."""

    id: str
    producer: int
    epoch: int
    commit: bool
    bump: bool = False


class ExpireTransactions(Command, frozen=True, tag=55):
    """Abort transactions that timed out, if they are still open, and fence their producers: (id, producer, epoch)."""

    transactions: tuple[tuple[str, int, int], ...]
    resumable: bool = False  # the producer may continue with the next epoch after a bumping abort


class ForgetTransactionalIds(Command, frozen=True, tag=56):
    """Forget transactional ids that were not used since `before_ms` (a ledger time) and have nothing open."""

    before_ms: int


class BeginTransaction(Command, frozen=True, tag=57):
    """Begin a transaction under an id that is used once."""

    id: str
    timeout_ms: int
    owner: str  # the principal that may use it


class AckInTransaction(Command, frozen=True, tag=58):
    """Acknowledge records of a subscription when the transaction commits; as in AckRecords."""

    id: str
    producer: int
    epoch: int
    stream: int
    subscription: str
    mark: int = 0
    ranges: tuple[Range, ...] = ()
    term: int = 0


# stream, the transaction's first offset in it (-1 = none), its marker's offset (-1 = none: it only acknowledged)
Marked = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class ProducerInitialised:
    producer: int
    epoch: int
    marked: tuple[Marked, ...]  # of the transaction that an earlier epoch left open
    kept: Identity | None = None  # the producer and epoch that wrote the open transaction


@dataclass(frozen=True, slots=True)
class TransactionBegun:
    producer: int


@dataclass(frozen=True, slots=True)
class TransactionJoined:
    streams: int  # of the transaction, in total


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    committed: bool
    marked: tuple[Marked, ...]  # empty if it had already ended this way
    producer: int = -1  # new id, with its epoch below; -1 = unchanged
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class TransactionsExpired:
    ids: tuple[str, ...]  # that were still open
    marked: tuple[Marked, ...]


@dataclass(frozen=True, slots=True)
class TransactionalIdsForgotten:
    ids: int


EPOCH_MAX = (1 << 15) - 1  # only used to fence: a producer that reaches it gets a new id

_OK = int(AppendCode.OK)
_FENCED = int(AppendCode.PRODUCER_FENCED)
_INVALID = int(AppendCode.INVALID_TRANSACTION)


class TransactionsState(msgspec.Struct, frozen=True, array_like=True):
    ids: list[TransactionState]
    ended: list[tuple[int, bool]]  # producer, and whether it committed: oldest first


class Transactions(Section[TransactionsState]):
    """Transactional ids, longest unused first. Commands return a result, or the error that rejects them."""

    requires = (Streams, Producers, Cursors, Subscriptions)

    def __init__(
        self, streams: Streams, producers: Producers, cursors: Cursors, subscriptions: Subscriptions
    ) -> None:
        self._streams = streams
        self._producers = producers
        self._cursors = cursors
        self._subscriptions = subscriptions
        self._ended: dict[int, bool] = {}  # ids that were used once: producer → whether it committed
        self._ended_sum = 0  # of their hashes
        self._by_id: LatestByKey[str, Transaction] = LatestByKey(hash_of)
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
        """The open transactions, in the order they began."""
        return iter(self._open.values())

    def pending(self, group: str) -> set[int]:
        """Streams whose offset in this group an open transaction will commit."""
        return {stream for one in self._open.values() for stream in one.offsets.get(group, ())}

    # Appends

    def judge(self, producer: int, epoch: int, stream: int, *, transactional: bool, joins: bool) -> int:
        """Whether this producer may append now: an append code. Called for every slice of a producer."""
        one = self._by_producer.get(producer)
        if one is None:
            return _INVALID if transactional else _OK
        if epoch != one.epoch:
            return _FENCED
        if transactional:
            if one.kept is not None:
                return _INVALID
            if one.open and stream in one.streams:
                return _OK
            return _OK if joins and self._has_room(one, (stream,)) else _INVALID
        # Everything that a producer writes during a transaction is part of it: readers filter aborted records by that.
        return _INVALID if self._streams.transactions.is_open(stream, producer) else _OK

    def join(self, producer: int, stream: int, time_ms: int) -> None:
        """A slice with SLICE_JOINS was appended: add its stream to the transaction, and begin one if none is open."""
        one = self._by_producer[producer]
        if not one.open or stream not in one.streams:
            self._begin(one, time_ms)
            one.streams[stream] = None

    def _has_room(self, one: Transaction, streams: Iterable[int]) -> bool:
        known = one.streams if one.open else {}
        return len(known.keys() | set(streams)) <= TRANSACTION_STREAMS_MAX

    # Commands

    @applies(InitProducer)
    def initialise(self, command: InitProducer, now: Moment) -> ProducerInitialised | MainstemError:
        if refusal := self._bad_initialisation(command):
            return refusal
        one = self._by_id.get(command.id)
        if one is None:
            one = Transaction(command.id, -1, 0, 0)
            self._give_new_producer(one)
            marked: tuple[Marked, ...] = ()
        elif command.epoch >= 0 and _bumped_before(one, command):
            marked = ()  # a retry: its bump was applied before
        elif command.keep and one.open:
            one.kept = one.kept or (one.producer, one.epoch)
            marked = ()
            self._bump(one)
        else:
            marked = self._end(one, False, one.epoch + 1, now.time_ms) if one.open else ()
            self._bump(one)
        one.timeout_ms = TWO_PHASE_TIMEOUT_MS if command.two_phase else command.timeout_ms
        if one.kept is None:
            one.phase = TransactionPhase.EMPTY
            one.started_ms = -1
        one.ended_as = None
        self._touch(one, now.time_ms)
        return ProducerInitialised(one.producer, one.epoch, marked, one.kept)

    def _bad_initialisation(self, command: InitProducer) -> MainstemError | None:
        if not 1 <= len(command.id) <= TRANSACTIONAL_ID_CHARS_MAX:
            return InvalidInput(
                f"a transactional id has 1 to {TRANSACTIONAL_ID_CHARS_MAX} characters, not {len(command.id)}"
            )
        if command.keep and not command.two_phase:
            return InvalidInput("only a producer with two-phase commit keeps a transaction")
        if not command.two_phase and not 1 <= command.timeout_ms <= limits.TRANSACTION_TIMEOUT_MS_MAX:
            return InvalidTransactionTimeout(
                f"a transaction timeout is 1 to {limits.TRANSACTION_TIMEOUT_MS_MAX} ms, not {command.timeout_ms}"
            )
        one = self._by_id.get(command.id)
        if one is None:
            return self._by_id.refusal(command.id, TRANSACTIONAL_IDS_MAX, "transactional ids")
        if one.owner is not None:
            return InvalidInput(f"transactional id {command.id[:64]!r} belongs to one transaction")
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

    @applies(BeginTransaction)
    def begin(self, command: BeginTransaction, now: Moment) -> TransactionBegun | MainstemError:
        refusal = self._bad_initialisation(InitProducer(command.id, command.timeout_ms))
        if refusal is None and len(command.owner) > TRANSACTION_OWNER_CHARS_MAX:
            refusal = InvalidInput(f"an owner has at most {TRANSACTION_OWNER_CHARS_MAX} characters")
        if refusal is None and self._by_id.get(command.id) is not None:
            refusal = InvalidInput(f"transactional id {command.id[:64]!r} is in use")
        if refusal is not None:
            return refusal
        one = Transaction(command.id, -1, 0, command.timeout_ms, owner=command.owner)
        self._give_new_producer(one)
        self._begin(one, now.time_ms)
        return TransactionBegun(one.producer)

    @applies(AckInTransaction)
    def acknowledge(self, command: AckInTransaction, now: Moment) -> TransactionJoined | MainstemError:
        one = self._find(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        key = command.stream, command.subscription
        if one.owner is None:
            return InvalidInput(f"transactional id {command.id[:64]!r} acknowledges no records: use offsets")
        if key not in one.acks and len(one.acks) >= TRANSACTION_SUBSCRIPTIONS_MAX:
            return LimitReached(f"a transaction has at most {TRANSACTION_SUBSCRIPTIONS_MAX} subscriptions")
        refusal = self._subscriptions.hold(*key, one.producer, command.mark, command.ranges, command.term)
        if refusal is not None:
            return refusal
        one.acks[key] = None
        self._touch(one, now.time_ms)
        return TransactionJoined(len(one.streams))

    @applies(AddStreamsToTransaction)
    def add_streams(self, command: AddStreamsToTransaction, now: Moment) -> TransactionJoined | MainstemError:
        one = self._find_writable(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        for stream in command.streams:
            if not self._streams.exists(stream):
                return StreamNotFound(stream)
            if self._streams.ephemeral(stream):
                return InvalidInput("an ephemeral topic cannot take part in transactions")
        if not self._has_room(one, command.streams):
            return LimitReached(f"a transaction has at most {TRANSACTION_STREAMS_MAX} partitions")
        self._begin(one, now.time_ms)
        one.streams.update(dict.fromkeys(command.streams))
        return TransactionJoined(len(one.streams))

    @applies(AddGroupToTransaction)
    def add_group(self, command: AddGroupToTransaction, now: Moment) -> TransactionJoined | MainstemError:
        one = self._find_writable(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        if refusal := _bad_group(one, command.group):
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
        one = self._find_writable(command.id, command.producer, command.epoch)
        if isinstance(one, MainstemError):
            return one
        if refusal := self._bad_offsets(one, command):
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
            if refusal := _bad_group(one, command.group):
                return refusal
        elif not one.open or command.group not in one.offsets:
            return InvalidTransaction(
                f"group {command.group!r} is not part of an open transaction of {command.id!r}: add it first"
            )
        wrong = self._cursors.refusal(CommitOffsets(command.group, command.offsets, command.leader_epochs))
        held = sum(map(len, one.offsets.values()))
        if wrong is None and held + len(command.offsets) > TRANSACTION_OFFSETS_MAX:
            return LimitReached(f"a transaction commits at most {TRANSACTION_OFFSETS_MAX} offsets")
        return wrong

    @applies(EndTransaction)
    def end(self, command: EndTransaction, now: Moment) -> TransactionEnded | MainstemError:
        committed = self._ended.get(command.producer)
        if committed is not None:
            if committed == command.commit:
                return TransactionEnded(committed, ())
            return InvalidTransaction(f"the transaction was {'committed' if committed else 'aborted'} before")
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
            # The marker carries the next epoch, as in Kafka.
            marked = self._end(one, command.commit, min(one.epoch + 1, EPOCH_MAX), time_ms)
        elif command.commit:
            return _no_open_transaction(one, command.commit)
        one.phase = _phase_of(command)
        self._succeed(one)
        self._touch(one, time_ms)
        return TransactionEnded(command.commit, marked, one.producer, one.epoch)

    def _succeed(self, one: Transaction) -> None:
        """Bump the epoch of an id whose transaction ended, and remember the identity that a retry of the end sends."""
        ended_as = one.producer, one.epoch
        self._bump(one)
        one.ended_as = ended_as

    @applies(ExpireTransactions)
    def expire(self, command: ExpireTransactions, now: Moment) -> TransactionsExpired:
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
                break  # the ids are in the order of their last use
            if not one.open:
                idle.append(one)
        for one in idle:
            self._drop(one)
        return TransactionalIdsForgotten(len(idle))

    def unbroken(self, id: str, producer: int, epoch: int) -> bool:
        """Whether no transaction of the id has ended since it got this producer and epoch."""
        one = self._by_id.get(id)
        return (
            one is not None
            and (one.producer, one.epoch) == (producer, epoch)
            and one.phase in (TransactionPhase.EMPTY, TransactionPhase.OPEN)
        )

    def extend(self, id: str, time_ms: int) -> bool:
        """Restart the timeout of the id's transaction. False if none is open."""
        one = self._open.pop(id, None)
        if one is None:
            return False
        self._open[id] = one
        one.started_ms = time_ms
        self._touch(one, time_ms)
        return True

    def finish(self, id: str, commit: bool, time_ms: int) -> tuple[Marked, ...]:
        """End the id's open transaction, if any, and forget the id and its producer: sinks use an id once."""
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
            return ProducerUnknown(f"producer {producer} does not hold transactional id {id[:64]!r}")
        return one if one.epoch == epoch else _fenced(one)

    def _find_writable(self, id: str, producer: int, epoch: int) -> Transaction | MainstemError:
        one = self._find(id, producer, epoch)
        if isinstance(one, Transaction) and one.kept is not None:
            return InvalidTransaction(f"the transaction of {id[:64]!r} was kept: commit or abort it first")
        return one

    def _end(self, one: Transaction, commit: bool, epoch: int, time_ms: int) -> tuple[Marked, ...]:
        """Write a marker to every stream of an open transaction. Commit or drop its offsets and acknowledgements."""
        marked: list[Marked] = []
        if one.owner is not None:
            self._producers.forget(one.producer, one.streams)
        writer = one.producer if one.kept is None else one.kept[0]
        if writer != one.producer:
            epoch = EPOCH_MAX  # the writer had no epochs left
        for stream in one.streams:
            if not self._streams.exists(stream):
                continue  # its topic was deleted
            writes = self._streams.transactions.close(stream, writer)
            if writes is not None and not commit:
                self._streams.punch(stream, writes.ranges(), ABORTED, writes.bytes)
            offset = self._streams.take_marker(stream)
            first = -1 if writes is None else writes.first
            marker = Marker(offset, writer, epoch, commit, time_ms)
            self._streams.transactions.mark(stream, marker, first)
            marked.append((stream, first, offset))
        if commit:
            for group, positions in one.offsets.items():
                for stream, (offset, metadata, leader_epoch) in positions.items():
                    self._cursors.put_checked(group, stream, Cursor(offset, metadata, time_ms, leader_epoch))
        for stream, name in one.acks:
            self._subscriptions.release(stream, name, one.producer, commit=commit)
        told = {stream for stream, _, _ in marked}
        acked = dict.fromkeys(stream for stream, _ in one.acks if stream not in told)
        marked += [(stream, -1, -1) for stream in acked if self._streams.exists(stream)]
        one.phase = TransactionPhase.COMMITTED if commit else TransactionPhase.ABORTED
        one.streams, one.offsets, one.acks, one.kept = {}, {}, {}, None
        del self._open[one.id]
        if one.owner is not None:
            self._drop(one)
            self._remember_end(one.producer, commit)
        return tuple(marked)

    def _remember_end(self, producer: int, commit: bool) -> None:
        self._ended[producer] = commit
        self._ended_sum += hash_fields("ended transaction", producer, commit)
        if len(self._ended) > ENDED_TRANSACTIONS_KEPT:
            oldest = next(iter(self._ended))
            self._ended_sum -= hash_fields("ended transaction", oldest, self._ended.pop(oldest))

    def _touch(self, one: Transaction, time_ms: int) -> None:
        if one.owner is not None and not one.open:
            return  # its id was used once
        one.updated_ms = time_ms
        self._by_id.put(one.id, one)

    # State as a whole

    @property
    def digest(self) -> int:
        return (self._by_id.digest + self._ended_sum) & MASK

    def encode(self) -> TransactionsState:
        return TransactionsState([state_of(one) for one in self], list(self._ended.items()))

    def load(self, state: TransactionsState) -> None:
        for producer, commit in state.ended:
            self._remember_end(producer, commit)
        for stored in state.ids:
            one = restored(stored)
            self._by_producer[one.producer] = one
            self._by_id.put(one.id, one)
        begun = sorted((one for one in self if one.open), key=lambda one: one.started_ms)
        self._open = {one.id: one for one in begun}


def _bumped_before(one: Transaction, command: InitProducer) -> bool:
    """Whether the producer has its next epoch already, and missed the response."""
    return (command.producer, command.epoch) in (one.ended_as, (one.producer, one.last_epoch))


def _phase_of(command: EndTransaction) -> TransactionPhase:
    return TransactionPhase.COMMITTED if command.commit else TransactionPhase.ABORTED


def _bad_group(one: Transaction, group: str) -> InvalidInput | LimitReached | None:
    """Why a group's offsets cannot join the present or next transaction, or None."""
    if not 1 <= id_chars(group) <= limits.NAME_CHARS_MAX:
        return InvalidInput(f"a group name has 1 to {limits.NAME_CHARS_MAX} characters")
    if one.open and group not in one.offsets and len(one.offsets) >= TRANSACTION_GROUPS_MAX:
        return LimitReached(f"a transaction has at most {TRANSACTION_GROUPS_MAX} groups")
    return None


def _no_open_transaction(one: Transaction, commit: bool) -> InvalidTransaction:
    return InvalidTransaction(f"{one.id!r} has no open transaction to {'commit' if commit else 'abort'}")


def _fenced(one: Transaction) -> ProducerFenced:
    return ProducerFenced(
        f"a newer producer took over transactional id {one.id[:64]!r}, or its transaction timed out"
    )

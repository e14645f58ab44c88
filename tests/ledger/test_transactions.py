"""Transactions: rules one by one. Random sequences of them are in `test_transactions_against_model.py`."""

from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.errors import (
    InvalidInput,
    InvalidTransaction,
    InvalidTransactionTimeout,
    LimitReached,
    ProducerFenced,
    ProducerUnknown,
    StreamNotFound,
)
from mainstem.ledger.cursors import NO_POSITION, CommitOffsets, Take
from mainstem.ledger.entry import SLICE_TRANSACTIONAL
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.markers import Marker
from mainstem.ledger.streams import DeleteRecords, Trim
from mainstem.ledger.topics import DeleteTopic
from mainstem.ledger.transactional_ids import TransactionPhase
from mainstem.ledger.transactions import (
    EPOCH_MAX,
    TRANSACTIONAL_ID_CHARS_MAX,
    TWO_PHASE_TIMEOUT_MS,
    AddStreamsToTransaction,
    ExpireTransactions,
    ForgetTransactionalIds,
    InitProducer,
    TransactionEnded,
)

from .transactional import DUPLICATE, FENCED, INVALID, JOINING, OK, Producer
from .writer import Writer


@pytest.fixture
def writer() -> Writer:
    writer = Writer()
    writer.create("t", 3)
    return writer


def taken(writer: Writer, stream: int, limit: int = 100) -> list[int]:
    """What a fresh group would get."""
    ledger = Ledger.decode(writer.ledger.encode())
    ranges = Writer(ledger, broker=9).do(Take("fresh", stream, limit)).ranges
    return [offset for first, last in ranges for offset in range(first, last)]


def test_a_commit_takes_one_offset_in_each_partition_and_no_record(writer: Writer) -> None:
    producer = Producer(writer)
    producer.add(0, 1, 2)
    assert producer.append(0, 3) == (0, OK)
    assert producer.append(1, 2) == (0, OK)
    ended = producer.end(True)
    assert ended == TransactionEnded(True, ((0, 0, 3), (1, 0, 2), (2, -1, 0)))
    assert writer.state(0) == (0, 4, 3, 30)
    assert writer.state(2) == (0, 1, 0, 0)
    assert taken(writer, 0) == [0, 1, 2]
    markers = list(writer.ledger.streams.transactions.markers(0, 0, 10))
    assert markers == [Marker(3, producer.producer, producer.epoch, True, 1_000)]


def test_an_abort_takes_its_records_out_of_counts_and_cursors(writer: Writer) -> None:
    writer.append(0, 2)
    producer = Producer(writer)
    producer.write(0, 3)
    writer.append(0, 1)
    producer.append(0, 2)
    assert taken(writer, 0) == [0, 1]
    producer.end(False)
    assert writer.state(0) == (0, 9, 3, 30)
    assert taken(writer, 0) == [0, 1, 5]
    transactions = writer.ledger.streams.transactions
    assert transactions.aborted(0, 0, 9) == [(producer.producer, 2, 8)]
    assert transactions.aborted(0, 0, 2) == []
    assert transactions.aborted(0, 8, 9) == [(producer.producer, 2, 8)]
    assert transactions.aborted(0, 9, 99) == []


def test_the_stable_end_stands_at_the_oldest_open_transaction(writer: Writer) -> None:
    streams = writer.ledger.streams
    one, two = Producer(writer, "one"), Producer(writer, "two")
    one.add(0)
    assert streams.stable_end(0) == 0
    writer.append(0, 2)
    assert streams.stable_end(0) == 2
    one.append(0)
    two.write(0)
    assert streams.stable_end(0) == 2
    one.end(True)
    assert streams.stable_end(0) == 3
    two.end(False)
    assert streams.stable_end(0) == 6 == streams.end[0]


def test_only_an_open_transaction_that_covers_the_partition_takes_appends(writer: Writer) -> None:
    producer = Producer(writer)
    assert producer.append(0) == (-1, INVALID)
    producer.add(1)
    assert producer.append(0) == (-1, INVALID)
    assert producer.append(1) == (0, OK)
    assert producer.append(1, flags=0) == (-1, INVALID)  # not transactional in the midst of a transaction
    producer.end(True)
    assert producer.append(1) == (-1, INVALID)
    assert writer.append(0, producer=77, epoch=0, sequence=0, flags=SLICE_TRANSACTIONAL) == (-1, INVALID)


def test_a_retry_finds_its_offset_even_after_the_transaction_ended(writer: Writer) -> None:
    producer = Producer(writer)
    base = producer.write(0, 2)
    producer.end(True)
    producer.sequences[0] = 0
    assert producer.append(0, 2) == (base, DUPLICATE)


def test_sequences_of_an_aborted_batch_cannot_be_used_again_without_a_word(writer: Writer) -> None:
    """librdkafka does so when it aborts with batches in flight that were written: they must not pass for retries."""
    producer = Producer(writer)
    producer.write(0, 2)
    producer.end(False)
    producer.sequences[0] = 0
    producer.add(0)
    assert producer.append(0, 2) == (-1, INVALID)
    producer.sequences[0] = 2
    assert producer.append(0, 2)[1] == OK


def test_a_new_start_fences_the_zombie_and_aborts_what_it_left(writer: Writer) -> None:
    zombie = Producer(writer)
    zombie.write(0, 2)
    fresh = Producer(writer)
    assert (fresh.producer, fresh.epoch) == (zombie.producer, zombie.epoch + 1)
    assert fresh.marked == ((0, 0, 2),)
    assert zombie.append(0) == (-1, FENCED)
    assert zombie.append(0, flags=0) == (-1, FENCED)
    for refused in (zombie.add(1), zombie.end(True), zombie.join("g"), zombie.offsets("g", (0, 1, ""))):
        assert isinstance(refused, ProducerFenced)
    assert taken(writer, 0) == []
    assert fresh.write(0) == 3
    fresh.end(True)
    assert taken(writer, 0) == [3]


def test_ends_may_be_repeated_but_not_reversed(writer: Writer) -> None:
    producer = Producer(writer)
    assert isinstance(producer.end(True), InvalidTransaction)
    producer.write(0)
    producer.end(True)
    before = writer.ledger.digest()
    assert producer.end(True) == TransactionEnded(True, ())
    assert isinstance(producer.end(False), InvalidTransaction)
    assert writer.ledger.digest() == before
    producer.write(0)
    producer.end(False)
    assert producer.end(False) == TransactionEnded(False, ())
    assert isinstance(producer.end(True), InvalidTransaction)


def test_ids_and_producers_must_belong_together(writer: Writer) -> None:
    producer = Producer(writer)
    for id, number in (("other", producer.producer), (producer.id, producer.producer + 1)):
        refused = writer.do(AddStreamsToTransaction(id, number, producer.epoch, (0,)))
        assert isinstance(refused, ProducerUnknown)
    newer = writer.do(AddStreamsToTransaction(producer.id, producer.producer, producer.epoch + 1, (0,)))
    assert isinstance(newer, ProducerFenced)


def test_offsets_count_once_the_transaction_commits(writer: Writer) -> None:
    writer.do(CommitOffsets("g", ((0, 1, "old"),)))
    cursors, transactions = writer.ledger.cursors, writer.ledger.transactions
    producer = Producer(writer)
    assert isinstance(producer.offsets("g", (0, 5, "new")), InvalidTransaction)
    producer.join("g")
    assert isinstance(producer.offsets("h", (0, 5, "new")), InvalidTransaction)
    producer.offsets("g", (0, 5, "new"), (1, 7, ""))
    assert transactions.pending("g") == {0, 1}
    assert cursors.get("g", 0).offset == 1  # type: ignore[union-attr]
    producer.end(False)
    assert transactions.pending("g") == set()
    assert cursors.get("g", 0).offset == 1  # type: ignore[union-attr]
    producer.join("g")
    producer.offsets("g", (0, 5, "new"))
    producer.offsets("g", (0, 6, "newer"))
    producer.end(True)
    assert cursors.get("g", 0)[:2] == (6, "newer")  # type: ignore[index]
    assert cursors.get("g", 1) is None
    producer.join("g")
    producer.offsets("g", (0, NO_POSITION, ""))
    assert cursors.get("g", 0) is not None
    producer.end(True)
    assert cursors.get("g", 0) is None


def test_bad_offsets_are_refused_before_the_commit(writer: Writer) -> None:
    producer = Producer(writer)
    producer.join("g")
    assert isinstance(producer.offsets("g", (9, 1, "")), StreamNotFound)
    assert isinstance(producer.offsets("g", (0, -2, "")), InvalidInput)
    assert isinstance(producer.offsets("g", (0, 1, "x" * 5_000)), InvalidInput)
    assert isinstance(producer.join(""), InvalidInput)


def test_a_timeout_aborts_fences_and_can_be_repeated(writer: Writer) -> None:
    producer = Producer(writer)
    producer.write(0)
    expiry = ExpireTransactions(((producer.id, producer.producer, producer.epoch),))
    expired = writer.do(expiry)
    assert expired.ids == (producer.id,)
    assert expired.marked == ((0, 0, 1),)
    before = writer.ledger.digest()
    assert writer.do(expiry).ids == ()
    assert writer.ledger.digest() == before
    assert isinstance(producer.end(True), ProducerFenced)
    # The same producer may go on, if it says who it was.
    again = writer.do(InitProducer(producer.id, 1_000, producer.producer, producer.epoch))
    assert (again.producer, again.epoch) == (producer.producer, producer.epoch + 1)


def test_a_start_that_states_its_epoch_is_fenced_if_it_is_not_the_latest(writer: Writer) -> None:
    producer = Producer(writer)
    number = producer.producer
    bumped = writer.do(InitProducer("tx", 1_000, number, 0))
    assert bumped.epoch == 1
    assert writer.do(InitProducer("tx", 1_000, number, 0)).epoch == 1  # a retry whose answer was lost
    assert writer.do(InitProducer("tx", 1_000, number, 1)).epoch == 2
    assert isinstance(writer.do(InitProducer("tx", 1_000, number, 0)), ProducerFenced)
    assert isinstance(writer.do(InitProducer("tx", 1_000, number + 1, 2)), ProducerFenced)
    writer.do(AddStreamsToTransaction("tx", number, 2, (0,)))
    assert isinstance(writer.do(InitProducer("tx", 1_000, number, 1)), ProducerFenced)


def test_an_exhausted_epoch_gets_a_new_producer_id(writer: Writer) -> None:
    producer = Producer(writer)
    writer.ledger.transactions.get("tx").epoch = EPOCH_MAX - 2  # type: ignore[union-attr]
    last = writer.do(InitProducer("tx", 1_000))
    assert (last.producer, last.epoch) == (producer.producer, EPOCH_MAX - 1)
    writer.do(AddStreamsToTransaction("tx", last.producer, last.epoch, (0,)))
    assert writer.do(ExpireTransactions((("tx", last.producer, last.epoch),))).ids == ("tx",)
    assert writer.ledger.transactions.get("tx").epoch == EPOCH_MAX  # type: ignore[union-attr]
    fresh = writer.do(InitProducer("tx", 1_000))
    assert fresh.epoch == 0
    assert fresh.producer != producer.producer
    assert writer.ledger.transactions.of_producer(producer.producer) is None


def test_bounds_are_named(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    for timeout in (0, -1, limits.TRANSACTION_TIMEOUT_MS_MAX + 1):
        assert isinstance(writer.do(InitProducer("tx", timeout)), InvalidTransactionTimeout)
    for id in ("", "x" * (TRANSACTIONAL_ID_CHARS_MAX + 1)):
        assert isinstance(writer.do(InitProducer(id, 1_000)), InvalidInput)
    monkeypatch.setattr("mainstem.ledger.transactions.TRANSACTIONAL_IDS_MAX", 1)
    monkeypatch.setattr("mainstem.ledger.transactions.TRANSACTION_STREAMS_MAX", 2)
    monkeypatch.setattr("mainstem.ledger.transactions.TRANSACTION_GROUPS_MAX", 1)
    monkeypatch.setattr("mainstem.ledger.transactions.TRANSACTION_OFFSETS_MAX", 1)
    producer = Producer(writer)
    assert isinstance(writer.do(InitProducer("another", 1_000)), LimitReached)
    assert isinstance(producer.add(0, 1, 2), LimitReached)
    producer.add(0, 1)
    assert isinstance(producer.add(2), LimitReached)
    producer.join("g")
    assert isinstance(producer.join("h"), LimitReached)
    assert isinstance(producer.offsets("g", (0, 1, ""), (1, 1, "")), LimitReached)


def test_unused_ids_are_forgotten_and_open_ones_are_not(writer: Writer) -> None:
    idle, busy = Producer(writer, "idle"), Producer(writer, "busy")
    busy.write(0)
    writer.time_ms += 10_000
    Producer(writer, "young")
    assert writer.do(ForgetTransactionalIds(writer.time_ms)).ids == 1
    assert writer.do(ForgetTransactionalIds(writer.time_ms)).ids == 0
    assert isinstance(idle.add(0), ProducerUnknown)
    assert busy.end(True).marked
    assert Producer(writer, "idle").producer != idle.producer


def test_streams_that_go_do_not_hold_up_their_transactions(writer: Writer) -> None:
    other = writer.create("gone", 1).streams[0]
    producer = Producer(writer)
    producer.write(other)
    producer.write(0)
    producer.join("g")
    producer.offsets("g", (other, 3, ""), (0, 4, ""))
    writer.do(DeleteTopic(b"gone".ljust(16, b"\0")))
    assert isinstance(producer.add(other), StreamNotFound)
    assert producer.end(True).marked == ((0, 0, 1),)
    assert set(writer.ledger.cursors.of_group("g")) == {0}


def test_ephemeral_topics_take_no_part(writer: Writer) -> None:
    ram = writer.create("ram", durability="ephemeral").streams[0]
    assert isinstance(Producer(writer).add(ram), InvalidInput)


def test_markers_go_when_the_start_passes_them(writer: Writer) -> None:
    producer = Producer(writer)
    for number in range(4):
        producer.write(0)
        producer.end(number % 2 == 0)
    transactions = writer.ledger.streams.transactions
    assert [marker.offset for marker in transactions.markers(0, 0, 99)] == [1, 3, 5, 7]
    writer.do(Trim(0, 4, "delete"))
    assert [marker.offset for marker in transactions.markers(0, 0, 99)] == [5, 7]
    assert [one.marker for one in transactions.aborted(0, 0, 99)] == [7]
    writer.do(Trim(0, 8, "cap"))
    assert 0 not in transactions.touched


def test_caps_count_neither_markers_nor_aborted_records() -> None:
    writer = Writer()
    stream = writer.create("capped", cap_records=4).streams[0]
    producer = Producer(writer)
    producer.write(stream, 2)
    producer.end(True)
    producer.write(stream, 2)
    producer.end(False)
    assert writer.state(stream) == (0, 6, 2, 20)
    writer.append(stream, 3)
    assert writer.state(stream) == (1, 9, 4, 40)
    assert taken(writer, stream) == [1, 6, 7, 8]


def test_the_start_moves_over_markers_among_deleted_records_but_not_for_an_abort(writer: Writer) -> None:
    producer = Producer(writer)
    producer.write(0, 2)
    producer.end(False)
    producer.write(0, 2)
    producer.end(True)
    writer.append(0)
    assert writer.state(0)[:2] == (0, 7)
    writer.do(DeleteRecords(0, ((3, 4),)))
    assert writer.state(0)[:3] == (4, 7, 2)
    writer.do(DeleteRecords(0, ((6, 7),)))
    assert writer.state(0)[:3] == (4, 7, 1)
    writer.do(DeleteRecords(0, ((4, 5),)))
    assert writer.state(0)[:3] == (7, 7, 0)
    assert 0 not in writer.ledger.streams.transactions.touched


def test_phases_are_kept_as_numbers_that_never_change() -> None:
    assert [(phase.name, phase.value) for phase in TransactionPhase] == [
        ("EMPTY", 0),
        ("OPEN", 1),
        ("COMMITTED", 2),
        ("ABORTED", 3),
    ]


# Two-phase commit


def two_phase(writer: Writer, *, keep: bool = True) -> Producer:
    """The producer `tx` starts again."""
    again = object.__new__(Producer)
    again.writer, again.id, again.sequences = writer, "tx", {}
    started = writer.do(InitProducer("tx", 1, two_phase=True, keep=keep))
    again.producer, again.epoch, again.marked = started.producer, started.epoch, started.marked
    return again


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("bump", [True, False])
def test_a_kept_transaction_is_ended_by_the_next_start(writer: Writer, commit: bool, bump: bool) -> None:
    first = two_phase(writer)
    assert writer.ledger.transactions.get("tx").timeout_ms == TWO_PHASE_TIMEOUT_MS  # type: ignore[union-attr]
    first.write(0)
    first.join("g")
    first.offsets("g", (1, 5, ""))
    for _ in range(2):  # two crashes
        second = two_phase(writer)
        kept = writer.ledger.transactions.get("tx")
        assert kept is not None
        assert kept.open
        assert kept.kept == (first.producer, first.epoch)
    assert isinstance(first.end(True), ProducerFenced)
    assert first.append(0)[1] == FENCED
    for refused in (second.add(0), second.add(1), second.join("h"), second.offsets("g", (1, 6, ""))):
        assert isinstance(refused, InvalidTransaction)
    assert second.append(0, flags=JOINING)[1] == INVALID
    restored = Ledger.decode(writer.ledger.encode())
    assert restored.digest() == writer.ledger.digest()
    ended = second.end(commit, bump=bump)
    assert ended.marked == ((0, 0, 1),)
    assert (writer.ledger.cursors.get("g", 1) is not None) == commit
    second.write(0)  # the next transaction
    assert second.end(True, bump=bump).marked == ((0, 2, 3),)


def test_without_keep_a_start_aborts_what_was_left_open(writer: Writer) -> None:
    two_phase(writer).write(0)
    two_phase(writer)  # keeps it
    aborting = two_phase(writer, keep=False)
    assert aborting.marked == ((0, 0, 1),)
    assert two_phase(writer).marked == ()
    assert writer.ledger.transactions.get("tx").kept is None  # type: ignore[union-attr]
    refused = writer.do(InitProducer("tx", 1_000, keep=True))
    assert isinstance(refused, InvalidInput)


def test_a_kept_transaction_outlives_the_epochs_of_its_writer(writer: Writer) -> None:
    two_phase(writer)
    writer.ledger.transactions.get("tx").epoch = EPOCH_MAX - 2  # type: ignore[union-attr]
    first = two_phase(writer)
    first.write(0)
    second = two_phase(writer)
    assert (second.epoch, second.producer != first.producer) == (0, True)
    assert second.end(True).marked == ((0, 0, 1),)
    second.write(0)
    assert second.end(True).marked == ((0, 2, 3),)

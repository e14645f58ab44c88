"""Transactions of clients that join by writing, and get another epoch at each end: nothing late slips in."""

from __future__ import annotations

import pytest

from mainstem.errors import InvalidInput, InvalidTransaction, LimitReached, ProducerFenced, ProducerUnknown
from mainstem.ledger.entry import SLICE_TRANSACTIONAL, Entry
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.replay import apply_all
from mainstem.ledger.transactional_ids import TransactionPhase
from mainstem.ledger.transactions import EPOCH_MAX, ExpireTransactions, InitProducer, TransactionEnded

from .transactional import DUPLICATE, FENCED, INVALID, JOINING, OK, Producer
from .writer import Writer, run, slice_row


@pytest.fixture
def writer() -> Writer:
    writer = Writer()
    writer.create("t", 3)
    return writer


def test_a_slice_that_joins_begins_the_transaction_and_others_widen_it(writer: Writer) -> None:
    producer = Producer(writer)
    assert producer.append(0, 2, JOINING) == (0, OK)
    assert producer.append(1, 1, JOINING) == (0, OK)
    assert producer.append(0, 1) == (2, OK)  # it is part of it now, however it came in
    assert writer.ledger.streams.stable_end(0) == 0
    assert producer.end(True, bump=True).marked == ((0, 0, 3), (1, 0, 1))
    assert writer.ledger.streams.stable_end(0) == 4


def test_a_slice_that_is_refused_begins_nothing(writer: Writer) -> None:
    capped = writer.create("capped", cap_records=1, discard="reject").streams[0]
    producer = Producer(writer)
    producer.sequences[0] = 7
    assert producer.append(0, 1, JOINING)[1] not in (OK, DUPLICATE)
    writer.append_sizes(capped, 10)
    assert producer.append(capped, 1, JOINING)[1] != OK
    assert not list(writer.ledger.transactions.open())


def test_what_comes_late_meets_an_epoch_that_is_over_and_begins_nothing(writer: Writer) -> None:
    producer = Producer(writer)
    producer.append(0, 1, JOINING)
    late = producer.copy()
    ended = producer.end(False, bump=True)
    assert (ended.producer, ended.epoch) == (late.producer, late.epoch + 1)
    assert late.append(0, 1, JOINING) == (-1, FENCED)
    assert late.append(1, 1, JOINING) == (-1, FENCED)
    assert isinstance(late.offsets("g", (0, 1, ""), joins=True), ProducerFenced)
    assert not list(writer.ledger.transactions.open())
    assert producer.append(0, 1, JOINING)[1] == OK
    marker = next(writer.ledger.streams.transactions.markers(0, 0, 9))
    assert marker.epoch == ended.epoch


def test_a_retried_end_gets_the_answer_that_was_lost(writer: Writer) -> None:
    for commit in (True, False):
        producer = Producer(writer, f"tx-{commit}")
        producer.append(0, 1, JOINING)
        before, other = producer.copy(), producer.copy()
        ended = producer.end(commit, bump=True)
        digest = writer.ledger.digest()
        assert before.end(commit, bump=True) == TransactionEnded(commit, (), ended.producer, ended.epoch)
        assert isinstance(other.end(not commit, bump=True), InvalidTransaction)
        assert writer.ledger.digest() == digest
        # Once the producer has begun another transaction, it has had the answer.
        producer.append(0, 1, JOINING)
        assert isinstance(other.end(commit, bump=True), ProducerFenced)


def test_an_abort_needs_nothing_open_but_a_commit_does(writer: Writer) -> None:
    producer = Producer(writer)
    late = producer.copy()
    assert isinstance(producer.end(True, bump=True), InvalidTransaction)
    assert producer.end(False, bump=True) == TransactionEnded(False, (), late.producer, late.epoch + 1)
    assert late.append(0, 1, JOINING) == (-1, FENCED)  # what the abort was for
    assert isinstance(producer.end(True, bump=True), InvalidTransaction)
    assert producer.end(False, bump=True).epoch == late.epoch + 2


def test_a_zombie_is_not_given_the_epoch_of_who_took_over(writer: Writer) -> None:
    zombie = Producer(writer)
    zombie.append(0, 1, JOINING)
    fresh = Producer(writer)
    assert isinstance(zombie.end(False, bump=True), ProducerFenced)
    fresh.write(0)
    fresh.end(False)  # of the first version: the epoch stays
    assert isinstance(zombie.end(False, bump=True), ProducerFenced)
    fresh.write(0)
    fresh.end(True, bump=True)
    assert isinstance(zombie.end(True, bump=True), ProducerFenced)


def test_an_exhausted_epoch_rolls_over_to_a_new_producer_at_the_end(writer: Writer) -> None:
    producer = Producer(writer)
    writer.ledger.transactions.get("tx").epoch = producer.epoch = EPOCH_MAX - 1  # type: ignore[union-attr]
    producer.append(0, 1, JOINING)
    late, retrying, restarting = producer.copy(), producer.copy(), producer.copy()
    ended = producer.end(True, bump=True)
    assert ended.epoch == 0
    assert ended.producer != late.producer
    assert next(writer.ledger.streams.transactions.markers(0, 0, 9)).epoch == EPOCH_MAX
    assert late.append(0, 1, JOINING) == (-1, INVALID)
    assert isinstance(late.offsets("g", (0, 1, ""), joins=True), ProducerUnknown)
    again = retrying.end(True, bump=True)
    assert (again.producer, again.epoch) == (ended.producer, 0)
    started = writer.do(InitProducer("tx", 1_000, restarting.producer, restarting.epoch))
    assert (started.producer, started.epoch) == (ended.producer, 0)
    assert producer.append(0, 1, JOINING) == (2, OK)


@pytest.mark.parametrize("epoch", [0, EPOCH_MAX - 1, EPOCH_MAX])
def test_a_producer_that_took_too_long_is_fenced_until_it_aborts(writer: Writer, epoch: int) -> None:
    producer = Producer(writer)
    writer.ledger.transactions.get("tx").epoch = producer.epoch = epoch  # type: ignore[union-attr]
    producer.append(0, 1, JOINING)
    expiry = ExpireTransactions((("tx", producer.producer, producer.epoch),), resumable=True)
    assert writer.do(expiry).ids == ("tx",)
    digest = writer.ledger.digest()
    assert writer.do(expiry).ids == ()
    assert writer.ledger.digest() == digest
    assert producer.append(0, 1, JOINING)[1] in (FENCED, INVALID)
    assert isinstance(producer.copy().end(True, bump=True), InvalidTransaction)
    before = producer.producer, producer.epoch
    assert isinstance(producer.end(False, bump=True), TransactionEnded)
    assert (producer.producer, producer.epoch) != before
    assert producer.append(0, 1, JOINING) == (2, OK)
    assert producer.end(True, bump=True).marked == ((0, 2, 3),)


def test_offsets_join_by_themselves_or_not_at_all(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.ledger.transactions.TRANSACTION_GROUPS_MAX", 1)
    producer = Producer(writer)
    assert isinstance(producer.offsets("", (0, 5, ""), joins=True), InvalidInput)
    assert not list(writer.ledger.transactions.open())
    producer.offsets("g", (0, 5, ""), joins=True)
    assert isinstance(producer.offsets("h", (0, 5, ""), joins=True), LimitReached)
    assert writer.ledger.transactions.pending("g") == {0}
    producer.end(True, bump=True)
    assert writer.ledger.cursors.get("g", 0).offset == 5  # type: ignore[union-attr]


def test_a_transaction_that_is_full_is_not_joined(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.ledger.transactions.TRANSACTION_STREAMS_MAX", 1)
    producer = Producer(writer)
    assert producer.append(0, 1, JOINING)[1] == OK
    assert producer.append(1, 1, JOINING) == (-1, INVALID)
    assert producer.append(0, 1, JOINING)[1] == OK


def test_both_versions_may_serve_one_producer_in_turn(writer: Writer) -> None:
    producer = Producer(writer)
    producer.append(0, 1, JOINING)
    producer.end(True)
    assert producer.append(0) == (-1, INVALID)
    producer.write(0)
    producer.end(True, bump=True)
    assert producer.append(0, 1, SLICE_TRANSACTIONAL) == (-1, INVALID)
    assert producer.write(0) == 4


def test_a_transaction_begins_at_the_time_of_its_own_entry_in_every_replay() -> None:
    writer = Writer()
    writer.create("t", 1)
    producers = [Producer(writer, f"tx-{number}") for number in range(3)]
    for producer in producers:
        writer.time_ms += 10
        row = slice_row(0, producer=producer.producer, epoch=producer.epoch, sequence=0, flags=JOINING)
        assert not Entry(1, 1, 1, 1, [run(row)]).plain
        writer.do(run(row))
    began = [one.started_ms for one in writer.ledger.transactions.open()]
    assert began == [1_010, 1_020, 1_030]
    replayed = Ledger()
    apply_all([entry.encode() for entry in writer.log], replayed)
    assert replayed.encode() == writer.ledger.encode()


def test_whom_an_end_bumped_outlives_a_checkpoint(writer: Writer) -> None:
    producer = Producer(writer)
    producer.append(0, 1, JOINING)
    before = producer.copy()
    ended = producer.end(True, bump=True)
    before.writer = Writer(Ledger.decode(writer.ledger.encode()), broker=2)
    again = before.end(True, bump=True)
    assert (again.producer, again.epoch, again.marked) == (ended.producer, ended.epoch, ())
    found = before.writer.ledger.transactions.get("tx")
    assert found is not None
    assert found.phase is TransactionPhase.COMMITTED

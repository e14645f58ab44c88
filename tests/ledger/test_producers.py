from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.ledger.appends import AppendCode
from mainstem.ledger.entry import SLICE_RESUMES
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.producers import AllocateProducer, ExpireProducers, ProducerAllocated, ProducersExpired
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer, run, slice_row

OK, DUPLICATE = AppendCode.OK, AppendCode.DUPLICATE
OUT_OF_ORDER, FENCED = AppendCode.OUT_OF_ORDER, AppendCode.PRODUCER_FENCED
UNKNOWN = AppendCode.PRODUCER_UNKNOWN

LAST_SEQUENCE = (1 << 31) - 1


def send(
    writer: Writer, sequence: int, count: int = 1, *, producer: int = 9, epoch: int = 0, stream: int = 0
) -> tuple[int, int]:
    return writer.append(stream, count, size=1, producer=producer, epoch=epoch, sequence=sequence)


@pytest.fixture
def writer() -> Writer:
    writer = Writer()
    writer.create("t", 2)
    return writer


def test_ids_are_counted(writer: Writer) -> None:
    assert [writer.do(AllocateProducer()) for _ in range(2)] == [ProducerAllocated(0), ProducerAllocated(1)]


def test_an_id_belongs_to_its_principal_also_after_a_checkpoint(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for owner in ("User:ann", "", "User:bob", "User:ann"):
        writer.do(AllocateProducer(owner))
    restored = Ledger.decode(writer.ledger.encode())
    assert restored.digest() == writer.ledger.digest()
    for producers in (writer.ledger.producers, restored.producers):
        assert [producers.may_write(id, "User:ann") for id in range(5)] == [True, True, False, True, True]
        assert [producers.may_write(id, "User:bob") for id in range(5)] == [False, True, True, False, True]
    monkeypatch.setattr("mainstem.ledger.producers.PRODUCER_OWNERS_MAX", 3)
    writer.do(AllocateProducer("User:eve"))
    assert [writer.ledger.producers.may_write(id, "User:ann") for id in range(5)] == [
        False,  # forgotten: the client gets a new id
        True,
        False,
        True,
        False,
    ]


def test_an_id_that_somebody_made_up_is_not_given_out(writer: Writer) -> None:
    assert send(writer, 0, producer=1) == (0, OK)
    assert writer.do(AllocateProducer()) == ProducerAllocated(0)
    assert writer.do(AllocateProducer()) == ProducerAllocated(2)
    assert send(writer, 0, producer=2) == (1, OK)


def test_a_retry_among_the_last_five_answers_its_first_offset(writer: Writer) -> None:
    for batch in range(7):
        assert send(writer, batch * 2, 2) == (batch * 2, OK)
    for batch in range(2, 7):
        assert send(writer, batch * 2, 2) == (batch * 2, DUPLICATE)
    assert send(writer, 2, 2) == (-1, OUT_OF_ORDER)
    assert writer.state(0)[1] == 14


def test_a_retry_within_one_run_is_found(writer: Writer) -> None:
    row = slice_row(0, 2, producer=9, epoch=0, sequence=0)
    for rows in ([row] * 2, [row] * 9):
        outcome = writer.do(run(*rows))
        assert set(outcome.base.tolist()) == {0}
        assert outcome.code.tolist()[1:] == [DUPLICATE] * (len(rows) - 1)
    assert writer.state(0)[1] == 2


def test_a_batch_of_another_width_is_no_retry(writer: Writer) -> None:
    send(writer, 0, 3)
    assert send(writer, 0, 2) == (-1, OUT_OF_ORDER)
    assert send(writer, 1, 2) == (-1, OUT_OF_ORDER)


def test_a_gap_is_refused_and_the_right_one_still_fits(writer: Writer) -> None:
    send(writer, 0, 3)
    assert send(writer, 4) == (-1, OUT_OF_ORDER)
    assert send(writer, 3) == (3, OK)


def test_an_unknown_producer_must_begin_at_zero(writer: Writer) -> None:
    assert send(writer, 5) == (-1, UNKNOWN)
    assert send(writer, 0) == (0, OK)


def test_a_producer_that_was_forgotten_may_go_on(writer: Writer) -> None:
    def go_on(sequence: int, count: int = 1) -> tuple[int, int]:
        row = slice_row(0, count, producer=9, epoch=0, sequence=sequence, flags=SLICE_RESUMES)
        outcome = writer.do(run(row))
        return int(outcome.base[0]), int(outcome.code[0])

    assert go_on(5, 2) == (0, OK)
    assert go_on(5, 2) == (0, DUPLICATE)
    assert go_on(8) == (-1, OUT_OF_ORDER)
    assert go_on(0) == (-1, OUT_OF_ORDER)
    assert go_on(7) == (2, OK)


def test_streams_and_producers_are_told_apart(writer: Writer) -> None:
    send(writer, 0, 3)
    assert send(writer, 0, 1, stream=1) == (0, OK)
    assert send(writer, 0, 1, producer=10) == (3, OK)
    assert send(writer, 3) == (4, OK)


def test_a_newer_epoch_begins_at_zero_and_fences_the_older(writer: Writer) -> None:
    send(writer, 0, 3)
    assert send(writer, 3, epoch=1) == (-1, OUT_OF_ORDER)
    assert send(writer, 0, epoch=1) == (3, OK)
    assert send(writer, 3, epoch=0) == (-1, FENCED)
    assert send(writer, 0, 3, epoch=0) == (-1, FENCED)
    assert send(writer, 0, epoch=1) == (3, DUPLICATE)
    assert send(writer, 1, epoch=1) == (4, OK)


def test_batches_of_an_older_epoch_are_no_retries_in_the_newer(writer: Writer) -> None:
    send(writer, 0, 3)
    send(writer, 3, 2)
    send(writer, 0, 1, epoch=1)
    assert send(writer, 0, 3, epoch=1) == (-1, OUT_OF_ORDER)
    assert send(writer, 3, 2, epoch=1) == (-1, OUT_OF_ORDER)


def test_sequences_wrap_to_zero() -> None:
    writer = Writer()
    writer.create()
    assert send(writer, 0, LAST_SEQUENCE - 1) == (0, OK)
    assert send(writer, LAST_SEQUENCE - 1, 4) == (LAST_SEQUENCE - 1, OK)  # the last two, then 0 and 1
    assert send(writer, LAST_SEQUENCE - 1, 4) == (LAST_SEQUENCE - 1, DUPLICATE)
    assert send(writer, 2) == (LAST_SEQUENCE + 3, OK)


@pytest.mark.parametrize(("sequence", "count"), [(-1, 1), (-7, 1), (0, 0)])
def test_a_producer_without_a_usable_sequence_is_refused(writer: Writer, sequence: int, count: int) -> None:
    assert send(writer, sequence, count) == (-1, OUT_OF_ORDER)
    assert len(writer.ledger.producers) == 0


def test_a_retry_to_a_full_topic_is_still_known() -> None:
    writer = Writer()
    writer.create(cap_records=2, discard="reject")
    assert send(writer, 0, 2) == (0, OK)
    assert send(writer, 2) == (-1, AppendCode.FULL)
    assert send(writer, 0, 2) == (0, DUPLICATE)
    # What was refused took no sequence number either.
    assert send(writer, 3) == (-1, OUT_OF_ORDER)


def test_idle_producers_are_forgotten_and_lively_ones_kept(writer: Writer) -> None:
    step = limits.PRODUCER_TIME_STEP_MS
    writer.time_ms = 10 * step
    send(writer, 0, producer=1)
    send(writer, 0, producer=2)
    writer.time_ms = 20 * step
    send(writer, 1, producer=1)
    assert writer.do(ExpireProducers(11 * step - 1)) == ProducersExpired(0)
    assert writer.do(ExpireProducers(20 * step)) == ProducersExpired(1)
    assert send(writer, 1, producer=2) == (-1, UNKNOWN)
    assert send(writer, 2, producer=1) == (3, OK)
    assert writer.do(ExpireProducers(20 * step)) == ProducersExpired(0)


def test_the_longest_idle_gives_way_when_there_are_too_many(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ledger.producers.PRODUCERS_MAX", 3)
    for producer in range(3):
        send(writer, 0, producer=producer)
    send(writer, 1, producer=0)
    send(writer, 0, producer=3)
    assert len(writer.ledger.producers) == 3
    assert send(writer, 1, producer=1) == (-1, UNKNOWN)
    assert send(writer, 2, producer=0)[1] == OK
    restored = Ledger.decode(writer.ledger.encode())
    assert restored.encode() == writer.ledger.encode()


def test_deleting_a_topic_forgets_what_was_sent_to_it() -> None:
    writer = Writer()
    topic = writer.create("a", 2)
    writer.create("b", 1)
    for stream in range(3):
        send(writer, 0, stream=stream)
    writer.do(DeleteTopic(topic.topic_id))
    assert len(writer.ledger.producers) == 1
    assert send(writer, 1, stream=2) == (1, OK)


def test_forgotten_places_are_used_again() -> None:
    writer = Writer()
    for round in range(40):
        topic = writer.create(f"t{round}")
        for producer in range(50):
            send(writer, 0, producer=producer, stream=round)
        if round % 2:
            writer.do(DeleteTopic(topic.topic_id))
    assert len(writer.ledger.producers) == 20 * 50
    assert send(writer, 1, producer=49, stream=38) == (50, OK)
    assert len(writer.ledger.producers.producer) <= 2_048
    assert Ledger.decode(writer.ledger.encode()).digest() == writer.ledger.digest()

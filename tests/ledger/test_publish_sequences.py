"""Deduplication of Pulsar producers: an append is placed once for each sequence number of its producer."""

from __future__ import annotations

from mainstem.errors import InvalidInput, ProducerFenced, Rejected
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.producer_epochs import RaiseProducerEpoch
from mainstem.ledger.publish_sequences import PublishExclusively, PublishSequence, SequencePublished
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer, run, slice_row


def _publish(writer: Writer, name: str, first: int, last: int) -> object:
    rows = run(slice_row(0, last - first + 1))
    return writer.apply(rows, PublishSequence(0, name, first, last))[1]


def test_a_number_that_is_not_new_is_not_appended() -> None:
    writer = Writer()
    topic = writer.create()
    assert _publish(writer, "p", 0, 2) == SequencePublished(0, False)
    assert _publish(writer, "p", 2, 4) == SequencePublished(-1, True)
    assert _publish(writer, "q", 0, 0) == SequencePublished(3, False)
    assert _publish(writer, "p", 9, 9) == SequencePublished(4, False)
    assert writer.state(0)[1] == 5
    loaded = Ledger.decode(writer.ledger.encode())
    assert (loaded.publish_sequences.last(0, "p"), loaded.publish_sequences.last(0, "x")) == (9, -1)
    assert loaded.digest() == writer.ledger.digest()
    writer.do(DeleteTopic(topic.topic_id))
    assert writer.ledger.publish_sequences.last(0, "p") == -1


def test_numbers_belong_to_one_append() -> None:
    writer = Writer()
    writer.create()
    assert isinstance(writer.do(PublishSequence(0, "p", 0, 0)), InvalidInput)
    assert isinstance(_publish(writer, "", 0, 0), InvalidInput)
    missing = writer.apply(run(slice_row(7)), PublishSequence(7, "p", 0, 0))[1]
    assert isinstance(missing, Rejected)
    assert writer.state(0)[1] == 0
    assert writer.ledger.publish_sequences.last(7, "p") == -1


def test_an_exclusive_producer_that_another_one_replaced_appends_nothing_more() -> None:
    writer = Writer()
    writer.create()
    writer.do(RaiseProducerEpoch(0, 1))

    def publish(epoch: int, number: int) -> tuple[object, object]:
        plain = writer.apply(run(slice_row(0)), PublishExclusively(0, epoch))[1]
        numbered = writer.apply(run(slice_row(0)), PublishSequence(0, "p", number, number, epoch))[1]
        return plain, numbered

    assert publish(1, 0) == (SequencePublished(0, False), SequencePublished(1, False))
    writer.do(RaiseProducerEpoch(0, 2))
    assert all(isinstance(refused, ProducerFenced) for refused in publish(1, 1))
    assert writer.state(0)[1] == 2
    assert writer.ledger.publish_sequences.last(0, "p") == 0
    assert publish(2, 1) == (SequencePublished(2, False), SequencePublished(3, False))
    assert isinstance(writer.do(PublishExclusively(0, 2)), InvalidInput)
    assert isinstance(writer.apply(run(slice_row(7)), PublishExclusively(7, 2))[1], Rejected)

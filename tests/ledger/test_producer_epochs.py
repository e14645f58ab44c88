"""Epochs of exclusive producers: they rise, and outlive their broker."""

from __future__ import annotations

from mainstem.errors import InvalidInput, ProducerFenced, StreamNotFound
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.producer_epochs import RaiseProducerEpoch
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer


def test_an_epoch_never_falls() -> None:
    writer = Writer()
    topic = writer.create()
    assert writer.ledger.producer_epochs.of(0) == 0
    assert [writer.do(RaiseProducerEpoch(0, epoch)) for epoch in (1, 4)] == [1, 4]
    assert writer.do(RaiseProducerEpoch(0, 4, resumes=True)) == 4
    assert isinstance(writer.do(RaiseProducerEpoch(0, 3, resumes=True)), ProducerFenced)
    assert isinstance(writer.do(RaiseProducerEpoch(0, 4)), ProducerFenced)  # two brokers give nobody the same
    assert isinstance(writer.do(RaiseProducerEpoch(0, 0)), InvalidInput)
    assert isinstance(writer.do(RaiseProducerEpoch(9, 1)), StreamNotFound)
    loaded = Ledger.decode(writer.ledger.encode())
    assert (loaded.producer_epochs.of(0), loaded.digest()) == (4, writer.ledger.digest())
    writer.do(DeleteTopic(topic.topic_id))
    assert writer.ledger.producer_epochs.of(0) == 0

"""Horizons of compacted views: they rise, and outlive their broker."""

from __future__ import annotations

from mainstem.errors import InvalidInput, StreamNotFound
from mainstem.ledger.compaction_horizons import RaiseCompactionHorizon
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer


def test_a_horizon_never_falls() -> None:
    writer = Writer()
    topic = writer.create()
    writer.append(0, 5)
    assert writer.ledger.compaction_horizons.of(0) == 0
    assert [writer.do(RaiseCompactionHorizon(0, horizon)) for horizon in (0, 2, 5, 3)] == [0, 2, 5, 5]
    assert isinstance(writer.do(RaiseCompactionHorizon(0, 6)), InvalidInput)
    assert isinstance(writer.do(RaiseCompactionHorizon(9, 1)), StreamNotFound)
    loaded = Ledger.decode(writer.ledger.encode())
    assert (loaded.compaction_horizons.of(0), loaded.digest()) == (5, writer.ledger.digest())
    writer.do(DeleteTopic(topic.topic_id))
    assert writer.ledger.compaction_horizons.of(0) == 0

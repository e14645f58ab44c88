from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mainstem import limits
from mainstem.errors import LedgerDiverged
from mainstem.ledger.brokers import Halt
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.cursors import CommitOffsets, DeleteOffsets, Take
from mainstem.ledger.digest import hash_columns, scramble
from mainstem.ledger.entry import Entry, Part
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.producers import AllocateProducer
from mainstem.ledger.streams import DeleteRecords, MarkLost, RaiseCeilings, Trim
from mainstem.ledger.topics import AddPartitions, AlterTopic, DeleteTopic

from .writer import Writer, run, slice_row

TOPIC = b"t".ljust(16, b"\0")


def ready() -> Writer:
    writer = Writer()
    writer.create("t", 2, durability="memory")
    writer.append(0, 10, producer=1, epoch=0, sequence=0)
    writer.do(CommitOffsets("g", ((0, 1, "m"),)))
    return writer


CHANGES: list[Part] = [
    run(slice_row(0)),
    run(slice_row(1, producer=1, epoch=0, sequence=0)),
    AllocateProducer(),
    CommitOffsets("g", ((0, 2, "m"),)),
    CommitOffsets("g", ((0, 1, "n"),)),
    CommitOffsets("h", ((0, 1, "m"),)),
    Take("g", 0, 2),
    DeleteRecords(0, ((3, 4),)),
    MarkLost(0, 3, 4),
    MarkLost(0, 3, 4, "other"),
    Trim(0, 1, "delete"),
    Trim(0, 1, "cap"),
    RaiseCeilings(((0, 5),)),
    AddPartitions(TOPIC, 3),
    AlterTopic(TOPIC, TopicConfig(durability="memory", retention_ms=1)),
    DeleteTopic(TOPIC),
    Halt(1),
]


def test_every_change_shows_in_the_digest_and_no_two_look_alike() -> None:
    seen = {ready().ledger.digest()}
    for change in CHANGES:
        writer = ready()
        writer.do(change)
        seen.add(writer.ledger.digest())
    assert len(seen) == len(CHANGES) + 1


def test_what_is_undone_leaves_no_trace() -> None:
    writer = ready()
    before = writer.ledger.digest()
    writer.do(CommitOffsets("h", ((1, 4, ""),)))
    writer.do(CommitOffsets("g", ((0, 7, "x"),)))
    assert writer.ledger.digest() != before
    writer.do(CommitOffsets("g", ((0, 1, "m"),)))
    writer.do(DeleteOffsets("h"))
    assert writer.ledger.digest() == before


def test_the_digest_does_not_depend_on_how_often_it_was_asked_for() -> None:
    asked, silent = ready(), ready()
    for sequence in range(10, 40):
        for writer in (asked, silent):
            writer.append(0, producer=1, epoch=0, sequence=sequence)
        asked.ledger.digest()
    assert asked.ledger.digest() == silent.ledger.digest()


def test_times_and_commit_ids_stay_out_of_the_digest() -> None:
    def digest(time_ms: int, first_id: int) -> int:
        writer = Writer()
        writer.time_ms, writer.commit_id = time_ms, first_id
        writer.create()
        writer.append(0, producer=1, epoch=0, sequence=0, time=5)
        writer.do(CommitOffsets("g", ((0, 1, ""),)))
        return writer.ledger.digest()

    assert digest(1_000, 0) == digest(999_999_999, 77)


def test_the_digest_is_the_same_on_every_machine() -> None:
    """A figure from version 1: if this changes, replay of old logs would stop at their digests."""
    assert ready().ledger.digest() == GOLDEN_DIGEST


GOLDEN_DIGEST = 10782608350667613526


def small_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 4)


def test_a_digest_is_remembered_at_every_multiple(monkeypatch: pytest.MonkeyPatch) -> None:
    small_interval(monkeypatch)
    writer = Writer()
    seen = []
    for _ in range(8):
        writer.do(AllocateProducer())
        seen.append(writer.ledger.last_digest)
    assert [digest[0] if digest else None for digest in seen] == [None, None, 4, 4, 4, 4, 8, 8]


def at_a_digest() -> tuple[Ledger, int]:
    writer = Writer()
    for _ in range(3):
        writer.do(AllocateProducer())
    assert writer.ledger.last_digest is not None
    assert writer.ledger.last_digest[0] == 4
    return writer.ledger, writer.ledger.last_digest[1]


@pytest.mark.parametrize(
    ("recorded", "diverged"),
    [
        (lambda digest: (4, digest), False),
        (lambda digest: (4, digest ^ 1), True),
        (lambda digest: (0, digest ^ 1), False),
        (lambda digest: (8, digest ^ 1), False),
    ],
)
def test_replay_must_match_the_digest_recorded_at_a_position(
    monkeypatch: pytest.MonkeyPatch, recorded: Callable[[int], tuple[int, int]], diverged: bool
) -> None:
    small_interval(monkeypatch)
    ledger, digest = at_a_digest()
    entry = Entry(1, 1, 99, 1, [AllocateProducer()], recorded(digest))
    state = ledger.encode()
    if diverged:
        with pytest.raises(LedgerDiverged):
            ledger.apply(entry)
        assert ledger.encode() == state
    else:
        ledger.apply(entry)
        assert ledger.position == 5


def test_scrambling_loses_nothing_and_depends_on_the_column() -> None:
    words = np.arange(100_000, dtype=np.uint64)
    assert len(np.unique(scramble(words))) == len(words)
    one, two = np.arange(1000), np.arange(1000)[::-1]
    assert not np.any(hash_columns(one, two)[:500] == hash_columns(two, one)[:500])

from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.errors import (
    GroupNotFound,
    InvalidInput,
    InvalidName,
    LimitReached,
    MainstemError,
    StreamNotFound,
    TooLarge,
)
from mainstem.ledger.cursors import (
    NO_POSITION,
    CommitOffsets,
    Cursor,
    DeleteOffsets,
    ExpireOffsets,
    OffsetsCommitted,
    OffsetsDeleted,
    Take,
    Taken,
)
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.streams import DeleteRecords, MarkLost, Trim
from mainstem.ledger.topics import DeleteTopic

from .writer import Writer


@pytest.fixture
def writer() -> Writer:
    writer = Writer()
    writer.create("t", 3)
    return writer


def test_a_committed_offset_is_kept_with_its_metadata_and_ledger_time(writer: Writer) -> None:
    writer.time_ms = 7_000
    assert writer.do(CommitOffsets("g", ((0, 5, "m"), (2, 9, "")))) == OffsetsCommitted(2)
    assert writer.ledger.cursors.get("g", 0) == Cursor(5, "m", 7_000)
    assert writer.ledger.cursors.get("g", 1) is None
    assert writer.ledger.cursors.of_group("g").keys() == {0, 2}
    assert writer.ledger.cursors.groups() == ["g"]


def test_an_offset_may_be_committed_backwards_and_past_the_end(writer: Writer) -> None:
    for offset in (9, 3):
        writer.do(CommitOffsets("g", ((0, offset, ""),)))
        cursor = writer.ledger.cursors.get("g", 0)
        assert cursor is not None
        assert cursor.offset == offset


def test_committing_no_position_removes_the_offset(writer: Writer) -> None:
    writer.do(CommitOffsets("g", ((0, 5, ""), (1, 6, ""))))
    assert writer.do(CommitOffsets("g", ((0, NO_POSITION, ""), (2, NO_POSITION, "")))) == OffsetsCommitted(2)
    assert writer.ledger.cursors.of_group("g").keys() == {1}
    writer.do(CommitOffsets("g", ((1, NO_POSITION, ""),)))
    assert writer.ledger.cursors.groups() == []
    assert writer.ledger.cursors.digest == Ledger().cursors.digest
    assert writer.ledger.cursors.count == 0


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (CommitOffsets("g", ((0, 1, ""), (3, 1, ""))), StreamNotFound),
        (CommitOffsets("g", ((0, 1, ""), (0, -2, ""))), InvalidInput),
        (CommitOffsets("g", ((0, 1, ""), (0, 1 << 63, ""))), InvalidInput),
        (CommitOffsets("g", ((0, 1, "é" * (limits.CURSOR_METADATA_BYTES_MAX // 2 + 1)),)), TooLarge),
        (CommitOffsets("", ((0, 1, ""),)), InvalidName),
        (CommitOffsets("g" * 256, ((0, 1, ""),)), InvalidName),
        (Take("", 0, 1), InvalidName),
        (Take("g", 3, 1), StreamNotFound),
        (Take("g", 0, 0), InvalidInput),
        (DeleteOffsets("g"), GroupNotFound),
    ],
)
def test_what_is_refused_is_refused_whole(
    writer: Writer, command: CommitOffsets | Take | DeleteOffsets, error: type[MainstemError]
) -> None:
    before = writer.ledger.digest()
    assert isinstance(writer.do(command), error)
    assert writer.ledger.cursors.groups() == []
    assert writer.ledger.digest() == before


def test_offsets_are_deleted_one_by_one_or_with_their_group(writer: Writer) -> None:
    writer.do(CommitOffsets("g", ((0, 1, ""), (1, 1, ""), (2, 1, ""))))
    assert writer.do(DeleteOffsets("g", (0, 0, 99))) == OffsetsDeleted(1)
    assert writer.ledger.cursors.get("g", 0) is None
    assert writer.do(DeleteOffsets("g")) == OffsetsDeleted(2)
    assert writer.ledger.cursors.groups() == []


def test_deleting_a_topic_forgets_its_cursors(writer: Writer) -> None:
    other = writer.create("o")
    writer.do(CommitOffsets("g", ((0, 1, ""), (3, 1, ""))))
    writer.do(CommitOffsets("h", ((3, 1, ""),)))
    writer.do(DeleteTopic(other.topic_id))
    assert writer.ledger.cursors.groups() == ["g"]
    assert writer.ledger.cursors.count == 1


def test_a_leader_epoch_is_kept_through_a_checkpoint_and_counts_in_the_digest(writer: Writer) -> None:
    writer.do(CommitOffsets("g", ((0, 5, ""), (1, 6, ""))))
    unknown = writer.ledger.digest()
    writer.do(CommitOffsets("g", ((0, 5, ""), (1, 6, "")), (4, -1)))
    assert writer.ledger.digest() != unknown
    restored = Ledger.decode(writer.ledger.encode()).cursors
    assert restored.of_group("g") == {0: Cursor(5, "", 1_000, 4), 1: Cursor(6, "", 1_000, -1)}


@pytest.mark.parametrize("epochs", [(1,), (1, -2), (1, 1 << 31)])
def test_leader_epochs_that_do_not_fit_the_offsets_are_refused(
    writer: Writer, epochs: tuple[int, ...]
) -> None:
    assert isinstance(writer.do(CommitOffsets("g", ((0, 5, ""), (1, 6, "")), epochs)), InvalidInput)
    assert writer.ledger.cursors.groups() == []


def test_an_expiry_takes_what_it_names_unless_it_was_committed_since(writer: Writer) -> None:
    writer.do(CommitOffsets("g", ((0, 1, ""), (1, 1, ""), (2, 1, ""))))
    writer.time_ms = 9_000
    writer.do(CommitOffsets("g", ((1, 2, ""),)))
    assert writer.do(ExpireOffsets("g", (0, 1, 0, 77), 9_000)) == OffsetsDeleted(1)
    assert list(writer.ledger.cursors.of_group("g")) == [1, 2]
    assert writer.do(ExpireOffsets("g", (0, 1), 9_000)) == OffsetsDeleted(0)
    assert writer.do(ExpireOffsets("h", (0,), 9_000)) == OffsetsDeleted(0)


def test_cursors_are_bounded(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.ledger.cursors.CURSORS_MAX", 2)
    writer.append(0, 5)
    writer.do(CommitOffsets("g", ((0, 1, ""), (1, 1, ""))))
    assert isinstance(writer.do(CommitOffsets("g", ((2, 1, ""),))), LimitReached)
    assert isinstance(writer.do(Take("h", 0, 1)), LimitReached)
    assert writer.do(CommitOffsets("g", ((0, 2, ""),))) == OffsetsCommitted(1)
    assert writer.do(Take("g", 0, 1)) == Taken(((2, 3),))


def test_no_two_takers_get_the_same_record(writer: Writer) -> None:
    writer.append(0, 5)
    assert writer.do(Take("g", 0, 2)) == Taken(((0, 2),))
    assert writer.do(Take("g", 0, 2)) == Taken(((2, 4),))
    assert writer.do(Take("g", 0, 2)) == Taken(((4, 5),))
    assert writer.do(Take("g", 0, 2)) == Taken(())
    assert writer.do(Take("h", 0, 9)) == Taken(((0, 5),))


def test_a_take_passes_over_what_is_gone(writer: Writer) -> None:
    writer.append(0, 12)
    writer.do(Trim(0, 2, "cap"))
    writer.do(DeleteRecords(0, ((3, 5),)))
    writer.do(MarkLost(0, 6, 8))
    assert writer.do(Take("g", 0, 4)) == Taken(((2, 3), (5, 6), (8, 10)))
    cursor = writer.ledger.cursors.get("g", 0)
    assert cursor is not None
    assert cursor.offset == 10
    writer.do(Trim(0, 11, "delete"))
    assert writer.do(Take("g", 0, 4)) == Taken(((11, 12),))


def test_a_take_of_nothing_leaves_no_cursor(writer: Writer) -> None:
    assert writer.do(Take("g", 0, 1)) == Taken(())
    assert writer.ledger.cursors.groups() == []


def test_a_take_keeps_the_metadata_of_the_cursor_and_respects_a_commit_past_the_end(writer: Writer) -> None:
    writer.append(0, 5)
    writer.do(CommitOffsets("g", ((0, 3, "m"),)))
    assert writer.do(Take("g", 0, 1)) == Taken(((3, 4),))
    assert writer.ledger.cursors.get("g", 0) == Cursor(4, "m", 1_000)
    writer.do(CommitOffsets("g", ((0, 50, "m"),)))
    assert writer.do(Take("g", 0, 1)) == Taken(())

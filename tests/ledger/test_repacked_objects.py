"""Which repacked files stand for which objects of the log."""

from __future__ import annotations

import pytest

from mainstem.errors import InvalidInput, StalePlan
from mainstem.ledger.ledger import Ledger
from mainstem.ledger.repacked_objects import FIRST_NUMBER, ForgetRepacked, PublishRepack, RepackedFile
from tests.ledger.writer import Writer


def _file(name: str, stream: int = 0, offset: int = 0) -> RepackedFile:
    return RepackedFile(f"repacked/{name}", 100, stream, offset)


def _again(ledger: Ledger) -> Ledger:
    """The same, through a checkpoint."""
    return Ledger.decode(ledger.encode())


def test_rounds_follow_each_other_and_the_frontier_moves() -> None:
    writer = Writer()
    assert writer.do(PublishRepack(0, 5, (), (_file("a"), _file("b", 3)))).frontier == 5
    assert writer.do(PublishRepack(5, 6, (), ())).frontier == 6  # nothing in it was needed
    assert writer.do(PublishRepack(6, 9, (), (_file("c"),))).frontier == 9
    for ledger in (writer.ledger, _again(writer.ledger)):
        repacked = ledger.repacked
        assert [(one.first, one.end, one.level, one.number - FIRST_NUMBER) for one in repacked.rounds] == [
            (0, 5, 1, 0),
            (6, 9, 1, 2),
        ]
        assert repacked.file(FIRST_NUMBER + 1) == _file("b", 3)
        assert repacked.file(FIRST_NUMBER + 3) is None
        assert repacked.garbage() == []


def test_of_two_that_repack_the_same_the_first_one_counts() -> None:
    writer = Writer()
    first = PublishRepack(0, 5, (), (_file("mine"),))
    writer.do(first)
    before = writer.ledger.digest()
    assert isinstance(writer.do(PublishRepack(0, 5, (), (_file("yours"),))), StalePlan)
    assert isinstance(writer.do(PublishRepack(0, 7, (), (_file("yours"),))), StalePlan)
    assert isinstance(writer.do(PublishRepack(6, 7, (), (_file("yours"),))), StalePlan)  # 5 would be left out
    assert writer.do(first).repeated
    assert writer.ledger.digest() == before


def test_a_merge_names_exactly_the_files_that_it_read() -> None:
    writer = Writer()
    writer.do(PublishRepack(0, 5, (), (_file("a"), _file("b", 3))))
    writer.do(PublishRepack(5, 9, (), (_file("c"),)))
    keys = ("repacked/a", "repacked/b", "repacked/c")
    for sources in (keys[:2], keys[1:], (keys[1], keys[0], keys[2]), (*keys, "repacked/d")):
        assert isinstance(writer.do(PublishRepack(0, 9, sources, (_file("m"),))), StalePlan)
    assert isinstance(writer.do(PublishRepack(0, 12, keys, (_file("m"),))), StalePlan)
    assert isinstance(writer.do(PublishRepack(1, 9, keys, (_file("m"),))), StalePlan)
    assert isinstance(writer.do(PublishRepack(9, 12, (), (_file("a"),))), StalePlan)  # it serves others
    merged = writer.do(PublishRepack(0, 9, keys, (_file("m"),)))
    assert (merged.frontier, merged.repeated) == (9, False)
    (one,) = writer.ledger.repacked.rounds
    assert (one.level, one.keys, one.number) == (2, ("repacked/m",), FIRST_NUMBER + 3)
    assert writer.ledger.repacked.garbage() == list(keys)
    assert writer.do(ForgetRepacked(("repacked/a", "repacked/m"))).objects == 1
    for ledger in (writer.ledger, _again(writer.ledger)):
        assert ledger.repacked.garbage() == ["repacked/b", "repacked/c"]
        assert ledger.repacked.knows("repacked/m")
        assert not ledger.repacked.knows("repacked/a")


def test_a_round_written_anew_keeps_its_level_and_a_dead_one_goes() -> None:
    writer = Writer()
    writer.do(PublishRepack(0, 5, (), (_file("a"),)))
    writer.do(PublishRepack(0, 5, ("repacked/a",), (_file("b"),)))
    assert [one.level for one in writer.ledger.repacked.rounds] == [1]
    assert writer.do(PublishRepack(0, 5, ("repacked/b",), ())).frontier == 5
    assert writer.ledger.repacked.rounds == []
    assert writer.ledger.repacked.garbage() == ["repacked/a", "repacked/b"]


@pytest.mark.parametrize(
    "command",
    [
        PublishRepack(5, 5, (), ()),
        PublishRepack(-1, 5, (), ()),
        PublishRepack(0, FIRST_NUMBER + 1, (), ()),
        PublishRepack(0, 5, (), (RepackedFile("parts/a", 1, 0, 0),)),
        PublishRepack(0, 5, (), (RepackedFile("repacked/a", 0, 0, 0),)),
        PublishRepack(0, 5, (), (_file("a"), _file("a", 1))),
        PublishRepack(0, 5, (), (_file("a", 1), _file("b", 1))),
        PublishRepack(0, 5, (), (_file("a", 2), _file("b", 1))),
    ],
)
def test_what_cannot_be_is_refused(command: PublishRepack) -> None:
    writer = Writer()
    before = writer.ledger.digest()
    assert isinstance(writer.do(command), InvalidInput)
    assert writer.ledger.digest() == before


def test_a_stream_is_looked_for_in_the_files_that_may_hold_it() -> None:
    writer = Writer()
    files = (_file("a", 2), _file("b", 4, 100), _file("c", 4, 200), _file("d", 9))
    writer.do(PublishRepack(0, 5, (), files))
    (one,) = writer.ledger.repacked.rounds

    def covering(stream: int, offset: int) -> list[int]:
        return [number - one.number for number in one.covering(stream, offset)]

    assert covering(0, 0) == [0]
    assert covering(3, 50) == [0]
    assert covering(4, 0) == [0, 1, 2]
    assert covering(4, 150) == [1, 2]
    assert covering(4, 200) == [2]
    assert covering(7, 0) == [2]
    assert covering(99, 5) == [3]

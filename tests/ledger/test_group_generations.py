"""Who was in a group last: kept while there is anybody, in bounds, the same after a checkpoint."""

from __future__ import annotations

import pytest

from mainstem import limits
from mainstem.errors import InvalidInput
from mainstem.ledger.group_generations import BumpGeneration, GroupGeneration
from mainstem.ledger.ledger import Ledger

from .writer import Writer


@pytest.fixture
def writer() -> Writer:
    return Writer()


def test_the_last_generation_counts_and_an_older_one_changes_nothing(writer: Writer) -> None:
    writer.apply(BumpGeneration("g", 3, ("a",)))
    (late,) = writer.apply(BumpGeneration("g", 2, ("b",)))
    assert late == writer.ledger.group_generations.get("g") == GroupGeneration("g", 3, ("a",))
    writer.apply(BumpGeneration("g", 3, ("a", "b")))
    assert writer.ledger.group_generations.get("g") == GroupGeneration("g", 3, ("a", "b"))


def test_a_group_without_members_leaves_no_trace(writer: Writer) -> None:
    empty = writer.ledger.group_generations.digest
    writer.apply(BumpGeneration("g", 1, ("a",)))
    assert writer.ledger.group_generations.digest != empty
    writer.apply(BumpGeneration("g", 2, ()))
    assert writer.ledger.group_generations.get("g") is None
    assert writer.ledger.group_generations.digest == empty


def test_of_too_many_the_one_that_changed_longest_ago_goes_also_after_a_checkpoint(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ledger.group_generations.GROUP_GENERATIONS_MAX", 3)
    for group in "abc":
        writer.apply(BumpGeneration(group, 1, ("m",)))
    writer.apply(BumpGeneration("a", 2, ("m",)))
    again = Ledger.decode(writer.ledger.encode())
    for ledger in (writer.ledger, again):
        Writer(ledger).apply(BumpGeneration("d", 1, ("m",)))
        assert [group for group in "abcd" if ledger.group_generations.get(group) is None] == ["b"]
    assert again.digest() == writer.ledger.digest()


@pytest.mark.parametrize(
    "command",
    [
        BumpGeneration("", 1, ("a",)),
        BumpGeneration("g", -1, ("a",)),
        BumpGeneration("g", 2**31, ("a",)),
        BumpGeneration("g", 1, ("",)),
        BumpGeneration("g", 1, ("a" * (limits.GROUP_GENERATION_CHARS_MAX + 1),)),
        BumpGeneration("g", 1, ("a",) * (limits.GROUP_GENERATION_MEMBERS_MAX + 1)),
    ],
)
def test_what_no_group_has_is_refused(writer: Writer, command: BumpGeneration) -> None:
    assert isinstance(writer.apply(command)[0], InvalidInput)
    assert writer.ledger.group_generations.digest == 0

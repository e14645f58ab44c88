"""Groups whose partitions the broker assigns, as the ledger keeps them: one decides at a time, in bounds, for good."""

from __future__ import annotations

import msgspec
import pytest

from mainstem import limits
from mainstem.errors import GroupOvertaken, InvalidInput, StaleMemberEpoch, UnknownMember
from mainstem.ledger.consumer_groups import (
    Assignment,
    ChangeConsumerGroup,
    ConsumerGroupKept,
    ConsumerGroups,
    ConsumerMemberState,
    ForgetConsumerGroup,
)
from mainstem.ledger.cursors import CommitOffsets, OffsetsCommitted
from mainstem.ledger.ledger import Ledger

from .writer import Writer

T = b"t" * 16


def member(name: str, epoch: int = 1, assigned: Assignment = ((T, (0, 1)),)) -> ConsumerMemberState:
    return ConsumerMemberState(
        name, epoch, 0, None, None, "c", "/h", 1_000, ("t",), None, None, assigned, (), assigned
    )


@pytest.fixture
def writer() -> Writer:
    return Writer()


def change(writer: Writer, after: int, *members: ConsumerMemberState, gone: tuple[str, ...] = ()) -> object:
    return writer.apply(ChangeConsumerGroup("g", after, 3, 2, members, gone))[0]


def test_a_change_gives_the_revision_that_the_next_one_is_made_to(writer: Writer) -> None:
    assert change(writer, 0, member("a"), member("b")) == ConsumerGroupKept(1)
    assert change(writer, 1, member("b", 2), gone=("a",)) == ConsumerGroupKept(2)
    kept = writer.ledger.consumer_groups.get("g")
    assert kept is not None
    assert (kept.epoch, kept.target_epoch, kept.members) == (3, 2, {"b": member("b", 2)})


@pytest.mark.parametrize("after", [0, 1, 3, -1])
def test_who_does_not_know_the_last_change_decides_nothing(writer: Writer, after: int) -> None:
    change(writer, 0, member("a"))
    change(writer, 1)  # another broker takes the group over
    before = writer.ledger.digest()
    assert isinstance(change(writer, after, member("a", 5)), GroupOvertaken)
    assert isinstance(writer.apply(ForgetConsumerGroup("g", after))[0], GroupOvertaken)
    assert writer.ledger.digest() == before


def test_a_revision_never_comes_again(writer: Writer) -> None:
    """Else one who knows the group from before it was forgotten could decide in the next of that name."""
    change(writer, 0, member("a"))
    assert change(writer, 1, gone=("a",)) == ConsumerGroupKept(0)
    assert change(writer, 0, member("b")) == ConsumerGroupKept(3)
    again = Ledger.decode(writer.ledger.encode())
    assert isinstance(change(Writer(again, broker=2), 1, member("a")), GroupOvertaken)


def test_a_group_without_members_leaves_no_trace_but_the_count_of_changes(writer: Writer) -> None:
    change(writer, 0, member("a"))
    change(writer, 1, gone=("a",))
    groups = writer.ledger.consumer_groups
    assert groups.names() == []
    change(writer, 0, member("a"))
    assert writer.apply(ForgetConsumerGroup("g", groups.revision("g"))) == [ConsumerGroupKept(0)]
    assert (groups.names(), groups.bytes, groups.encode().groups) == ([], 0, [])
    loaded = ConsumerGroups()
    loaded.load(groups.encode())
    assert groups.digest == loaded.digest


def test_it_is_the_same_after_a_checkpoint(writer: Writer) -> None:
    change(writer, 0, member("b"), member("a"))
    change(writer, 1, member("b", 2))
    again = Ledger.decode(writer.ledger.encode())
    assert again.digest() == writer.ledger.digest()
    assert again.encode() == writer.ledger.encode()
    kept = again.consumer_groups.get("g")
    assert kept is not None
    assert list(kept.members) == ["b", "a"]  # the order they came in decides between assignors
    for ledger in (again, writer.ledger):
        change(Writer(ledger, broker=2), 2, gone=("b",))
    assert again.digest() == writer.ledger.digest()


def test_a_ledger_that_never_had_such_a_group_has_the_digest_it_always_had() -> None:
    assert ConsumerGroups().digest == 0


def test_what_takes_too_much_room_is_not_kept(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSUMER_GROUP_BYTES_MAX", 1_000)
    wide = member("a", assigned=((T, tuple(range(1_000))),))
    assert change(writer, 0, wide) == ConsumerGroupKept(0)
    assert change(writer, 0, member("a")) == ConsumerGroupKept(2)
    assert change(writer, 2, wide) == ConsumerGroupKept(0)
    assert writer.ledger.consumer_groups.get("g") is None


def test_of_all_groups_no_more_is_kept_than_there_is_room_for(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.ledger.consumer_groups.CONSUMER_GROUPS_BYTES_MAX", 1_000)
    for name in "abcd":
        writer.apply(ChangeConsumerGroup(name, 0, 1, 1, (member("m"),)))
    assert writer.ledger.consumer_groups.names() == ["a", "b", "c"]
    writer.apply(ChangeConsumerGroup("a", 1, 1, 1, (), ("m",)))
    assert writer.apply(ChangeConsumerGroup("d", 0, 1, 1, (member("m"),))) == [ConsumerGroupKept(6)]
    assert Ledger.decode(writer.ledger.encode()).digest() == writer.ledger.digest()


@pytest.mark.parametrize(
    "command",
    [
        ChangeConsumerGroup("", 0, 1, 1, (member("a"),)),
        ChangeConsumerGroup("g" * 300, 0, 1, 1, (member("a"),)),
        ChangeConsumerGroup("g", 0, 2**31, 1, (member("a"),)),
        ChangeConsumerGroup("g", 0, 1, -3, (member("a"),)),
        ChangeConsumerGroup("g", 0, 1, 1, (member(""),)),
        ChangeConsumerGroup("g", 0, 1, 1, (member("a"), member("a"))),
        ChangeConsumerGroup("g", 0, 1, 1, (member("a"),), ("a",)),
        ChangeConsumerGroup("g", 0, 1, 1, (member("a", 2**31),)),
        ChangeConsumerGroup("g", 0, 1, 1, (member("a", assigned=((b"t", (0,)),)),)),
        ChangeConsumerGroup("g", 0, 1, 1, (member("a", assigned=((T, ()),)),)),
        ChangeConsumerGroup("g", 0, 1, 1, (member("a", assigned=((T, (-1,)),)),)),
        ChangeConsumerGroup("g", 0, 1, 1, (msgspec.structs.replace(member("a"), rebalance_ms=-1),)),
    ],
)
def test_what_no_group_has_is_refused(writer: Writer, command: ChangeConsumerGroup) -> None:
    assert isinstance(writer.apply(command)[0], InvalidInput)
    assert writer.ledger.consumer_groups.digest == 0


def test_a_member_commits_at_the_epoch_it_has_when_the_commit_is_applied(writer: Writer) -> None:
    """Whichever broker let it: one that is not the coordinator any more may have."""
    [stream] = writer.create("t").streams
    change(writer, 0, member("a", 2))

    def commit(who: str, epoch: int, offset: int) -> object:
        return writer.apply(CommitOffsets("g", ((stream, offset, ""),), (), who, epoch))[0]

    assert commit("a", 2, 5) == OffsetsCommitted(1)
    assert isinstance(commit("a", 1, 3), StaleMemberEpoch)
    assert isinstance(commit("b", 2, 3), UnknownMember)
    cursor = writer.ledger.cursors.get("g", stream)
    assert cursor is not None
    assert cursor.offset == 5
    assert commit("", -1, 7) == OffsetsCommitted(1)  # an administrator

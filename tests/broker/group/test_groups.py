"""Groups of a broker: names, limits, committed offsets, expiry and restarts, on a simulated disk."""

from __future__ import annotations

import asyncio
import struct

import pytest

from mainstem import limits
from mainstem.broker.groups.consumer_member import GROUP_TOPICS_PER_MEMBER_MAX, ConsumerHeartbeat
from mainstem.broker.groups.cursors import SHARED_CURSOR
from mainstem.broker.groups.member import Join, Joined
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.groups.service import GROUP_MEMBER_BYTES_MAX, Groups, ListedGroup
from mainstem.errors import (
    Closed,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupSubscribed,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidGroupName,
    InvalidInput,
    InvalidSessionTimeout,
    MainstemError,
    MemberIdRequired,
    OffsetMetadataTooLarge,
    PartitionNotFound,
    RebalanceInProgress,
    StaleMemberEpoch,
    TooLarge,
    TopicNotFound,
    UnknownMember,
    UnsupportedAssignor,
    WrongGroupKind,
)
from tests.support.machine import Machine

from .stage import GroupsStage

DAY_MS = 24 * 3600 * 1000
READS_T = struct.pack(">hih", 1, 1, 1) + b"t" + struct.pack(">i", -1)  # version, one topic, no user data


class Stage(GroupsStage):
    async def joined(self, group: str = "g", **fields: object) -> Joined:
        """A stable group of one."""
        joined = await self.groups.join(a_join(group, **fields))
        await self.groups.sync(group, joined.member_id, joined.generation, assignments={})
        return joined

    async def consumer(self, group: str = "g", member_id: str = "m", **fields: object) -> int:
        """Join a consumer group with broker-side assignment. Returns its epoch."""
        beat = {"epoch": 0, "rebalance_ms": 1_000, "topics": frozenset({"t"}), "owned": frozenset(), **fields}
        answer = await self.groups.consumer_heartbeat(
            ConsumerHeartbeat(group=group, member_id=member_id, **beat)  # type: ignore[arg-type]
        )
        return answer.epoch


def a_join(group: str = "g", **fields: object) -> Join:
    known = {
        "protocol_type": "consumer",
        "protocols": (("range", READS_T),),
        "session_ms": 10_000,
        "rebalance_ms": -1,
        "id_required": False,
    }
    return Join(group=group, **{**known, **fields})  # type: ignore[arg-type]


@pytest.fixture
async def stage(machine: Machine) -> Stage:
    stage = Stage(machine)
    await stage.open()
    await stage.broker.create_topic("t", partitions=3)
    await stage.broker.create_topic("u")
    return stage


# Bounds


@pytest.mark.parametrize("name", ["", "x" * 256, SHARED_CURSOR])
async def test_an_invalid_name_is_refused_everywhere(stage: Stage, name: str) -> None:
    with pytest.raises(InvalidGroupName):
        await stage.groups.join(a_join(name))
    with pytest.raises(InvalidGroupName):
        await stage.consumer(name)
    with pytest.raises(InvalidGroupName):
        await stage.groups.commit(name, [OffsetToCommit("t", 0, 1)])
    with pytest.raises(InvalidGroupName):
        stage.groups.heartbeat(name, "m", 1)


@pytest.mark.parametrize("session_ms", [-1, 0, 99, 1_800_001])
async def test_a_session_outside_the_bounds_is_refused(stage: Stage, session_ms: int) -> None:
    with pytest.raises(InvalidSessionTimeout):
        await stage.groups.join(a_join(session_ms=session_ms))
    assert stage.groups.list() == []


async def test_the_size_of_a_members_fields_is_bounded(stage: Stage) -> None:
    with pytest.raises(TooLarge):
        await stage.groups.join(a_join(protocols=tuple((str(number), b"") for number in range(100))))
    with pytest.raises(TooLarge):
        await stage.groups.join(a_join(protocols=(("range", bytes(GROUP_MEMBER_BYTES_MAX + 1)),)))
    joined = await stage.groups.join(a_join())
    with pytest.raises(TooLarge):
        await stage.groups.sync(
            "g", joined.member_id, 1, assignments={"x": bytes(GROUP_MEMBER_BYTES_MAX + 1)}
        )
    with pytest.raises(TooLarge):
        await stage.consumer("h", topics=frozenset(map(str, range(GROUP_TOPICS_PER_MEMBER_MAX + 1))))


async def test_the_number_of_groups_is_bounded_and_empty_ones_are_evicted(machine: Machine) -> None:
    stage = Stage(machine, groups_max=2)
    await stage.open()
    first = await stage.joined("a")
    await stage.joined("b")
    with pytest.raises(GroupFull):
        await stage.joined("c")
    with pytest.raises(GroupFull):
        await stage.consumer("c")
    await stage.groups.leave("a", first.member_id)
    await stage.joined("c")
    assert [group.name for group in stage.groups.list()] == ["b", "c"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"epoch": -3}, InvalidInput),
        ({"epoch": 1, "member_id": ""}, InvalidInput),
        ({"epoch": -2}, InvalidInput),
        ({"instance_id": ""}, InvalidInput),
        ({"rack": ""}, InvalidInput),
        ({"rebalance_ms": None}, InvalidInput),
        ({"topics": None}, InvalidInput),
        ({"owned": frozenset({(b"x", 0)})}, InvalidInput),
        ({"assignor": "sticky"}, UnsupportedAssignor),
        ({"epoch": 4}, UnknownMember),
        ({"epoch": -1}, UnknownMember),
    ],
)
async def test_an_invalid_heartbeat_is_refused(
    stage: Stage, fields: dict[str, object], error: type[MainstemError]
) -> None:
    with pytest.raises(error):
        await stage.consumer(**fields)  # type: ignore[arg-type]
    assert stage.groups.list() == []


async def test_a_consumer_without_an_id_is_given_one(stage: Stage) -> None:
    answer = await stage.groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group="g", member_id="", epoch=0, rebalance_ms=1, topics=frozenset(), owned=frozenset()
        )
    )
    assert answer.member_id.startswith("member-")


# The two protocols


async def test_a_group_of_another_protocol_type_keeps_its_protocol(stage: Stage) -> None:
    joined = await stage.joined(protocol_type="connect")
    with pytest.raises(WrongGroupKind):
        await stage.consumer()
    await stage.groups.leave("g", joined.member_id)
    await stage.consumer()
    with pytest.raises(InconsistentProtocol):
        await stage.groups.join(a_join(protocol_type="connect"))
    with pytest.raises(UnknownMember):
        stage.groups.heartbeat("g", "m", 1)
    with pytest.raises(UnknownMember):
        await stage.groups.leave("g", "m")
    await stage.consumer(epoch=-1)
    assert (await stage.joined()).generation == 1


# Offsets


async def test_any_client_may_commit_for_a_group_without_members(stage: Stage) -> None:
    outcomes = await stage.groups.commit(
        "g",
        [
            OffsetToCommit("t", 0, 5, "note", 3),
            OffsetToCommit("t", 9, 5),
            OffsetToCommit("nothing", 0, 5),
            OffsetToCommit("t", 1, -1),
            OffsetToCommit("t", 1, 1, "é" * limits.CURSOR_METADATA_BYTES_MAX),
            OffsetToCommit("t", 2, 7),
        ],
    )
    assert [type(outcome) for outcome in outcomes] == [
        type(None),
        PartitionNotFound,
        TopicNotFound,
        InvalidInput,
        OffsetMetadataTooLarge,
        type(None),
    ]
    found = stage.groups.offsets.of_group("g")
    assert [(number, cursor.offset) for number, cursor in found["t"].items()] == [(0, 5), (2, 7)]
    assert (found["t"][0].metadata, found["t"][0].leader_epoch) == ("note", 3)
    assert stage.groups.committed("g", "t", 1) is None
    assert stage.groups.list() == [ListedGroup("g", "", "Empty", "Classic")]


async def test_nothing_is_proposed_when_nothing_can_be_committed(stage: Stage) -> None:
    before = stage.broker.last_position
    assert [type(outcome) for outcome in await stage.groups.commit("g", [OffsetToCommit("x", 0, 1)])] == [
        TopicNotFound
    ]
    assert await stage.groups.commit("g", []) == []
    assert stage.broker.last_position == before


async def test_only_members_commit(stage: Stage) -> None:
    joined = await stage.joined()
    with pytest.raises(UnknownMember):
        await stage.groups.commit("g", [OffsetToCommit("t", 0, 1)])
    with pytest.raises(IllegalGeneration):
        await stage.groups.commit("g", [], member_id=joined.member_id, generation=7)
    with pytest.raises(UnknownMember):
        await stage.groups.commit("unknown", [], member_id=joined.member_id, generation=1)
    assert await stage.groups.commit(
        "g", [OffsetToCommit("t", 0, 1)], member_id=joined.member_id, generation=1
    ) == [None]


async def test_after_a_restart_members_may_commit_until_they_rejoin(stage: Stage) -> None:
    joined = await stage.joined()
    await stage.groups.commit(
        "g", [OffsetToCommit("t", 1, 42, "m", 0)], member_id=joined.member_id, generation=1
    )
    await stage.restart()
    with pytest.raises(UnknownMember):
        stage.groups.heartbeat("g", "a stranger", 1)
    with pytest.raises(RebalanceInProgress):
        stage.groups.heartbeat("g", joined.member_id, 1)
    for group, member, generation in (("g", joined.member_id, 0), ("g", "a stranger", 1), ("h", "m", 1)):
        with pytest.raises(UnknownMember):
            await stage.groups.commit(
                group, [OffsetToCommit("t", 1, 0)], member_id=member, generation=generation
            )
    assert await stage.groups.commit(
        "g", [OffsetToCommit("t", 1, 50)], member_id=joined.member_id, generation=1
    ) == [None]
    again = await stage.groups.join(a_join(member_id=joined.member_id))
    assert (again.member_id, again.generation) == (joined.member_id, 2)
    with pytest.raises(IllegalGeneration):
        await stage.groups.commit("g", [], member_id=joined.member_id, generation=1)
    cursor = stage.groups.committed("g", "t", 1)
    assert cursor is not None
    assert cursor.offset == 50


async def test_the_ledger_forgets_members_that_left(stage: Stage) -> None:
    joined = await stage.joined()
    await stage.groups.leave("g", joined.member_id)
    await stage.restart()
    assert stage.broker.log.ledger.group_generations.get("g") is None
    with pytest.raises(UnknownMember):
        await stage.groups.join(a_join(member_id=joined.member_id))


async def test_after_a_restart_members_with_broker_side_assignment_continue(stage: Stage) -> None:
    await stage.groups.commit("g", [OffsetToCommit("t", 1, 42, "m", 0)])
    epoch = await stage.consumer("h")
    await stage.restart()
    stage.groups.check_fetch("h", "m", epoch)
    assert await stage.groups.commit("h", [OffsetToCommit("t", 0, 3)], member_id="m", generation=epoch) == [
        None
    ]
    before = stage.broker.last_position
    assert await stage.consumer("h", epoch=epoch) == epoch
    assert stage.broker.last_position == before  # no other broker writes to this log: nothing to take over
    for member, at in (("m", epoch + 1), ("a stranger", epoch)):
        with pytest.raises((UnknownMember, StaleMemberEpoch)):
            await stage.groups.commit("h", [OffsetToCommit("t", 0, 9)], member_id=member, generation=at)
    cursor = stage.groups.committed("g", "t", 1)
    assert cursor is not None
    assert (cursor.offset, cursor.metadata, cursor.leader_epoch) == (42, "m", 0)
    await stage.joined()


async def test_without_a_kafka_door_earlier_members_block_nothing(stage: Stage) -> None:
    """As through the HTTP door of a server whose Kafka door is disabled."""
    await stage.consumer("h")
    groups = Groups(stage.broker.log, stage.clock)
    assert await groups.commit("h", [OffsetToCommit("t", 0, 3)]) == [None]
    await groups.delete("h")
    assert stage.broker.log.ledger.consumer_groups.names() == []


async def test_offsets_of_idle_groups_expire(stage: Stage) -> None:
    await stage.groups.commit("old", [OffsetToCommit("t", 0, 1), OffsetToCommit("t", 1, 1)])
    await stage.groups.offsets.commit("mainstem:own", [OffsetToCommit("t", 0, 1)])
    stage.clock.advance(4 * DAY_MS)
    await stage.groups.commit("old", [OffsetToCommit("t", 1, 2)])
    assert await stage.groups.expiry.sweep() == 0
    stage.clock.advance(3 * DAY_MS + 1)
    assert await stage.groups.expiry.sweep() == 1
    assert list(stage.groups.offsets.of_group("old")["t"]) == [1]
    stage.clock.advance(4 * DAY_MS)
    assert await stage.groups.expiry.sweep() == 1
    assert [group.name for group in stage.groups.list()] == ["mainstem:own"]


async def test_offsets_of_a_group_with_members_stay_until_it_was_empty_long_enough(stage: Stage) -> None:
    joined = await stage.joined(session_ms=1_800_000)
    await stage.groups.commit("g", [OffsetToCommit("t", 0, 1)], member_id=joined.member_id, generation=1)
    stage.clock.advance(30 * DAY_MS)
    assert await stage.groups.expiry.sweep() == 0
    await stage.groups.leave("g", joined.member_id)
    stage.clock.advance(6 * DAY_MS)
    assert await stage.groups.expiry.sweep() == 0
    stage.clock.advance(DAY_MS)
    assert await stage.groups.expiry.sweep() == 1


async def test_expiry_runs_by_itself_after_a_grace_period(stage: Stage) -> None:
    await stage.groups.commit("old", [OffsetToCommit("t", 0, 1)])
    stage.groups.start()
    stage.clock.advance(30 * DAY_MS)
    stage.groups.timers.fire()
    [sweep] = [task for task in asyncio.all_tasks() if task.get_name() == "mainstem-offsets"]
    await sweep
    assert not stage.groups.exists("old")
    await stage.groups.stop()


async def test_a_group_that_was_only_described_is_forgotten_by_the_next_sweep(stage: Stage) -> None:
    with pytest.raises(MemberIdRequired):
        await stage.groups.join(a_join(id_required=True))
    assert stage.groups.exists("g")
    stage.clock.advance(10_000)
    stage.groups.timers.fire()
    await stage.groups.expiry.sweep()
    assert not stage.groups.exists("g")


# What an administrator asks


async def test_empty_groups_are_deleted_with_their_offsets(stage: Stage) -> None:
    joined = await stage.joined()
    await stage.groups.commit("g", [OffsetToCommit("t", 0, 1)], member_id=joined.member_id, generation=1)
    with pytest.raises(GroupNotEmpty):
        await stage.groups.delete("g")
    await stage.groups.leave("g", joined.member_id)
    await stage.groups.delete("g")
    assert stage.groups.offsets.of_group("g") == {}
    with pytest.raises(GroupNotFound):
        await stage.groups.delete("g")


async def test_cursors_of_other_doors_cannot_be_deleted_as_groups(stage: Stage) -> None:
    await stage.broker.commit_offset(SHARED_CURSOR, "t", 3)
    with pytest.raises(InvalidGroupName):
        await stage.groups.delete(SHARED_CURSOR)
    with pytest.raises(InvalidGroupName):
        await stage.groups.delete_offsets(SHARED_CURSOR, [("t", 0)])
    assert stage.broker.committed(SHARED_CURSOR, "t") == 3


async def test_offsets_of_a_subscribed_topic_cannot_be_deleted(stage: Stage) -> None:
    with pytest.raises(GroupNotFound):
        await stage.groups.delete_offsets("g", [("t", 0)])
    await stage.groups.commit("g", [OffsetToCommit("t", 0, 1), OffsetToCommit("u", 0, 1)])
    joined = await stage.joined()
    outcomes = await stage.groups.delete_offsets("g", [("t", 0), ("u", 0), ("x", 0), ("u", 8)])
    assert [type(outcome) for outcome in outcomes] == [
        GroupSubscribed,
        type(None),
        TopicNotFound,
        PartitionNotFound,
    ]
    assert list(stage.groups.offsets.of_group("g")) == ["t"]
    await stage.groups.leave("g", joined.member_id)
    await stage.consumer()
    assert [type(one) for one in await stage.groups.delete_offsets("g", [("t", 0)])] == [GroupSubscribed]
    await stage.consumer(epoch=-1)
    assert await stage.groups.delete_offsets("g", [("t", 0)]) == [None]


@pytest.mark.parametrize("metadata", [b"", b"\0\1\0\0\0\1\0\5ab", b"\0\1\0\0\0\1\0\1\xff", READS_T])
async def test_offsets_stay_when_the_subscriptions_are_unknown(stage: Stage, metadata: bytes) -> None:
    await stage.groups.commit("g", [OffsetToCommit("t", 0, 1)])
    await stage.joined(protocols=(("range", metadata),))
    assert [type(one) for one in await stage.groups.delete_offsets("g", [("t", 0)])] == [GroupSubscribed]


async def test_offsets_of_other_protocols_stay_while_there_are_members(stage: Stage) -> None:
    await stage.groups.commit("g", [OffsetToCommit("t", 0, 1)])
    await stage.joined(protocol_type="connect")
    with pytest.raises(GroupNotEmpty):
        await stage.groups.delete_offsets("g", [("t", 0)])


async def test_only_the_offset_of_a_topic_deleted_meanwhile_is_refused(stage: Stage) -> None:
    deleting = asyncio.ensure_future(stage.broker.delete_topic("u"))
    await asyncio.sleep(0)  # proposed, not applied yet
    outcomes = await stage.groups.commit("g", [OffsetToCommit("u", 0, 1), OffsetToCommit("t", 0, 1)])
    await deleting
    assert [type(outcome) for outcome in outcomes] == [TopicNotFound, type(None)]


# The end


async def test_stopping_answers_waiting_members_and_refuses_new_ones(stage: Stage) -> None:
    first = await stage.joined()
    waiting = asyncio.ensure_future(stage.groups.join(a_join()))
    await asyncio.sleep(0)
    await stage.groups.stop()
    with pytest.raises(Closed):
        await waiting
    with pytest.raises(Closed):
        stage.groups.heartbeat("g", first.member_id, 1)
    with pytest.raises(Closed):
        await stage.groups.join(a_join())

"""Streams groups: tasks move without two members running one, and survive a restart."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import replace

import pytest

from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.groups.streams_group import StreamsGroup
from mainstem.broker.groups.streams_member import StreamsHeartbeat, StreamsHeartbeatResult, StreamsMember
from mainstem.broker.groups.timers import Timers
from mainstem.broker.groups.topology_topics import InternalTopic, StatusCode, Subtopology, Topology
from mainstem.errors import (
    FencedMemberEpoch,
    GroupNotEmpty,
    InvalidInput,
    InvalidTopology,
    StaleMemberEpoch,
    UnknownMember,
    WrongGroupKind,
)
from tests.support.clock import ManualClock
from tests.support.machine import Machine

from .stage import GroupsStage
from .test_group_persistence import Member as Consumer

TOPOLOGY = Topology(
    0,
    (
        Subtopology("0", ("t",), (), ("g-words",), (), ()),
        Subtopology("1", (), (InternalTopic("g-store", 0, ()),), (), (InternalTopic("g-words", 0, ()),), ()),
    ),
)
ACTIVE = frozenset((key, number) for key in (b"a0", b"a1") for number in range(4))


class Member:
    """The heartbeats of a Streams thread."""

    def __init__(self, name: str, process: str = "", **fields: object) -> None:
        self.tasks: Partitions = frozenset()
        self.last = StreamsHeartbeat(
            group="g",
            member_id=name,
            epoch=0,
            rebalance_ms=1_000,
            topology=TOPOLOGY,
            process_id=process or f"process of {name}",
        )
        self.last = replace(self.last, **fields)  # type: ignore[arg-type]

    async def beat(self, stage: Stage, **fields: object) -> StreamsHeartbeatResult:
        beat = replace(self.last, owned=self.tasks, **fields)  # type: ignore[arg-type]
        answer = await stage.groups.streams_heartbeat(beat, stage.create)
        self.last = replace(self.last, epoch=answer.epoch, topology=None)
        if answer.assigned is not None:
            self.tasks = answer.assigned
        return answer


class Stage(GroupsStage):
    created: tuple[str, ...] = ()
    may_create = True

    async def create(self, topics: Sequence[InternalTopic]) -> None:
        for topic in topics if self.may_create else ():
            await self.broker.create_topic(topic.name, partitions=topic.partitions, exist_ok=True)
            self.created += (topic.name,)

    async def settle(self, *members: Member) -> None:
        for _ in range(4):
            for member in members:
                await member.beat(self)

    @property
    def known(self) -> StreamsGroup:
        group = self.groups.get("g")
        assert isinstance(group, StreamsGroup)
        return group


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(Machine())
    await stage.open()
    await stage.broker.create_topic("t", partitions=4)
    yield stage
    await stage.groups.stop()
    await stage.machine.close()


async def test_the_first_member_gets_the_internal_topics_and_every_task(stage: Stage) -> None:
    member = Member("a")
    answer = await member.beat(stage)
    assert (answer.epoch, answer.assigned, answer.statuses) == (1, ACTIVE, ())
    assert stage.created == ("g-store", "g-words")
    assert (await member.beat(stage)).assigned is None
    assert stage.known.state == "Stable"


async def test_a_task_moves_only_after_its_member_released_it(stage: Stage) -> None:
    first, second = Member("a"), Member("b")
    await first.beat(stage)
    assert (await second.beat(stage)).assigned == frozenset()
    answer = await first.beat(stage)  # keeps half; the rest it still runs until it confirms
    assert answer.assigned is not None
    assert len(answer.assigned) == 4
    await second.beat(stage)
    assert second.tasks == frozenset()
    await first.beat(stage)
    await second.beat(stage)
    assert first.tasks | second.tasks == ACTIVE
    assert not first.tasks & second.tasks


async def test_tasks_survive_a_restart_unnoticed(stage: Stage) -> None:
    first, second = Member("a"), Member("b")
    await stage.settle(first, second)
    before = first.tasks, second.tasks, first.last.epoch
    await stage.restart()
    for member in (first, second):
        assert (await member.beat(stage)).assigned is None
    assert (first.tasks, second.tasks, first.last.epoch) == before
    assert stage.known.topology == TOPOLOGY


async def test_a_change_in_progress_survives_a_restart(stage: Stage) -> None:
    first, second = Member("a"), Member("b")
    await first.beat(stage)
    await second.beat(stage)
    await first.beat(stage)
    await stage.restart()
    await stage.settle(second, first)
    assert first.tasks | second.tasks == ACTIVE
    assert not first.tasks & second.tasks


async def test_the_tasks_of_a_silent_member_go_to_the_others(stage: Stage) -> None:
    first, second = Member("a"), Member("b")
    await stage.settle(first, second)
    stage.clock.advance(44_000)
    await first.beat(stage)
    stage.clock.advance(2_000)
    stage.groups.timers.fire()
    await stage.settle(first)
    assert first.tasks == ACTIVE
    with pytest.raises(UnknownMember):
        await second.beat(stage)


async def test_copies_of_state_are_kept_in_other_processes(stage: Stage) -> None:
    await stage.broker.shares.change_settings("g", [("streams.num.standby.replicas", "1")], [])
    members = [Member("a", "p"), Member("b", "p"), Member("c", "q")]
    await stage.settle(*members)
    copies = [task for member in members for task in member.tasks if task[0] == b"s1"]
    assert sorted(copies) == [(b"s1", number) for number in range(4)]
    for member in members:
        others = [one for one in members if one.last.process_id == member.last.process_id]
        for key, number in member.tasks:
            if key == b"a1":
                assert all((b"s1", number) not in one.tasks for one in others)


async def test_a_change_of_the_number_of_copies_reassigns(stage: Stage) -> None:
    first, second = Member("a"), Member("b")
    await stage.settle(first, second)
    await stage.broker.shares.change_settings("g", [("streams.num.standby.replicas", "1")], [])
    await stage.settle(first, second)
    assert {key for key, _ in first.tasks | second.tasks} == {b"a0", b"a1", b"s1"}


async def test_a_copy_becomes_the_task_when_its_member_leaves(stage: Stage) -> None:
    await stage.broker.shares.change_settings("g", [("streams.num.standby.replicas", "1")], [])
    first, second = Member("a"), Member("b")
    await stage.settle(first, second)
    await second.beat(stage, epoch=-1)
    await stage.settle(first)
    assert first.tasks == ACTIVE


async def test_a_missing_source_is_reported_until_it_exists(stage: Stage) -> None:
    topology = Topology(0, (Subtopology("0", ("later",), (), (), (), ()),))
    member = Member("a", topology=topology)
    [status] = (await member.beat(stage)).statuses
    assert (status.code, stage.known.state) == (StatusCode.MISSING_SOURCE_TOPICS, "NotReady")
    await stage.broker.create_topic("later", partitions=2)
    answer = await member.beat(stage)
    assert (answer.statuses, answer.assigned) == ((), {(b"a0", 0), (b"a0", 1)})


async def test_internal_topics_that_cannot_be_created_are_reported(stage: Stage) -> None:
    stage.may_create = False
    member = Member("a")
    [status] = (await member.beat(stage)).statuses
    assert status.code is StatusCode.MISSING_INTERNAL_TOPICS
    stage.may_create = True
    assert (await member.beat(stage)).assigned == ACTIVE


async def test_new_partitions_of_a_source_make_more_tasks(stage: Stage) -> None:
    member = Member("a", topology=Topology(0, (Subtopology("0", ("t",), (), (), (), ()),)))
    await member.beat(stage)
    await stage.broker.add_partitions("t", 6)
    await stage.settle(member)
    assert len(member.tasks) == 6


async def test_a_topology_changes_only_without_members(stage: Stage) -> None:
    first = Member("a")
    await first.beat(stage)
    other = Topology(0, (Subtopology("0", ("t",), (), (), (), ()),))
    with pytest.raises(InvalidInput):
        await Member("b", topology=other).beat(stage)
    older = Member("c", topology=replace_epoch(other, -1))
    [status] = (await older.beat(stage)).statuses
    assert (status.code, older.tasks) == (StatusCode.STALE_TOPOLOGY, frozenset())
    await older.beat(stage, epoch=-1)
    await first.beat(stage, epoch=-1)
    newer = Member("d", topology=other)
    await newer.beat(stage)
    assert newer.tasks == {(b"a0", number) for number in range(4)}


def replace_epoch(topology: Topology, epoch: int) -> Topology:
    return Topology(epoch, topology.subtopologies)


async def test_an_empty_group_is_a_streams_group_after_a_restart_until_it_is_deleted(stage: Stage) -> None:
    member = Member("a")
    await member.beat(stage)
    with pytest.raises(GroupNotEmpty):
        await stage.groups.delete("g")
    await member.beat(stage, epoch=-1)
    await stage.restart()
    assert [(one.kind, one.state) for one in stage.groups.list()] == [("Streams", "Empty")]
    await stage.groups.delete("g")
    assert stage.groups.list() == []
    await stage.restart()
    assert stage.groups.list() == []


async def test_an_empty_group_without_offsets_expires(stage: Stage) -> None:
    member = Member("a")
    await member.beat(stage)
    await member.beat(stage, epoch=-1)
    await stage.groups.expiry.sweep()
    await stage.restart()
    assert stage.groups.list() == []


async def test_a_consumer_joins_only_without_members(stage: Stage) -> None:
    member = Member("a")
    await member.beat(stage)
    with pytest.raises(WrongGroupKind):
        await Consumer("c").beat(stage.groups)
    await member.beat(stage, epoch=-1)
    consumer = Consumer("c")
    await consumer.beat(stage.groups)
    assert len(consumer.owned) == 4
    with pytest.raises(WrongGroupKind):
        await Member("a").beat(stage)
    await stage.restart()
    assert [one.kind for one in stage.groups.list()] == ["Consumer"]


async def test_members_commit_at_their_epoch(stage: Stage) -> None:
    member = Member("a")
    await member.beat(stage)
    offset = OffsetToCommit("t", 0, 3)
    epoch = member.last.epoch
    assert await stage.groups.commit("g", [offset], member_id="a", generation=epoch) == [None]
    with pytest.raises(StaleMemberEpoch):
        await stage.groups.commit("g", [offset], member_id="a", generation=epoch + 1)
    with pytest.raises(UnknownMember):
        await stage.groups.commit("g", [offset], member_id="b", generation=epoch)


async def test_a_lost_response_is_repeated_and_an_old_epoch_is_fenced(stage: Stage) -> None:
    first, second = Member("a"), Member("b")
    await first.beat(stage)
    await second.beat(stage)
    lost = first.last, first.tasks
    await first.beat(stage)
    await first.beat(stage)  # moves it to the next epoch
    assert first.last.epoch > lost[0].epoch
    first.last = lost[0]
    first.tasks &= lost[1]
    assert (await first.beat(stage)).assigned is not None
    with pytest.raises(FencedMemberEpoch):
        await first.beat(stage, epoch=99)


async def test_a_member_can_stop_all_members(stage: Stage) -> None:
    first, second = Member("a"), Member("b")
    await stage.settle(first, second)
    await first.beat(stage, epoch=-1, shutdown=True)
    [status] = (await second.beat(stage)).statuses
    assert status.code is StatusCode.SHUTDOWN_APPLICATION
    await second.beat(stage, epoch=-1)
    assert (await Member("c").beat(stage)).statuses == ()


async def test_members_learn_where_tasks_run_when_that_changes(stage: Stage) -> None:
    first, second = Member("a", endpoint=("h", 80)), Member("b")
    await stage.settle(first, second)
    answer = await second.beat(stage)
    assert answer.endpoints is not None
    [told] = answer.endpoints
    assert (told.endpoint, told.tasks) == (("h", 80), first.tasks)
    version = answer.endpoints_version
    assert (await second.beat(stage, endpoints_version=version)).endpoints is None
    await stage.restart()
    assert (await second.beat(stage, endpoints_version=version)).endpoints is None
    await second.beat(stage, epoch=-1)
    await stage.settle(first)
    assert (await first.beat(stage, endpoints_version=version)).endpoints is not None


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topology": None}, InvalidInput),
        ({"process_id": None}, InvalidInput),
        ({"rebalance_ms": None}, InvalidInput),
        ({"instance_id": "i"}, InvalidInput),
        ({"member_id": ""}, InvalidInput),
        ({"epoch": -2}, InvalidInput),
        ({"epoch": 3}, InvalidInput),  # with a topology
        ({"rack": ""}, InvalidInput),
        ({"topology": Topology(0, ())}, InvalidTopology),
    ],
)
async def test_what_no_member_sends_is_refused(
    stage: Stage, fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await Member("a").beat(stage, **fields)
    assert stage.broker.log.ledger.consumer_groups.names() == []


@pytest.mark.parametrize("seed", range(12))
async def test_members_that_come_and_go_never_share_a_task_and_end_with_all_of_them(
    stage: Stage, seed: int
) -> None:
    rng = random.Random(seed)
    await stage.broker.shares.change_settings("g", [("streams.num.standby.replicas", str(seed % 3))], [])
    alive: dict[str, Member] = {}
    for step in range(60):
        kind = rng.choice(("join", "beat", "beat", "beat", "beat", "lost", "leave", "vanish", "restart"))
        if kind == "join" and len(alive) < 5:
            name = f"m{step}"
            alive[name] = Member(name, rng.choice("pqr"), rebalance_ms=1_000_000)
            await alive[name].beat(stage)
        elif kind == "restart":
            await stage.restart()
        elif alive:
            name = rng.choice(sorted(alive))
            if kind == "beat":
                await alive[name].beat(stage)
            elif kind == "lost":  # the response does not arrive
                before = alive[name].last, alive[name].tasks
                await alive[name].beat(stage)
                alive[name].last, alive[name].tasks = before
                await rejoin_if_fenced(stage, alive[name])
            elif kind == "leave":
                await alive.pop(name).beat(stage, epoch=-1)
            else:
                del alive[name]
                stage.clock.advance(44_000)
                for member in alive.values():
                    await member.beat(stage)
                stage.clock.advance(2_000)
                stage.groups.timers.fire()
        check_no_task_is_shared(alive)
    last = Member("last", "p")
    await stage.settle(last, *alive.values())
    for member in alive.values():
        await member.beat(stage, epoch=-1)
    await stage.settle(last)
    assert last.tasks == ACTIVE


async def rejoin_if_fenced(stage: Stage, member: Member) -> None:
    try:
        await member.beat(stage)
    except FencedMemberEpoch:
        member.tasks = frozenset()
        await member.beat(stage, epoch=0, topology=TOPOLOGY)


def check_no_task_is_shared(members: dict[str, Member]) -> None:
    active = [task for member in members.values() for task in member.tasks if task[0][:1] == b"a"]
    assert len(set(active)) == len(active)
    states = [
        (member.last.process_id, key[1:], number)
        for member in members.values()
        for key, number in member.tasks
    ]
    assert len(set(states)) == len(states)


@pytest.mark.parametrize("held", [b"a0", b"s0"])
@pytest.mark.parametrize(("wanted", "process"), [(b"a0", "p"), (b"s0", "p"), (b"a0", "q"), (b"s0", "q")])
def test_a_process_has_the_state_of_a_task_once(held: bytes, wanted: bytes, process: str) -> None:
    timers = Timers(ManualClock())

    def member(name: str, process: str) -> StreamsMember:
        return StreamsMember(name, None, "", "", *(timers.timer(lambda: None),) * 2, process_id=process)

    owners: dict[Hashable, str] = {}
    holder, other = member("a", "p"), member("b", process)
    holder.reconcile(frozenset({(held, 0)}), 1, frozenset(), owners)
    other.reconcile(frozenset({(wanted, 0)}), 1, frozenset(), owners)
    free = process == "q" and (held, wanted) != (b"a0", b"a0")
    assert other.assigned == (frozenset({(wanted, 0)}) if free else frozenset())
    holder.reconcile(frozenset(), 2, frozenset(), owners)
    other.reconcile(frozenset({(wanted, 0)}), 2, frozenset(), owners)
    assert other.assigned == frozenset({(wanted, 0)})
    other.release_all(owners)
    assert owners == {}

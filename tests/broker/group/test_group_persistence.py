"""A group in the ledger: clients see only what is durable, and little is written."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from mainstem import limits
from mainstem.broker.groups.assignors import Partitions
from mainstem.broker.groups.consumer import ConsumerGroup
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat, ConsumerHeartbeatResult
from mainstem.broker.groups.offsets import OffsetToCommit
from mainstem.broker.groups.service import Groups
from mainstem.errors import GroupNotEmpty, NoSpace, UnknownMember
from tests.support.machine import Machine
from tests.support.waiting import until

from .stage import GroupsStage

SESSION_MS = 45_000


class Member:
    """The heartbeats of a consumer."""

    def __init__(self, name: str, **fields: object) -> None:
        self.owned: Partitions = frozenset()
        self.last = ConsumerHeartbeat(
            group="g", member_id=name, epoch=0, rebalance_ms=1_000, topics=frozenset({"t"})
        )
        self.last = replace(self.last, **fields)  # type: ignore[arg-type]

    @property
    def epoch(self) -> int:
        return self.last.epoch

    async def beat(self, groups: Groups, **fields: object) -> ConsumerHeartbeatResult:
        beat = replace(self.last, owned=self.owned, **fields)  # type: ignore[arg-type]
        answer = await groups.consumer_heartbeat(beat)
        self.last = replace(self.last, epoch=answer.epoch)
        if answer.assigned is not None:
            self.owned = answer.assigned
        return answer


class Stage(GroupsStage):
    async def settle(self, *members: Member) -> None:
        for _ in range(4):
            for member in members:
                await member.beat(self.groups)

    @property
    def commits(self) -> int:
        assert self.machine.port is not None
        return len(self.machine.port.appends)

    @property
    def known(self) -> ConsumerGroup:
        group = self.groups.get("g")
        assert isinstance(group, ConsumerGroup)
        return group


@pytest.fixture
async def stage(machine: Machine) -> Stage:
    stage = Stage(machine, consumer_session_ms=SESSION_MS)
    await stage.open()
    await stage.broker.create_topic("t", partitions=6)
    return stage


async def test_no_response_reveals_what_a_crash_may_undo(stage: Stage) -> None:
    member = Member("a")
    assert stage.machine.port is not None
    await stage.machine.port.hold_syncs()
    joining = asyncio.create_task(member.beat(stage.groups))
    await until(lambda: stage.groups.members() == {"g": 1})
    again = asyncio.create_task(
        member.beat(stage.groups)
    )  # it changes nothing, and is not answered earlier either
    await until(lambda: stage.broker.log.ledger.consumer_groups.revision("g") == 1)
    assert not joining.done()
    assert not again.done()
    await stage.machine.lose_power()
    assert isinstance((await asyncio.gather(joining, return_exceptions=True))[0], Exception)
    assert isinstance((await asyncio.gather(again, return_exceptions=True))[0], Exception)
    await stage.open()
    assert stage.groups.list() == []


async def test_after_a_crash_at_any_step_members_are_as_the_responses_said(stage: Stage) -> None:
    a, b, c = Member("a"), Member("b", instance_id="i"), Member("c")
    steps = [a, b, a, a, b, c, b, b, a, c, c, a]
    for policy in ("lost", "kept"):
        for member in steps:
            await member.beat(stage.groups)
            await stage.machine.lose_power(policy)
            await stage.open()
            for one in (a, b, c):
                if one.epoch:
                    found = stage.known.members[one.last.member_id]
                    assert (found.epoch, found.assigned) == (one.epoch, one.owned)
                    await stage.groups.check_commit("g", one.last.member_id, one.epoch)
    assert stage.known.state == "Stable"
    assert sorted(len(one.owned) for one in (a, b, c)) == [2, 2, 2]


async def test_a_heartbeat_that_changes_nothing_is_not_written(stage: Stage) -> None:
    a, b = Member("a"), Member("b")
    await stage.settle(a, b)
    before = stage.commits
    await stage.settle(a, b)
    assert stage.commits == before
    await stage.restart()
    before = stage.commits
    await stage.settle(a, b)
    assert stage.commits == before


async def test_many_members_take_few_commits(stage: Stage) -> None:
    crowd = [Member(f"m{number}") for number in range(100)]
    before = stage.commits
    await asyncio.gather(*(member.beat(stage.groups) for member in crowd))
    assert stage.commits - before <= 4
    for _ in range(3):
        await asyncio.gather(*(member.beat(stage.groups) for member in crowd))
    assert stage.commits - before <= 12
    assert stage.known.state == "Stable"


async def test_a_client_that_disconnects_while_it_waits_affects_no_other(stage: Stage) -> None:
    a, b = Member("a"), Member("b")
    await a.beat(stage.groups)
    group = stage.known
    assert stage.machine.port is not None
    stage.machine.port.append_gate.clear()
    hung_up = asyncio.create_task(a.beat(stage.groups, topics=frozenset({"t", "u"})))
    await until(lambda: stage.known.epoch == 2)
    joining = asyncio.create_task(b.beat(stage.groups))
    await until(lambda: len(stage.known.members) == 2)
    hung_up.cancel()
    stage.machine.port.append_gate.set()
    await joining
    assert stage.known is group
    kept = stage.broker.log.ledger.consumer_groups.get("g")
    assert kept is not None
    assert (kept.members["a"].topics, set(kept.members)) == (("t", "u"), {"a", "b"})


async def test_a_decision_that_cannot_be_written_is_not_made(stage: Stage) -> None:
    a, b, c = Member("a"), Member("b"), Member("c")
    await a.beat(stage.groups)
    assert stage.machine.port is not None
    stage.machine.port.append_errors.append(NoSpace("the disk is full"))
    both = await asyncio.gather(b.beat(stage.groups), c.beat(stage.groups), return_exceptions=True)
    assert [type(error) for error in both] == [NoSpace, NoSpace]
    assert set(stage.known.members) == {"a"}
    assert (await a.beat(stage.groups)).epoch == 1
    await stage.settle(a, b, c)
    assert stage.known.state == "Stable"


async def test_an_expired_member_is_written_although_nobody_waits(stage: Stage) -> None:
    await Member("a").beat(stage.groups)
    await stage.restart()
    with pytest.raises(GroupNotEmpty):
        await stage.groups.delete("g")
    stage.machine.clock.advance(SESSION_MS)
    stage.groups.timers.fire()
    await until(lambda: not stage.broker.log.ledger.consumer_groups.names())
    await stage.groups.delete("g")
    assert not stage.groups.exists("g")


async def test_a_member_that_expires_during_a_write_is_written_next(stage: Stage) -> None:
    a, b = Member("a"), Member("b")
    await stage.settle(a, b)
    stage.machine.clock.advance(SESSION_MS - 1)
    assert stage.machine.port is not None
    stage.machine.port.append_gate.clear()
    before = stage.commits
    beating = asyncio.create_task(a.beat(stage.groups, topics=frozenset({"t", "u"})))
    await until(lambda: stage.commits > before)
    stage.machine.clock.advance(1)
    stage.groups.timers.fire()
    assert set(stage.known.members) == {"a"}
    stage.machine.port.append_gate.set()
    await beating
    await until(lambda: set(stage.broker.log.ledger.consumer_groups.get("g").members) == {"a"})  # type: ignore[union-attr]


async def test_a_group_over_the_size_limit_stays_in_memory_until_it_shrinks(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CONSUMER_GROUP_BYTES_MAX", 1_000)
    ledger = stage.broker.log.ledger.consumer_groups
    large = Member("l", topics=frozenset({"t" * 200 + str(number) for number in range(9)}))
    small = Member("s")
    await small.beat(stage.groups)
    assert ledger.names() == ["g"]
    await large.beat(stage.groups)
    await stage.settle(small, large)
    assert ledger.names() == []
    assert len(small.owned) == 6
    assert await stage.groups.commit(
        "g", [OffsetToCommit("t", 0, 1)], member_id="s", generation=small.epoch
    ) == [None]
    before = stage.commits
    await stage.settle(small, large)
    assert stage.commits == before
    await large.beat(stage.groups, epoch=-1)
    await stage.settle(small)
    assert ledger.names() == ["g"]
    await large.beat(stage.groups, epoch=0)
    await stage.restart()
    with pytest.raises(UnknownMember):
        await small.beat(stage.groups)


async def test_a_group_has_its_own_session_and_heartbeat_settings(stage: Stage) -> None:
    put = [("consumer.session.timeout.ms", "6000"), ("consumer.heartbeat.interval.ms", "700")]
    await stage.broker.shares.change_settings("g", put, [])
    assert (await Member("a").beat(stage.groups)).heartbeat_ms == 700
    stage.machine.clock.advance(5_999)
    stage.groups.timers.fire()
    assert not stage.known.empty
    stage.machine.clock.advance(1)
    stage.groups.timers.fire()
    assert stage.known.empty
    await stage.broker.shares.change_settings("g", [], [name for name, _ in put])
    assert (await Member("a").beat(stage.groups)).heartbeat_ms == limits.GROUP_CONSUMER_HEARTBEAT_MS

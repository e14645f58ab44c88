from __future__ import annotations

import asyncio

import pytest

from mainstem.errors import (
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)

from .driving import DELAY_MS, REBALANCE_MS, SESSION_MS, Driver, failed


@pytest.fixture
async def driver() -> Driver:
    return Driver()


# Joining


async def test_the_first_members_share_one_generation(driver: Driver) -> None:
    first = driver.join()
    driver.advance(DELAY_MS - 1)
    second = driver.join()
    driver.advance(1)
    assert not first.done()  # another member came, so the wait is longer
    driver.advance(DELAY_MS)
    assert first.result().generation == second.result().generation == 1
    assert first.result().leader == second.result().leader == first.result().member_id
    assert [member.member_id for member in first.result().members] == ["c-1", "c-2"]
    assert second.result().members == ()


async def test_the_initial_delay_ends_with_the_rebalance_timeout(driver: Driver) -> None:
    joins = [driver.join(rebalance_ms=300)]
    for _ in range(2):
        joins.append(driver.join(rebalance_ms=300))
        driver.advance(DELAY_MS)
        assert not joins[0].done()
    joins.append(driver.join(rebalance_ms=300))
    driver.advance(DELAY_MS)
    assert joins[0].done()


async def test_without_an_initial_delay_a_member_alone_starts_at_once() -> None:
    driver = Driver(initial_delay_ms=0)
    joined = driver.join().result()
    assert joined.member_id == joined.leader
    assert driver.sync(joined, {joined.member_id: b"all"}).result().assignment == b"all"


async def test_a_new_member_is_given_an_id_and_joins_with_it(driver: Driver) -> None:
    member_id = driver.ask_for_id()
    future = driver.join(member_id)
    driver.settle_gathering()
    assert future.result().member_id == member_id


async def test_a_pending_member_is_waited_for_until_its_session_ends(driver: Driver) -> None:
    leader, follower = driver.form(2)
    driver.ask_for_id()
    again = [driver.join(leader.member_id), driver.join(follower.member_id)]
    assert not again[0].done()
    driver.advance(SESSION_MS)
    assert [future.result().generation for future in again] == [2, 2]


async def test_a_pending_member_that_leaves_is_not_waited_for(driver: Driver) -> None:
    [leader] = driver.form(1)
    pending = driver.ask_for_id()
    again = driver.join(leader.member_id)
    driver.group.leave(pending)
    assert again.result().generation == 2
    with pytest.raises(UnknownMember):
        driver.join(pending)


async def test_a_third_member_triggers_a_rebalance(driver: Driver) -> None:
    leader, follower = driver.form(2)
    third = driver.join()
    for member in (leader, follower):
        with pytest.raises(RebalanceInProgress):
            driver.beat(member)
    futures = [driver.join(leader.member_id), driver.join(follower.member_id), third]
    answers = [future.result() for future in futures]
    assert {answer.generation for answer in answers} == {2}
    assert len(answers[0].members) == 3
    driver.finish(answers)


async def test_members_that_do_not_rejoin_in_time_are_removed(driver: Driver) -> None:
    leader, follower = driver.form(2, session_ms=REBALANCE_MS * 2)
    third = driver.join()
    again = driver.join(leader.member_id)
    driver.advance(REBALANCE_MS - 1)
    assert not third.done()
    driver.advance(1)
    assert third.result().generation == again.result().generation == 2
    with pytest.raises(UnknownMember):
        driver.beat(follower)


async def test_a_leader_that_does_not_rejoin_is_replaced(driver: Driver) -> None:
    leader, follower = driver.form(2, session_ms=REBALANCE_MS * 2)
    again = driver.join(follower.member_id, protocols=(("range", b"changed"),))
    driver.advance(REBALANCE_MS)
    assert again.result().leader == follower.member_id
    assert [member.metadata for member in again.result().members] == [b"changed"]
    with pytest.raises(UnknownMember):
        driver.beat(leader)


async def test_a_follower_that_repeats_its_join_gets_the_same_generation(driver: Driver) -> None:
    _, follower = driver.form(2)
    assert driver.join(follower.member_id).result() == follower
    assert driver.group.state == "Stable"


async def test_a_leader_that_rejoins_triggers_a_rebalance(driver: Driver) -> None:
    leader, _ = driver.form(2)
    assert not driver.join(leader.member_id).done()
    assert driver.group.state == "PreparingRebalance"


async def test_a_lost_join_response_is_repeated_before_the_sync(driver: Driver) -> None:
    futures = [driver.join(), driver.join()]
    driver.settle_gathering()
    leader, follower = (future.result() for future in futures)
    assert driver.join(leader.member_id).result() == leader
    assert driver.join(follower.member_id).result() == follower


async def test_new_metadata_before_the_sync_rebalances_and_fails_waiting_syncs(driver: Driver) -> None:
    futures = [driver.join(), driver.join()]
    driver.settle_gathering()
    leader, follower = (future.result() for future in futures)
    waiting = driver.sync(follower)
    again = driver.join(leader.member_id, protocols=(("range", b"n"),))
    assert failed(waiting) is RebalanceInProgress
    assert not again.done()
    driver.join(follower.member_id)
    assert again.result().generation == 2


async def test_a_repeated_join_replaces_the_first(driver: Driver) -> None:
    member_id = driver.ask_for_id()
    first = driver.join(member_id)
    second = driver.join(member_id)
    driver.settle_gathering()
    assert failed(first) is RebalanceInProgress
    assert second.result().generation == 1


async def test_the_size_of_a_group_is_bounded_pending_members_included() -> None:
    driver = Driver(members_max=2)
    driver.join()
    driver.ask_for_id()
    with pytest.raises(GroupFull):
        driver.join()
    driver.advance(SESSION_MS)
    driver.ask_for_id()


# Protocols


async def test_the_protocol_is_the_most_preferred_of_those_all_support(driver: Driver) -> None:
    joins = [
        driver.join(protocols=(("a", b""), ("b", b"1"), ("c", b"2"))),
        driver.join(protocols=(("c", b"3"), ("b", b""))),
        driver.join(protocols=(("c", b"4"), ("b", b""))),
    ]
    driver.settle_gathering()
    assert {future.result().protocol for future in joins} == {"c"}
    assert [member.metadata for member in joins[0].result().members] == [b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("kind", "protocols"),
    [("consumer", ()), ("", (("range", b""),)), ("connect", (("range", b""),)), ("consumer", (("x", b""),))],
)
async def test_a_member_without_a_common_protocol_is_refused(
    driver: Driver, kind: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    driver.form(1)
    with pytest.raises(InconsistentProtocol):
        driver.join(kind=kind, protocols=protocols)
    assert driver.group.state == "Stable"


async def test_a_single_member_may_change_its_protocol(driver: Driver) -> None:
    [alone] = driver.form(1)
    answer = driver.join(alone.member_id, protocols=(("sticky", b""),)).result()
    assert (answer.generation, answer.protocol) == (2, "sticky")


@pytest.mark.parametrize("instance", [None, "i"])
async def test_a_single_member_may_change_the_protocol_type(driver: Driver, instance: str | None) -> None:
    [alone] = driver.form(1, instance=instance)
    member_id = "" if instance else alone.member_id
    answer = driver.join(member_id, instance=instance, kind="connect", protocols=(("v1", b""),)).result()
    assert (answer.protocol_type, answer.protocol) == ("connect", "v1")


async def test_a_sync_with_another_protocol_is_refused(driver: Driver) -> None:
    [leader] = driver.form(1)
    for wrong in ({"protocol_type": "connect"}, {"protocol": "sticky"}):
        with pytest.raises(InconsistentProtocol):
            driver.group.sync(leader.member_id, 1, assignments={}, **wrong)


# Syncing


async def test_followers_get_their_assignment_when_the_leader_syncs(driver: Driver) -> None:
    futures = [driver.join(), driver.join(), driver.join()]
    driver.settle_gathering()
    leader, one, two = (future.result() for future in futures)
    waiting = driver.sync(one)
    assert not waiting.done()
    own = driver.sync(leader, {leader.member_id: b"L", one.member_id: b"1", "stranger": b"?"})
    assert own.result().assignment == b"L"
    assert waiting.result().assignment == b"1"
    assert driver.sync(two).result().assignment == b""  # the leader left it out
    assert driver.sync(one).result().assignment == b"1"  # asked again


async def test_a_member_that_never_syncs_is_removed(driver: Driver) -> None:
    futures = [driver.join(session_ms=REBALANCE_MS * 3) for _ in range(2)]
    driver.settle_gathering()
    leader, silent = (future.result() for future in futures)
    driver.sync(leader, {leader.member_id: b"L"})
    driver.advance(REBALANCE_MS - DELAY_MS)
    driver.advance(DELAY_MS)
    with pytest.raises(UnknownMember):
        driver.beat(silent)
    with pytest.raises(RebalanceInProgress):
        driver.beat(leader)
    assert driver.join(leader.member_id).result().generation == 2


async def test_when_the_leader_dies_before_its_sync_the_others_rebalance(driver: Driver) -> None:
    futures = [driver.join(), driver.join()]
    driver.settle_gathering()
    leader, follower = (future.result() for future in futures)
    waiting = driver.sync(follower)
    driver.advance(SESSION_MS)
    assert failed(waiting) is RebalanceInProgress
    answer = driver.join(follower.member_id).result()
    assert (answer.generation, answer.leader) == (2, follower.member_id)
    with pytest.raises(UnknownMember):
        driver.beat(leader)


async def test_a_wrong_generation_is_reported_as_such(driver: Driver) -> None:
    [leader] = driver.form(1)
    for generation in (0, 2, -1):
        with pytest.raises(IllegalGeneration):
            driver.group.heartbeat(leader.member_id, generation)
        with pytest.raises(IllegalGeneration):
            driver.group.sync(leader.member_id, generation, assignments={})


async def test_a_sync_during_a_rebalance_is_told_to_rejoin(driver: Driver) -> None:
    leader, _ = driver.form(2)
    driver.join()
    with pytest.raises(RebalanceInProgress):
        driver.sync(leader)


@pytest.mark.parametrize("member_id", ["", "stranger"])
async def test_unknown_members_are_refused_everywhere(driver: Driver, member_id: str) -> None:
    driver.form(1)
    with pytest.raises(UnknownMember):
        driver.group.heartbeat(member_id, 1)
    with pytest.raises(UnknownMember):
        driver.group.sync(member_id, 1, assignments={})
    with pytest.raises(UnknownMember):
        driver.group.leave(member_id)
    with pytest.raises(UnknownMember):
        driver.join("stranger")


# Sessions


async def test_heartbeats_keep_a_session_and_silence_ends_it(driver: Driver) -> None:
    leader, follower = driver.form(2)
    for _ in range(5):
        driver.advance(SESSION_MS - 1)
        driver.beat(leader)
        driver.beat(follower)
    driver.advance(SESSION_MS - 1)
    driver.beat(leader)
    driver.advance(1)
    with pytest.raises(RebalanceInProgress):
        driver.beat(leader)
    answer = driver.join(leader.member_id).result()
    assert [member.member_id for member in answer.members] == [leader.member_id]


async def test_a_session_does_not_expire_while_the_member_waits_for_the_broker(driver: Driver) -> None:
    leader, follower = driver.form(2, session_ms=SESSION_MS)
    waiting = driver.join()
    driver.advance(SESSION_MS - 1)
    again = driver.join(leader.member_id)
    driver.advance(1)  # the silent follower's session ends
    assert waiting.result().generation == again.result().generation == 2
    with pytest.raises(UnknownMember):
        driver.beat(follower)


async def test_the_last_member_leaves_an_empty_group_that_can_be_joined_again(driver: Driver) -> None:
    [leader] = driver.form(1)
    driver.group.leave(leader.member_id)
    assert driver.group.state == "Empty"
    assert driver.group.empty
    [next_leader] = driver.form(1, kind="connect", protocols=(("v1", b""),))
    assert next_leader.generation > leader.generation


async def test_a_waiting_member_that_loses_its_connection_has_its_session_to_return(driver: Driver) -> None:
    leader, follower = driver.form(2)
    gone = driver.join(leader.member_id)
    gone.cancel()
    await asyncio.sleep(0)
    driver.advance(1)
    waiting = driver.join(follower.member_id)
    assert not waiting.done()  # the leader may return
    driver.advance(SESSION_MS)
    assert waiting.result().leader == follower.member_id


async def test_a_lost_connection_during_a_sync_leaves_the_session_running(driver: Driver) -> None:
    futures = [driver.join(), driver.join()]
    driver.settle_gathering()
    leader, follower = (future.result() for future in futures)
    driver.sync(follower).cancel()
    await asyncio.sleep(0)
    driver.sync(leader, {leader.member_id: b"", follower.member_id: b"x"})
    driver.advance(SESSION_MS - 1)
    driver.beat(leader)
    assert driver.group.state == "Stable"
    driver.advance(1)
    assert driver.group.state == "PreparingRebalance"


# Static members


async def test_a_restarted_static_member_gets_its_assignment_without_a_rebalance(
    driver: Driver,
) -> None:
    futures = [driver.join(), driver.join(instance="i")]
    driver.settle_gathering()
    leader, static = driver.finish([future.result() for future in futures])
    back = driver.join(instance="i").result()
    assert back.generation == 1
    assert back.member_id != static.member_id
    assert back.leader == leader.member_id
    assert driver.sync(back, instance="i").result().assignment == static.member_id.encode()
    driver.beat(leader)
    with pytest.raises(FencedInstance):
        driver.beat(static, "i")
    with pytest.raises(FencedInstance):
        driver.group.leave(static.member_id, "i")
    with pytest.raises(FencedInstance):
        driver.join(static.member_id, instance="i")


@pytest.mark.parametrize("may_skip", [True, False])
async def test_a_restarted_static_leader_does_not_assign(driver: Driver, may_skip: bool) -> None:
    futures = [driver.join(instance="i"), driver.join(instance="j")]
    driver.settle_gathering()
    leader, _ = driver.finish([future.result() for future in futures])
    back = driver.join(instance="i", may_skip=may_skip).result()
    assert back.skip_assignment is may_skip
    assert (back.leader == back.member_id) is may_skip
    assert len(back.members) == (2 if may_skip else 0)
    assert driver.sync(back, {"c": b"!"}, "i").result().assignment == leader.member_id.encode()


async def test_a_static_member_is_kept_through_a_rebalance_it_misses(driver: Driver) -> None:
    futures = [driver.join(), driver.join(instance="i", session_ms=REBALANCE_MS * 2)]
    driver.settle_gathering()
    leader, static = driver.finish([future.result() for future in futures])
    again = driver.join(leader.member_id)
    driver.advance(REBALANCE_MS)
    assert static.member_id in {member.member_id for member in again.result().members}


async def test_a_static_member_taken_over_while_it_waits_is_fenced(driver: Driver) -> None:
    first = driver.join(instance="i")
    second = driver.join(instance="i")
    assert failed(first) is FencedInstance
    driver.settle_gathering()
    waiting = driver.sync(driver.join(second.result().member_id, instance="i").result(), instance="i")
    assert waiting.done()  # it leads the group
    third = driver.join(instance="i", protocols=(("sticky", b""),))
    assert third.result().generation == 2


async def test_a_group_of_static_members_keeps_waiting_when_none_joins(driver: Driver) -> None:
    futures = [driver.join(instance="i", session_ms=REBALANCE_MS * 3), driver.join()]
    driver.settle_gathering()
    answers = [future.result() for future in futures]
    driver.finish(answers)
    driver.group.leave(answers[1].member_id)
    driver.advance(REBALANCE_MS)
    assert driver.group.state == "PreparingRebalance"
    back = driver.join(answers[0].member_id, instance="i").result()
    assert back.leader == back.member_id


async def test_an_administrator_removes_a_static_member_by_its_instance(driver: Driver) -> None:
    [static] = driver.form(1, instance="i")
    with pytest.raises(UnknownMember):
        driver.group.leave("", "other")
    driver.group.leave("", "i")
    with pytest.raises(UnknownMember):
        driver.beat(static, "i")


# Commits


async def test_members_commit_in_their_generation_and_strangers_only_without_members(driver: Driver) -> None:
    driver.group.check_commit("", -1, None)
    leader, _ = driver.form(2)
    driver.group.check_commit(leader.member_id, leader.generation, None)
    with pytest.raises(IllegalGeneration):
        driver.group.check_commit(leader.member_id, 0, None)
    with pytest.raises(UnknownMember):
        driver.group.check_commit("", -1, None)
    driver.group.check_commit("", -1, None, transactional=True)
    again = driver.join(leader.member_id)
    driver.group.check_commit(leader.member_id, leader.generation, None)  # before it gives up its partitions
    assert not again.done()


async def test_commits_between_join_and_sync_are_refused(driver: Driver) -> None:
    future = driver.join()
    driver.settle_gathering()
    with pytest.raises(RebalanceInProgress):
        driver.group.check_commit(future.result().member_id, 1, None)


# Many


async def test_a_storm_of_fifty_members_becomes_stable(driver: Driver) -> None:
    answers = driver.form(50)
    assert len(answers[0].members) == 50
    for step in range(10):  # some leave, some join, all others join again
        for gone in answers[-5:]:
            driver.group.leave(gone.member_id)
        futures = [driver.join() for _ in range(5)]
        futures += [driver.join(answer.member_id) for answer in answers[:-5]]
        assert all(future.done() for future in futures)
        answers = driver.finish([future.result() for future in futures])
        assert {answer.generation for answer in answers} == {answers[0].generation}
        assert len({answer.member_id for answer in answers}) == 50, step
    for answer in answers:
        driver.group.leave(answer.member_id)
    assert driver.group.state == "Empty"
    assert driver.group.empty


async def test_closing_answers_every_waiting_member(driver: Driver) -> None:
    futures = [driver.join(), driver.join()]
    driver.group.close(RebalanceInProgress("g"))
    assert {failed(future) for future in futures} == {RebalanceInProgress}
    driver.advance(REBALANCE_MS)
    assert not driver.group.members["c-1"].session.running

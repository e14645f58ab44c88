"""A group that another broker coordinated: its members continue with one rebalance."""

from __future__ import annotations

import pytest

from mainstem.broker.groups.former_members import GROUP_EXPECTED_MS, GROUP_HEARD_MS
from mainstem.broker.groups.member import Joined
from mainstem.errors import FencedInstance, RebalanceInProgress, UnknownMember
from mainstem.ledger.group_generations import GroupGeneration

from .driving import DELAY_MS, Driver


@pytest.fixture
async def driver() -> Driver:
    return Driver(before=GroupGeneration("g", 7, ("a", "b")))


def member(name: str) -> Joined:
    return Joined(7, "consumer", "range", "a", name)


async def test_members_are_asked_to_rejoin_and_the_generation_continues(driver: Driver) -> None:
    for name in ("a", "b"):
        with pytest.raises(RebalanceInProgress):
            driver.beat(member(name))
        with pytest.raises(RebalanceInProgress):
            driver.sync(member(name))
    first, second = driver.join("a"), driver.join("b")
    driver.settle_gathering()
    assert (first.result().generation, second.result().generation) == (8, 8)
    assert [other.member_id for other in first.result().members] == ["a", "b"]
    assert driver.bumped == [(8, ("a", "b"))]


async def test_a_member_that_has_not_rejoined_is_waited_for_and_may_commit(driver: Driver) -> None:
    first = driver.join("a")
    driver.advance(GROUP_EXPECTED_MS - 1)
    assert not first.done()
    driver.group.check_commit("b", 7, None)
    with pytest.raises(UnknownMember):
        driver.group.check_commit("b", 6, None)
    driver.join("b")
    assert first.result().generation == 8
    with pytest.raises(UnknownMember):
        driver.group.check_commit("c", 7, None)


async def test_a_member_that_does_not_rejoin_is_not_waited_for_longer(driver: Driver) -> None:
    first = driver.join("a")
    driver.advance(DELAY_MS)
    driver.advance(GROUP_EXPECTED_MS - DELAY_MS)
    assert [other.member_id for other in first.result().members] == ["a"]
    with pytest.raises(UnknownMember):
        driver.group.check_commit("b", 7, None)
    with pytest.raises(UnknownMember):
        driver.beat(member("b"))
    with pytest.raises(UnknownMember):
        driver.join("b")


async def test_a_member_that_leaves_instead_is_not_waited_for(driver: Driver) -> None:
    first = driver.join("a")
    driver.advance(DELAY_MS)
    assert not first.done()
    driver.group.leave("b")
    assert first.result().generation == 8


async def test_new_members_wait_with_the_others(driver: Driver) -> None:
    new = driver.join()
    driver.advance(DELAY_MS)
    driver.advance(DELAY_MS)
    assert not new.done()
    driver.join("b")
    driver.join("a")
    assert [other.member_id for other in new.result().members] == ["c-1", "b", "a"]


async def test_a_group_that_no_member_rejoins_is_empty(driver: Driver) -> None:
    assert driver.group.empty
    driver.advance(GROUP_EXPECTED_MS)
    assert not driver.group.expects_members
    [joined] = driver.form(1)
    assert joined.generation == 8
    with pytest.raises(UnknownMember):
        driver.beat(member("a"))


async def test_members_that_come_back_late_may_commit_while_no_other_generation_has_begun(
    driver: Driver,
) -> None:
    """A client may take ten seconds to connect again after a broker was down."""
    driver.advance(2 * GROUP_EXPECTED_MS)
    driver.group.check_commit("a", 7, None, transactional=True)
    with pytest.raises(RebalanceInProgress):
        driver.beat(member("a"))
    again = driver.join("a")
    driver.settle_gathering()
    assert again.result().generation == 8
    assert driver.group.members.keys() == {"a"}


async def test_a_member_that_sends_heartbeats_is_waited_for_and_may_commit(driver: Driver) -> None:
    """Its program is busy with the records it has, and joins when it asks for more."""
    first = driver.join("a")
    driver.advance(DELAY_MS)
    for _ in range(4):
        with pytest.raises(RebalanceInProgress):
            driver.beat(member("b"))
        driver.advance(GROUP_EXPECTED_MS - DELAY_MS)
    assert not first.done()
    driver.group.check_commit("b", 7, None)
    second = driver.join("b")
    assert (first.result().generation, second.result().generation) == (8, 8)


async def test_a_member_that_stops_sending_heartbeats_is_not_waited_for_longer(driver: Driver) -> None:
    first = driver.join("a")
    with pytest.raises(RebalanceInProgress):
        driver.beat(member("b"))
    driver.advance(DELAY_MS)
    driver.advance(GROUP_EXPECTED_MS - DELAY_MS)
    assert not first.done()
    driver.advance(GROUP_HEARD_MS)
    assert [other.member_id for other in first.result().members] == ["a"]


async def test_an_instance_that_was_replaced_meanwhile_is_fenced(driver: Driver) -> None:
    driver.join(instance="i")
    with pytest.raises(FencedInstance):
        driver.join("a", instance="i")


async def test_a_static_member_that_rejoins_with_another_id_is_written_to_the_ledger() -> None:
    driver = Driver()
    [joined] = driver.form(1, instance="i")
    again = driver.join(instance="i").result()
    assert again.member_id != joined.member_id
    assert driver.bumped == [(1, (joined.member_id,)), (1, (again.member_id,))]


async def test_an_emptied_group_is_written_to_the_ledger() -> None:
    driver = Driver()
    [joined] = driver.form(1)
    driver.group.leave(joined.member_id)
    assert driver.bumped[-1] == (2, ())

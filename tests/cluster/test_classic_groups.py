"""Classic groups on brokers that share a log: a coordinator that was away remembers no members of before."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.groups.former_members import GROUP_EXPECTED_MS
from mainstem.broker.groups.member import Join, Joined
from mainstem.broker.groups.options import GroupOptions
from mainstem.broker.groups.service import Groups
from mainstem.errors import RebalanceInProgress
from tests.support.clock import ManualClock
from tests.support.waiting import until

SESSION_MS = 45_000


class Coordinator:
    """One of two brokers, each of which believes that it coordinates every group."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clock = ManualClock()
        self.groups = Groups(broker.log, self.clock, GroupOptions(initial_delay_ms=0))
        self.groups.start()
        self.groups.timers.stop()  # the test moves the clock

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.groups.timers.fire()

    def join(self, member: str = "") -> asyncio.Task[Joined]:
        asked = Join(
            group="g",
            protocol_type="consumer",
            protocols=(("range", b""),),
            session_ms=SESSION_MS,
            rebalance_ms=300_000,
            member_id=member,
            id_required=False,
        )
        return asyncio.ensure_future(self.groups.join(asked))


async def test_a_coordinator_that_was_expired_waits_for_no_members_of_before(
    two_brokers: list[Broker],
) -> None:
    stalled, other = (Coordinator(broker) for broker in two_brokers)
    first = await stalled.join()
    await until(lambda: _recorded(other) == (first.member_id,))
    # The broker stalls and is expired. Its member loses patience, and joins at the other one under a new id.
    second = other.join()
    await asyncio.sleep(0)
    other.advance(GROUP_EXPECTED_MS)
    second_joined = await second
    assert second_joined.member_id != first.member_id
    await until(lambda: _recorded(other) == (second_joined.member_id,))
    sharing = stalled.broker.log.sharing
    assert sharing is not None
    await sharing.rejoin()
    assert _recorded(stalled) == (second_joined.member_id,)
    with pytest.raises(RebalanceInProgress):
        stalled.groups.heartbeat("g", second_joined.member_id, second_joined.generation)
    again = await asyncio.wait_for(stalled.join(second_joined.member_id), 60)
    assert again.generation == second_joined.generation + 1
    assert [one.member_id for one in again.members] == [second_joined.member_id]


def _recorded(coordinator: Coordinator) -> tuple[str, ...]:
    found = coordinator.broker.log.ledger.group_generations.get("g")
    return () if found is None else found.members

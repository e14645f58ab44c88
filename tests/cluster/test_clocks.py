"""A broker whose clock is off: it moves nobody's time, and takes nothing for over that is not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.ports.clock import ManualClock
from mainstem.ports.commitlog.places import SharedPlace

_TTL_MS = 30_000


def _real_ms() -> int:
    return time.time_ns() // 1_000_000


async def _check(broker: Broker, clock: ManualClock, ahead_ms: int) -> None:
    """Have a broker look how far its clock is off, which stands still meanwhile: until that takes next to no time."""
    while True:
        began_ms = _real_ms()
        clock.advance(began_ms + ahead_ms - clock.now_ms())
        await broker.check_clock()
        if _real_ms() - began_ms < limits.CLOCK_SKEW_MS_MAX // 2:
            return


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Broker, Broker, ManualClock]]:
    """A broker whose clock is right, one whose clock is a minute fast and knows it, and the latter's clock."""
    clocks = (ManualClock(_real_ms()), ManualClock(_real_ms()))
    place = SharedPlace((tmp_path / "bucket").as_uri())
    async with AsyncExitStack() as stack:
        brokers = []
        for number, clock in enumerate(clocks):
            broker = await Broker.open(BrokerOptions(tmp_path / f"b{number}", place=place), clock=clock)
            stack.push_async_callback(broker.close)
            await _check(broker, clock, number * 60_000)
            brokers.append(broker)
        yield brokers[0], brokers[1], clocks[1]


async def test_a_broker_finds_out_that_its_clock_is_off(two: tuple[Broker, Broker, ManualClock]) -> None:
    right, wrong, clock = two
    assert right.cluster.clock_off_ms is not None
    assert abs(right.cluster.clock_off_ms) <= limits.CLOCK_SKEW_MS_MAX
    assert wrong.cluster.clock_off_ms is not None
    assert wrong.cluster.clock_off_ms > 50_000
    assert not wrong.cluster.runs_here_on_trusted_clock("anything"), (
        "what depends on the time is left to others"
    )
    await _check(wrong, clock, 0)
    assert wrong.log.sharing is not None
    assert wrong.log.sharing.clock_trusted


async def test_its_commits_do_not_move_the_time_of_all(two: tuple[Broker, Broker, ManualClock]) -> None:
    right, wrong, _ = two
    await right.create_topic("t")
    await wrong.log.barrier()
    before = right.log.ledger.time_ms
    await wrong.append_values("t", [b"x"])
    await right.log.barrier()
    assert right.log.ledger.time_ms == before


async def test_it_expires_nothing_before_its_time(two: tuple[Broker, Broker, ManualClock]) -> None:
    right, wrong, _ = two
    await right.create_topic("t")
    await right.append_values("t", [b"young"])
    # What was written before a topic had a lifetime is judged when somebody looks, by who looks.
    await right.alter_topic("t", TopicConfig(ttl_ms=_TTL_MS))
    await wrong.log.barrier()
    state = await wrong.states.settled(wrong.streams.topic("t"))
    assert state.count == 1
    await right.log.barrier()
    assert [record.value for record in await right.read("t", 0)] == [b"young"]
    assert [record.value for record in await wrong.read("t", 0)] == [b"young"]


async def test_a_job_it_hands_out_is_held_as_long_as_any_other(
    two: tuple[Broker, Broker, ManualClock],
) -> None:
    right, wrong, _ = two
    await right.create_topic("q", config=TopicConfig(type="queue", lease_ms=10_000, leases_durable=True))
    await right.append_values("q", [b"job"])
    await wrong.log.barrier()
    claimed = await right.queues.claim("q", "r", limit=1)
    await wrong.log.barrier()
    stolen = await wrong.queues.claim("q", "w", limit=1)
    assert (len(claimed.jobs), len(stolen.jobs)) == (1, 0)

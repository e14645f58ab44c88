"""A broker with a wrong clock: it does not move the log's time, and expires nothing early."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.ports.commitlog.shared.open import SharedPlace
from tests.support.clock import ManualClock

_TTL_MS = 30_000


def _real_ms() -> int:
    return time.time_ns() // 1_000_000


async def _check(broker: Broker, clock: ManualClock, ahead_ms: int) -> None:
    """Have a broker measure its clock skew, with the clock stopped meanwhile: until that takes almost no time."""
    while True:
        began_ms = _real_ms()
        clock.advance(began_ms + ahead_ms - clock.now_ms())
        await broker.check_clock()
        if _real_ms() - began_ms < limits.CLOCK_SKEW_MS_MAX // 2:
            return


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[tuple[Broker, Broker, ManualClock]]:
    """A broker with a correct clock, one whose clock is a minute fast and knows it, and the latter's clock."""
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


async def test_a_broker_measures_its_clock_skew(two: tuple[Broker, Broker, ManualClock]) -> None:
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


async def test_its_commits_do_not_move_the_time_of_the_log(two: tuple[Broker, Broker, ManualClock]) -> None:
    right, wrong, _ = two
    await right.create_topic("t")
    await wrong.log.barrier()
    before = right.log.ledger.time_ms
    await wrong.append_values("t", [b"x"])
    await right.log.barrier()
    assert right.log.ledger.time_ms == before


async def test_it_expires_nothing_early(two: tuple[Broker, Broker, ManualClock]) -> None:
    right, wrong, _ = two
    await right.create_topic("t")
    await right.append_values("t", [b"young"])
    # Records from before a topic had a TTL are judged at read time, by the reading broker.
    await right.alter_topic("t", TopicConfig(ttl_ms=_TTL_MS))
    await wrong.log.barrier()
    state = await wrong.states.settled(wrong.streams.topic("t"))
    assert state.count == 1
    await right.log.barrier()
    assert [record.value for record in await right.read("t", 0)] == [b"young"]
    assert [record.value for record in await wrong.read("t", 0)] == [b"young"]


async def test_its_leases_last_as_long_as_any_other(
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

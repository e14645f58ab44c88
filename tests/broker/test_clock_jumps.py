"""A clock that jumps ahead for a moment: nothing expires by it, and leases still end when they should."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.transactions.service import ProducerStamp
from mainstem.ledger.config import TopicConfig
from mainstem.ports.clock import SteadyClock

DAY_MS = 86_400_000
MONTH_MS = 30 * DAY_MS


class JumpyClock:
    """Wall and monotonic time, which a test moves apart."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.elapsed_s = 1000.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.elapsed_s

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.elapsed_s += ms / 1000


async def _open(directory: Path, clock: JumpyClock, **more: object) -> Broker:
    return await Broker.open(BrokerOptions(directory, **more), clock)  # type: ignore[arg-type]


QUEUE = TopicConfig(type="queue", lease_ms=30_000, leases_durable=True)


async def _claimed(broker: Broker) -> int:
    return len((await broker.queues.claim("q", "worker")).jobs)


async def test_a_jump_ahead_for_one_write_does_not_freeze_leases(tmp_path: Path) -> None:
    clock = JumpyClock()
    broker = await _open(tmp_path / "data", clock)
    try:
        await broker.create_topic("q", config=QUEUE)
        clock.wall_ms += MONTH_MS
        await broker.append_values("q", [b"job"])
        assert broker.clock_ahead_ms == MONTH_MS
        clock.wall_ms -= MONTH_MS
        assert broker.clock_ahead_ms == 0
        assert await _claimed(broker) == 1
        assert await _claimed(broker) == 0
        clock.advance(30_001)
        assert await _claimed(broker) == 1  # the lease is over
        assert broker.log.ledger.time_ms < clock.wall_ms + limits.CLOCK_STEP_MS_MAX
    finally:
        await broker.close()


async def test_leases_end_in_a_log_whose_time_is_ahead_after_a_restart(tmp_path: Path) -> None:
    clock = JumpyClock()
    clock.wall_ms += MONTH_MS  # wrong when the server starts: nothing tells it so
    broker = await _open(tmp_path / "data", clock)
    await broker.create_topic("q", config=QUEUE)
    await broker.append_values("q", [b"job", b"other"])
    assert await _claimed(broker) == 1
    await broker.close()
    clock.wall_ms -= MONTH_MS
    broker = await _open(tmp_path / "data", clock)
    try:
        assert broker.clock_ahead_ms > MONTH_MS - DAY_MS
        assert await _claimed(broker) == 1  # the other one
        assert await _claimed(broker) == 0
        clock.advance(30_001)
        assert await _claimed(broker) == 1
        assert await _claimed(broker) == 1
        assert await _claimed(broker) == 0
    finally:
        await broker.close()


@pytest.mark.parametrize("config", [TopicConfig(ttl_ms=3_600_000), TopicConfig(retention_ms=3_600_000)])
async def test_a_jump_ahead_expires_nothing(tmp_path: Path, config: TopicConfig) -> None:
    clock = JumpyClock()
    broker = await _open(tmp_path / "data", clock)
    try:
        await broker.create_topic("t", config=config)
        await broker.append_values("t", [b"kept"])
        clock.wall_ms += MONTH_MS
        await broker.append_values("t", [b"during"])
        await broker.enforce_retention()
        assert broker.states.state(broker.topic("t")).count == 2
        clock.wall_ms -= MONTH_MS
        await broker.enforce_retention()
        assert [record.value for record in await broker.read("t", 0)] == [b"kept", b"during"]
        clock.advance(3_700_000)  # real time
        await broker.append_values("t", [b"new"])
        await broker.enforce_retention()
        assert broker.partition("t").start > 0
    finally:
        await broker.close()


async def test_an_operator_may_have_every_jump_followed(tmp_path: Path) -> None:
    clock = JumpyClock()
    broker = await _open(tmp_path / "data", clock, clock_step_ms=0)
    try:
        await broker.create_topic("t", config=TopicConfig(ttl_ms=3_600_000))
        await broker.append_values("t", [b"gone"])
        clock.wall_ms += MONTH_MS
        assert broker.states.state(broker.topic("t")).count == 0
    finally:
        await broker.close()


async def test_a_transaction_times_out_although_ledger_time_is_ahead(tmp_path: Path) -> None:
    clock = JumpyClock()
    clock.wall_ms += MONTH_MS
    broker = await _open(tmp_path / "data", clock)
    await broker.create_topic("t")
    await broker.close()
    clock.wall_ms -= MONTH_MS
    broker = await _open(tmp_path / "data", clock)
    try:
        stamp = ProducerStamp("tx", *await broker.transactions.initialise("tx", 60_000))
        await broker.transactions.add_partitions(stamp, (broker.stream("t"),))
        assert await broker.transactions.enforce() == ()
        clock.advance(60_001)
        assert await broker.transactions.enforce() == ("tx",)
    finally:
        await broker.close()


def test_a_steady_clock_follows_small_steps_and_a_clock_that_is_set_right() -> None:
    clock = JumpyClock()
    steady = SteadyClock(clock)
    clock.wall_ms += 30_000
    assert steady.now_ms() == clock.wall_ms
    clock.wall_ms -= MONTH_MS  # back
    assert steady.now_ms() == clock.wall_ms
    clock.wall_ms += MONTH_MS  # and right again
    assert steady.now_ms() == clock.wall_ms
    clock.wall_ms += DAY_MS
    assert steady.now_ms() == clock.wall_ms - DAY_MS
    clock.advance(5_000)
    assert (steady.now_ms(), steady.refused_ms) == (clock.wall_ms - DAY_MS, DAY_MS)
    steady.accept()
    assert (steady.now_ms(), steady.refused_ms) == (clock.wall_ms, 0)

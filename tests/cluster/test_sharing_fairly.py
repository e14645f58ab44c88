"""Brokers that write at full speed to one log: each gets its share, however slow the store is."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.ports.commitlog.shared.etcd.commits import ETCD_POSITIONS_TRIED
from mainstem.ports.commitlog.shared.etcd.inline import ETCD_INLINE_BYTES_MAX
from tests.support.histories import ClusterHistory
from tests.support.simulation import Faults, World

from .simulated_broker import TOPIC, SimulatedBroker

_BROKERS = 3
_SECONDS = 10.0
_TURN = "log/turn"


async def _opened(world: World, kind: str, count: int, **options: int) -> list[SimulatedBroker]:
    brokers = []
    for number in range(1, count + 1):
        node = world.node(f"n{number}")
        brokers.append(SimulatedBroker(world, node, number, kind, ClusterHistory(), linger_ms=0, **options))
        await asyncio.wait([node.start(brokers[-1].open())])
    await brokers[0].make_topic()
    return brokers


async def _write(world: World, one: SimulatedBroker) -> tuple[int, float, int]:
    """Write for a while. Returns the number of writes, the duration of the slowest, and the broker's epoch."""
    broker = one.broker
    assert broker is not None
    await broker.log.barrier()
    end = world.loop.time() + _SECONDS
    count, slowest = 0, 0.0
    while (asked_at := world.loop.time()) < end:
        await broker.append_values(TOPIC, [b"%d" % count])
        count += 1
        slowest = max(slowest, world.loop.time() - asked_at)
    return count, slowest, broker.log.epoch


async def _all_write(world: World, kind: str) -> list[tuple[int, float, int]]:
    found = await asyncio.gather(*(_write(world, one) for one in await _opened(world, kind, _BROKERS)))
    for number in range(1, _BROKERS + 1):
        await world.node(f"n{number}").crash()
    return found


async def _one_writes(world: World, idle: int) -> int:
    """The number of writes, beside `idle` brokers that write nothing."""
    brokers = await _opened(world, "bucket", 1 + idle)
    count, _, _ = await _write(world, brokers[0])
    for number in range(1, idle + 2):
        await world.node(f"n{number}").crash()
    return count


@pytest.mark.parametrize("kind", ["bucket", "etcd"])
@pytest.mark.parametrize("round_trip_s", [0.02, 0.06])
def test_every_broker_gets_its_share_of_appends(kind: str, round_trip_s: float) -> None:
    world = World(5, Faults(latency_s=(round_trip_s / 4, 3 * round_trip_s / 4)))
    counts, slowest, epochs = zip(*world.run(_all_write(world, kind)), strict=True)
    assert min(counts) > 0.4 * max(counts)
    assert max(slowest) < 40 * round_trip_s
    assert epochs == (1,) * _BROKERS, "nobody was taken for dead"


def test_a_single_writer_among_idle_brokers_keeps_most_of_its_throughput() -> None:
    """Letting heartbeats pass costs it one pause a second for each other broker, and no more."""
    counts = []
    for idle in (0, 2):
        world = World(5, Faults(latency_s=(0.005, 0.015)))
        counts.append(world.run(_one_writes(world, idle)))
    assert counts[1] > 0.5 * counts[0]


def test_a_broker_that_requested_a_turn_and_died_delays_nobody() -> None:
    world = World(5, Faults(latency_s=(0.005, 0.015)))
    alone = world.run(_one_writes(world, 1))
    haunted = World(5, Faults(latency_s=(0.005, 0.015)))
    haunted.shared.put(_TURN, b"a commit that never comes", False)
    assert haunted.run(_one_writes(haunted, 1)) > 0.9 * alone
    assert haunted.shared.get(_TURN)


async def _acks(world: World, positions_tried: int) -> list[float]:
    """How long each of 1,000 records a second takes at three brokers over etcd."""
    brokers = await _opened(
        world,
        "etcd",
        _BROKERS,
        object_bytes=1 << 24,
        positions_tried=positions_tried,
        inline_bytes=ETCD_INLINE_BYTES_MAX,
    )
    taken: list[float] = []

    async def append(one: SimulatedBroker) -> None:
        assert one.broker is not None
        asked_at = world.loop.time()
        await one.broker.append_values(TOPIC, [b"x" * 100])
        taken.append(world.loop.time() - asked_at)

    for one in brokers:
        assert one.broker is not None
        await one.broker.log.barrier()
    asked = []
    for number in range(1_000):
        asked.append(asyncio.ensure_future(append(brokers[number % _BROKERS])))
        await asyncio.sleep(0.001)
    await asyncio.gather(*asked)
    for number in range(1, _BROKERS + 1):
        await world.node(f"n{number}").crash()
    return sorted(taken)


def test_three_brokers_over_etcd_acknowledge_within_a_few_round_trips() -> None:
    """Other brokers commit meanwhile, and the store is not needed."""
    round_trip_s = 0.004
    world = World(5, Faults(latency_s=(round_trip_s / 2, round_trip_s / 2)))
    taken = world.run(_acks(world, ETCD_POSITIONS_TRIED))
    assert taken[len(taken) // 2] < 2 * round_trip_s
    assert taken[int(0.99 * len(taken))] < 2.5 * round_trip_s

"""Brokers that write at full speed to one log: each gets its turn, whatever the store's answers take."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.testing.histories import ClusterHistory
from mainstem.testing.simulation import Faults, World

from .simulated_broker import TOPIC, SimulatedBroker

_BROKERS = 3
_SECONDS = 10.0


async def _write_at_full_speed(world: World, kind: str) -> list[tuple[int, float, int]]:
    """Of each broker: how many writes it did, how long the slowest took, and its epoch in the end."""
    brokers = [
        SimulatedBroker(world, world.node(f"n{number}"), number, kind, ClusterHistory(), linger_ms=0)
        for number in range(1, _BROKERS + 1)
    ]
    for number, one in enumerate(brokers, 1):
        await asyncio.wait([world.node(f"n{number}").start(one.open())])
        await one.make_topic()
    end = world.loop.time() + _SECONDS
    found = await asyncio.gather(*(_write(world, one, end) for one in brokers))
    for number in range(1, _BROKERS + 1):
        await world.node(f"n{number}").crash()
    return found


async def _write(world: World, one: SimulatedBroker, end: float) -> tuple[int, float, int]:
    broker = one.broker
    assert broker is not None
    await broker.log.barrier()
    count, slowest = 0, 0.0
    while (asked_at := world.loop.time()) < end:
        await broker.append_values(TOPIC, [b"%d" % count])
        count += 1
        slowest = max(slowest, world.loop.time() - asked_at)
    return count, slowest, broker.log.epoch


@pytest.mark.parametrize("kind", ["bucket", "etcd"])
@pytest.mark.parametrize("round_trip_s", [0.02, 0.06])
def test_every_broker_gets_its_turn(kind: str, round_trip_s: float) -> None:
    world = World(5, Faults(latency_s=(round_trip_s / 4, 3 * round_trip_s / 4)))
    found = world.run(_write_at_full_speed(world, kind))
    counts, slowest, epochs = zip(*found, strict=True)
    assert min(counts) > 0.4 * max(counts)
    assert max(slowest) < 40 * round_trip_s
    assert epochs == (1,) * _BROKERS, "nobody was taken for dead"


def test_a_broker_that_writes_alone_among_others_keeps_most_of_its_speed() -> None:
    """Letting heartbeats pass costs it a pause a second for each of the others, and no more."""
    counts = []
    for others in (0, 2):
        world = World(5, Faults(latency_s=(0.005, 0.015)))
        counts.append(world.run(_write_beside(world, others)))
    assert counts[1] > 0.5 * counts[0]


async def _write_beside(world: World, idle: int) -> int:
    brokers = [
        SimulatedBroker(world, world.node(f"n{number}"), number, "bucket", ClusterHistory(), linger_ms=0)
        for number in range(1, idle + 2)
    ]
    for number, one in enumerate(brokers, 1):
        await asyncio.wait([world.node(f"n{number}").start(one.open())])
    await brokers[0].make_topic()
    count, _, _ = await _write(world, brokers[0], world.loop.time() + _SECONDS)
    for number in range(1, idle + 2):
        await world.node(f"n{number}").crash()
    return count

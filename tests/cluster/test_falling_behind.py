"""A broker that was away for longer than commits are kept: it says so, and restarts from a checkpoint."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.errors import BehindCheckpoint
from tests.support.histories import ClusterHistory
from tests.support.simulation import Faults, World

from .simulated_broker import TOPIC, SimulatedBroker

_KEPT_MS = 70_000  # longer than a writer may lag behind the log


class Pair:
    """One broker that stays, and one that is away."""

    def __init__(self, world: World, kind: str) -> None:
        self.history = ClusterHistory()
        self._world = world
        self._kind = kind

    async def start(self, name: str, number: int) -> SimulatedBroker:
        node = self._world.node(name)
        one = SimulatedBroker(
            self._world, node, number, self._kind, self.history, linger_ms=0, kept_ms=_KEPT_MS
        )
        await asyncio.wait([node.start(one.open())])
        return one


async def _scenario(world: World, kind: str) -> None:
    pair = Pair(world, kind)
    stays, leaves = await pair.start("stays", 1), await pair.start("leaves", 2)
    await stays.make_topic()
    await leaves.read()
    world.node("leaves").cut()
    for _ in range(100):
        await stays.write(3)
        await asyncio.sleep(2)
    assert stays.checkpoints >= 2
    assert leaves.broker is not None
    sharing = leaves.broker.log.sharing
    assert sharing is not None
    assert sharing.failure is None, "as long as it reaches nothing it knows nothing"
    world.node("leaves").heal()
    await asyncio.wait_for(sharing.failed.wait(), 60)
    assert isinstance(sharing.failure, BehindCheckpoint)
    await leaves.write(1)  # refused: it no longer knows the state

    await world.node("leaves").crash()  # it ends, and its supervisor restarts it
    world.node("leaves").restart()
    back = await pair.start("leaves", 2)
    await back.write(2)
    await back.read()
    assert back.broker is not None
    records = await back.records()
    assert len(records) == 302
    pair.history.check({TOPIC: records})
    await world.node("leaves").crash()
    await world.node("stays").crash()


@pytest.mark.parametrize("kind", ["bucket", "etcd"])
def test_a_broker_away_for_too_long_restarts_from_a_checkpoint(kind: str) -> None:
    world = World(3, Faults.none())
    world.run(_scenario(world, kind))
    assert len(world.shared.listed("log/checkpoints/" if kind == "bucket" else "")) > 0

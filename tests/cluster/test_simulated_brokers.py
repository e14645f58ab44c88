"""Several whole brokers over one log in a simulated world: crashes, stalls, lost answers; one seed, one trace."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.errors import MainstemError
from mainstem.testing.histories import ClusterHistory
from mainstem.testing.simulation import Faults, World

from .simulated_broker import TOPIC, SimulatedBroker

_NAMES = ("a", "b", "c")
_KINDS = ("bucket", "etcd")


class Cell:
    """Three brokers that write and read on, whatever happens to them."""

    def __init__(self, world: World, kind: str) -> None:
        self.history = ClusterHistory()
        self._world = world
        self._kind = kind
        self.brokers: dict[str, SimulatedBroker] = {}

    async def start(self, name: str) -> None:
        node = self._world.node(name)
        broker = SimulatedBroker(self._world, node, _NAMES.index(name) + 1, self._kind, self.history)
        await asyncio.wait([node.start(self._open(broker))])
        self.brokers[name] = broker

    async def _open(self, broker: SimulatedBroker) -> None:
        while True:
            try:
                await broker.open()
                break
            except MainstemError:
                await asyncio.sleep(0.2)

    async def work(self, name: str) -> None:
        """Write and read for a while, as long as this life lasts."""
        broker, choose = self.brokers[name], self._world.random
        await broker.make_topic()
        for _ in range(15):
            await broker.write(choose.randint(1, 3))
            if choose.random() < 0.3:
                await broker.read()
            await asyncio.sleep(choose.uniform(0, 2.0))

    async def trouble(self) -> None:
        """Something that the seed decides."""
        choose = self._world.random
        name = choose.choice(_NAMES)
        node = self._world.node(name)
        match choose.choice(("crash", "cut", "skew", "wait")):
            case "crash":
                await node.crash()
                node.restart()
                await self.start(name)
                node.start(self.work(name))
            case "cut":
                node.cut()
                await asyncio.sleep(choose.uniform(0.5, 9.0))
                node.heal()
            case "skew":
                node.skew_ms = choose.choice((-5_000, -300, 0, 300, 5_000))
            case "wait":
                await asyncio.sleep(choose.uniform(0.5, 5.0))


async def _scenario(world: World, kind: str) -> tuple[int, int]:
    """A cell in trouble, then calm, then judgement. Returns the log's length and the digest all agree on."""
    cell = Cell(world, kind)
    for name in _NAMES:
        await cell.start(name)
        world.node(name).start(cell.work(name))
    for _ in range(8):
        await asyncio.sleep(world.random.uniform(0.05, 2.0))
        await cell.trouble()
    world.faults.lose_request = world.faults.lose_answer = world.faults.stall = world.faults.lose_watch = 0.0
    await asyncio.sleep(60)  # what was stalled has arrived by now, and the heartbeats go on
    for name in _NAMES:
        await world.node(name).crash()
        world.node(name).restart()
    for name in _NAMES:
        await cell.start(name)
    for name in reversed(_NAMES):
        broker = cell.brokers[name]
        await asyncio.wait([world.node(name).start(broker.read())])
    logs = [one.broker.log for one in cell.brokers.values() if one.broker is not None]
    assert [log.sharing.failure for log in logs if log.sharing is not None] == [None] * len(_NAMES)
    for one in cell.brokers.values():
        if one.broker is not None:
            await one.broker.cluster.leave()
    while len({log.ledger.position for log in logs}) > 1:  # the last heartbeats are on their way
        for log in logs:
            await log.barrier()
    agreed = {(log.ledger.position, log.ledger.digest()) for log in logs}
    assert len(agreed) == 1, "brokers that applied the same log differ"
    last = cell.brokers["c"]
    cell.history.check({TOPIC: await last.records()})
    for name in _NAMES:
        await world.node(name).crash()
    return agreed.pop()


@pytest.mark.parametrize("kind", _KINDS)
def test_brokers_in_trouble_keep_every_promise(brokers_seed: int, kind: str) -> None:
    world = World(brokers_seed)
    position, _ = world.run(_scenario(world, kind))
    assert position > 0


@pytest.mark.parametrize("kind", _KINDS)
def test_the_same_seed_gives_the_same_trace(kind: str) -> None:
    runs = []
    for _ in range(2):
        world = World(4)
        runs.append((world.run(_scenario(world, kind)), world.trace.count, str(world.trace)))
    assert runs[0] == runs[1]


async def _epochs_after(world: World, kind: str, away_s: float) -> list[tuple[int, int]]:
    """The epochs of three brokers before and after nobody reaches the store for a while."""
    cell = Cell(world, kind)
    for name in _NAMES:
        await cell.start(name)
    logs = [one.broker.log for one in cell.brokers.values() if one.broker is not None]
    before = [log.epoch for log in logs]
    await asyncio.sleep(30)
    for name in _NAMES:
        world.node(name).cut_off = away_s > 0
    await asyncio.sleep(away_s)
    for name in _NAMES:
        world.node(name).cut_off = False
    await asyncio.sleep(60)
    assert all(len(log.ledger.members) == len(_NAMES) for log in logs)
    after = [log.epoch for log in logs]
    for name in _NAMES:
        await world.node(name).crash()
    return list(zip(before, after, strict=True))


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("away_s", [0, 20])
def test_calm_brokers_and_brokers_without_a_store_expire_nobody(kind: str, away_s: float) -> None:
    world = World(1, Faults.none())
    for before, after in world.run(_epochs_after(world, kind, away_s)):
        assert before == after

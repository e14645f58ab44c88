"""Several whole brokers over one log in a simulated world: crashes, stalls, lost responses; one seed, one trace."""

from __future__ import annotations

import asyncio

import pytest

from mainstem.broker.cluster.service import MEMBER_SILENT_S
from mainstem.errors import MainstemError
from mainstem.ports.commitlog.shared.bucket.commits import BucketCommits
from tests.support.histories import ClusterHistory
from tests.support.simulation import Faults, World
from tests.support.simulation.schedules import FAULTS, Schedules

from .simulated_broker import TOPIC, SimulatedBroker

_NAMES = ("a", "b", "c")
_KINDS = ("bucket", "etcd")


class Cell:
    """Three brokers that keep writing and reading, whatever happens to them."""

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
        """Write and read for a while, as long as this run lasts."""
        broker, choose = self.brokers[name], self._world.random
        await broker.make_topic()
        for _ in range(6):
            await broker.write(choose.randint(1, 3))
            if choose.random() < 0.3:
                await broker.read()
            await asyncio.sleep(choose.uniform(0, 1.0))

    async def trouble(self) -> None:
        """A fault that the seed decides."""
        choose = self._world.random
        name = choose.choice(_NAMES)
        node = self._world.node(name)
        match choose.choice(("crash", "cut", "skew")):
            case "crash":
                await node.crash()
                node.restart()
                await self.start(name)
                node.start(self.work(name))
            case "cut":
                node.cut()
                await asyncio.sleep(choose.choice((0.5, 5.0)))  # the others expire it, or do not
                self._world.trace.effects["expired"] += self._expired(name)
                node.heal()
            case "skew":
                node.skew_ms = choose.choice((-5_000, -300, 300, 5_000))
                self._world.trace.effects["clock off"] += 1

    def _expired(self, name: str) -> bool:
        """Whether another broker has expired this one."""
        others = [one.broker for node, one in self.brokers.items() if node != name]
        number = _NAMES.index(name) + 1
        return any(one is not None and one.log.ledger.members.get(number) is None for one in others)


async def _scenario(world: World, kind: str) -> tuple[int, int]:
    """A cell under faults, then calm, then the checks. Returns the log's length and the digest all agree on."""
    with pytest.MonkeyPatch.context() as patched:
        if world.random.random() < 0.5:  # sealed objects of the bucket refer to the larger payloads
            patched.setattr(BucketCommits, "payload_bytes_max", 0)
            patched.setattr(
                "mainstem.ports.commitlog.shared.bucket.references.BUCKET_REFERENCE_BYTES_MIN", 100
            )
        return await _troubled(world, kind)


async def _troubled(world: World, kind: str) -> tuple[int, int]:
    cell = Cell(world, kind)
    for name in _NAMES:
        await cell.start(name)
        world.node(name).start(cell.work(name))
    for _ in range(3):
        await asyncio.sleep(world.random.uniform(0.05, 1.0))
        await cell.trouble()
    await world.calm_down()
    await asyncio.sleep(MEMBER_SILENT_S)  # expired brokers return, dead ones are expired
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
    while len({log.ledger.position for log in logs}) > 1:  # the last heartbeats are in flight
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
def test_brokers_under_faults_keep_every_promise(broker_schedules: Schedules, kind: str) -> None:
    met = broker_schedules.run(lambda world: _scenario(world, kind))
    if broker_schedules.whole:
        assert [fault for fault in (*FAULTS, "clock off", "expired") if met[fault] < 5] == []


@pytest.mark.parametrize("kind", _KINDS)
def test_the_same_seed_gives_the_same_trace(kind: str) -> None:
    runs = []
    for _ in range(2):
        world = World(4)
        runs.append((world.run(_scenario(world, kind)), world.trace.count, str(world.trace)))
    assert runs[0] == runs[1]


async def _epochs_after(world: World, kind: str, away_s: float) -> list[tuple[int, int]]:
    """The epochs of three brokers before and after the store is unreachable for a while."""
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

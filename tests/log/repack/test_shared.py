"""Several brokers over one log repack the same objects: the first one's files serve, on all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.repacked import REPACKED
from mainstem.log.checkpointer import store_state
from mainstem.log.log import Log, LogOptions
from mainstem.log.repack.plan import RepackOptions
from mainstem.log.upkeep import Upkeep
from mainstem.ports.clock import ManualClock
from mainstem.ports.commitlog.bucket.log import BucketCommitLog
from mainstem.ports.objectstore.memory import MemoryObjectStore
from mainstem.testing.history import scan
from mainstem.testing.machine import DIRECTORY, CountingRandom

SMALL = RepackOptions(
    on=False, after_objects=2, least_bytes=0, bytes_per_s=0, merged_rounds=2, file_bytes=2_000, grace_s=0.0
)


class Cell:
    """One bucket and the brokers on it, each of which would do the upkeep."""

    def __init__(self) -> None:
        self.store = MemoryObjectStore()
        self.clock = ManualClock()
        self.random = CountingRandom()
        self.brokers: list[Broker] = []
        self.upkeeps: list[Upkeep] = []

    async def _port(self) -> BucketCommitLog:
        return await BucketCommitLog.open(self.store, object_bytes=4096, clock=self.clock, random=self.random)

    async def join(self, number: int) -> Broker:
        async def save_at(position: int) -> None:
            reader = await self._port()
            await store_state(reader, position)
            await reader.close()

        options = LogOptions(broker=number, shared=True, checkpoint_every_bytes=0, tail_cache_bytes=0)
        log = await Log.open(
            await self._port(),
            self.clock,
            replace(options, repack=SMALL),
            objects=self.store,
            save_at=save_at,
        )
        log.maintains = lambda: True
        broker = Broker(log, BrokerOptions(DIRECTORY), self.clock, self.random)
        self.brokers.append(broker)
        self.upkeeps.append(log.upkeep())
        return broker

    def repacked_keys(self) -> set[str]:
        return {key for key in self.store._objects if key.startswith(REPACKED)}

    async def meet(self) -> None:
        for broker in self.brokers:
            await broker.log.barrier()


@pytest.fixture
async def cell() -> AsyncIterator[Cell]:
    made = Cell()
    yield made
    for broker in made.brokers:
        await broker.close()


async def _write(cell: Cell, count: int) -> None:
    for number in range(count):
        broker = cell.brokers[number % len(cell.brokers)]
        await broker.append_values("busy", [b"%d" % number + b"." * 300])
        if number % 5 == 0:
            await broker.append_values("quiet", [b"%d" % number])
    await cell.meet()


async def test_two_that_repack_at_once_agree_and_leave_nothing_behind(cell: Cell) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("busy")
    await one.create_topic("quiet")
    await cell.meet()
    for _ in range(3):
        await _write(cell, 60)
        expected = {name: await scan(one, name) for name in ("busy", "quiet")}
        for upkeep in cell.upkeeps:
            await upkeep.round()
        for _ in range(12):
            steps = [broker.log.repacker.step() for broker in cell.brokers if broker.log.repacker is not None]
            if not any(await asyncio.gather(*steps)):
                break
            await cell.meet()
        for upkeep in cell.upkeeps:
            await upkeep.round()
        await cell.meet()
        assert one.log.ledger.digest() == two.log.ledger.digest()
        for broker in cell.brokers:
            assert {name: await scan(broker, name) for name in expected} == expected
    repacked = one.log.ledger.repacked
    assert any(made.level == 2 for made in repacked.rounds)
    for broker in cell.brokers:
        assert broker.log.repacker is not None
        await broker.log.repacker.clean()
        await cell.meet()
    assert cell.repacked_keys() == {key for made in repacked.rounds for key in made.keys}
    kept = [held.number for held in one.log._port.objects()]
    assert kept[0] > repacked.frontier / 2  # the rest went, as far as no replay needs it

    third = await cell.join(3)  # and whoever comes later finds all of it
    assert {name: await scan(third, name) for name in expected} == expected

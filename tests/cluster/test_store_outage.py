"""The object store is away for a minute, and etcd is not: small commits go on, and are sealed afterwards."""

from __future__ import annotations

import asyncio

from mainstem.ports.commitlog.shared.etcd.inline import ETCD_INLINE_BYTES_MAX
from mainstem.ports.commitlog.shared.etcd.keys import EtcdKeys
from tests.support.histories import ClusterHistory
from tests.support.simulation import Faults, World

from .simulated_broker import TOPIC, SimulatedBroker

_AWAY_S = 60.0


async def _through_an_outage(world: World) -> None:
    history = ClusterHistory()
    brokers = []
    for number in (1, 2, 3):
        node = world.node(f"n{number}")
        inline = ETCD_INLINE_BYTES_MAX
        one = SimulatedBroker(world, node, number, "etcd", history, linger_ms=0, inline_bytes=inline)
        await asyncio.wait([node.start(one.open())])
        brokers.append(one)
    await brokers[0].make_topic()
    for one in brokers:
        assert one.broker is not None
        await one.broker.log.barrier()
    epochs = [one.broker.log.epoch for one in brokers if one.broker is not None]

    world.shared.away = True
    end = world.loop.time() + _AWAY_S
    slowest = 0.0
    while world.loop.time() < end:
        asked_at = world.loop.time()
        await asyncio.gather(*(one.write(3) for one in brokers))
        slowest = max(slowest, world.loop.time() - asked_at)
        await asyncio.sleep(0.5)
    assert slowest < 1.0
    assert all(write.offset >= 0 for write in history.writes.values()), "every write is acknowledged"
    held = _payloads(world)
    assert held > 100
    world.shared.away = False

    await asyncio.sleep(60)  # maintenance runs again
    assert _payloads(world) < held / 4
    records = [await one.records() for one in brokers]
    assert records[0] == records[1] == records[2]
    assert epochs == [one.broker.log.epoch for one in brokers if one.broker is not None]
    history.check({TOPIC: records[0]})
    for number in (1, 2, 3):
        await world.node(f"n{number}").crash()


def _payloads(world: World) -> int:
    keys = EtcdKeys.under("mainstem/")
    return len(world.etcd.keys_between(keys.payloads(0), keys.payloads_end))


def test_small_commits_are_acknowledged_while_the_store_is_away_and_sealed_afterwards() -> None:
    world = World(3, Faults(latency_s=(0.001, 0.003)))
    world.run(_through_an_outage(world))

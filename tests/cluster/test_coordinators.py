"""Each group, transaction and Pulsar topic has one coordinator, whatever doors the brokers have."""

from __future__ import annotations

import pytest

from mainstem.broker.broker import Broker

_NAMES = [f"g{number}" for number in range(64)]


async def _join(brokers: list[Broker], doors: list[str]) -> None:
    for broker, door in zip(brokers, doors, strict=True):
        await broker.cluster.join({door: "127.0.0.1:1"} if door else {})
    for broker in brokers:
        await broker.log.barrier()


@pytest.mark.parametrize("door", ["", "http", "kafka", "kafka:acme"])
async def test_one_of_two_brokers_with_the_same_doors_coordinates_a_group(
    two_brokers: list[Broker], door: str
) -> None:
    await _join(two_brokers, [door, door])
    counts = [sum(broker.groups.coordinates(name) for broker in two_brokers) for name in _NAMES]
    assert counts == [1] * len(_NAMES)
    assert all(any(broker.groups.coordinates(name) for name in _NAMES) for broker in two_brokers)


@pytest.mark.parametrize(("kind", "door"), [("group", "kafka"), ("txn", "kafka:acme"), ("pulsar", "pulsar")])
async def test_the_only_broker_that_clients_reach_coordinates_everything(
    two_brokers: list[Broker], kind: str, door: str
) -> None:
    await _join(two_brokers, ["http", door])
    reached = two_brokers[1].log.broker
    for broker in two_brokers:
        assert {broker.cluster.coordinator(kind, name) for name in _NAMES} == {reached}

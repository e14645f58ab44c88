"""Topics and subscriptions that nobody uses."""

from __future__ import annotations

import pytest

from mainstem.broker.broker import Broker
from mainstem.ledger.config import TopicConfig
from tests.support.machine import Machine


async def _swept(machine: Machine, broker: Broker, seconds: int) -> int:
    """What is deleted after so long."""
    machine.clock.advance(seconds * 1000)
    return await broker.inactivity.sweep()


async def test_a_topic_without_subscriptions_is_deleted(machine: Machine) -> None:
    broker = await machine.open()
    topic = await broker.create_topic("t", config=TopicConfig(inactive_ms=10_000))
    await broker.create_topic("stays")
    await broker.subscriptions.create(topic, 0, "s", 0)
    assert await broker.inactivity.sweep() == 0
    assert await _swept(machine, broker, 20) == 0  # it has a subscription
    await broker.subscriptions.delete(topic, 0, "s")
    assert await broker.inactivity.sweep() == 0
    assert await _swept(machine, broker, 9) == 0
    await broker.append_values("t", [b"x"])
    assert await _swept(machine, broker, 9) == 0  # somebody wrote meanwhile
    broker.inactivity.has_producers = lambda stream: True
    assert await _swept(machine, broker, 20) == 0
    broker.inactivity.has_producers = lambda stream: False
    assert await broker.inactivity.sweep() == 0
    assert await _swept(machine, broker, 10) == 1
    assert broker.streams.get("t") is None
    assert broker.streams.get("stays") is not None


async def test_a_topic_whose_subscriptions_caught_up_is_deleted(machine: Machine) -> None:
    broker = await machine.open()
    config = TopicConfig(inactive_ms=10_000, inactive_mode="delete_when_subscriptions_caught_up")
    topic = await broker.create_topic("t", config=config)
    await broker.append_values("t", [b"x"])
    await broker.subscriptions.create(topic, 0, "s", 0)
    await broker.inactivity.sweep()
    assert await _swept(machine, broker, 20) == 0
    await broker.subscriptions.skip(topic, 0, "s", 1)
    assert await broker.inactivity.sweep() == 0
    assert await _swept(machine, broker, 10) == 1


async def test_only_the_broker_that_serves_a_topic_deletes_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(inactive_ms=1))
    monkeypatch.setattr(broker.cluster, "coordinates", lambda kind, name: False)
    await broker.inactivity.sweep()
    assert await _swept(machine, broker, 20) == 0


async def test_a_subscription_without_consumers_expires(machine: Machine) -> None:
    broker = await machine.open()
    topic = await broker.create_topic("t", config=TopicConfig(subscription_expiry_ms=10_000))
    await broker.append_values("t", [b"x"] * 3)
    for name in ("moves", "stays"):
        await broker.subscriptions.create(topic, 0, name, 0)
    await broker.inactivity.sweep()
    assert await _swept(machine, broker, 6) == 0
    await broker.subscriptions.skip(topic, 0, "moves", 1)
    assert await _swept(machine, broker, 6) == 1
    assert [name for name, _ in broker.subscriptions.marks(broker.stream("t"))] == ["moves"]
    assert await _swept(machine, broker, 10) == 1

"""What subscriptions have left to read, and the limits of topics on it."""

from __future__ import annotations

import pytest

from mainstem.broker.broker import Broker
from mainstem.errors import BacklogFull, BacklogHeld, TopicTerminated
from mainstem.ledger.config import TopicConfig
from tests.support.machine import Machine


async def _opened(machine: Machine, **config: object) -> Broker:
    """A topic with two slices of two records, a second apart, and a subscription at its start."""
    broker = await machine.open()
    topic = await broker.create_topic("t", config=TopicConfig(**config))  # type: ignore[arg-type]
    await broker.subscriptions.create(topic, 0, "s", 0)
    for _ in range(2):
        await broker.append_values("t", [b"x" * 100] * 2)
        machine.clock.advance(1000)
    return broker


def _marks(broker: Broker) -> list[tuple[str, int]]:
    return broker.subscriptions.marks(broker.stream("t"))


async def test_retention_keeps_what_is_not_acknowledged(machine: Machine) -> None:
    broker = await _opened(machine, retention_ms=0, retention_bytes=0, keep_backlog=True)
    assert await broker.enforce_retention() == 0
    await broker.subscriptions.skip(broker.topic("t"), 0, "s", 3)
    assert await broker.enforce_retention() == 1
    assert broker.partition("t").start == 3
    await broker.subscriptions.delete(broker.topic("t"), 0, "s")
    await broker.enforce_retention()
    assert broker.partition("t").start == 4


async def test_retention_deletes_a_backlog_unless_the_topic_keeps_it(machine: Machine) -> None:
    broker = await _opened(machine, retention_ms=0)
    await broker.enforce_retention()
    assert broker.partition("t").start == 4


async def test_records_older_than_the_ttl_count_as_acknowledged(machine: Machine) -> None:
    broker = await _opened(machine, subscription_ttl_ms=1500)
    assert await broker.backlogs.skip() == 1
    assert _marks(broker) == [("s", 2)]
    assert await broker.backlogs.skip() == 0
    machine.clock.advance(1000)
    await broker.backlogs.skip()
    assert _marks(broker) == [("s", 4)]


@pytest.mark.parametrize("quota", [{"backlog_bytes": 300}, {"backlog_ms": 1500}])
async def test_a_quota_that_evicts_moves_the_slowest_subscription(
    machine: Machine, quota: dict[str, int]
) -> None:
    policies = {f"{name}_policy": "consumer_backlog_eviction" for name in quota}
    broker = await _opened(machine, **quota, **policies)
    await broker.backlogs.refuse()
    await broker.append_values("t", [b"y"])
    await broker.backlogs.skip()
    assert _marks(broker)[0][1] >= 2


@pytest.mark.parametrize(
    ("policy", "error"), [("producer_exception", BacklogFull), ("producer_request_hold", BacklogHeld)]
)
async def test_a_quota_refuses_records_until_the_subscription_reads(
    machine: Machine, policy: str, error: type[BacklogFull]
) -> None:
    broker = await _opened(machine, backlog_bytes=300, backlog_bytes_policy=policy)
    told: list[int] = []
    broker.backlogs.on_refused = told.append
    await broker.append_values("t", [b"y"])
    await broker.backlogs.refuse()
    assert told == [broker.stream("t")]
    with pytest.raises(error):
        await broker.append_values("t", [b"y"])
    await broker.subscriptions.skip(broker.topic("t"), 0, "s", 5)
    await broker.backlogs.check(broker.topic("t"), broker.stream("t"))
    await broker.append_values("t", [b"y"])


async def test_a_terminated_topic_takes_no_records_after_a_restart_either(machine: Machine) -> None:
    broker = await _opened(machine)
    await broker.alter_topic("t", TopicConfig(terminated=True))
    await broker.close()
    broker = await machine.open()
    with pytest.raises(TopicTerminated):
        await broker.append_values("t", [b"y"])
    assert len(await broker.read("t", 0)) == 4

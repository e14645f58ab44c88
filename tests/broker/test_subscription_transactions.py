"""What an aborted transaction acknowledged of a subscription comes again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import MESSAGE_HEADER, MessageEntry, MessageRun
from mainstem.broker.subscriptions.subscription import SubscriptionType
from mainstem.ledger.subscriptions import Range


class _Client:
    writable = True

    def __init__(self) -> None:
        self.deliveries: asyncio.Queue[list[Range]] = asyncio.Queue()
        self.member = SubscriptionConsumer(self, "c")

    def deliver(self, entry: MessageEntry, redeliveries: int, unacked: list[Range] | None) -> None:
        self.deliveries.put_nowait([(entry.base, entry.end)] if unacked is None else unacked)

    def deliver_run(self, run: MessageRun, redeliveries: int) -> None:
        raise AssertionError("a batch of a Pulsar client is one entry")

    def active_changed(self, active: bool) -> None: ...

    def reached_end(self) -> None: ...

    def disconnect(self) -> None: ...

    async def next(self) -> list[Range]:
        return await asyncio.wait_for(self.deliveries.get(), 5)


@pytest.mark.parametrize("type", list(SubscriptionType))
@pytest.mark.parametrize("joins", ["before", "while it is open"])
async def test_an_entry_whose_first_message_was_acknowledged_before_comes_again(
    tmp_path: Path, type: SubscriptionType, joins: str
) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    topic = await broker.create_topic("t")
    headers = [[(MESSAGE_HEADER, bytes((at, 5)))] for at in range(5)]
    await broker.append_values("t", [b"v"] * 5, headers=headers)
    subscription = await broker.subscriptions.open(topic, -1, "s", start=0)
    client = _Client()
    subscription.join(client.member, type)
    subscription.flow(client.member, 100)
    assert await client.next() == [(0, 5)]
    await subscription.ack([(0, [(0, 1)])])
    producer = await broker.transactions.begin("pulsar/1", 60_000, "ann")
    opened = broker.transactions.of_producer(producer)
    assert opened is not None
    # The whole entry, as clients name it that do not track the messages of a batch.
    await broker.transactions.acknowledge(opened.stamp, topic.streams[0], "s", 0, [(0, 5)])
    subscription.hold(producer, 0, [(0, [(0, 5)])])
    if joins != "before":
        subscription.leave(client.member)
        client = _Client()
        subscription.join(client.member, type)
        subscription.flow(client.member, 100)
        for _ in range(20):
            await asyncio.sleep(0)
        assert client.deliveries.empty()
    await broker.transactions.end(opened.stamp, commit=False)
    assert await client.next() == [(1, 5)]
    await broker.close()

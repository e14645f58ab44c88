"""Two brokers that both take themselves for the one that serves a topic's Pulsar clients: only the later one does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import MessageEntry, MessageEntryReader, MessageRun
from mainstem.broker.subscriptions.subscription import Subscription, SubscriptionType
from mainstem.errors import ProducerFenced, SubscriptionMoved, SubscriptionNotFound
from mainstem.log.write.append import promise
from mainstem.records.building import build_batch
from tests.support.cluster import brokers_here

_TYPES = list(SubscriptionType)


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Broker]]:
    """Neither of them follows the other unless something makes it."""
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.commits.BUCKET_POLL_S", 3_600.0)
    async with brokers_here(tmp_path, "one", "two") as brokers:
        await brokers[0].create_topic("t")
        await brokers[0].append_values("t", [b"%d" % number for number in range(6)])
        await brokers[1].barrier()
        yield brokers


class _Client:
    writable = True

    def __init__(self) -> None:
        self.got: list[int] = []
        self.disconnected = asyncio.Event()
        self.news = asyncio.Event()
        self.member = SubscriptionConsumer(self, "c")

    def deliver(self, entry: MessageEntry, redeliveries: int, unacked: list[tuple[int, int]] | None) -> None:
        self._take(entry.base, entry.end)

    def deliver_run(self, run: MessageRun, redeliveries: int) -> None:
        self._take(run.base, run.end)

    def _take(self, first: int, end: int) -> None:
        assert not self.disconnected.is_set(), "a broker that was replaced delivers"
        self.got += range(first, end)
        self.news.set()

    def active_changed(self, active: bool) -> None: ...

    def reached_end(self) -> None: ...

    def disconnect(self) -> None:
        self.disconnected.set()

    async def has(self, count: int) -> None:
        while len(self.got) < count:
            await asyncio.wait_for(self.news.wait(), 30)
            self.news.clear()


async def _consume(broker: Broker, type: SubscriptionType, permits: int = 3) -> tuple[Subscription, _Client]:
    topic = broker.streams.get("t")
    assert topic is not None
    opened = await broker.subscriptions.open(topic, -1, "s", start=0)
    client = _Client()
    opened.join(client.member, type)
    opened.flow(client.member, permits)
    await client.has(3)
    return opened, client


def _marks(broker: Broker) -> list[int]:
    topic = broker.streams.get("t")
    assert topic is not None
    return [mark for _, mark in broker.subscriptions.marks(stream_of(topic, 0))]


@pytest.mark.parametrize("type", _TYPES)
async def test_a_broker_that_was_replaced_acknowledges_and_delivers_nothing_more(
    two: list[Broker], type: SubscriptionType
) -> None:
    one, other = two
    before, first = await _consume(one, type)
    await before.ack([(0, [(0, 1)])])
    await other.barrier()
    after, second = await _consume(other, type)
    assert second.got == [1, 2, 3]  # what was not acknowledged before
    with pytest.raises(SubscriptionMoved):  # the first broker does not know yet
        await before.ack([(1, [(1, 2)])])
    await asyncio.wait_for(first.disconnected.wait(), 30)
    before.flow(first.member, 100)
    assert first.got == [0, 1, 2]
    await after.ack([(1, [(1, 2)])])
    await one.barrier()
    assert (_marks(one), _marks(other)) == ([2], [2])
    again, third = await _consume(one, type)  # it takes over again, from where the other one came to
    assert third.got == [2, 3, 4]
    with pytest.raises(SubscriptionMoved):
        await after.ack([(2, [(2, 3)])])
    await again.ack([(2, [(2, 3)])])


@pytest.mark.parametrize("type", _TYPES)
async def test_a_broker_that_is_replaced_while_it_reads_delivers_nothing_more(
    two: list[Broker], type: SubscriptionType
) -> None:
    one, other = two
    before, first = await _consume(one, type, permits=6)
    await first.has(6)
    reads, gate = asyncio.Event(), asyncio.Event()

    class Slow(MessageEntryReader):
        async def _read(self, *args: Any, **options: Any) -> tuple[bool, int]:
            found = await super()._read(*args, **options)
            if found[0]:
                reads.set()
                await gate.wait()
            return found

    before.reader = Slow(one.streams, before.stream)
    before.flow(first.member, 100)
    await one.append_values("t", [b"6", b"7"])
    await asyncio.wait_for(reads.wait(), 30)
    await other.barrier()
    await _consume(other, type)
    await one.barrier()
    gate.set()
    await asyncio.wait_for(first.disconnected.wait(), 30)
    assert first.got == [0, 1, 2, 3, 4, 5]


async def test_a_reset_at_any_broker_reaches_the_one_that_serves_the_subscription(two: list[Broker]) -> None:
    one, other = two
    before, first = await _consume(one, SubscriptionType.SHARED)
    await before.ack([(0, [(0, 3)])])
    await other.barrier()
    topic = other.streams.get("t")
    assert topic is not None
    await other.subscriptions.move(topic, 0, "s", 1)
    await one.barrier()
    await asyncio.wait_for(first.disconnected.wait(), 30)
    _, second = await _consume(one, SubscriptionType.SHARED)
    assert second.got == [1, 2, 3]


async def test_a_subscription_that_another_broker_deletes_ends_here(two: list[Broker]) -> None:
    one, other = two
    before, first = await _consume(one, SubscriptionType.SHARED)
    await other.barrier()
    topic = other.streams.get("t")
    assert topic is not None
    await other.subscriptions.delete(topic, 0, "s")
    await one.barrier()
    await asyncio.wait_for(first.disconnected.wait(), 30)
    with pytest.raises(SubscriptionNotFound):
        await before.ack([(0, [(0, 3)])])
    await other.subscriptions.create(topic, 0, "s", 5)
    await one.barrier()
    assert one.subscriptions.next_unacked(before.stream, "s") == 5
    await other.subscriptions.delete(topic, 0, "s")
    await one.barrier()
    # Or a consumer that creates it again would not begin where it asks to.
    assert not one.subscriptions.exists(before.stream, "s")
    _, second = await _consume(one, SubscriptionType.SHARED)
    assert second.got == [0, 1, 2]


async def test_an_exclusive_producer_that_was_replaced_at_another_broker_appends_nothing(
    two: list[Broker],
) -> None:
    one, other = two

    async def append(broker: Broker, epoch: int) -> int:
        topic = broker.streams.get("t")
        assert topic is not None
        done = promise()
        broker.appends.batches(topic, 0, build_batch([b"v"], timestamps_ms=1), done, epoch=epoch)
        return (await done)[0]

    stream = stream_of(one.streams.get("t"), 0)  # type: ignore[arg-type]
    await one.exclusive_producers.take(stream, 1, resumes=False)
    assert await append(one, 1) == 6
    with pytest.raises(ProducerFenced):  # it did not know of the first
        await other.exclusive_producers.take(stream, 1, resumes=False)
    await other.exclusive_producers.take(stream, 2, resumes=False)
    with pytest.raises(ProducerFenced):
        await append(one, 1)
    assert await append(other, 2) == 7

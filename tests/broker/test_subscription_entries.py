"""Entries of records whose places a client of another door copied: a false place neither hides nor repeats a record."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.streams import stream_of
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import MESSAGE_HEADER, MessageEntry, MessageEntryReader, MessageRun
from mainstem.broker.subscriptions.subscription import SubscriptionType

_Place = tuple[int, int]  # index and count in an entry, as the header of a record says


@asynccontextmanager
async def _opened(tmp_path: Path) -> AsyncIterator[Broker]:
    """With a topic."""
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    await broker.create_topic("t")
    yield broker
    await broker.close()


def _headers(place: _Place | None) -> list[tuple[str, bytes | None]]:
    return [] if place is None else [(MESSAGE_HEADER, bytes(place))]


async def _append(broker: Broker, places: list[_Place | None], size: int) -> None:
    """One batch."""
    await broker.append_values("t", [b"v" * size] * len(places), headers=[_headers(one) for one in places])


def _borders(places: list[_Place | None]) -> list[tuple[int, int]]:
    """Base and end of each entry, by the rule: a place counts unless another entry has a record in its range."""
    claims = [None if one is None or one[0] > at else (at - one[0], one[1]) for at, one in enumerate(places)]
    found = []
    for at, claim in enumerate(claims):
        base, end = (at, at + 1) if claim is None else (claim[0], sum(claim))
        if end > len(claims) or any(one != claim for one in claims[base:end]):
            base, end = at, at + 1
        if (base, end) not in found:
            found.append((base, end))
    return found


@pytest.mark.parametrize("seed", range(30))
async def test_entries_do_not_depend_on_where_reading_begins(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    size = chance.choice((1, 400))  # read in Python, or by kernels if they are loaded
    places: list[_Place | None] = []
    async with _opened(tmp_path) as broker:
        while len(places) < 60:
            count = chance.randrange(1, 5)
            batch: list[_Place | None] = [(at, count) for at in range(count)]
            if chance.random() < 0.4:  # a part of it, among other records
                batch = [one for one in batch if chance.random() < 0.6]
            if chance.random() < 0.4:
                batch.insert(chance.randrange(len(batch) + 1), None)
            if batch:
                await _append(broker, batch, size)
                places += batch
        wanted = _borders(places)
        reader = MessageEntryReader(broker.streams, stream_of(broker.topic("t"), 0))
        for start in range(len(places)):
            for most in (1, 1_000, 1 << 20):
                found, at = [], start
                while at < len(places):
                    entries, reached = await reader.read(at, most)
                    assert reached > at, "reading does not go on"
                    found += [(one.base, one.end) for one in entries]
                    at = reached
                assert found == [one for one in wanted if one[1] > start]


class _Client:
    writable = True

    def __init__(self) -> None:
        self.got: list[bytes | None] = []
        self.bases: list[int] = []
        self.news = asyncio.Event()
        self.member = SubscriptionConsumer(self, "c")

    def deliver(self, entry: MessageEntry, redeliveries: int, unacked: list[tuple[int, int]] | None) -> None:
        self.bases.append(entry.base)
        self.got += [record.value for record in entry.records]
        self.news.set()

    async def has(self, value: bytes) -> None:
        while value not in self.got:
            await asyncio.wait_for(self.news.wait(), 5)
            self.news.clear()

    def deliver_run(self, run: MessageRun, redeliveries: int) -> None:
        raise AssertionError("so few records come one by one")

    def active_changed(self, active: bool) -> None: ...

    def reached_end(self) -> None: ...

    def disconnect(self) -> None: ...


@pytest.mark.parametrize("type", list(SubscriptionType))
async def test_a_record_with_a_copied_place_is_delivered_once_and_acknowledged_alone(
    tmp_path: Path, type: SubscriptionType
) -> None:
    """As a Kafka application leaves them that passes on some of the records of a Pulsar batch."""
    async with _opened(tmp_path) as broker:
        values = [b"0", b"1", b"2", b"3"]
        headers = [[], [], [], _headers((2, 5))]
        await broker.append_values("t", values, headers=headers)
        subscription = await broker.subscriptions.open(broker.topic("t"), -1, "s", start=0)
        client = _Client()
        subscription.join(client.member, type)
        subscription.flow(client.member, 100)
        await client.has(b"3")
        await broker.append_values("t", [b"4"])
        await client.has(b"4")
        assert client.got == [*values, b"4"]
        assert client.bases == [0, 1, 2, 3, 4]
        counted = subscription.count_at(1)
        assert counted is not None
        await subscription.ack([(1, [(1, 1 + counted)])])
        assert list(subscription.acked) == [(1, 2)]

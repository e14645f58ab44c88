"""Delivery of subscriptions, against consumers that come, go, acknowledge and return entries at random."""

from __future__ import annotations

import asyncio
import random
from typing import cast

import numpy as np
import pytest

from mainstem.broker.subscriptions.acks import Acks
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import Delivery, MessageEntry, MessageEntryReader, MessageRun
from mainstem.broker.subscriptions.hashing import murmur3
from mainstem.broker.subscriptions.subscription import Subscription, SubscriptionType
from mainstem.errors import InvalidInput, LimitReached, SubscriptionBusy
from mainstem.ledger.subscriptions import AckedRecords
from mainstem.log.log import Log
from mainstem.records.decoding import StoredRecord


class _Entries:
    """A stream of single records with keys."""

    def __init__(self, keys: list[bytes], run_entries: int) -> None:
        self.keys = keys
        self.run_entries = run_entries  # 0: all records come one by one
        self.deliver_at: dict[int, int] = {}

    async def read(self, offset: int, max_bytes: int = 0) -> tuple[list[MessageEntry], int]:
        await asyncio.sleep(0)
        entries = []
        for at in range(offset, min(offset + 16, len(self.keys))):
            entry = MessageEntry(at, 1, batched=False)
            headers = ()
            entry.add(StoredRecord(at, 0, self.keys[at], b"v", headers))
            entry.deliver_at_ms = self.deliver_at.get(at, 0)
            entries.append(entry)
        return entries, min(offset + 16, len(self.keys)) if entries else offset

    async def read_runs(self, offset: int, max_bytes: int = 0) -> tuple[list[Delivery], int]:
        entries, reached = await self.read(offset, max_bytes)
        found: list[Delivery] = []
        while entries:
            count = self.run_entries if entries[0].base % 7 else 0  # some come one by one in any case
            if count and not self.deliver_at:
                run = MessageRun(entries[0].base, np.empty(0, np.uint8), np.zeros(len(entries) + 1, np.int64))
                found.append(run.cut(run.base, run.base + min(count, run.count)))
            else:
                count = 1
                found.append(entries[0])
            del entries[:count]
        return found, reached


class _Client:
    """A consumer's client: remembers what it holds."""

    writable = True

    def __init__(self, stage: _Stage, name: str, ranges: tuple[tuple[int, int], ...] | None = None) -> None:
        self.stage = stage
        self.held: dict[int, bytes | None] = {}
        self.active: list[bool] = []
        self.member = SubscriptionConsumer(self, name, ranges=ranges)

    def deliver(self, entry: MessageEntry, redeliveries: int, unacked: list[tuple[int, int]] | None) -> None:
        self.held[entry.base] = entry.sticky_key
        self.stage.delivered(self, entry, redeliveries)

    def deliver_run(self, run: MessageRun, redeliveries: int) -> None:
        for base in range(run.base, run.end):
            entry = MessageEntry(base, 1, batched=False)
            entry.add(StoredRecord(base, 0, self.stage.entries.keys[base], b"v", ()))
            self.deliver(entry, redeliveries, None)

    def active_changed(self, active: bool) -> None:
        self.active.append(active)

    def reached_end(self) -> None: ...

    def disconnect(self) -> None: ...


class _Stage:
    def __init__(self, keys: list[bytes], type: SubscriptionType, run_entries: int = 0) -> None:
        self.type = type
        self.now_ms = 1_000
        self.entries = _Entries(keys, run_entries)
        self.acked = AckedRecords(0)
        acks = Acks(cast("Log", None), 0, "s", self.acked)
        self.subscription = Subscription(
            "s",
            0,
            -1,
            self.acked,
            acks,
            cast("MessageEntryReader", self.entries),
            lambda: self.now_ms,
            None,
        )
        self.clients: list[_Client] = []
        self.order: dict[bytes | None, list[int]] = {}  # first deliveries by key
        self.counts: dict[int, int] = {}
        self.redeliveries: dict[int, int] = {}  # as consumers see them: forgotten when the last one leaves

    def join(
        self, name: str, permits: int = 1_000, ranges: tuple[tuple[int, int], ...] | None = None
    ) -> _Client:
        client = _Client(self, name, ranges)
        self.subscription.join(client.member, self.type)
        self.clients.append(client)
        self.subscription.flow(client.member, permits)
        return client

    def leave(self, client: _Client) -> None:
        self.clients.remove(client)
        self.subscription.leave(client.member)
        client.held.clear()
        if not self.clients:
            self.redeliveries.clear()

    def ack(self, client: _Client, base: int) -> None:
        del client.held[base]
        self.subscription.ack([(base, [(base, base + 1)])])

    def ack_singles(self, client: _Client, first: int, end: int) -> None:
        """As `ack`, if they are parts of runs."""
        if self.subscription.ack_singles([(first, end)]) is not None:
            for base in range(first, end):
                del client.held[base]

    def delivered(self, client: _Client, entry: MessageEntry, redeliveries: int) -> None:
        assert entry.base not in self.acked, "an acknowledged record came again"
        times = self.counts[entry.base] = self.counts.get(entry.base, 0) + 1
        if self.type is not SubscriptionType.EXCLUSIVE:
            assert redeliveries == self.redeliveries.get(entry.base, 0)
        self.redeliveries[entry.base] = redeliveries + 1
        for other in self.clients:
            if other is not client:
                assert entry.base not in other.held, "two consumers hold one record"
                if self.type is SubscriptionType.KEY_SHARED:
                    assert entry.sticky_key not in other.held.values(), "two consumers hold one key"
        if times == 1:
            self.order.setdefault(entry.sticky_key, []).append(entry.base)

    async def settle(self) -> None:
        for _ in range(40):
            await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("type", "run_entries"),
    [(SubscriptionType.SHARED, 0), (SubscriptionType.SHARED, 5), (SubscriptionType.KEY_SHARED, 0)],
)
async def test_random_consumers_get_every_record_once_acknowledged(
    type: SubscriptionType, run_entries: int, seed: int
) -> None:
    chance = random.Random(seed)
    stage = _Stage([b"k%d" % chance.randrange(6) for _ in range(200)], type, run_entries)
    for number in range(400):
        await asyncio.sleep(0)
        roll = chance.random()
        if (len(stage.clients) < 4 and roll < 0.1) or not stage.clients:
            stage.join(f"c{number}", permits=chance.randrange(1, 8))
            continue
        client = chance.choice(stage.clients)
        if roll < 0.16:
            stage.leave(client)
        elif roll < 0.3:
            stage.subscription.flow(client.member, chance.randrange(1, 6))
        elif client.held:
            base = chance.choice(sorted(client.held))
            end = base + 1
            while end in client.held:
                end += 1
            if roll < 0.4:
                del client.held[base]
                stage.subscription.redeliver(client.member, [base])
            elif roll < 0.6:
                stage.ack_singles(client, base, end)
            else:
                stage.ack(client, base)
        held = sum(len(client.held) for client in stage.clients)
        assert held == stage.subscription.unacked == sum(client.member.unacked for client in stage.clients)
    last = stage.join("last", permits=100_000)
    for client in [one for one in stage.clients if one is not last]:
        stage.leave(client)
    while stage.acked.mark < 200:
        await stage.settle()
        assert last.held, f"nothing is delivered after offset {stage.acked.mark}"
        for base in sorted(last.held):
            stage.ack(last, base)
    assert (stage.subscription.unacked, last.member.unacked) == (0, 0)
    if type is SubscriptionType.KEY_SHARED:
        assert all(order == sorted(order) for order in stage.order.values())
    await stage.subscription.close()


async def test_a_new_consumer_waits_until_the_records_of_a_key_are_settled() -> None:
    stage = _Stage([b"k%d" % (at % 20) for at in range(40)], SubscriptionType.KEY_SHARED)
    first = stage.join("first", permits=20)
    await stage.settle()
    assert len(first.held) == 20
    second = stage.join("second", permits=100)
    stage.subscription.flow(first.member, 100)
    await stage.settle()
    assert not second.held
    for base in list(first.held):
        if base < 20:
            stage.ack(first, base)
    await stage.settle()
    assert second.held
    await stage.subscription.close()


@pytest.mark.parametrize("returned", [False, True])
async def test_a_consumer_that_leaves_while_it_is_served_does_not_break_the_order_of_a_key(
    *, returned: bool
) -> None:
    """As one does whose client lost its rights."""
    stage = _Stage([b"k"] * 10, SubscriptionType.KEY_SHARED)
    stage.delivered = lambda *_: None  # type: ignore[method-assign]
    if returned:  # they are delivered again
        before = stage.join("before")
        await stage.settle()
        assert len(before.held) == 10
    clients = [stage.join("a"), stage.join("b")]
    got: list[int] = []

    def leave(client: _Client, entry: MessageEntry) -> None:
        if len(stage.clients) == 2:
            stage.leave(client)
        else:
            got.append(entry.base)

    for client in clients:
        client.deliver = lambda entry, *_, client=client: leave(client, entry)  # type: ignore[method-assign]
    if returned:
        stage.leave(before)
    await stage.settle()
    assert got == list(range(10))
    await stage.subscription.close()


async def test_nothing_that_was_read_stays_in_memory_once_the_last_consumer_is_gone() -> None:
    stage = _Stage([b"k"] * 4, SubscriptionType.SHARED)
    stage.entries.deliver_at = dict.fromkeys(range(4), 5_000)
    stage.join("a")
    await stage.settle()
    assert stage.subscription.delayed == 4
    stage.leave(stage.clients[0])
    assert stage.subscription.delayed == 0
    stage.now_ms = 6_000
    client = stage.join("b")
    await stage.settle()
    assert sorted(client.held) == [0, 1, 2, 3]
    await stage.subscription.close()


async def test_what_a_reader_acknowledges_out_of_order_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.broker.subscriptions.acks.ACKED_RANGES_MAX", 3, raising=False)
    stage = _Stage([b"k"] * 12, SubscriptionType.EXCLUSIVE)
    stage.delivered = lambda *_: None  # type: ignore[method-assign]
    stage.join("a")
    await stage.settle()
    for base in (1, 3, 5):
        await stage.subscription.ack([(base, [(base, base + 1)])])
    with pytest.raises(LimitReached):
        await stage.subscription.ack([(7, [(7, 8)])])
    await stage.subscription.ack([(0, [(0, 1)])])
    assert (stage.acked.mark, list(stage.acked)) == (2, [(3, 4), (5, 6)])
    await stage.subscription.ack([(7, [(7, 8)])])
    await stage.subscription.close()


async def test_records_without_a_key_are_divided_among_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = _Stage([b""] * 40, SubscriptionType.KEY_SHARED)
    monkeypatch.setattr(stage, "delivered", lambda *_: None)  # they have no order
    consumers = [stage.join(name, permits=100) for name in ("first", "second")]
    await stage.settle()
    assert sorted(base for one in consumers for base in one.held) == list(range(40))
    assert all(one.held for one in consumers)
    await stage.subscription.close()


@pytest.mark.parametrize("run_entries", [0, 4])
async def test_failover_delivers_in_order_and_again_after_a_change(run_entries: int) -> None:
    stage = _Stage([b"k"] * 10, SubscriptionType.FAILOVER, run_entries)
    stage.delivered = lambda *_: None  # type: ignore[method-assign]
    first, second = stage.join("a"), stage.join("b")
    await stage.settle()
    assert (sorted(first.held), second.held) == (list(range(10)), {})
    assert (first.active, second.active) == ([True], [False])
    for base in (0, 1, 5):
        stage.ack(first, base)
    stage.leave(first)
    await stage.settle()
    assert list(second.held) == [2, 3, 4, 6, 7, 8, 9]
    assert second.active == [False, True]
    await stage.subscription.close()


async def test_what_is_left_of_a_run_is_not_delivered_before_what_its_consumer_returned() -> None:
    stage = _Stage([b"k"] * 10, SubscriptionType.FAILOVER, run_entries=8)
    stage.delivered = lambda *_: None  # type: ignore[method-assign]
    first, second = stage.join("a", permits=3), stage.join("b")

    def leave(*_: object) -> None:
        stage.subscription.ack([(4, [(4, 5)])])
        stage.leave(first)

    first.deliver_run = leave  # type: ignore[method-assign]
    await stage.settle()
    assert list(second.held) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    await stage.subscription.close()


async def test_delayed_records_come_when_they_are_due() -> None:
    stage = _Stage([b"k"] * 4, SubscriptionType.SHARED)
    stage.entries.deliver_at = {1: 5_000, 2: 3_000}
    client = stage.join("a")
    await stage.settle()
    assert list(client.held) == [0, 3]
    stage.now_ms = 6_000
    stage.subscription.changed()
    await stage.settle()
    assert sorted(client.held) == [0, 1, 2, 3]
    await stage.subscription.close()


async def test_exclusive_and_sticky_consumers_are_refused_where_they_collide() -> None:
    stage = _Stage([], SubscriptionType.EXCLUSIVE)
    stage.join("a")
    with pytest.raises(SubscriptionBusy):
        stage.join("b")
    await stage.subscription.close()
    stage = _Stage([b"k"], SubscriptionType.KEY_SHARED)
    stage.join("a", ranges=((0, 100),))
    many = tuple((slot, slot) for slot in range(1_000, 3_000))
    for ranges in (((100, 200),), None, ((0, 70_000),), many):
        with pytest.raises(InvalidInput):
            stage.join("b", ranges=ranges)
    await stage.subscription.close()


async def test_a_consumer_gets_no_more_than_it_has_room_for() -> None:
    stage = _Stage([b"k"] * 50, SubscriptionType.SHARED)
    client = stage.join("a", permits=7)
    await stage.settle()
    assert len(client.held) == 7
    client.writable = False
    stage.subscription.flow(client.member, 10)
    await stage.settle()
    assert len(client.held) == 7
    await stage.subscription.close()


def test_the_hash_of_keys_is_the_one_that_clients_use() -> None:
    # MurmurHash3 x86 32, seed 0: published values, without the sign bit.
    assert murmur3(b"") == 0
    assert murmur3(b"test") == 0xBA6BD213 & 0x7FFFFFFF
    assert murmur3(b"Hello, world!") == 0xC0363E43 & 0x7FFFFFFF

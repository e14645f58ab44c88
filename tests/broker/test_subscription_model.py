"""Shared and Key_Shared subscriptions against a model: consumers join, leave, acknowledge and return at random.

Entries have one or several records, and acknowledgements may name some of them. The server may be killed: a new
subscription begins with what was acknowledged. Each delivery is checked when it happens.
"""

from __future__ import annotations

import asyncio
import random
from typing import cast

import pytest

from mainstem.broker.subscriptions.acks import Acks
from mainstem.broker.subscriptions.consumer import SubscriptionConsumer
from mainstem.broker.subscriptions.entries import Delivery, MessageEntry, MessageEntryReader, MessageRun
from mainstem.broker.subscriptions.subscription import Subscription, SubscriptionType
from mainstem.ledger.subscriptions import AckedRecords, Range
from mainstem.log.log import Log
from mainstem.records.decoding import StoredRecord

_ENTRIES, _KEYS, _STEPS = 120, 5, 300
_READ_ENTRIES = 6


class _Stored:
    """The entries of a stream. Each read takes a while, as reads of files do."""

    def __init__(self, chance: random.Random) -> None:
        self.counts: dict[int, int] = {}  # by base
        self.keys: dict[int, bytes] = {}
        at = 0
        for _ in range(_ENTRIES):
            self.counts[at] = chance.choice((1, 1, 1, 2, 4))
            self.keys[at] = b"k%d" % chance.randrange(_KEYS)
            at += self.counts[at]
        self.end = at

    async def read(self, offset: int, max_bytes: int = 0) -> tuple[list[MessageEntry], int]:
        for _ in range(3):
            await asyncio.sleep(0)
        bases = [base for base, count in self.counts.items() if base + count > offset][:_READ_ENTRIES]
        entries = [self._entry(base) for base in bases]
        return entries, entries[-1].end if entries else offset

    async def read_runs(self, offset: int, max_bytes: int = 0) -> tuple[list[Delivery], int]:
        entries, reached = await self.read(offset, max_bytes)
        return list(entries), reached

    def _entry(self, base: int) -> MessageEntry:
        count = self.counts[base]
        entry = MessageEntry(base, count, batched=count > 1)
        for offset in range(base, base + count):
            entry.add(StoredRecord(offset, 0, self.keys[base], b"v", ()))
        return entry


class _Client:
    writable = True

    def __init__(self, model: _Model, name: str, priority: int) -> None:
        self.model = model
        self.held: dict[int, set[int]] = {}  # by base: the records that are not acknowledged
        self.room = 0
        self.member = SubscriptionConsumer(self, name, priority=priority)

    @property
    def unacked(self) -> int:
        return sum(map(len, self.held.values()))

    @property
    def takes_more(self) -> bool:
        return self.room > 0 and self.unacked < self.member.unacked_max

    def deliver(self, entry: MessageEntry, redeliveries: int, unacked: list[Range] | None) -> None:
        try:
            self.model.delivered(self, entry, redeliveries, unacked)
        except AssertionError as failure:  # the subscription would only log it
            self.model.failure = self.model.failure or failure
            raise

    def deliver_run(self, run: MessageRun, redeliveries: int) -> None:
        raise AssertionError("these entries come one by one")

    def active_changed(self, active: bool) -> None:
        raise AssertionError("shared subscriptions have no active consumer")

    def reached_end(self) -> None: ...

    def disconnect(self) -> None: ...


class _Model:
    def __init__(self, type: SubscriptionType, chance: random.Random) -> None:
        self.type = type
        self.stored = _Stored(chance)
        self.acked = AckedRecords(0)
        self.clients: list[_Client] = []
        self.returned: dict[int, int] = {}  # how often, by base
        self.unacked_max = 0
        self.failure: AssertionError | None = None
        self.subscription = self._begin()

    def _begin(self) -> Subscription:
        acks = Acks(cast("Log", None), 0, "s", self.acked)
        reader = cast("MessageEntryReader", self.stored)
        return Subscription("s", 0, -1, self.acked, acks, reader, lambda: 1_000, None)

    async def kill(self) -> None:
        """Nothing is left but what was acknowledged."""
        await self.subscription.close()
        self.clients.clear()
        self.returned.clear()
        self.subscription = self._begin()
        self.subscription.unacked_max = self.unacked_max

    def join(self, name: str, room: int, priority: int = 0, unacked_max: int = 1_000) -> _Client:
        client = _Client(self, name, priority)
        client.member.unacked_max = unacked_max
        self.clients.append(client)
        self.subscription.join(client.member, self.type)
        self.flow(client, room)
        return client

    def flow(self, client: _Client, room: int) -> None:
        client.room += room
        self.subscription.flow(client.member, room)

    def leave(self, client: _Client) -> None:
        self.clients.remove(client)
        for base in client.held:
            self.returned[base] = self.returned.get(base, 0) + 1
        client.held.clear()
        if not self.clients:
            self.returned.clear()
        self.subscription.leave(client.member)

    def give_back(self, client: _Client, base: int) -> None:
        del client.held[base]
        self.returned[base] = self.returned.get(base, 0) + 1
        self.subscription.redeliver(client.member, [base])

    def acknowledge(self, client: _Client, base: int, offsets: set[int]) -> None:
        client.held[base] -= offsets
        if not client.held[base]:
            del client.held[base]
            self.returned.pop(base, None)
        self.subscription.ack([(base, [(offset, offset + 1) for offset in sorted(offsets)])])

    def left(self, base: int) -> set[int]:
        """The records of an entry that are not acknowledged."""
        return {at for at in range(base, base + self.stored.counts[base]) if at not in self.acked}

    def delivered(
        self, client: _Client, entry: MessageEntry, redeliveries: int, unacked: list[Range] | None
    ) -> None:
        base, left = entry.base, self.left(entry.base)
        shown = (
            set(range(base, entry.end)) if unacked is None else {at for one in unacked for at in range(*one)}
        )
        assert left, "an acknowledged entry came again"
        assert shown == left, "other records are said to be left than those that are not acknowledged"
        assert client in self.clients, "a consumer that left got an entry"
        assert client.takes_more, "a consumer got more than it takes"
        assert not any(base in one.held for one in self.clients), "two consumers hold an entry"
        assert redeliveries == self.returned.get(base, 0)
        if self.unacked_max and not redeliveries:
            assert sum(one.unacked for one in self.clients) < self.unacked_max
        if self.type is SubscriptionType.SHARED:
            better = [one for one in self.clients if one.member.priority < client.member.priority]
            assert not any(one.takes_more for one in better), "a consumer of a better priority takes more"
        else:
            self._check_key(client, base)
        client.held[base] = left
        client.room -= entry.count

    def _check_key(self, client: _Client, base: int) -> None:
        """Whatever came before with that key is acknowledged, or with the same consumer."""
        for earlier, key in self.stored.keys.items():
            if key == self.stored.keys[base] and earlier < base and self.left(earlier):
                assert earlier in client.held, f"{base} came before {earlier}, which has the same key"
        for other in self.clients:
            if other is not client:
                assert self.stored.keys[base] not in {self.stored.keys[one] for one in other.held}

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure
        held = sum(len(client.held) for client in self.clients)
        assert held == self.subscription.unacked
        assert all(client.unacked == client.member.unacked for client in self.clients)
        assert all(client.room == client.member.permits for client in self.clients)

    def step(self, chance: random.Random, number: int) -> None:
        roll = chance.random()
        if not self.clients or (len(self.clients) < 4 and roll < 0.12):
            room, priority = chance.randrange(1, 12), chance.choice((0, 0, 1))
            if self.type is SubscriptionType.KEY_SHARED:
                priority = 0
            self.join(f"c{number}", room, priority, chance.choice((3, 1_000)))
            return
        client = chance.choice(self.clients)
        if roll < 0.2:
            self.leave(client)
        elif roll < 0.45:
            self.flow(client, chance.randrange(1, 8))
        elif client.held:
            base = chance.choice(sorted(client.held))
            if roll < 0.55:
                self.give_back(client, base)
            else:
                some = sorted(client.held[base])
                self.acknowledge(client, base, {*chance.sample(some, chance.randint(1, len(some)))})


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("type", [SubscriptionType.SHARED, SubscriptionType.KEY_SHARED])
async def test_every_delivery_is_one_that_the_model_allows(type: SubscriptionType, seed: int) -> None:
    chance = random.Random(seed)
    model = _Model(type, chance)
    if type is SubscriptionType.SHARED:
        model.unacked_max = model.subscription.unacked_max = chance.choice((0, 9))
    for number in range(_STEPS):
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if chance.random() < 0.01:
            await model.kill()
        model.step(chance, number)
        model.check()
    model.unacked_max = model.subscription.unacked_max = 0
    last = model.join("last", room=100_000, unacked_max=100_000)
    for client in [one for one in model.clients if one is not last]:
        model.leave(client)
    for _ in range(10_000):
        await asyncio.sleep(0)
        for base in sorted(last.held):
            model.acknowledge(last, base, set(last.held[base]))
        model.check()
        if model.acked.mark == model.stored.end:
            break
    assert model.acked.mark == model.stored.end
    assert (model.subscription.unacked, last.member.unacked) == (0, 0)
    await model.subscription.close()

"""A power loss at any call that changes the disk: no transaction is visible in part, or against its outcome."""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.transactions.service import ProducerStamp
from mainstem.errors import MainstemError, RecordsLost
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from tests.support.batches import placed_in_line
from tests.support.files import Policy, SimulatedCrash
from tests.support.lanes import step_instead_of_threads
from tests.support.machine import Machine

pytestmark = pytest.mark.slow

_ROUNDS = 16
_POINTS = 30
_SEED = 11
_PLACES = [("synced", 0), ("synced", 1), ("relaxed", 0)]

Place = tuple[str, int]


@dataclass
class Intent:
    """One transaction: what it wrote where, and what is known of its end."""

    values: dict[Place, list[bytes]] = field(default_factory=dict)
    outcome: str = "open"  # open, aborting, committing, committed


@dataclass
class Story:
    intents: list[Intent] = field(default_factory=list)
    seen: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    count: int = 0

    async def look(self, broker: Broker) -> None:
        """Read everything: what was read before is still there, and nothing forbidden is."""
        for place in _PLACES:
            topic, partition = place
            if broker.log.ledger.topics.get(topic) is None:
                continue
            now = await read_all(broker, topic, partition)
            known = self.seen.get(place, {})
            assert known.items() <= now.items(), f"{place} changed"
            self.seen[place] = now
        # Records behind an open transaction are hidden, so all must be there only when none is open.
        settled = not list(broker.log.ledger.transactions.open())
        for intent in self.intents:
            self.check(intent, settled)

    def check(self, intent: Intent, settled: bool) -> None:
        found = {
            value in self.seen.get(place, {}).values()
            for place, values in intent.values.items()
            for value in values
        }
        if intent.outcome in ("open", "aborting"):
            assert found <= {False}, f"seen against its outcome: {intent}"
        if settled:
            assert len(found) <= 1, f"seen in part: {intent}"
        if settled and intent.outcome == "committed":
            assert found <= {True}, f"lost: {intent}"


async def read_all(broker: Broker, topic: str, partition: int) -> dict[int, bytes]:
    """Every record, by offset; skips what a relaxed topic lost."""
    found: dict[int, bytes] = {}
    at = 0
    while True:
        try:
            records = await broker.read(topic, at, partition=partition)
        except RecordsLost as loss:
            at = loss.end
            continue
        if not records:
            return found
        found |= {record.offset: record.value or b"" for record in records}
        at = records[-1].offset + 1


class Client:
    """`bumps`: it joins by writing, and continues with another epoch after each end."""

    def __init__(self, broker: Broker, story: Story, stamp: ProducerStamp, *, bumps: bool) -> None:
        self.broker = broker
        self.story = story
        self.stamp = stamp
        self.bumps = bumps
        self.sequences: dict[Place, int] = {}
        self.intent: Intent | None = None

    async def write(self, place: Place) -> None:
        if self.intent is None:
            self.intent = Intent()
            self.story.intents.append(self.intent)
        topic, partition = place
        if not self.bumps:
            stream = self.broker.streams.of(topic, partition)
            await self.broker.transactions.add_partitions(self.stamp, [stream])
        self.story.count += 1
        values = [f"{self.story.count}-{number}".encode() for number in range(2)]
        sequence = self.sequences.get(place, 0)
        self.sequences[place] = sequence + 2
        batch = build_batch(
            values,
            timestamps_ms=1_700_000_000_000,
            producer=self.stamp.producer,
            producer_epoch=self.stamp.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        joins = self.stamp.id if self.bumps else None
        await placed_in_line(self.broker, self.broker.streams.topic(topic), batch, partition, joins)
        self.intent.values.setdefault(place, []).extend(values)  # only what was acked must be there

    async def end(self, *, commit: bool) -> None:
        intent, self.intent = self.intent, None
        if intent is None:
            return
        intent.outcome = "committing" if commit else "aborting"
        before = self.stamp
        self.stamp = await self.broker.transactions.end(before, commit=commit, bump=self.bumps)
        intent.outcome = "committed" if commit else "aborting"
        if self.bumps:
            self.sequences.clear()
            assert await self.broker.transactions.end(before, commit=commit, bump=True) == self.stamp


async def work(machine: Machine, story: Story, seed: int, rounds: int) -> None:
    broker = await machine.open()
    await story.look(broker)
    randomness = random.Random(seed)
    for name, config, partitions in (
        ("synced", TopicConfig(), 2),
        ("relaxed", TopicConfig(durability="memory"), 1),
    ):
        await broker.create_topic(name, partitions=partitions, config=config, exist_ok=True)
    clients = []
    for id in ("a", "b"):
        started = await broker.transactions.initialise(id, 60_000)
        clients.append(Client(broker, story, ProducerStamp(id, *started), bumps=id == "b"))
    for _ in range(rounds):
        client = randomness.choice(clients)
        if randomness.random() < 0.3:
            await client.end(commit=randomness.random() < 0.6)
        else:
            await client.write(randomness.choice(_PLACES))
        if randomness.random() < 0.2:
            topic, partition = randomness.choice(_PLACES)
            await broker.append_values(topic, [b"plain"], partition=partition)
        await story.look(broker)
    for client in clients:
        await client.end(commit=True)
    await story.look(broker)


async def crashed(monkeypatch: pytest.MonkeyPatch, calls: int) -> tuple[Machine, Story]:
    step_instead_of_threads(monkeypatch, _SEED)
    machine, story = Machine(), Story()
    machine.files.crash_after(calls)
    with contextlib.suppress(SimulatedCrash, MainstemError):
        await work(machine, story, _SEED, _ROUNDS)
        await machine.restart()
        await machine.close()
    return machine, story


@pytest.mark.parametrize("policy", ["lost", "kept", "torn"])
async def test_a_power_cut_never_exposes_part_of_a_transaction(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 4)
    machine, story = await crashed(monkeypatch, 1 << 30)
    total = machine.files.calls
    assert sum(intent.outcome == "committed" for intent in story.intents) >= 2
    for point in sorted(random.Random(_SEED).sample(range(1, total + 1), _POINTS)):
        machine, story = await crashed(monkeypatch, point)
        await machine.crash(policy, point)
        # A power loss may lose what a relaxed topic acked, unless a commit was acked after it.
        if policy != "kept":
            story.seen.pop(("relaxed", 0), None)
            for intent in story.intents:
                if intent.outcome == "committing":
                    intent.values.pop(("relaxed", 0), None)
        await work(machine, story, point, 6)
        await machine.kill()
        await story.look(await machine.open())
        await story.look(await machine.restart())
        await machine.close()

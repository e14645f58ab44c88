"""Random calls, one after another, with restarts of every kind between them, compared with a model of dicts."""

from __future__ import annotations

import random

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.errors import TopicExists, TopicFull, TopicNotFound
from mainstem.ledger.config import Durability, TopicConfig
from mainstem.ledger.streams import DeleteRecords
from tests.support.machine import Machine
from tests.support.model import ModelTopic

pytestmark = pytest.mark.slow

_STEPS = 120
_CLASSES: tuple[Durability, ...] = ("fsync", "fsync", "disk", "memory", "ephemeral")


class Walk:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._machine = Machine(
            segment_bytes=self._random.choice((1024, 4096, 1 << 20)),
            checkpoint_every_bytes=self._random.choice((0, 10_000)),
            tail_cache_bytes=self._random.choice((0, 4096, 1 << 20)),
            prepare_ahead=self._random.random() < 0.5,
        )
        self._topics: dict[str, ModelTopic] = {}
        self._values = 0

    async def run(self, steps: int) -> None:
        broker = await self._machine.open()
        doings = {
            self._create: 2,
            self._delete: 1,
            self._append: 14,
            self._trim: 2,
            self._punch: 3,
            self._alter: 2,
            self._take: 4,
            self._commit: 2,
        }
        try:
            for _ in range(steps):
                if self._random.random() < 0.05:
                    broker = await self._restart()
                    continue
                (do,) = self._random.choices(list(doings), list(doings.values()))
                await do(broker)
            for topic in self._topics.values():
                await topic.check(broker)
        finally:
            await self._machine.kill()

    async def _restart(self) -> Broker:
        how = self._random.choice(("clean", "kill", "lost", "kept", "torn"))
        if how == "clean":
            broker = await self._machine.restart()
        elif how == "kill":
            await self._machine.kill()
            broker = await self._machine.open()
        else:
            await self._machine.lose_power(how, self._random.randrange(1000))  # type: ignore[arg-type]
            broker = await self._machine.open()
        assert {info.name for info in broker.topics()} == self._topics.keys()
        for topic in self._topics.values():
            if topic.ephemeral:
                topic.forget(broker)
            elif how in ("lost", "kept", "torn") and topic.config.relaxed:
                await topic.adopt(broker, torn=how == "torn")
            await topic.check(broker)
        return broker

    def _topic(self) -> ModelTopic | None:
        return self._random.choice(list(self._topics.values())) if self._topics else None

    def _config(self, durability: Durability) -> TopicConfig:
        cap = self._random.choice((0, 0, 0, 5, 20))
        discard = self._random.choice(("old", "old", "reject"))
        return TopicConfig(durability=durability, cap_records=cap, discard=discard)  # type: ignore[arg-type]

    async def _create(self, broker: Broker) -> None:
        name = f"topic-{self._random.randrange(6)}"
        config = self._config(self._random.choice(_CLASSES))
        if name in self._topics:
            with pytest.raises(TopicExists):
                await broker.create_topic(name, config=config)
            return
        await broker.create_topic(name, config=config)
        self._topics[name] = ModelTopic(name, config)

    async def _delete(self, broker: Broker) -> None:
        name = f"topic-{self._random.randrange(6)}"
        if name not in self._topics:
            with pytest.raises(TopicNotFound):
                await broker.delete_topic(name)
            return
        del self._topics[name]
        await broker.delete_topic(name)

    async def _append(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None:
            return
        values = []
        for _ in range(self._random.randint(1, 5)):
            self._values += 1
            values.append(b"%d" % self._values + b"." * self._random.choice((0, 10, 300)))
        if topic.full(len(values)):
            with pytest.raises(TopicFull):
                await broker.append_values(topic.name, values)
        else:
            topic.append((await broker.append_values(topic.name, values)).base_offset, values)
        await topic.check(broker)

    async def _trim(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None:
            return
        offset = self._random.randint(0, topic.end + 2)
        topic.trim(offset)
        assert await broker.trim(topic.name, offset) == topic.start
        await topic.check(broker)

    async def _punch(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None or topic.ephemeral or topic.start == topic.end:
            return
        start = self._random.randrange(topic.start, topic.end)
        end = start + self._random.randint(1, 6)
        topic.punch(start, end)
        stream = broker.topic(topic.name).streams[0]
        await broker.log.propose(DeleteRecords(stream, ((start, end),)))
        await topic.check(broker)

    async def _alter(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None:
            return
        lasting: tuple[Durability, ...] = ("fsync", "disk", "memory")
        config = self._config("ephemeral" if topic.ephemeral else self._random.choice(lasting))
        topic.alter(config)
        await broker.alter_topic(topic.name, config)
        await topic.check(broker)

    async def _take(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None or topic.ephemeral:
            return
        group, limit = self._random.choice("gh"), self._random.randint(1, 7)
        before = dict(topic.live)
        expected = topic.take(group, limit)
        taken = await broker.take(topic.name, group, limit=limit)
        assert [record.offset for record in taken] == expected
        assert [record.value for record in taken] == [before[offset] for offset in expected]

    async def _commit(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None:
            return
        group, offset = self._random.choice("gh"), self._random.randint(0, topic.end + 3)
        topic.cursors[group] = offset
        await broker.commit_offset(group, topic.name, offset)


async def test_a_broker_does_what_a_model_of_dicts_does(
    walk_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every replay compares its state with the earlier one.
    monkeypatch.setattr(limits, "DIGEST_EVERY_COMMITS", 4)
    await Walk(walk_seed).run(_STEPS)

"""A seeded workload on a broker: several callers at once, every answer noted in a history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from mainstem.broker.broker import Broker
from mainstem.errors import NotFound, OffsetOutOfRange, RecordsLost
from mainstem.ledger.config import Durability, TopicConfig
from mainstem.ledger.streams import DeleteRecords
from tests.support.history import History, TopicHistory

CLASSES: tuple[Durability, ...] = ("fsync", "disk", "memory", "ephemeral")


class Workload:
    def __init__(self, history: History, seed: int) -> None:
        self._history = history
        self._random = random.Random(seed)
        self._batches = 0
        self._life = len(history.lives)  # so that no two workloads write the same value
        history.lives.append(seed)

    async def run(self, broker: Broker, rounds: int) -> None:
        """Let all callers work at once. Raises what the first of them meets, once all have stopped."""
        callers: list[Callable[[Broker], Awaitable[None]]] = [
            self._append,
            self._append,
            self._append,
            self._read,
            self._trim,
            self._punch,
            self._move_cursor,
            self._delete,
        ]
        await self._make_missing(broker)
        for _ in range(rounds):
            chosen = [self._random.choice(callers) for _ in range(self._random.randint(1, 5))]
            results = await asyncio.gather(*(call(broker) for call in chosen), return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            if self._random.random() < 0.15:
                await self._make_missing(broker)

    async def _make_missing(self, broker: Broker) -> None:
        alive = {topic.durability for topic in self._history.topics if not topic.delete_wanted}
        for durability in CLASSES:
            if durability not in alive:
                await self._create(broker, durability)

    async def _create(self, broker: Broker, durability: Durability) -> None:
        topic = TopicHistory(f"{durability}-{len(self._history.topics)}", durability)
        self._history.topics.append(topic)
        made = await broker.create_topic(topic.name, config=TopicConfig(durability=durability))
        topic.create_done, topic.stream = True, made.streams[0]

    def _topic(self) -> TopicHistory | None:
        usable = [topic for topic in self._history.topics if topic.create_done and not topic.delete_wanted]
        return self._random.choice(usable) if usable else None

    async def _append(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None:
            return
        # Each batch is its own writer, so that batches in flight together may land in any order.
        self._batches += 1
        size = self._random.randint(1, 4)
        padding = "0" * self._random.choice((1, 40, 400))
        values = [f"{self._life}.{self._batches}:{padding}{i}".encode() for i in range(size)]
        topic.values.update(values)
        try:
            appended = await broker.append_values(topic.name, values)
        except NotFound:
            if not topic.delete_wanted:
                raise
            return
        topic.ack(appended.base_offset, values)

    async def _read(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None:
            return
        try:
            state = broker.partition(topic.name)
            at = self._random.randint(state.start, state.end)
            for record in await broker.read(topic.name, at):
                topic.see(record.offset, record.value or b"")
        except (OffsetOutOfRange, RecordsLost, NotFound):
            return  # trimmed, deleted or told lost meanwhile

    async def _trim(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None or not topic.seen_end or self._random.random() < 0.5:
            return
        offset = self._random.randint(0, topic.seen_end)
        topic.trim_wanted = max(topic.trim_wanted, offset)
        try:
            await broker.trim(topic.name, offset)
        except NotFound:
            return
        topic.trim_done = max(topic.trim_done, offset)

    async def _punch(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None or not topic.seen_end or topic.durability == "ephemeral":
            return
        start = self._random.randrange(topic.seen_end)
        end = min(start + self._random.randint(1, 4), topic.seen_end)
        topic.punch_wanted.update(range(start, end))
        try:
            await broker.log.propose(DeleteRecords(topic.stream, ((start, end),)))
        except NotFound:
            return
        topic.punch_done.update(range(start, end))

    async def _move_cursor(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None or topic.cursor_wanted - {topic.cursor_done}:
            return  # one commit at a time, so that the last one acknowledged is the last one applied
        offset = self._random.randint(0, topic.seen_end)
        topic.cursor_wanted.add(offset)
        try:
            await broker.commit_offset("group", topic.name, offset)
        except NotFound:
            return
        topic.cursor_done = offset
        topic.cursor_wanted.clear()

    async def _delete(self, broker: Broker) -> None:
        topic = self._topic()
        if topic is None or self._random.random() < 0.6:
            return
        topic.delete_wanted = True
        await broker.delete_topic(topic.name)
        topic.delete_done = True

"""A consumer group of one, over librdkafka: what it reads goes forward, and what it committed is kept."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tests.support.chaos.client import ChaosClient
from tests.support.chaos.notes import Notes, stream

_CALL_S = 10.0


class GroupReader(ChaosClient):
    def __init__(self, name: str, seed: int, notes: Notes, bootstrap: str, topics: list[str]) -> None:
        super().__init__(name, seed, notes)
        self._assignments = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        self._consumer.subscribe(topics, on_assign=self._assigned)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._assignments += 1  # it starts over where it committed: a reader of its own
        try:
            found = consumer.committed(partitions, _CALL_S)
        except KafkaException:
            return
        with self.notes as history:
            for one in found:
                if one.error is None:
                    history.cursor_fetched(self.name, stream(one.topic, one.partition), max(0, one.offset))

    def step(self) -> None:
        messages = [one for one in self._consumer.consume(200, 0.2) if one.error() is None]
        if not messages:
            return
        reader = f"{self.name}.{self._assignments}"
        with self.notes as history:
            for message in messages:
                history.read(reader, _stream(message), [(message.offset() or 0, message.value() or b"")])
        self.notes.count("read", len(messages))
        self.progress += 1
        if self.random.random() < 0.5:
            self._commit(messages)

    def finish(self) -> None:
        self._consumer.close()

    def _commit(self, messages: list[Message]) -> None:
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            ends[str(message.topic()), message.partition() or 0] = (message.offset() or 0) + 1
        with self.notes as history:
            for (topic, partition), end in ends.items():
                history.cursor_asked(self.name, stream(topic, partition), end)
        wanted = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        try:
            done = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return
        with self.notes as history:
            for one in done or ():
                if one.error is None:
                    history.cursor_committed(self.name, stream(one.topic, one.partition), one.offset)
        self.notes.count("cursors committed", len(ends))


def _stream(message: Any) -> str:
    return stream(str(message.topic()), message.partition() or 0)

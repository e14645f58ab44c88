"""A librdkafka client for Mainstem's Kafka door and Apache Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

_SETTINGS = {
    "acks": "all",
    "enable.idempotence": False,
    "linger.ms": 5,
    "queue.buffering.max.messages": 100_000,
}
_OnDelivery = Callable[[KafkaError | None, Message], None]
NAME = f"librdkafka {confluent_kafka.libversion()[0]} with its Python binding: C, one Python call per message"


class KafkaClient:
    def __init__(self, bootstrap: str, topic_settings: dict[str, str]) -> None:
        self._bootstrap = bootstrap
        self._topic_settings = topic_settings

    def make(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        (made,) = admin.create_topics([NewTopic(topic, 1, 1, config=self._topic_settings)]).values()
        made.result(30)

    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        self.make(topic)
        producer = Producer({**_SETTINGS, "bootstrap.servers": self._bootstrap})
        acked = 0

        def on_delivery(error: object, _: object) -> None:
            nonlocal acked
            acked += error is None

        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(500):
                self._produce(producer, topic, payload, on_delivery)
            producer.poll(0)
        producer.flush(60)
        return acked

    @staticmethod
    def _produce(producer: Producer, topic: str, payload: bytes, on_delivery: _OnDelivery) -> None:
        while True:
            try:
                producer.produce(topic, payload, on_delivery=on_delivery)
                return
            except BufferError:
                producer.poll(0.01)

    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        self.make(topic)
        producer = Producer({**_SETTINGS, "linger.ms": 0, "bootstrap.servers": self._bootstrap})
        taken: list[float] = []
        until = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < until:
            producer.produce(topic, payload)
            if producer.flush(30):
                raise KafkaException("no acknowledgement within 30 s")
            taken.append(time.perf_counter() - begun)
        return taken

    def read(self, topic: str, count: int) -> int:
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": "bench", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        while seen < count:
            messages = consumer.consume(
                min(10_000, count - seen), timeout=10
            )  # waits for all it is asked for
            if not messages:
                break
            seen += len(messages)
        consumer.close()
        return seen

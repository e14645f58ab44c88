"""A loop that reads, processes and writes in transactions, over librdkafka: every record is processed once."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.support.chaos.notes import Notes
from tests.support.chaos.producers import Producing

PROCESSED = "processed"
_SOURCE = "idempotent"
_CALL_S = 20.0
_TRANSACTION_MS = 30_000
_BATCH = 20


class TransactionalLoop(Producing):
    """One consumer of a classic group, with the default session timeout, and one producer."""

    topic = PROCESSED

    def __init__(self, name: str, seed: int, notes: Notes, bootstrap: str) -> None:
        super().__init__(name, seed, notes, bootstrap)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "error_cb": lambda _: None,
            }
        )
        self._consumer.subscribe([_SOURCE])
        self._producer: Producer | None = None
        self._transactions = 0
        self._processed: set[tuple[int, int]] = set()  # partition and offset, of committed transactions

    def step(self) -> None:
        messages = [one for one in self._consumer.consume(_BATCH, 0.2) if one.error() is None]
        if not messages:
            return
        producer, self._producer = self._producer or self._initialised(), None
        if producer is None:
            self._rewind(messages)
            return
        self._transactions += 1
        transaction = f"{self.name}/{self._transactions}"
        try:
            producer.begin_transaction()
            for _ in messages:
                self.produce(producer, self.writer, transaction)
            producer.send_offsets_to_transaction(
                _ends(messages), self._consumer.consumer_group_metadata(), _CALL_S
            )
            with self.notes as history:
                history.committing(transaction)
            producer.commit_transaction(_CALL_S)
        except (KafkaException, SystemError):
            self._rewind(messages)  # the next producer aborts it, unless it was committed
        else:
            self._committed(transaction, messages)
            self._producer = producer
        self.take_answers()

    def finish(self) -> None:
        self._initialised()  # ends a transaction that is open
        self._consumer.close()

    def _committed(self, transaction: str, messages: list[Message]) -> None:
        with self.notes as history:
            history.committed(transaction)
        for message in messages:
            at = (message.partition() or 0, message.offset() or 0)
            if at in self._processed:
                self.notes.found(f"{self.name} processed offset {at[1]} of partition {at[0]} twice")
            self._processed.add(at)
        self.notes.count("loops committed")
        self.progress += 1

    def _initialised(self) -> Producer | None:
        options: dict[str, Any] = {
            "transactional.id": self.name,
            "transaction.timeout.ms": _TRANSACTION_MS,
            "message.timeout.ms": _TRANSACTION_MS,
        }
        fresh = self.connect(**options)
        try:
            fresh.init_transactions(_CALL_S)
        except KafkaException:
            return None
        return fresh

    def _rewind(self, messages: list[Message]) -> None:
        """Read on from what is committed."""
        try:
            asked = [TopicPartition(_SOURCE, number) for number in {one.partition() or 0 for one in messages}]
            for one in self._consumer.committed(asked, _CALL_S):
                self._consumer.seek(TopicPartition(one.topic, one.partition, max(0, one.offset)))
        except KafkaException:
            return  # not assigned any more: the next assignment starts from what is committed


def _ends(messages: list[Message]) -> list[TopicPartition]:
    ends: dict[int, int] = {}
    for message in messages:
        ends[message.partition() or 0] = (message.offset() or 0) + 1
    return [TopicPartition(_SOURCE, partition, end) for partition, end in ends.items()]

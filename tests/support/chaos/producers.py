"""Producers over librdkafka: idempotent, plain, and transactional ones that are fenced now and then."""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.support.chaos.client import ChaosClient
from tests.support.chaos.notes import Notes, stream
from tests.support.histories import Write

PARTITIONS = 3
_FLUSH_S = 60.0
_CALL_S = 20.0
_ATTEMPTS = 5
_TRANSACTION_MS = 30_000
# After a fatal error the client calls back with that error pending, and Python blames whatever is done there first.
_BLAMED = (KafkaException, SystemError, AttributeError)
_COMMON: dict[str, Any] = {
    "linger.ms": 5,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 10_000,
    "message.timeout.ms": 60_000,
    "log_level": 0,
    "error_cb": lambda _: None,
}


class Producing(ChaosClient):
    """Writes numbered values. An error leaves the outcome unknown: the write may exist, or appear later."""

    topic: str

    def __init__(self, name: str, seed: int, notes: Notes, bootstrap: str) -> None:
        super().__init__(name, seed, notes)
        self._bootstrap = bootstrap
        self._number = 0
        self._answers: deque[tuple[Write, int | None]] = deque()  # the offset; None: unknown
        self.lives = 0  # producers so far: each is a writer of its own

    @property
    def writer(self) -> str:
        return f"{self.name}.{self.lives}"

    def connect(self, **options: Any) -> Producer:
        self.lives += 1
        return Producer({"bootstrap.servers": self._bootstrap, **_COMMON, **options})

    def produce(self, producer: Producer, writer: str, transaction: str | None = None) -> None:
        value = f'"{writer}:{self._number}"'.encode()  # JSON, so that it reads the same through HTTP
        self._number += 1
        partition = self.random.randrange(PARTITIONS)
        with self.notes as history:
            noted = history.write(writer, stream(self.topic, partition), value, transaction=transaction)
        self.notes.count(f"{self.topic} written")
        try:
            producer.produce(
                self.topic,
                value,
                partition=partition,
                on_delivery=lambda error, message: self._delivered(noted, error, message),
            )
        except BufferError:
            producer.poll(0.2)  # never sent

    def _delivered(self, noted: Write, error: Any, message: Any) -> None:
        # Nothing that could be left half done, see _BLAMED.
        self._answers.append((noted, message.offset() if error is None else None))

    def take_answers(self) -> None:
        """Record the outcome of what was sent."""
        while self._answers:
            noted, offset = self._answers.popleft()
            if offset is not None:
                with self.notes:
                    noted.acked(offset)
                self.progress += 1
            self.notes.count(f"{self.topic} {'open' if offset is None else 'acked'}")


class IdempotentProducer(Producing):
    topic = "idempotent"
    _options: ClassVar[dict[str, Any]] = {"enable.idempotence": True}

    def __init__(self, name: str, seed: int, notes: Notes, bootstrap: str) -> None:
        super().__init__(name, seed, notes, bootstrap)
        self._producer = self.connect(**self._options)

    def step(self) -> None:
        self.produce(self._producer, self.writer)
        self._producer.poll(0.01)
        self.take_answers()

    def finish(self) -> None:
        self._producer.flush(_FLUSH_S)
        self.take_answers()


class PlainProducer(IdempotentProducer):
    """Without retries and idempotence: acknowledged writes exist at least once."""

    topic = "plain"
    _options: ClassVar[dict[str, Any]] = {"enable.idempotence": False, "retries": 0}


class TransactionalProducer(Producing):
    topic = "transactional"

    def __init__(self, name: str, seed: int, notes: Notes, bootstrap: str) -> None:
        super().__init__(name, seed, notes, bootstrap)
        self._transactions = 0
        self._producer: Producer | None = None

    def step(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            producer = self._initialised()
        if producer is None:
            return
        transaction = self._next()
        try:
            producer.begin_transaction()
            for _ in range(self.random.randint(1, 5)):
                self.produce(producer, self.writer, transaction)
            producer.flush(_CALL_S)
            self._end(producer, transaction)
        except _BLAMED as error:
            self._producer = self._recovered(producer, transaction, error)
        else:
            self._producer = producer
        self.take_answers()

    def finish(self) -> None:
        """End open transactions, so that everything can be read."""
        for _ in range(_ATTEMPTS):
            if self._initialised() is not None:
                return
        self.notes.found(f"{self.name} could not end its open transaction")

    def _next(self) -> str:
        self._transactions += 1
        return f"{self.name}/{self._transactions}"

    def _initialised(self) -> Producer | None:
        """The next producer with the same id: it aborts what its predecessor left open, and fences it."""
        fresh = self.connect(
            **{
                "transactional.id": self.name,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "message.timeout.ms": _TRANSACTION_MS,
            }
        )
        try:
            fresh.init_transactions(_CALL_S)
        except KafkaException:
            return None
        return fresh

    def _end(self, producer: Producer, transaction: str) -> None:
        match self.random.choices(("commit", "abort", "fence"), (6, 2, 1))[0]:
            case "commit":
                with self.notes as history:
                    history.committing(transaction)
                producer.commit_transaction(_CALL_S)
                with self.notes as history:
                    history.committed(transaction)
                self.notes.count("transactions committed")
            case "abort":
                producer.abort_transaction(_CALL_S)
                with self.notes as history:
                    history.aborted(transaction)
                self.notes.count("transactions aborted")
            case "fence":
                self._fence(producer, transaction)

    def _fence(self, old: Producer, transaction: str) -> None:
        """Another process starts with the same id; later writes of the old one are rejected."""
        writer = self.writer
        fresh = self._initialised()
        if fresh is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        with self.notes as history:
            history.aborted(transaction)
            history.fenced(writer)
        try:
            self.produce(old, writer, transaction)
            old.flush(_CALL_S)
            old.commit_transaction(_CALL_S)
        except _BLAMED:
            self.notes.count("transactions fenced")
        else:
            self.notes.found(f"{writer} was fenced and committed anyway")
        raise KafkaException(KafkaError(KafkaError._FENCED))

    def _recovered(self, producer: Producer, transaction: str, error: Exception) -> Producer | None:
        """The producer to continue with, if this one can."""
        if not isinstance(error, KafkaException) or not error.args[0].txn_requires_abort():
            return None
        try:
            producer.abort_transaction(_CALL_S)
        except KafkaException:
            return None
        with self.notes as history:
            history.aborted(transaction)
        return producer

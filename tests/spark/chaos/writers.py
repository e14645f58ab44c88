"""Producers that go on while everything around them is killed, and know what they were told."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
from confluent_kafka import KafkaException, Message, Producer

WAIT_S = 120.0
PARTITIONS = 2
DOOMED = tuple(f"gone-{number}" for number in range(5))  # keys whose records are deleted

_TIME_MS = 1_700_000_000_000
_DAY_MS = 86_400_000
_CALL_S = 10.0


class Writer:
    """Writes on a thread until told to stop. What it does not expect ends it, and is raised by `finish`."""

    def __init__(self, name: str, randomness: random.Random, bootstrap: str) -> None:
        self.name = name
        self.random = randomness
        self.bootstrap = bootstrap
        self.ending = threading.Event()
        self.fault: BaseException | None = None
        self._number = 0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        try:
            self.write()
        except BaseException as fault:  # noqa: BLE001 - raised where somebody sees it
            self.fault = fault

    def write(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        self.ending.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.fault is not None:
            raise self.fault

    def pause(self) -> None:
        self.ending.wait(self.random.uniform(0.0, 0.3))

    def record(self) -> dict[str, Any]:
        """One that no other is like: key, headers and time as they come."""
        self._number += 1
        pick = self.random
        value = b"%s-%d-" % (self.name.encode(), self._number) + pick.randbytes(pick.randrange(200))
        key = pick.choice([None, b"", b"k%d" % pick.randrange(20), pick.choice(DOOMED).encode()])
        headers = [
            (pick.choice(("h", "é", "")), pick.choice([None, b"", pick.randbytes(9)]))
            for _ in range(pick.randrange(3))
        ]
        return {
            "value": value,
            "key": key,
            "headers": headers,
            "timestamp": _TIME_MS + pick.choice((0, 1, 2, 5)) * _DAY_MS + pick.randrange(1000),
            "partition": pick.randrange(PARTITIONS),
        }


class IdempotentWriter(Writer):
    """Each record once, however often librdkafka has to send it."""

    def __init__(self, topic: str, randomness: random.Random, bootstrap: str) -> None:
        super().__init__(topic, randomness, bootstrap)
        self.acked: dict[tuple[int, int], bytes] = {}  # (partition, offset) → value
        self.doomed: set[bytes] = set()  # values under a key that is deleted
        self.unknown: set[bytes] = set()  # neither acknowledged nor rejected

    def write(self) -> None:
        producer = self._producer()
        while not self.ending.is_set():
            for _ in range(self.random.randrange(1, 120)):
                record = self.record()
                if (record["key"] or b"").startswith(b"gone-"):
                    self.doomed.add(record["value"])
                producer.produce(self.name, on_delivery=self._told, **record)
            producer.poll(0)
            self.pause()
        assert producer.flush(WAIT_S) == 0

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(WAIT_S * 1000),
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def _told(self, error: Any, message: Message) -> None:
        value = message.value() or b""
        if error is not None:
            self.unknown.add(value)
            return
        place = (message.partition() or 0, message.offset() or 0)
        assert place not in self.acked, f"{self.name}: two records were acked at {place}"
        self.acked[place] = value


@dataclass
class Transactions:
    committed: list[set[bytes]] = field(default_factory=list)
    aborted: list[set[bytes]] = field(default_factory=list)
    unknown: list[set[bytes]] = field(default_factory=list)  # all of it is there, or nothing


class _Lost(Exception):
    """The producer can do no more."""


class TransactionalWriter(Writer):
    def __init__(self, topic: str, randomness: random.Random, bootstrap: str) -> None:
        super().__init__(topic, randomness, bootstrap)
        self.transactions = Transactions()

    def write(self) -> None:
        producer = self._producer()
        while not self.ending.is_set():
            try:
                self._transaction(producer)
            except _Lost:
                producer = self._producer()
            self.pause()

    def _producer(self) -> Producer:
        """One that has ended what the one before left open."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": f"{self.name} writer",
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        while not self._ends(producer.init_transactions):
            pass
        return producer

    def _transaction(self, producer: Producer) -> None:
        told = self.transactions
        self._ends(lambda timeout: producer.begin_transaction())
        records = [self.record() for _ in range(self.random.randrange(1, 60))]
        values = {record["value"] for record in records}
        if not self._produced(producer, records) or self.random.random() < 0.3:
            told.aborted.append(values)
            self._abort(producer)
            return
        told.unknown.append(values)
        if self._ends(producer.commit_transaction):
            told.committed.append(told.unknown.pop())
        else:
            self._abort(producer)
            told.aborted.append(told.unknown.pop())

    def _produced(self, producer: Producer, records: list[dict[str, Any]]) -> bool:
        try:
            for record in records:
                producer.produce(self.name, **record)
            producer.flush(_CALL_S)  # or what is aborted is never sent
        except KafkaException:
            return False
        return True

    def _abort(self, producer: Producer) -> None:
        if not self._ends(producer.abort_transaction):
            raise _Lost

    def _ends(self, call: Callable[[float], object]) -> bool:
        """Repeat it until it is done. False: the transaction has to be aborted. Raises _Lost."""
        while True:
            try:
                call(_CALL_S)
            except KafkaException as error:
                reason = error.args[0]
                if reason.txn_requires_abort():
                    return False
                if not reason.retriable():
                    raise _Lost(str(reason)) from None
            else:
                return True


class Deleter(Writer):
    """Deletes by key and from the front, over HTTP, whether or not somebody listens."""

    def __init__(self, url: str, keyed: str, trimmed: str, randomness: random.Random) -> None:
        super().__init__("deleter", randomness, "")
        self._url = url
        self._keyed = keyed
        self._trimmed = trimmed
        self.deleted = 0

    def write(self) -> None:
        with httpx.Client(base_url=self._url, timeout=WAIT_S) as client:
            while not self.ending.is_set():
                self.ending.wait(self.random.uniform(0.5, 3.0))
                with suppress(httpx.HTTPError):  # it is not there: another time
                    self._delete(client)

    def _delete(self, client: httpx.Client) -> None:
        partition = self.random.randrange(PARTITIONS)
        if self.random.random() < 0.7:
            body: dict[str, object] = {"match": self.random.choice(DOOMED)}
            self.deleted += delete(client, self._keyed, partition, body)
        else:
            state = client.get(f"/v0/topics/{self._trimmed}?partition={partition}").json()
            first, head = state["earliest_seq"], state["head_seq"]
            trim = {"before_seq": first + int((head - first) * self.random.uniform(0.0, 0.5))}
            self.deleted += delete(client, self._trimmed, partition, trim)


def delete(client: httpx.Client, topic: str, partition: int, body: dict[str, object]) -> int:
    answer = client.post(f"/v0/topics/{topic}/delete?partition={partition}", json=body)
    answer.raise_for_status()
    return int(answer.json()["deleted"])

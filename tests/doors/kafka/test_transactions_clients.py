"""Exactly once, with real clients: all see what one of them commits, and never anything else."""

from __future__ import annotations

import itertools
import random
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster_server import server_process

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    from kafka import KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as PyTopicPartition

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

PARTITIONS = 3
TIMEOUT_S = 90.0

_numbers = itertools.count()


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap)


def new_topic(bootstrap: str, partitions: int = PARTITIONS) -> str:
    name = f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [created] = admin.create_topics([NewTopic(name, partitions, 1)]).values()
    created.result(TIMEOUT_S)
    return name


def producer_of(bootstrap: str, id: str, **settings: object) -> Producer:
    quick = {"reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": id, **quick, **settings})
    producer.init_transactions(TIMEOUT_S)
    return producer


def write(producer: Producer, topic: str, values: list[bytes]) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)


def transact(producer: Producer, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    write(producer, topic, values)
    if commit:
        producer.commit_transaction(TIMEOUT_S)
    else:
        assert producer.flush(TIMEOUT_S) == 0
        producer.abort_transaction(TIMEOUT_S)


def values_of(prefix: str, count: int = 30) -> list[bytes]:
    return [f"{prefix}-{number:03}".encode() for number in range(count)]


# Readers: everything below the end at their start


def read_with_confluent(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{next(_numbers)}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found, ended = [], set()
    try:
        while len(ended) < PARTITIONS:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            if message.error():
                ended.add(message.partition())
            else:
                found.append(message.value())
    finally:
        consumer.close()
    return found


def read_with_kafka_python(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
    try:
        parts = [PyTopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        while any(consumer.position(part) < ends[part] for part in parts):
            assert time.monotonic() < deadline
            for records in consumer.poll(timeout_ms=500).values():
                found += [record.value for record in records]
        return found
    finally:
        consumer.close()


async def read_with_aiokafka(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[bytes]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False
    )
    await consumer.start()
    try:
        parts = [AioTopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        ends = await consumer.end_offsets(parts)
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_S
        for part in parts:
            while await consumer.position(part) < ends[part]:
                assert time.monotonic() < deadline
                batches = await consumer.getmany(timeout_ms=500)
                found += [record.value for records in batches.values() for record in records]
        return found
    finally:
        await consumer.stop()


async def everyone_sees(bootstrap: str, topic: str, expected: list[bytes]) -> None:
    assert sorted(read_with_confluent(bootstrap, topic)) == sorted(expected)
    assert sorted(read_with_kafka_python(bootstrap, topic)) == sorted(expected)
    assert sorted(await read_with_aiokafka(bootstrap, topic)) == sorted(expected)


async def test_commits_are_seen_and_aborts_are_not(bootstrap: str, topic: str) -> None:
    producer = producer_of(bootstrap, "mixed")
    expected: list[bytes] = []
    for number, commit in enumerate([True, False, False, True, True, False]):
        values = values_of(f"t{number}")
        transact(producer, topic, values, commit=commit)
        expected += values if commit else []
    await everyone_sees(bootstrap, topic, expected)
    everything = [value for number in range(6) for value in values_of(f"t{number}")]
    assert sorted(read_with_confluent(bootstrap, topic, "read_uncommitted")) == everything


async def test_an_open_transaction_hides_the_records_after_it(bootstrap: str, topic: str) -> None:
    early, late = producer_of(bootstrap, "early"), producer_of(bootstrap, "late")
    transact(early, topic, values_of("before"), commit=True)
    early.begin_transaction()
    write(early, topic, values_of("open"))
    assert early.flush(TIMEOUT_S) == 0
    transact(late, topic, values_of("behind"), commit=True)
    await everyone_sees(bootstrap, topic, values_of("before"))
    assert len(read_with_confluent(bootstrap, topic, "read_uncommitted")) == 90
    early.abort_transaction(TIMEOUT_S)
    await everyone_sees(bootstrap, topic, values_of("before") + values_of("behind"))


async def test_a_zombie_is_fenced(bootstrap: str, topic: str) -> None:
    zombie = producer_of(bootstrap, "one-name")
    zombie.begin_transaction()
    write(zombie, topic, values_of("zombie"))
    assert zombie.flush(TIMEOUT_S) == 0
    fresh = producer_of(bootstrap, "one-name")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].fatal()
    transact(fresh, topic, values_of("fresh"), commit=True)
    await everyone_sees(bootstrap, topic, values_of("fresh"))


async def test_a_transaction_that_is_never_ended_times_out(bootstrap: str, topic: str) -> None:
    slow = producer_of(bootstrap, "slow", **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    slow.begin_transaction()
    write(slow, topic, values_of("slow"))
    assert slow.flush(TIMEOUT_S) == 0
    transact(producer_of(bootstrap, "quick"), topic, values_of("quick"), commit=True)
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "waits",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    reader.assign([TopicPartition(topic, 0, 0)])
    message = reader.poll(TIMEOUT_S)
    reader.close()
    assert message is not None
    assert message.value() == b"quick-000"
    with pytest.raises(KafkaException):
        slow.commit_transaction(TIMEOUT_S)
    await everyone_sees(bootstrap, topic, values_of("quick"))


async def test_what_is_consumed_and_what_is_produced_commit_together(bootstrap: str, topic: str) -> None:
    """Consume, transform, produce: every third attempt aborts and is retried."""
    target = new_topic(bootstrap)
    transact(producer_of(bootstrap, "source"), topic, values_of("in", 60), commit=True)
    producer = producer_of(bootstrap, "copier")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"copiers-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    copied, attempts = 0, 0
    deadline = time.monotonic() + TIMEOUT_S
    while copied < 60:
        assert time.monotonic() < deadline
        messages = take(consumer, 10)
        if not messages:
            continue
        attempts += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, b"out" + (message.value() or b"")[2:], partition=message.partition())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        if attempts % 3 == 0:
            producer.abort_transaction(TIMEOUT_S)
            for place in consumer.committed(consumer.assignment(), TIMEOUT_S):
                consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))
        else:
            producer.commit_transaction(TIMEOUT_S)
            copied += len(messages)
    committed = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], TIMEOUT_S)
    consumer.close()
    assert copied == 60
    assert attempts > 3
    assert all(place.offset >= 20 for place in committed)
    await everyone_sees(bootstrap, target, values_of("out", 60))


def take(consumer: Consumer, most: int) -> list[Message]:
    return [message for message in consumer.consume(most, 0.5) if not message.error()]


async def test_aiokafka_transacts(bootstrap: str, topic: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio")
    await producer.start()
    try:
        async with producer.transaction():
            for number, value in enumerate(values_of("aio")):
                await producer.send_and_wait(topic, value, partition=number % PARTITIONS)
            await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 7}, f"aio-group-{topic}")
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"never", partition=0)
        await producer.send_offsets_to_transaction({AioTopicPartition(topic, 0): 9}, f"aio-group-{topic}")
        await producer.abort_transaction()
    finally:
        await producer.stop()
    await everyone_sees(bootstrap, topic, values_of("aio"))
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": f"aio-group-{topic}"})
    [place] = reader.committed([TopicPartition(topic, 0)], TIMEOUT_S)
    reader.close()
    assert place.offset == 7


async def test_kafka_python_transacts(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="python")
    try:
        producer.init_transactions()
        for prefix, commit in (("yes", True), ("no", False)):
            producer.begin_transaction()
            for number, value in enumerate(values_of(prefix)):
                producer.send(topic, value, partition=number % PARTITIONS)
            producer.flush(TIMEOUT_S)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        producer.close()
    await everyone_sees(bootstrap, topic, values_of("yes"))


# A server that is killed again and again


class MortalServer:
    """A server on one port and one directory that is killed now and then, and restarted at once."""

    def __init__(self, data_dir: Path, seed: int) -> None:
        self._data_dir = data_dir
        self._random = random.Random(seed)
        self._process = server_process(data_dir).wait_ready()
        self.address = str(self._process.address("kafka"))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill_often, daemon=True)
        self.kills = 0

    def __enter__(self) -> MortalServer:
        return self

    def start_killing(self) -> None:
        self._thread.start()

    def stop_killing(self) -> None:
        self._over.set()
        self._thread.join(TIMEOUT_S)

    def __exit__(self, *_: object) -> None:
        self.stop_killing()
        self._process.kill()

    def _kill_often(self) -> None:
        while not self._over.wait(self._random.uniform(0.1, 2.5)):
            self._process.kill()
            self.kills += 1
            self._process = server_process(self._data_dir, "--kafka", self.address).wait_ready()


class Watcher:
    """A read_committed reader that reads all the time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.seen: list[bytes] = []
        self._over = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "watcher",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and not message.error():
                self.seen.append(message.value() or b"")

    def stop(self) -> list[bytes]:
        self._over.set()
        self._thread.join(TIMEOUT_S)
        self._consumer.close()
        return self.seen


def insist(attempt: Callable[[], object], deadline: float) -> None:
    """Retry until done; a transaction in doubt may be ended as often as necessary."""
    while True:
        try:
            attempt()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


class MortalClient:
    """A producer that ends every transaction as it wants, however often the server is killed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._producer = self._start()

    def _start(self) -> Producer:
        return producer_of(self._bootstrap, "mortal", **{"message.timeout.ms": 60_000})

    def transact(self, values: list[bytes], *, commit: bool) -> bool:
        """Returns whether it was committed."""
        deadline = time.monotonic() + 120
        self._producer.begin_transaction()
        write(self._producer, self._topic, values)
        if commit:
            try:
                insist(lambda: self._producer.commit_transaction(5.0), deadline)
                return True
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
        else:
            self._producer.flush(0.2)
        try:
            insist(lambda: self._producer.abort_transaction(5.0), deadline)
        except KafkaException as error:
            # A transaction unknown to the server cannot be aborted, which this client does not survive.
            if not (error.args[0].fatal() and error.args[0].code() == KafkaError.INVALID_TXN_STATE):
                raise
            self._producer = self._start()
        return False


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_no_kill_loses_duplicates_or_wrongly_exposes_records(tmp_path: Path, seed: int) -> None:
    with MortalServer(tmp_path / "data", seed) as server:
        topic = new_topic(server.address)
        client = MortalClient(server.address, topic)
        watcher = Watcher(server.address, topic)
        server.start_killing()
        expected: list[bytes] = []
        until = time.monotonic() + 15
        for number in itertools.count():
            if time.monotonic() > until and server.kills >= 3 and len(expected) > 30:
                break
            values = values_of(f"n{number}", 9)
            if client.transact(values, commit=number % 3 != 2):
                expected += values
        server.stop_killing()
        assert sorted(read_with_confluent(server.address, topic)) == sorted(expected)
        seen = watcher.stop()
        assert len(seen) == len(set(seen)), "a record was seen twice"
        assert set(seen) <= set(expected), "a record was seen that was not committed"

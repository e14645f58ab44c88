"""Unmodified clients: what one writes, the others read, byte for byte."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its schemas in a deprecated way
    import kafka

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:kafka.*")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WITHIN_S = 90.0


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


Write = Callable[[str, str, str, list[Message]], Awaitable[None]]
Read = Callable[[str, str, int], Awaitable[list[Message]]]


async def write_confluent(bootstrap: str, topic: str, codec: str, messages: list[Message]) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 5,
            "message.max.bytes": 20_000_000,
        }
    )
    for message in messages:
        producer.produce(
            topic,
            value=message.value,
            key=message.key,
            headers=list(message.headers),
            timestamp=message.timestamp_ms,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WITHIN_S) == 0
    assert not failures


async def write_aiokafka(bootstrap: str, topic: str, codec: str, messages: list[Message]) -> None:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        max_request_size=20_000_000,
        linger_ms=5,
    )
    async with producer:
        sent = [
            await producer.send(
                topic,
                value=message.value,
                key=message.key,
                partition=0,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers),
            )
            for message in messages
        ]
        for future in sent:
            await future


async def write_kafka_python(bootstrap: str, topic: str, codec: str, messages: list[Message]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        max_request_size=20_000_000,
        linger_ms=5,
    )
    try:
        sent = [
            producer.send(
                topic,
                value=message.value,
                key=message.key,
                partition=0,
                timestamp_ms=message.timestamp_ms,
                headers=list(message.headers),
            )
            for message in messages
        ]
        for future in sent:
            future.get(WITHIN_S)
    finally:
        producer.close()


async def read_confluent(bootstrap: str, topic: str, count: int) -> list[Message]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 20_000_000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        found = []
        while len(found) < count:
            message = consumer.poll(WITHIN_S)
            assert message is not None
            assert message.error() is None
            headers = tuple(message.headers() or ())
            found.append(Message(message.key(), message.value(), headers, message.timestamp()[1]))
        return found
    finally:
        consumer.close()


async def read_aiokafka(bootstrap: str, topic: str, count: int) -> list[Message]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        found = []
        while len(found) < count:
            for messages in (await consumer.getmany(timeout_ms=1000)).values():
                found += [Message(m.key, m.value, tuple(m.headers), m.timestamp) for m in messages]
        return found


async def read_kafka_python(bootstrap: str, topic: str, count: int) -> list[Message]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        found = []
        while len(found) < count:
            for messages in consumer.poll(timeout_ms=1000).values():
                found += [Message(m.key, m.value, tuple(m.headers), m.timestamp) for m in messages]
        return found
    finally:
        consumer.close()


WRITERS: dict[str, Write] = {
    "confluent": write_confluent,
    "aiokafka": write_aiokafka,
    "kafka-python": write_kafka_python,
}
READERS: dict[str, Read] = {
    "confluent": read_confluent,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
}


def fresh(bootstrap: str, **config: str) -> str:
    topic = f"t-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(WITHIN_S)
    return topic


def messages_of(count: int) -> list[Message]:
    found = [
        Message(b"k%d" % index, b"v%d" % index * 20, (("h", b"%d" % index),), 1_700_000_000_000 + index)
        for index in range(count)
    ]
    time = 1_700_000_001_000
    found.append(Message(None, b"no key", (), time))
    found.append(Message(b"no value", None, (), time))
    found.append(Message(b"", b"", (("empty", b""), ("twice", b"1"), ("twice", b"2")), time))
    return found


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("writer", WRITERS)
async def test_what_one_client_writes_the_others_read(bootstrap: str, writer: str, codec: str) -> None:
    topic = fresh(bootstrap)
    messages = messages_of(200)
    await WRITERS[writer](bootstrap, topic, codec, messages)
    for reader, read in READERS.items():
        assert await read(bootstrap, topic, len(messages)) == messages, reader


@pytest.mark.parametrize("writer", WRITERS)
async def test_messages_of_several_megabytes_work(bootstrap: str, writer: str) -> None:
    topic = fresh(bootstrap, **{"max.message.bytes": "20000000"})
    messages = [
        Message(b"big", bytes([index]) * size, (), 1_700_000_000_000)
        for index, size in enumerate((5_000_000, 10, 9_000_000))
    ]
    await WRITERS[writer](bootstrap, topic, "none", messages)
    for reader, read in READERS.items():
        found = await read(bootstrap, topic, len(messages))
        assert [len(message.value or b"") for message in found] == [5_000_000, 10, 9_000_000], reader
        assert all(a == b for a, b in zip(found, messages, strict=True)), reader


async def test_a_message_over_the_limit_is_refused_by_name(bootstrap: str) -> None:
    topic = fresh(bootstrap, **{"max.message.bytes": "1000"})
    errors: list[Any] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x" * 5000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WITHIN_S)
    assert [error.code() for error in errors] == [confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE]


async def test_a_consumer_finds_offsets_by_time(bootstrap: str) -> None:
    topic = fresh(bootstrap)
    await write_confluent(bootstrap, topic, "none", messages_of(50))
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    wanted = confluent_kafka.TopicPartition(topic, 0, 1_700_000_000_020)
    (found,) = consumer.offsets_for_times([wanted], timeout=WITHIN_S)
    assert found.offset == 20
    assert consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), timeout=WITHIN_S) == (
        0,
        53,
    )
    consumer.close()


async def test_a_producer_creates_a_missing_topic(bootstrap: str) -> None:
    topic = f"made-{uuid.uuid4().hex}"
    await write_confluent(bootstrap, topic, "none", messages_of(1))
    assert await read_aiokafka(bootstrap, topic, 4) == messages_of(1)


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_producer_continues_after_its_topic_was_recreated(
    bootstrap: str, transactional: bool
) -> None:
    topic = fresh(bootstrap)
    settings = {"transactional.id": topic} if transactional else {"enable.idempotence": True}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    if transactional:
        producer.init_transactions(WITHIN_S)

    def write(value: bytes) -> None:
        if transactional:
            producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        if transactional:
            producer.commit_transaction(WITHIN_S)
        assert producer.flush(WITHIN_S) == 0

    for value in (b"1", b"2"):
        write(value)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(WITHIN_S)
    admin.create_topics([NewTopic(topic, 1)])[topic].result(WITHIN_S)
    for value in (b"3", b"4"):
        write(value)
    found = await read_aiokafka(bootstrap, topic, 2)
    assert [message.value for message in found] == [b"3", b"4"]


async def test_a_consumer_beyond_the_end_goes_back_to_the_start(bootstrap: str) -> None:
    topic = fresh(bootstrap)
    await write_confluent(bootstrap, topic, "none", messages_of(5))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 500)])
    message = consumer.poll(WITHIN_S)
    assert message is not None
    assert (message.error(), message.offset()) == (None, 0)
    consumer.close()

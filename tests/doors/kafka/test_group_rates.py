"""Rates of consumer groups and namespaces, enforced on unmodified Kafka clients."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import Consumer, KafkaError
from kio.index import load_request_schema

from mainstem.broker.broker import Broker
from mainstem.broker.rates import AlterRate, RateEntity
from tests.support.batches import batch

from .conftest import KafkaStage
from .messages import make
from .requests import fetch, produce
from .wire import Wire

_SLOW_BYTES_A_SECOND = 200_000.0
_RECORDS = 4_000


async def _limit(broker: Broker, entity: RateEntity, **limits: float) -> None:
    await broker.rates.alter(AlterRate(entity, tuple(limits.items())))


def _quiet(error: KafkaError) -> None:
    """Connections end with the test."""


def _consumed(bootstrap: str, group: str, within_s: float, **settings: str) -> int:
    """How many records of the topic a consumer of the group gets within this time, up to all.

    Its client id is its own: librdkafka may look for its coordinator on another connection than it fetches on, and then
    nothing else tells the groups of equal clients apart.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": f"client of {group}",
            "auto.offset.reset": "earliest",
            "error_cb": _quiet,
            "logger": None,
            **settings,
        }
    )
    consumer.subscribe(["t"])
    count, begun = 0, 0.0
    try:
        while count < _RECORDS and (not begun or time.monotonic() < begun + within_s):
            messages = consumer.consume(500, 0.2)
            if messages and not begun:
                begun = time.monotonic()  # joining the group takes its time, whatever the rate
            count += len(messages)
    finally:
        consumer.close()
    return count


@pytest.mark.parametrize("settings", [{}, {"group.protocol": "consumer"}], ids=["classic", "consumer"])
async def test_a_limited_group_is_slow_beside_a_free_one(kafka: KafkaStage, settings: dict[str, str]) -> None:
    broker = kafka.broker
    await broker.create_topic("t")
    for _ in range(_RECORDS // 50):
        await broker.append_values("t", [b"x" * 1000] * 50)
    await _limit(broker, RateEntity(group="slow"), consumer_byte_rate=_SLOW_BYTES_A_SECOND, burst_s=1.0)
    bootstrap = f"{kafka.address.host}:{kafka.address.port}"
    slow, free = await asyncio.gather(
        asyncio.to_thread(_consumed, bootstrap, "slow", 2.5, **settings),
        asyncio.to_thread(_consumed, bootstrap, "free", 60.0, **settings),
    )
    assert free == _RECORDS
    assert 200 <= slow <= 1_500  # 200 a second for 2.5 seconds, the burst, and what one answer holds beyond
    throttled, ms = broker.rates.throttled(RateEntity(group="slow"))
    assert throttled > 0
    assert ms > 1_000
    assert broker.rates.throttled(RateEntity(group="free")) == (0, 0)


def _heartbeat(group: str) -> object:
    return make(load_request_schema(12, 4), {"group_id": group, "generation_id": 1, "member_id": "m"})


async def _records(broker: Broker) -> None:
    await broker.create_topic("t")
    for _ in range(20):
        await broker.append_values("t", [b"x" * 1000])


async def test_a_fetch_counts_for_the_group_that_the_client_named_on_another_connection(
    kafka: KafkaStage, wire: Wire
) -> None:
    await _records(kafka.broker)
    await _limit(kafka.broker, RateEntity(group="g"), consumer_byte_rate=100.0)
    coordinator = await kafka.connect()
    await coordinator.ask(_heartbeat("g"))
    await wire.ask(fetch(12, "t", (0, 0)))
    assert (await wire.ask(fetch(12, "t", (0, 0)))).throttle_time.total_seconds() > 1
    await coordinator.ask(_heartbeat("other"))  # now two groups share host and client id
    undecided = await kafka.connect()
    for _ in range(3):
        answer = await undecided.ask(fetch(12, "t", (0, 0)))
        assert answer.throttle_time.total_seconds() == 0
        assert len(answer.responses[0].partitions[0].records) > 10_000


async def test_a_fetch_counts_for_the_group_that_was_named_on_its_own_connection(kafka: KafkaStage) -> None:
    await _records(kafka.broker)
    await _limit(kafka.broker, RateEntity(group="slow"), consumer_byte_rate=100.0)
    slow, free = await kafka.connect(), await kafka.connect()
    await slow.ask(_heartbeat("slow"))
    await free.ask(_heartbeat("free"))  # the same host and client id
    for _ in range(2):
        throttled = await slow.ask(fetch(12, "t", (0, 0)))
        assert (await free.ask(fetch(12, "t", (0, 0)))).throttle_time.total_seconds() == 0
    assert throttled.throttle_time.total_seconds() > 1


async def test_a_fetch_gets_no_records_while_another_consumer_of_its_group_is_in_debt(
    kafka: KafkaStage,
) -> None:
    await _records(kafka.broker)
    await _limit(kafka.broker, RateEntity(group="g"), consumer_byte_rate=50.0)
    first, second = await kafka.connect(), await kafka.connect()
    for consumer in (first, second):
        await consumer.ask(_heartbeat("g"))
    assert (await first.ask(fetch(12, "t", (0, 0)))).throttle_time.total_seconds() > 1
    answer = await second.ask(fetch(12, "t", (0, 0)))
    assert not answer.responses[0].partitions[0].records
    assert answer.throttle_time.total_seconds() > 1


async def test_a_limit_on_records_counts_the_records_of_batches(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    await _limit(kafka.broker, RateEntity(user="ANONYMOUS"), producer_record_rate=2.0, burst_s=2.0)
    one, _ = batch(b"x")
    for _ in range(4):
        answer = await wire.ask(produce(9, "t", bytearray(one)))
        assert answer.throttle_time.total_seconds() == 0
    answer = await wire.ask(produce(9, "t", bytearray(one)))
    assert 0 < answer.throttle_time.total_seconds() <= 1


@pytest.mark.parametrize("namespace", ["default", ""])
async def test_a_namespace_is_limited_in_both_directions(kafka: KafkaStage, namespace: str) -> None:
    await _records(kafka.broker)
    await _limit(
        kafka.broker, RateEntity(namespace=namespace), producer_byte_rate=100.0, consumer_byte_rate=100.0
    )
    slice, _ = batch(b"x" * 2000)
    producer, consumer = await kafka.connect(), await kafka.connect()
    assert (await producer.ask(produce(9, "t", slice))).throttle_time.total_seconds() > 1
    assert (await consumer.ask(fetch(12, "t", (0, 0)))).throttle_time.total_seconds() > 0

"""Consumers share partitions and commit what they read; transactions write and commit together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import httpx
import pytest
from confluent_kafka import Consumer as KafkaConsumer

import mainstem
from mainstem.client import AsyncConsumer, Consumer, TopicPartition
from mainstem.errors import InvalidInput, MembershipLost, TopicNotFound
from mainstem.testing.broker import ThrowAwayBroker


def fill(client: mainstem.Client, topic: str, count: int = 20, partitions: int = 4) -> None:
    client.ensure_topic(topic, partitions=partitions)
    for number in range(count):
        client.produce(topic, number, key=f"k{number}")


def values(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    for _ in range(100):
        found += [record.value for record in consumer.poll(0.5)]
        if len(found) >= count:
            break
    return sorted(found)


def committed(client: mainstem.Client, group: str) -> int:
    return sum(row.offset or 0 for row in client.group(group).offsets)


def test_a_consumer_reads_all_partitions_and_continues_where_it_committed(
    client: mainstem.Client, topic: str
) -> None:
    fill(client, topic)
    with client.consumer(topic, group=topic) as consumer:
        assert values(consumer, 20) == list(range(20))
        assert [place.partition for place in consumer.assignment] == [0, 1, 2, 3]
    assert committed(client, topic) == 20
    assert client.group(topic).members == []
    client.produce(topic, "new")
    with client.consumer(topic, group=topic) as consumer:
        record = next(iter(consumer))
        assert record.value == "new"


def test_two_consumers_share_the_partitions_and_the_rest_takes_over(
    client: mainstem.Client, topic: str
) -> None:
    fill(client, topic)
    assigned: list[TopicPartition] = []
    revoked: list[TopicPartition] = []
    first = client.consumer(topic, group=topic, on_assigned=assigned.extend, on_revoked=revoked.extend)
    assert values(first, 20) == list(range(20))
    assert len(assigned) == 4
    second = client.consumer(topic, group=topic)
    ready = threading.Event()

    def join() -> None:
        while len(second.assignment) < 2:
            assert (
                second.poll(0.2) == []
            )  # the first one committed what it had read when it gave up partitions
        ready.set()

    thread = threading.Thread(target=join)
    thread.start()
    while not ready.is_set():
        assert first.poll(0.2) == []
    thread.join()
    assert len(revoked) == 2
    assert sorted([*first.assignment, *second.assignment]) == sorted(assigned)
    second.close()
    while len(first.assignment) < 4:
        first.poll(0.2)
    first.close()


def test_without_auto_commit_only_commits_count(client: mainstem.Client, topic: str) -> None:
    fill(client, topic, partitions=1)
    with client.consumer(topic, group=topic, auto_commit=False) as consumer:
        records = iter(consumer)
        for _ in range(5):
            record = next(records)
        consumer.commit(record)
        next(records)
    assert committed(client, topic) == 5
    with client.consumer(topic, group=topic, auto_commit=False) as consumer:
        assert next(iter(consumer)).value == 5
        consumer.seek(topic, 0, 17)
        assert next(iter(consumer)).value == 17
        consumer.commit()
    assert committed(client, topic) == 18


def test_a_block_that_raises_does_not_commit_the_last_records(client: mainstem.Client, topic: str) -> None:
    fill(client, topic, partitions=1)

    def handle() -> None:
        with client.consumer(topic, group=topic, commit_interval_s=0.0) as consumer:
            for record in consumer:
                if record.value == 3:
                    raise ValueError("a bad record")

    with pytest.raises(ValueError, match="a bad record"):
        handle()
    assert committed(client, topic) == 3


def test_kafka_consumers_and_this_client_share_committed_offsets(
    shared_broker: ThrowAwayBroker, topic: str
) -> None:
    client = shared_broker.client
    fill(client, topic)
    with client.consumer(topic, group=topic) as consumer:
        values(consumer, 20)
    client.produce(topic, "later", key="k1")
    settings = {
        "bootstrap.servers": shared_broker.bootstrap_servers,
        "group.id": topic,
        "auto.offset.reset": "earliest",
    }
    kafka = KafkaConsumer(settings)
    kafka.subscribe([topic])
    message = kafka.poll(20)
    kafka.close()
    assert message is not None
    assert message.value() == b'"later"'


async def test_an_asynchronous_consumer_of_two_topics(
    async_client: mainstem.AsyncClient, new_name: Callable[[], str]
) -> None:
    one, two = new_name(), new_name()
    await async_client.create_topic(one, partitions=2)
    await async_client.create_topic(two)
    seen: list[str] = []

    async def noted(places: list[TopicPartition]) -> None:
        seen.extend(place.topic for place in places)

    async with async_client.consumer([one, two], group=one, on_assigned=noted) as consumer:
        assert await consumer.poll(0.3) == []
        assert sorted(seen) == sorted([one, one, two])
        await async_client.produce(one, "a", partition=1)
        await async_client.produce(two, "b")
        found = set()
        async for record in consumer:
            found.add((record.topic, record.value, record.partition))
            if len(found) == 2:
                break
    assert found == {(one, "a", 1), (two, "b", 0)}


async def test_a_consumer_that_was_removed_joins_again(
    async_client: mainstem.AsyncClient, topic: str
) -> None:
    await async_client.create_topic(topic, partitions=2)
    await async_client.produce_many(topic, [1, 2, 3], partition=1)
    async with async_client.consumer(topic, group=topic) as consumer:
        assert isinstance(consumer, AsyncConsumer)
        while len(await consumer.poll()) != 3:
            pass
        former = consumer.member_id
        # As if the session had timed out: the server forgets the member.
        url = f"{async_client.url}/v0/groups/{topic}/leave"
        left = await asyncio.to_thread(httpx.post, url, json={"member_id": former})
        assert left.status_code == 200
        with pytest.raises(MembershipLost):
            await consumer.commit()
        again: list[int] = []
        async with asyncio.timeout(20):
            while len(again) < 3:
                again += [record.value for record in await consumer.poll()]
        assert again == [1, 2, 3]
        assert consumer.member_id != former


def test_a_topic_and_a_start_are_checked(client: mainstem.Client) -> None:
    with pytest.raises(InvalidInput, match="at least one topic"):
        client.consumer([], group="g")
    with pytest.raises(InvalidInput, match="start"):
        client.consumer("t", group="g", start="middle")  # type: ignore[arg-type]


# Transactions


def test_a_transaction_writes_and_commits_offsets_together(
    client: mainstem.Client, new_name: Callable[[], str]
) -> None:
    source, sink, audit = new_name(), new_name(), new_name()
    fill(client, source, partitions=2)
    client.create_topic(sink, partitions=3)
    client.create_topic(audit)
    with client.consumer(source, group=source, auto_commit=False) as consumer:
        seen = 0
        while seen < 20:
            records = consumer.poll()
            if not records:
                continue
            seen += len(records)
            with client.transaction(source) as transaction:
                for record in records:
                    transaction.produce(sink, record.value * 2, key=record.key, headers={"from": source})
                    transaction.produce(audit, b"raw", key=b"\xff")
                transaction.commit_offsets(consumer)
    found = [record.value for record in client.read(sink) if isinstance(record, mainstem.client.Record)]
    assert sorted(found) == [number * 2 for number in range(20)]
    assert client.topic(audit).count >= 20
    assert committed(client, source) == 20
    listed = {row.group for row in client.groups() if {sink, audit, source} & set(row.topics)}
    assert listed == {source}, "the record of a transaction is listed as a group"


def test_a_transaction_that_raises_writes_nothing(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic)

    def fail() -> None:
        with client.transaction(topic) as transaction:
            transaction.produce(topic, 1)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert list(client.read(topic)) == []


def test_a_transaction_with_a_missing_topic_writes_nothing(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic)
    transaction = client.transaction(topic)
    transaction.produce(topic, 1)
    transaction.produce(topic + "-missing", 1)
    with pytest.raises(TopicNotFound):
        transaction.commit()
    assert list(client.read(topic)) == []


def test_a_repeated_commit_changes_nothing(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, partitions=2)
    body = {
        "transaction": topic,
        "key": "once",
        "writes": [{"topic": topic, "records": [{"tag": "gone"}, {"data": {"n": 1}, "tag": "k"}]}],
    }
    answers = [httpx.post(f"{client.url}/v0/transaction", json=body).json() for _ in range(2)]
    assert [answer["repeated"] for answer in answers] == [False, True]
    assert len(list(client.read(topic))) == 2
    body["key"] = "again"
    assert httpx.post(f"{client.url}/v0/transaction", json=body).json()["repeated"] is False
    assert len(list(client.read(topic))) == 4

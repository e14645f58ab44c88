"""The client of a topic with several partitions: writes go by key, reads and watches cover all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer as KafkaProducer

import mainstem
from mainstem.client import CaughtUp, Gap, Record
from mainstem.errors import InvalidInput
from mainstem.records.partitioner import partition_of
from mainstem.testing.broker import ThrowAwayBroker

KEYS = [f"customer-{number}" for number in range(12)]


@pytest.fixture
def orders(client: mainstem.Client, topic: str) -> Iterator[str]:
    """Twelve keyed records in four partitions."""
    client.create_topic(topic, partitions=4)
    for number, key in enumerate(KEYS):
        client.produce(topic, {"n": number}, key=key, headers={"source": "web", "raw": b"\xff", "none": None})
    return topic


def records(items: Iterator[Record | Gap]) -> list[Record]:
    return [item for item in items if isinstance(item, Record)]


def test_keys_go_where_kafka_clients_put_them(shared_broker: ThrowAwayBroker, topic: str) -> None:
    client = shared_broker.client
    client.create_topic(topic, partitions=7)
    keys = [f"key-{number}-{'x' * number}" for number in range(40)]
    there: dict[str, int] = {}

    def delivered(error: object, message: object) -> None:
        assert error is None
        there[message.key().decode()] = message.partition()  # type: ignore[attr-defined]

    kafka = KafkaProducer(
        {"bootstrap.servers": shared_broker.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for key in keys:
        kafka.produce(topic, b"v", key=key, on_delivery=delivered)
    kafka.flush(10)
    here = {key: client.produce(topic, 1, key=key).partition for key in keys}
    raw = {key: client.produce(topic, b"1", key=key.encode()).partition for key in keys}
    with client.producer(topic) as producer:
        sent = {key: producer.send(1, key=key) for key in keys}
    assert here == raw == there == {key: one.result().partition for key, one in sent.items()}


def test_reads_cover_all_partitions_in_the_order_of_time(client: mainstem.Client, orders: str) -> None:
    found = records(client.read(orders))
    assert [record.value["n"] for record in found] == list(range(12))
    assert [record.partition for record in found] == [partition_of(key.encode(), 4) for key in KEYS]
    assert client.topic(orders).count == 12
    only = records(client.read(orders, partition=found[0].partition))
    assert [r.seq for r in only] == list(range(1, len(only) + 1))
    assert {r.partition for r in only} == {found[0].partition}


def test_a_read_goes_on_from_a_map(client: mainstem.Client, orders: str) -> None:
    positions = {one.partition: one.head_seq for one in client.topic(orders).partitions or []}
    client.produce(orders, "new", key=KEYS[3])
    (record,) = records(client.read(orders, from_seq=positions))
    assert (record.value, record.key) == ("new", KEYS[3])
    with pytest.raises(InvalidInput, match="4 partitions"):
        list(client.read(orders, from_seq=1))


def test_a_long_read_is_merged_page_by_page(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    for partition, (start, count) in enumerate([(0, 2500), (2400, 100), (5000, 1500)]):
        times = [1_700_000_000_000 + start + n for n in range(count)]
        client.produce_batch(topic, [b"1"] * count, timestamps_ms=times, partition=partition)
    found = records(client.read(topic))
    assert len(found) == 4100
    assert [r.timestamp_ms for r in found] == sorted(r.timestamp_ms for r in found)
    for partition in range(3):
        seqs = [r.seq for r in found if r.partition == partition]
        assert seqs == list(range(1, len(seqs) + 1))


async def test_a_following_read_sees_new_records_of_all_partitions(
    async_client: mainstem.AsyncClient, orders: str
) -> None:
    seen: list[Record] = []
    async for item in async_client.read(orders, follow=True):
        assert isinstance(item, Record)
        seen.append(item)
        if len(seen) == 12:
            for partition in range(4):
                await async_client.produce(orders, "new", partition=partition)
        if len(seen) == 16:
            break
    assert {record.partition for record in seen[12:]} == {0, 1, 2, 3}


async def test_a_watch_covers_all_partitions(async_client: mainstem.AsyncClient, orders: str) -> None:
    keys: list[str | None] = []
    caught_up = 0
    async for event in async_client.watch({orders: 0}):
        if isinstance(event, Record):
            keys.append(event.key)
            assert event.header("source") == b"web"
        caught_up += isinstance(event, CaughtUp)
        if caught_up == 4:
            break
    assert sorted(map(str, keys)) == sorted(KEYS)
    positions = {one.partition: one.head_seq for one in (await async_client.topic(orders)).partitions or []}
    await async_client.produce(orders, "new", partition=1)
    async for event in async_client.watch({orders: positions}):
        if isinstance(event, Record):
            assert (event.value, event.partition) == ("new", 1)
            break


def test_a_record_shows_all_its_parts(client: mainstem.Client, orders: str) -> None:
    record = records(client.read(orders))[0]
    assert record.headers == [("source", b"web"), ("raw", b"\xff"), ("none", None)]
    assert abs((datetime.now(UTC) - record.timestamp).total_seconds()) < 60
    shown = repr(record)
    assert orders in shown
    assert KEYS[0] in shown
    assert "{'n': 0}" in shown


def test_none_is_a_tombstone_and_headers_are_pairs_or_maps(
    client: mainstem.Client, new_name: Callable[[], str]
) -> None:
    topic = new_name()
    client.create_topic(topic, partitions=2, settings={"cleanup.policy": "compact"})
    client.produce(topic, None, key="gone", headers=[("why", "deleted")])
    (stored,) = [
        one for partition in range(2) for one in client.batches(topic, partition=partition).records()
    ]
    assert (stored.key, stored.value, stored.headers) == (b"gone", None, (("why", b"deleted"),))
    with pytest.raises(InvalidInput, match="header"):
        client.produce(topic, 1, key="k", headers={"n": 1})  # type: ignore[dict-item]


def test_an_explicit_partition_wins(client: mainstem.Client, orders: str) -> None:
    for partition in range(4):
        assert client.produce(orders, 1, key="same", partition=partition).partition == partition
    with client.producer(orders, partition=2) as producer:
        one, other = producer.send(1, key="same"), producer.send(1, key="same", partition=0)
    assert (one.result().partition, other.result().partition) == (2, 0)


def test_tables_cover_all_partitions_and_times(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, partitions=3)
    start = 1_700_000_000_000
    for number in range(30):
        client.produce_batch(topic, [b"%d" % number], timestamps_ms=[start + number], partition=number % 3)
    table = client.read_arrow(topic)
    assert table["value"].to_pylist() == [b"%d" % number for number in range(30)]
    assert table["partition"].to_pylist() == [number % 3 for number in range(30)]
    some = client.read_arrow(topic, since=start + 10, until=datetime.fromtimestamp((start + 20) / 1000, UTC))
    assert some["value"].to_pylist() == [b"%d" % number for number in range(10, 20)]
    assert client.read_arrow(topic, limit=5).num_rows == 5
    assert client.read_arrow(topic, partition=1).num_rows == 10
    with pytest.raises(InvalidInput, match="time zone"):
        client.read_arrow(topic, since=datetime(2026, 1, 1))


def test_deletes_by_key_cover_all_partitions(client: mainstem.Client, orders: str) -> None:
    assert client.delete_records(orders, match="customer-*").deleted == 12
    assert client.topic(orders).count == 0

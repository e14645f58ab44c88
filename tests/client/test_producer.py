"""The batching producer: order, batches, back-pressure, and exactly once through a kill -9."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import wait

import msgspec
import pytest

import mainstem
from mainstem.api.base import Performance
from mainstem.api.records import WriteResult
from mainstem.client.responses import ConsumerRecord
from mainstem.errors import Closed, InvalidInput, TopicFull, TopicNotFound, Unreachable
from mainstem.testing.broker import ThrowAwayBroker

from .answering import AnsweringServer, Asked, Said


def _values(client: mainstem.Client, topic: str) -> list[object]:
    return [record.value for record in client.read(topic) if isinstance(record, ConsumerRecord)]


def _written(first: int, last: int, *, deduped: bool = False) -> Said:
    result = WriteResult("t", first, last, last, last - first + 1, False, deduped, Performance(0.1))
    return Said(200, msgspec.json.encode(result))


def test_records_arrive_in_order_and_say_where(client: mainstem.Client, topic: str) -> None:
    with client.producer(topic, batch_records=100) as producer:
        deliveries = [producer.send(number, key=str(number)) for number in range(1050)]
    assert [delivery.result(0).seq for delivery in deliveries] == [*range(1, 1051)]
    assert _values(client, topic) == [*range(1050)]


def test_json_and_bytes_keep_their_order_among_each_other(client: mainstem.Client, topic: str) -> None:
    values = [n if n % 3 else b"\xff%d" % n for n in range(60)]
    with client.producer(topic) as producer:
        for value in values:
            producer.send(value)
    assert _values(client, topic) == values


def test_jobs_are_handed_out_after_their_own_delay(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, type="queue")
    hour = 3_600_000
    with client.producer(topic) as producer:
        for value in ("a", b"b", "c", b"d"):
            producer.send(value, delay_ms=hour)
            producer.send(value)
    jobs = client.claim(topic, node="w", max=10)
    assert [job.seq for job in jobs] == [2, 4, 6, 8]
    assert client.topic(topic).count == 8


def test_records_have_their_own_time_to_live() -> None:
    asked: list[Asked] = []

    def answer(request: Asked) -> Said:
        asked.append(request)
        return _written(1, 1)

    with (
        AnsweringServer(answer) as server,
        mainstem.Client(server.url) as client,
        client.producer("t", linger_ms=60_000) as producer,
    ):
        for ttl_ms in (0, 5, 5, 6):
            producer.send("text", ttl_ms=ttl_ms)
        for ttl_ms in (5, 5, 6):
            producer.send(b"bytes", ttl_ms=ttl_ms)
    texts, *batches = asked
    assert [row.get("ttl_ms", 0) for row in msgspec.json.decode(texts.body)["records"]] == [0, 5, 5, 6]
    assert [batch.path.rpartition("ttl_ms=")[2] for batch in batches] == ["5", "6"]


def test_a_batch_goes_when_it_is_full_or_has_lingered() -> None:
    batches: list[int] = []
    arrived = threading.Event()

    def answer(asked: Asked) -> Said:
        first = 1 + sum(batches)
        batches.append(asked.body.count(b'"data"'))
        arrived.set()
        return _written(first, first + batches[-1] - 1)

    with AnsweringServer(answer) as server, mainstem.Client(server.url) as client:
        with client.producer("t", batch_records=4, linger_ms=60_000) as producer:
            full = [producer.send(number) for number in range(4)]
            assert [delivery.result(10).seq for delivery in full] == [1, 2, 3, 4]
            last = producer.send("last")
            assert not last.done()
        assert last.result(0).seq == 5  # closing flushes
        assert batches == [4, 1]
        arrived.clear()
        with client.producer("t", linger_ms=1) as producer:
            assert producer.send("lingers").result(10).seq == 6


def test_a_full_buffer_makes_the_sender_wait() -> None:
    opened = threading.Event()

    def answer(asked: Asked) -> Said:
        opened.wait(30)
        return _written(1, 1)

    with AnsweringServer(answer) as server, mainstem.Client(server.url) as client:
        producer = client.producer("t", batch_records=1, buffer_bytes=100, linger_ms=0)
        sent = threading.Semaphore(0)

        def send_all() -> None:
            for _ in range(20):
                producer.send("x" * 40)
                sent.release()

        sender = threading.Thread(target=send_all)
        sender.start()
        for _ in range(2):
            assert sent.acquire(timeout=10)
        assert not sent.acquire(timeout=0.2)  # the third has to wait: two are over the buffer
        opened.set()
        sender.join(30)
        assert not sender.is_alive()
        producer.close()


def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    keys: list[str] = []

    def answer(asked: Asked) -> Said:
        keys.append(asked.body.decode().partition('"idempotency_key":"')[2].partition('"')[0])
        if len(keys) < 3:
            return Said(0)  # hangs up: nobody knows whether it was written
        return _written(1, 1, deduped=True)

    with AnsweringServer(answer) as server, mainstem.Client(server.url) as client:
        with client.producer("t") as producer:
            delivery = producer.send(1)
        assert delivery.result(0).seq == 1
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert len(keys[0]) > 16


def test_failures_reach_the_future_and_the_flush(client: mainstem.Client, topic: str) -> None:
    client.create_topic(topic, cap_records=2, discard="reject")
    producer = client.producer(topic, batch_records=1)
    deliveries = [producer.send(number) for number in range(4)]
    with pytest.raises(TopicFull):
        producer.flush()
    assert [delivery.exception() is None for delivery in deliveries] == [True, True, False, False]
    producer.flush()  # told once
    producer.send(5)
    with pytest.raises(TopicFull):
        producer.close()
    with pytest.raises(Closed):
        producer.send(6)
    with pytest.raises(TopicNotFound), client.producer("no-such-topic", create=False) as other:
        other.send(1)


def test_a_record_that_cannot_be_said_spoils_no_other(client: mainstem.Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.send(1)
        with pytest.raises(InvalidInput):
            producer.send(object())
        producer.send(2)
    assert _values(client, topic) == [1, 2]
    with pytest.raises(InvalidInput):
        client.producer(topic, batch_records=0)


def test_nobody_there_is_told_after_the_delivery_timeout() -> None:
    with mainstem.Client("http://127.0.0.1:9", timeout=0.3) as client:
        producer = client.producer("t", delivery_timeout_s=0.3)
        delivery = producer.send(1)
        with pytest.raises(Unreachable):
            delivery.result(20)
        with pytest.raises(Unreachable):
            producer.close()


def test_a_server_that_is_gone_fails_all_that_waits_at_once() -> None:
    with mainstem.Client("http://127.0.0.1:9") as client:
        producer = client.producer("t", batch_records=1, delivery_timeout_s=0.5)
        began = time.monotonic()
        deliveries = [producer.send(number) for number in range(50)]
        with pytest.raises(Unreachable):
            producer.close()
        assert time.monotonic() - began < 10
        assert all(isinstance(delivery.exception(0), Unreachable) for delivery in deliveries)


def test_closing_the_client_first_leaves_nobody_waiting() -> None:
    with mainstem.Client("http://127.0.0.1:9") as client:
        producer = client.producer("t", batch_records=1)
        deliveries = [producer.send(1), producer.send(2)]
    for delivery in deliveries:
        with pytest.raises(Closed):
            delivery.result(10)


async def test_a_producer_that_waits_for_more_records_closes_at_once(own_broker: ThrowAwayBroker) -> None:
    async with mainstem.AsyncClient(own_broker.url) as client:
        producer = client.producer("t", batch_records=1, linger_ms=60_000)
        await (await producer.send(1))
        await asyncio.sleep(0.05)  # a full batch went out, and the sender waits for another one
        await asyncio.wait_for(producer.close(), 30)
        assert [record.value async for record in client.read("t")] == [1]


async def test_a_flush_after_the_client_was_closed_ends() -> None:
    client = mainstem.AsyncClient("http://127.0.0.1:9")
    producer = client.producer("t", batch_records=1, buffer_bytes=1)
    delivery = await producer.send(1)
    waiting = asyncio.create_task(producer.send(2))
    await asyncio.sleep(0)
    await client.close()
    for ended in (delivery, waiting, producer.flush()):
        with pytest.raises(Closed):
            await asyncio.wait_for(ended, 30)
    await producer.close()


def test_many_threads_share_a_producer(client: mainstem.Client, topic: str) -> None:
    with client.producer(topic) as producer:
        threads = [
            threading.Thread(target=lambda n=n: [producer.send([n, row]) for row in range(200)])
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = _values(client, topic)
    assert len(found) == 800
    for number in range(4):
        assert [row for thread, row in found if thread == number] == [*range(200)]  # type: ignore[misc]


def test_a_killed_server_loses_and_duplicates_nothing(own_broker: ThrowAwayBroker) -> None:
    client = own_broker.client
    client.create_topic("t", durability="fsync")
    client.create_topic("raw", durability="fsync")
    count, kills = 6000, 3
    with client.producer("t", batch_records=20) as texts, client.producer("raw", batch_records=20) as raws:
        deliveries = []
        for number in range(count):
            deliveries += [texts.send(number), raws.send(b"\xff%d" % number)]
            if number % (count // kills) == count // kills // 2:
                wait(deliveries[:-500])
                own_broker.kill()
                own_broker.restart()
    assert _values(client, "t") == [*range(count)]
    assert _values(client, "raw") == [b"\xff%d" % number for number in range(count)]
    assert [delivery.result(0).seq for delivery in deliveries[::2]] == [*range(1, count + 1)]


def test_a_watch_goes_on_after_a_kill(own_broker: ThrowAwayBroker) -> None:
    client = own_broker.client
    client.create_topic("t", durability="fsync")
    client.create_topic("gone")
    watching = client.watch({"t": 0, "gone": 0})
    seen: list[object] = []
    for round in range(3):
        client.produce_many("t", [f"{round}.{row}" for row in range(50)])
        while len(seen) < 50 * (round + 1):
            event = next(watching)
            if isinstance(event, ConsumerRecord):
                seen.append(event.value)
        own_broker.kill()
        own_broker.restart()
    assert seen == [f"{round}.{row}" for round in range(3) for row in range(50)]
    watching.close()  # type: ignore[attr-defined]

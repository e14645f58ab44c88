"""The connection: order, limits, invalid bytes, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import struct

import pytest
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.transport.connection import KafkaLimits
from tests.support.batches import batch

from .conftest import KafkaStage, opened
from .requests import fetch, list_offsets, metadata, produce
from .wire import Wire, request_frame


async def test_bytes_may_come_one_at_a_time(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    slice, _ = batch(b"slow")
    for request in (metadata(12, "t"), produce(9, "t", slice)):
        for byte in request_frame(request, 5):
            wire.send_raw(bytes((byte,)))
            await wire.writer.drain()
            await asyncio.sleep(0)
    for _ in range(2):
        assert (await wire.receive_raw())[:4] == struct.pack(">i", 5)
    assert kafka.broker.partition("t").end == 1


async def test_many_frames_in_one_packet_split_anywhere(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    stream = b"".join(
        request_frame(produce(9, "t", batch(b"x" * 1000 * (index % 7))[0]), index) for index in range(300)
    )
    for at in range(0, len(stream), 70_001):
        wire.send_raw(stream[at : at + 70_001])
        await wire.writer.drain()
    correlations = [struct.unpack(">i", (await wire.receive_raw())[:4])[0] for _ in range(300)]
    assert correlations == list(range(300))


async def test_responses_leave_in_the_order_of_the_requests(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", partitions=2)
    slice, _ = batch(b"a")
    answers = await wire.ask_next(
        fetch(11, "t", (1, 0), wait_ms=40),
        metadata(12, "t"),
        produce(9, "t", slice),
        list_offsets(5, "t", (0, -1)),
        fetch(11, "t", (0, 0), wait_ms=40),
        metadata(9, "t"),
    )
    names = [type(answer).__name__.removesuffix("Response") for answer in answers]
    assert names == ["Fetch", "Metadata", "Produce", "ListOffsets", "Fetch", "Metadata"]


async def test_a_waiting_fetch_does_not_hold_up_a_produce_behind_it(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    slice, _ = batch(b"a")
    fetched, produced = await wire.ask_next(fetch(11, "t", (0, 0), wait_ms=60_000), produce(9, "t", slice))
    assert fetched.responses[0].partitions[0].high_watermark == 1
    assert produced.responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">i", -5) + b"xxxx",
        struct.pack(">i", 0),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 3) + b"\0\0\0",
        struct.pack(">ihhih", 10, 9999, 0, 1, -1),  # no such API
        struct.pack(">ihhih", 10, 3, 99, 1, -1),  # no such version
        struct.pack(">ihhih", 10, 3, 12, 1, 500),  # a client id longer than the request
        struct.pack(">ihhih", 10, 0, 9, 1, -1),  # no body
        struct.pack(">ihhih", 14, 1, 11, 1, -1) + b"\xff" * 4,
        struct.pack(">ihhih", 15, 2, 6, 1, -1) + b"\0\xff\xff\xff\xff",
    ],
)
async def test_invalid_bytes_close_only_that_connection(
    kafka: KafkaStage, wire: Wire, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    other = await kafka.connect()
    await other.ask(metadata(12))
    with caplog.at_level(logging.WARNING):
        wire.send_raw(garbage)
        assert await wire.ended()
    assert [record.msg.name for record in caplog.records] == ["connection dropped"]
    assert await other.ask(metadata(12))
    assert kafka.door.metrics.connections_dropped == 1


async def test_a_length_over_the_limit_costs_no_memory(broker: Broker) -> None:
    async with opened(broker, bounds=KafkaLimits(request_bytes=1000)) as stage:
        wire = await stage.connect()
        wire.send_raw(struct.pack(">i", 1001))
        assert await wire.ended()
        other = await stage.connect()
        assert await other.ask(metadata(12))


async def test_too_many_connections_are_refused(broker: Broker) -> None:
    async with opened(broker, bounds=KafkaLimits(connections=2)) as stage:
        first, second = await stage.connect(), await stage.connect()
        await first.ask(metadata(12))
        await second.ask(metadata(12))
        assert await (await stage.connect()).ended()
        assert stage.door.metrics.connections_refused == 1
        await first.close()
        while True:  # until the server notices that it closed
            third = await stage.connect()
            third.send(metadata(12))
            try:
                await third.receive_raw()
                break
            except (asyncio.IncompleteReadError, ConnectionError):
                await second.ask(metadata(12))


async def test_an_idle_connection_is_closed(broker: Broker) -> None:
    async with opened(broker, bounds=KafkaLimits(idle_s=0.05)) as stage:
        wire = await stage.connect()
        await wire.ask(metadata(12))
        assert await wire.ended()


async def test_a_connection_that_waits_for_a_response_is_not_idle(broker: Broker) -> None:
    await broker.create_topic("t")
    async with opened(broker, bounds=KafkaLimits(idle_s=0.05)) as stage:
        wire = await stage.connect()
        answer = await wire.ask(fetch(11, "t", (0, 0), wait_ms=300))
        assert answer.responses[0].partitions[0].error_code is ErrorCode.none


async def test_reading_stops_at_the_limit_of_requests_in_flight(broker: Broker) -> None:
    """Requests wait behind a slow one; the server holds a few and leaves the rest in the socket."""
    await broker.create_topic("t")
    async with opened(broker, bounds=KafkaLimits(in_flight_requests=4)) as stage:
        wire = await stage.connect()
        for _ in range(3):
            wire.send(fetch(11, "t", (0, 0), wait_ms=50))
        answers = await wire.ask_next(*(metadata(12) for _ in range(50)))
        assert len(answers) == 53


async def test_all_connections_together_hold_a_bounded_number_of_bytes(broker: Broker) -> None:
    await broker.create_topic("t", partitions=2)
    bounds = KafkaLimits(in_flight_bytes_total=5000)
    async with opened(broker, bounds=bounds) as stage:
        first, second = await stage.connect(), await stage.connect()
        slice, _ = batch(b"x" * 3000)
        sent = [wire.ask_next(*(produce(9, "t", slice) for _ in range(30))) for wire in (first, second)]
        for answers in await asyncio.gather(*sent):
            assert len(answers) == 30
        assert broker.partition("t").end == 60


async def test_the_server_stops_reading_from_a_client_that_reads_nothing(broker: Broker) -> None:
    """It requests megabytes again and again and never reads: the server stops reading, and others do not notice."""
    await broker.create_topic("t")
    for _ in range(8):
        await broker.append_values("t", [bytes(900_000)])
    async with opened(broker) as stage:
        greedy, other = await stage.connect(), await stage.connect()
        for _ in range(200):
            greedy.send(fetch(11, "t", (0, 0), max_bytes=8 << 20, partition_max_bytes=8 << 20))
        for _ in range(20):
            await other.ask(metadata(12))
        fetches = stage.door.metrics.of(1).count
        assert fetches < 20
        answers = await greedy.answers()  # it reads at last, and gets everything
        assert len(answers) == 200


async def test_a_stalled_reader_is_disconnected(broker: Broker) -> None:
    await broker.create_topic("t")
    for _ in range(8):
        await broker.append_values("t", [bytes(900_000)])
    async with opened(broker, bounds=KafkaLimits(idle_s=0.1)) as stage:
        greedy = await stage.connect()
        for _ in range(20):
            greedy.send(fetch(11, "t", (0, 0), max_bytes=8 << 20, partition_max_bytes=8 << 20))
        other = await stage.connect()
        assert stage.door.open_connections == 2
        async with asyncio.timeout(30):
            while stage.door.open_connections > 1:
                await other.ask(metadata(12))
        assert (await other.ask(metadata(12))).brokers  # the client that reads stays


async def test_stopping_answers_what_waits_and_closes(broker: Broker) -> None:
    await broker.create_topic("t")
    async with opened(broker) as stage:
        wire = await stage.connect()
        waiting = asyncio.ensure_future(wire.ask(fetch(11, "t", (0, 0), wait_ms=60_000)))
        await (await stage.connect()).ask(metadata(12))
        assert await stage.door.stop(5.0) == 0
        answer = await waiting
        assert answer.responses[0].partitions[0].error_code is ErrorCode.none
        assert await wire.ended()


async def test_every_request_is_counted(kafka: KafkaStage, wire: Wire) -> None:
    await wire.ask(metadata(12, "t"))
    slice, _ = batch(b"a")
    await wire.ask(produce(9, "t", slice))
    await wire.ask(produce(9, "t", b"junk"))
    counters = kafka.door.metrics.of(0)
    assert (counters.count, counters.errors, sum(counters.latencies)) == (2, 1, 2)
    assert kafka.door.metrics.of(3).count == 1

"""Fetch, by hand-made frames of every version."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from mainstem.broker.broker import Broker
from mainstem.doors.kafka.apis.fetch import API
from mainstem.errors import RecordsLost
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.streams import MarkLost
from mainstem.log.read.extents import ReadChunk
from mainstem.records.building import build_batch
from mainstem.records.header import stamp
from tests.support.batches import batch, records_of

from .conftest import KafkaStage
from .requests import fetch, metadata, produce
from .wire import Wire

VERSIONS = range(API.first, API.last + 1)


async def topic_of(broker: Broker, version: int, **options: Any) -> str | uuid.UUID:
    """How a version names the topic `t`; creates the topic."""
    info = await broker.create_topic("t", **options)
    return uuid.UUID(bytes=info.topic_id) if version >= 13 else "t"


def parts_of(answer: Any) -> list[Any]:
    assert answer.session_id == 0 if hasattr(answer, "session_id") else True
    return [part for topic in answer.responses for part in topic.partitions]


def values(part: Any, offset: int = 0) -> list[tuple[int, bytes]]:
    return records_of([memoryview(part.records)] if part.records else [], offset)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_reads_what_was_written(kafka: KafkaStage, wire: Wire, version: int) -> None:
    topic = await topic_of(kafka.broker, version, partitions=2)
    await kafka.broker.append_values("t", [b"a", b"b"])
    await kafka.broker.append_values("t", [b"c"])
    await kafka.broker.append_values("t", [b"z"], partition=1)
    answer = await wire.ask(fetch(version, topic, (0, 1), (1, 0)))
    first, second = parts_of(answer)
    assert (first.error_code, first.high_watermark, first.last_stable_offset) == (ErrorCode.none, 3, 3)
    assert values(first, 1) == [(1, b"b"), (2, b"c")]
    assert values(second) == [(0, b"z")]
    if version >= 5:
        assert first.log_start_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_answers_errors_by_partition(kafka: KafkaStage, wire: Wire, version: int) -> None:
    topic = await topic_of(kafka.broker, version)
    await kafka.broker.append_values("t", [b"a"])
    answer = await wire.ask(fetch(version, topic, (0, 0), (0, 9), (0, -1), (5, 0), wait_ms=60_000))
    codes = [part.error_code for part in parts_of(answer)]
    out = ErrorCode.offset_out_of_range
    assert codes == [ErrorCode.none, out, out, ErrorCode.unknown_topic_or_partition]
    for part in parts_of(answer)[1:]:
        assert (part.high_watermark, part.last_stable_offset) == (-1, -1), "an error comes without offsets"
    missing: str | uuid.UUID = uuid.uuid4() if version >= 13 else "missing"
    (part,) = parts_of(await wire.ask(fetch(version, missing, (0, 0), wait_ms=60_000)))
    expected = ErrorCode.unknown_topic_id if version >= 13 else ErrorCode.unknown_topic_or_partition
    assert part.error_code is expected


async def test_a_fetch_waits_until_something_is_written(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", partitions=20)
    waiting = asyncio.ensure_future(
        wire.ask(fetch(11, "t", *((index, 0) for index in range(20)), wait_ms=60_000))
    )
    writer = await kafka.connect()
    await writer.ask(metadata(12, "t"))
    assert not waiting.done()
    slice, _ = batch(b"news")
    await writer.ask(produce(9, "t", slice, partitions=[13]))
    parts = parts_of(await waiting)
    assert [part.partition_index for part in parts if part.records] == [13]
    assert values(parts[13]) == [(0, b"news")]


async def test_a_fetch_waits_no_longer_than_the_client_wants(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    (part,) = parts_of(await wire.ask(fetch(11, "t", (0, 0), wait_ms=30)))
    assert (part.error_code, part.high_watermark, part.records) == (ErrorCode.none, 0, b"")


async def test_a_fetch_waits_for_the_minimum_bytes(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    waiting = asyncio.ensure_future(wire.ask(fetch(11, "t", (0, 0), wait_ms=60_000, min_bytes=2000)))
    other = await kafka.connect()
    for index in range(8):
        await kafka.broker.append_values("t", [b"%d" % index * 100])
        await other.ask(metadata(12, "t"))
        assert not waiting.done()
    for _ in range(8):
        await kafka.broker.append_values("t", [b"x" * 100])
    (part,) = parts_of(await waiting)
    assert len(part.records) >= 2000
    assert [offset for offset, _ in values(part)][:8] == list(range(8))


async def test_a_fetch_returns_at_least_one_batch_whatever_the_limits(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", partitions=2)
    for partition in (0, 1):
        await kafka.broker.append_values("t", [b"x" * 5000], partition=partition)
        await kafka.broker.append_values("t", [b"y" * 5000], partition=partition)
    answer = await wire.ask(fetch(11, "t", (0, 0), (1, 0), max_bytes=10))
    sizes = [len(values(part)) for part in parts_of(answer)]
    assert sorted(sizes) == [0, 1]


async def test_limits_split_between_the_batches_of_one_produce(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    slice = b"".join(bytes(batch(b"%d" % index * 1000)[0]) for index in range(10))
    await wire.ask(produce(9, "t", slice))
    (part,) = parts_of(await wire.ask(fetch(11, "t", (0, 0), partition_max_bytes=3500)))
    assert [offset for offset, _ in values(part)] == [0, 1, 2]
    (part,) = parts_of(await wire.ask(fetch(11, "t", (0, 3), partition_max_bytes=1)))
    assert [offset for offset, _ in values(part, 3)] == [3]


async def test_a_busy_partition_does_not_starve_the_others(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", partitions=4)
    for partition in range(4):
        await kafka.broker.append_values("t", [b"x" * 1000], partition=partition)
    served = set()
    for _ in range(4):
        answer = await wire.ask(fetch(11, "t", *((index, 0) for index in range(4)), max_bytes=1000))
        served |= {part.partition_index for part in parts_of(answer) if part.records}
    assert served == {0, 1, 2, 3}


async def test_reads_old_records_from_the_log_files(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", config=TopicConfig(durability="disk"))
    for index in range(40):
        await kafka.broker.append_values("t", [b"%d" % index, bytes(100_000)])
    at, found = 0, []
    while at < 80:
        (part,) = parts_of(await wire.ask(fetch(11, "t", (0, at), partition_max_bytes=300_000)))
        assert part.error_code is ErrorCode.none
        got = values(part, at)
        found += got
        at = got[-1][0] + 1
    assert [offset for offset, _ in found] == list(range(80))
    assert [value for offset, value in found if offset % 2 == 0] == [b"%d" % index for index in range(40)]


async def test_no_batch_is_read_from_a_file_only_to_be_dropped(
    kafka: KafkaStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit seldom falls between two batches. The batch that does not fit is left for the next request."""
    await kafka.broker.create_topic("t", config=TopicConfig(durability="disk"))
    for _ in range(40):
        await kafka.broker.append_values("t", [bytes(100_000)])
    read_from_files = 0
    read = kafka.broker.streams.read

    async def counted(*arguments: Any, **options: Any) -> ReadChunk:
        nonlocal read_from_files
        chunk = await read(*arguments, **options)
        read_from_files += sum(map(len, chunk.batches))
        return chunk

    monkeypatch.setattr(kafka.broker.streams, "read", counted)
    monkeypatch.setattr(kafka.broker.streams, "read_cached", lambda *_: None)
    at, served = 0, 0
    while at < 30:
        (part,) = parts_of(await wire.ask(fetch(11, "t", (0, at), partition_max_bytes=250_000)))
        assert len(values(part, at)) == 2
        served += len(part.records)
        at = values(part, at)[-1][0] + 1
    assert read_from_files
    assert read_from_files <= served


@pytest.mark.parametrize(("epoch", "code"), [(0, ErrorCode.none), (3, ErrorCode.unknown_leader_epoch)])
async def test_leader_epochs_are_checked(kafka: KafkaStage, wire: Wire, epoch: int, code: ErrorCode) -> None:
    await kafka.broker.create_topic("t")
    (part,) = parts_of(await wire.ask(fetch(11, "t", (0, 0), epoch=epoch)))
    assert part.error_code is code


async def test_lost_records_are_skipped_but_never_silently(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    for index in range(6):
        await kafka.broker.append_values("t", [b"%d" % index])
    stream = kafka.broker.streams.of("t", 0)
    await kafka.broker.log.propose(MarkLost(stream, 2, 4))
    with pytest.raises(RecordsLost):
        kafka.broker.streams.read_cached(stream, 2, 1000)
    (part,) = parts_of(await wire.ask(fetch(11, "t", (0, 0))))
    assert [offset for offset, _ in values(part)] == [0, 1, 4, 5]
    (part,) = parts_of(await wire.ask(fetch(11, "t", (0, 3))))
    assert [offset for offset, _ in values(part, 3)] == [4, 5]
    assert kafka.door.metrics.losses_passed == 2
    assert kafka.door.metrics.records_lost == 2


async def test_a_topic_deleted_meanwhile_ends_the_wait(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    waiting = asyncio.ensure_future(wire.ask(fetch(11, "t", (0, 0), wait_ms=60_000)))
    await (await kafka.connect()).ask(metadata(12, "t"))
    await kafka.broker.delete_topic("t")
    (part,) = parts_of(await waiting)
    assert part.error_code is ErrorCode.unknown_topic_or_partition


async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(
    kafka: KafkaStage, wire: Wire
) -> None:
    await kafka.broker.create_topic("t")
    wire.send(fetch(11, "t", (0, 0), wait_ms=60_000))
    other = await kafka.connect()
    async with asyncio.timeout(30):
        while not kafka.broker.log.visibility.watched:
            await other.ask(metadata(12, "t"))
        await wire.close()
        while kafka.broker.log.visibility.watched:
            await other.ask(metadata(12, "t"))
    assert not kafka.broker.log.visibility.watched


async def test_ephemeral_topics_are_read_from_memory(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", config=TopicConfig(durability="ephemeral"))
    slice, _ = batch(b"a", b"b")
    await wire.ask(produce(9, "t", slice))
    (part,) = parts_of(await wire.ask(fetch(11, "t", (0, 1))))
    assert values(part, 1) == [(1, b"b")]


async def test_an_idle_client_that_repeats_its_fetch_gets_new_records(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t", partitions=2)
    same = fetch(11, "t", (0, 0), (1, 0), wait_ms=10)
    for _ in range(3):
        assert [part.records for part in parts_of(await wire.ask(same))] == [b"", b""]
    await kafka.broker.append_values("t", [b"between"], partition=1)
    assert values(parts_of(await wire.ask(same))[1]) == [(0, b"between")]
    assert kafka.broker.log.visibility.watched == 0


async def test_an_idle_client_that_repeats_its_fetch_is_woken(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    await wire.ask(fetch(11, "t", (0, 0), wait_ms=1))
    waiting = asyncio.ensure_future(wire.ask(fetch(11, "t", (0, 0), wait_ms=60_000)))
    other = await kafka.connect()
    await other.ask(metadata(12, "t"))
    await kafka.broker.append_values("t", [b"news"])
    (part,) = parts_of(await waiting)
    assert values(part) == [(0, b"news")]


async def test_the_log_start_offset_is_updated_after_a_truncation(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    await kafka.broker.append_values("t", [b"a", b"b"])
    same = fetch(11, "t", (0, 2), wait_ms=1)
    assert parts_of(await wire.ask(same))[0].log_start_offset == 0
    await kafka.broker.trim("t", 2)
    assert parts_of(await wire.ask(same))[0].log_start_offset == 2


async def test_an_idle_client_that_leaves_is_forgotten(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    await wire.ask(fetch(11, "t", (0, 0), wait_ms=1))
    assert kafka.broker.log.visibility.watched == 1
    await wire.close()
    other = await kafka.connect()
    while kafka.broker.log.visibility.watched:
        await other.ask(metadata(12, "t"))


async def test_a_recreated_topic_is_a_different_topic(kafka: KafkaStage, wire: Wire) -> None:
    await kafka.broker.create_topic("t")
    same = fetch(11, "t", (0, 0), wait_ms=1)
    await wire.ask(same)
    await kafka.broker.delete_topic("t")
    await kafka.broker.create_topic("t")
    await kafka.broker.append_values("t", [b"fresh"])
    codes = [parts_of(await wire.ask(same))[0].error_code for _ in range(2)]
    assert codes[-1] is ErrorCode.none
    assert values(parts_of(await wire.ask(same))[0]) == [(0, b"fresh")]


async def test_a_response_holds_no_record_twice_where_reads_overlap(
    kafka: KafkaStage, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches encoded from a part begin where a read began. A client skips records before its fetch offset, and
    treats every other record of a response as new."""
    broker = kafka.broker
    await broker.create_topic("t")
    await broker.append_values("t", [b"%d" % n for n in range(60)])

    def stored(first: int, end: int) -> memoryview:
        batch = build_batch([b"%d" % n for n in range(first, end)], timestamps_ms=1)
        stamp(batch, first, 0)
        return memoryview(batch)

    def read(stream: int, offset: int, max_bytes: int) -> ReadChunk:
        if offset < 40:  # as they were written
            return ReadChunk((stored(0, 20), stored(20, 40)), 40)
        return ReadChunk((stored(35, 60),), 60) if offset < 60 else ReadChunk((), 60)  # made of a part

    monkeypatch.setattr(broker.streams, "read_cached", read)
    found, at = [], 0
    while at < 60:
        # It does not wait for more either, where more is there and has to go into the next response.
        patient = {"min_bytes": 1 << 19, "wait_ms": 60_000} if at == 0 else {}
        (part,) = parts_of(await asyncio.wait_for(wire.ask(fetch(11, "t", (0, at), **patient)), 30))
        found += [offset for offset, _ in values(part, at)]
        at = found[-1] + 1
    assert found == list(range(60))

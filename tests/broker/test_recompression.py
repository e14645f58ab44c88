"""Batches stored in another codec than they were sent in: nothing else about them changes, nor their order."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.recompression import RECOMPRESSED_INLINE_BYTES_MAX
from mainstem.errors import InvalidBatch, TooLarge
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from mainstem.records.compression import CODECS, Codec
from mainstem.records.decoding import decode_records
from mainstem.records.header import HEADER_BYTES, BatchHeader, crc_matches, seal, walk
from tests.support.batches import placed_in_line
from tests.support.machine import Machine

STORED: dict[str, Codec] = {
    "uncompressed": "none",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "zstd": "zstd",
}
LARGE = b"large " * RECOMPRESSED_INLINE_BYTES_MAX


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    machine = Machine(segment_bytes=4 << 20, tail_cache_bytes=1 << 20)
    yield machine
    await machine.kill()


def _batch(*values: bytes, codec: Codec = "none", sequence: int = -1, producer: int = -1) -> bytearray:
    return build_batch(
        values,
        keys=[b"k"] * len(values),
        headers=[[("h", b"v")]] * len(values),
        timestamps_ms=list(range(1000, 1000 + len(values))),
        codec=codec,
        producer=producer,
        producer_epoch=-1 if producer < 0 else 0,
        base_sequence=sequence,
    )


async def _stored(broker: Broker, name: str = "t") -> tuple[list[BatchHeader], list[bytes | None]]:
    """Everything in a topic, as it is stored."""
    headers: list[BatchHeader] = []
    values: list[bytes | None] = []
    fetched = await broker.fetch(name, 0, max_bytes=limits.READ_BYTES_MAX)
    for slice in fetched.batches:
        for header in walk(slice):
            assert crc_matches(slice, header)
            headers.append(header)
        values += [record.value for record in decode_records(slice)]
    return headers, values


@pytest.mark.parametrize("came", CODECS)
@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("size", [10, RECOMPRESSED_INLINE_BYTES_MAX])
async def test_a_batch_is_stored_in_the_topics_codec(
    machine: Machine, kind: str, came: Codec, size: int
) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type=kind))
    values = [bytes([i]) * size for i in range(5)]
    original = next(walk(_batch(*values, codec=came)))
    appended = await broker.append("t", _batch(*values, codec=came))
    assert (appended.base_offset, appended.records, appended.timestamp_ms) == (0, 5, 1004)
    broker = await machine.restart()
    (header,), read = await _stored(broker)
    assert CODECS[header.codec_id] == STORED[kind]
    assert read == values
    for field in ("base_offset", "last_offset_delta", "base_timestamp", "max_timestamp", "count"):
        assert getattr(header, field) == getattr(original, field)
    record = (await broker.read("t", 3))[0]
    assert (record.offset, record.timestamp_ms, record.key, record.headers) == (3, 1003, b"k", (("h", b"v"),))


async def test_a_batch_already_in_the_topics_codec_is_not_touched(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="gzip"))
    batch = _batch(LARGE, codec="gzip")
    await broker.append("t", bytearray(batch))
    (slice,) = (await broker.fetch("t", 0)).batches
    assert bytes(slice[HEADER_BYTES:]) == bytes(batch[HEADER_BYTES:])


async def test_several_batches_of_several_codecs_are_stored_in_one(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="lz4"))
    mixed = bytearray(b"".join(_batch(codec.encode(), b"x", codec=codec) for codec in CODECS))
    await broker.append("t", mixed)
    headers, values = await _stored(broker)
    assert {CODECS[header.codec_id] for header in headers} == {"lz4"}
    assert values[::2] == [codec.encode() for codec in CODECS]


async def test_values_are_stored_in_the_topics_codec_too(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="zstd"))
    await broker.append_values("t", [LARGE, b"small"])
    (header,), values = await _stored(broker)
    assert (CODECS[header.codec_id], values) == ("zstd", [LARGE, b"small"])


async def test_small_batches_do_not_overtake_large_ones(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="gzip"))
    topic = broker.streams.topic("t")
    sent = [b"%d " % i + (LARGE if i % 3 == 0 else b"small") for i in range(12)]
    placed = [placed_in_line(broker, topic, _batch(value)) for value in sent]
    assert [base for base, _ in await asyncio.gather(*placed)] == list(range(12))
    assert (await _stored(broker))[1] == sent


async def test_batches_wait_even_if_the_topic_stops_recompressing_meanwhile(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="gzip"))
    first = placed_in_line(broker, broker.streams.topic("t"), _batch(LARGE))
    config = TopicConfig()
    await broker.alter_topic("t", config)
    second = placed_in_line(broker, broker.streams.topic("t"), _batch(b"later"))
    assert [base for base, _ in await asyncio.gather(first, second)] == [0, 1]


async def test_idempotent_producers_work_with_recompression(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="zstd"))
    topic = broker.streams.topic("t")
    batches = [(LARGE, 0), (b"small", 1), (LARGE, 2), (b"small", 1)]
    placed = [placed_in_line(broker, topic, _batch(v, sequence=s, producer=7)) for v, s in batches]
    assert await asyncio.gather(*placed) == [(0, False), (1, False), (2, False), (1, True)]


async def test_log_append_time_works_with_a_codec(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic(
        "t", config=TopicConfig(compression_type="snappy", timestamp_type="LogAppendTime")
    )
    await broker.append("t", _batch(LARGE, codec="gzip"))
    (header,), values = await _stored(broker)
    assert (header.log_append_time, CODECS[header.codec_id], values) == (True, "snappy", [LARGE])
    assert (await broker.read("t", 0))[0].timestamp_ms == machine.clock.now_ms()


def _garbage(size: int) -> bytearray:
    """A batch with a valid checksum and invalid gzip data."""
    batch = bytearray(HEADER_BYTES) + b"\x1f\x8b garbage" * size
    return seal(batch, attributes=1, last_offset_delta=0, base_timestamp=0, max_timestamp=0, count=1)


@pytest.mark.parametrize("size", [1, RECOMPRESSED_INLINE_BYTES_MAX])
async def test_only_a_batch_that_cannot_be_decompressed_is_refused(machine: Machine, size: int) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="zstd"))
    with pytest.raises(InvalidBatch, match="gzip data is damaged"):
        await broker.append("t", _garbage(size))
    assert (await broker.append("t", _batch(b"next"))).base_offset == 0


async def test_a_batch_that_grows_over_the_topics_limit_is_refused(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic(
        "t", config=TopicConfig(compression_type="uncompressed", max_message_bytes=10_000)
    )
    with pytest.raises(TooLarge, match=r"over the topic's max.message.bytes of 10000"):
        await broker.append("t", _batch(bytes(20_000), codec="gzip"))
    assert (await broker.append("t", _batch(bytes(9_000), codec="gzip"))).base_offset == 0


async def test_a_decompression_bomb_is_refused_before_it_fills_the_memory(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t", config=TopicConfig(compression_type="lz4", max_message_bytes=8 << 20))
    packer = zlib.compressobj(wbits=31, level=1)
    bomb = packer.compress(bytes(limits.BATCH_DECODED_BYTES_MAX + 1)) + packer.flush()
    batch = seal(
        bytearray(HEADER_BYTES) + bomb,
        attributes=1,
        last_offset_delta=0,
        base_timestamp=0,
        max_timestamp=0,
        count=1,
    )
    with pytest.raises(TooLarge, match="decompresses to more than"):
        await broker.append("t", batch)

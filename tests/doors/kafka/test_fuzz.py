"""Deliberately damaged requests: the connection may close, nothing else may happen."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import resource
import struct
from datetime import timedelta
from uuid import UUID

import pytest
from kio.index import load_request_schema

from mainstem.doors.kafka.transport.registry import apis
from tests.support.batches import batch

from .conftest import KafkaStage
from .messages import make
from .requests import fetch, list_offsets, metadata, produce
from .wire import request_frame

FRAMES = 1000  # for each seed
MEMORY_BYTES_MAX = 200 << 20

_ACKNOWLEDGED = {"first_offset": 0, "last_offset": 2, "acknowledge_types": (1, 2, 3)}
_SHARED = {"partition_index": 0, "acknowledgement_batches": [_ACKNOWLEDGED]}
SHARE_FETCH = {
    "group_id": "g",
    "member_id": "m",
    "share_session_epoch": 0,
    "max_wait": timedelta(milliseconds=1),
    "min_bytes": 1,
    "max_records": 10,
    "batch_size": 10,
    "topics": [{"topic_id": UUID(int=1), "partitions": [_SHARED]}],
    "forgotten_topics_data": [{"topic_id": UUID(int=1), "partitions": (1,)}],
}


def valid_frames() -> list[bytes]:
    slice, _ = batch(*(b"%d" % index for index in range(20)))
    requests = [
        *(produce(version, "t", slice) for version in (3, 8, 9, 12)),
        *(fetch(version, "t", (0, 0), (1, 3), wait_ms=1) for version in (4, 7, 11, 12)),
        *(list_offsets(version, "t", (0, -1), (1, 5)) for version in (1, 4, 7)),
        *(metadata(version, "t", "u", create=False) for version in (1, 9, 12)),
        *(make(load_request_schema(78, version), SHARE_FETCH) for version in (1, 2)),
        *(make(load_request_schema(79, version), SHARE_FETCH) for version in (1, 2)),
    ]
    return [request_frame(request, 1) for request in requests]


def damaged(frame: bytes, chance: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(4, len(data))
        kind = chance.randrange(5)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.choice((0, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            del data[at : at + chance.randint(1, 9)]
        elif kind == 3:
            data[at:at] = chance.randbytes(chance.randint(1, 9))
        else:
            data[at : at + 4] = struct.pack(">i", chance.choice((-1, -(2**31), 2**31 - 1, 1 << 24)))
        if len(data) <= 5:
            break
    if chance.random() < 0.9:  # else the length is wrong too
        data[:4] = struct.pack(">i", len(data) - 4)
    return bytes(data)


def nonsense(chance: random.Random) -> bytes:
    """A valid header of a random API and version, and a body of noise."""
    key, api = chance.choice(sorted(apis().items()))
    version = chance.randint(api.first, api.last)
    body = struct.pack(">hhih", key, version, 1, -1) + chance.randbytes(chance.randint(0, 60))
    return struct.pack(">i", len(body)) + body


async def send_and_hang_up(kafka: KafkaStage, frame: bytes) -> None:
    reader, writer = await asyncio.open_connection(kafka.address.host, kafka.address.port)
    with contextlib.suppress(ConnectionError):
        writer.write(frame)
        writer.write_eof()
        await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("seed", range(4))
async def test_damaged_requests_affect_no_other_client(
    kafka: KafkaStage, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    chance = random.Random(seed)
    await kafka.broker.create_topic("t", partitions=2)
    await kafka.broker.append_values("t", [b"before"])
    other = await kafka.connect()
    frames = valid_frames()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with caplog.at_level(logging.ERROR):
        for index in range(FRAMES):
            frame = nonsense(chance) if index % 4 == 0 else damaged(chance.choice(frames), chance)
            await send_and_hang_up(kafka, frame)
            if index % 50 == 0:
                assert (await other.ask(metadata(12, "t"))).topics[0].name == "t"
    assert [record.exc_text or record.getMessage() for record in caplog.records] == []  # no bug was found
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < MEMORY_BYTES_MAX
    values = {record.value for record in await kafka.broker.read("t", 0, max_records=100_000)}
    assert values <= {b"before", *(b"%d" % index for index in range(20))}
    assert kafka.door.open_connections <= 2


async def test_a_flood_of_half_requests_costs_what_was_sent(kafka: KafkaStage) -> None:
    """Each announces 90 MiB and sends a little: memory grows by what was sent, not by what was announced."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    wires = [await kafka.connect() for _ in range(100)]
    for wire in wires:
        wire.send_raw(struct.pack(">i", 90 << 20) + bytes(10_000))
        await wire.writer.drain()
    other = await kafka.connect()
    assert await other.ask(metadata(12))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < MEMORY_BYTES_MAX

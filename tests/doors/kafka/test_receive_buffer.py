"""Bulk requests stay where they were received: no client's bytes end up in another's batch."""

from __future__ import annotations

import asyncio
import random
import struct
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.kafka.transport.receive_buffer import (
    KAFKA_LANDING_BLOCK_BYTES,
    KAFKA_LANDING_FRAME_BYTES_MAX,
    ReceiveBuffer,
    fresh,
)
from mainstem.doors.kafka.transport.wire import KAFKA_KEPT_IN_PLACE_BYTES_MIN, kept
from mainstem.ledger.config import TopicConfig
from tests.support.batches import batch

from .conftest import KafkaStage
from .requests import metadata, produce
from .wire import Wire, request_frame


def test_space_is_never_given_out_twice() -> None:
    landing = ReceiveBuffer()
    first = landing.room(0)
    first[:5] = b"first"
    landing.take(5)
    landing.room(0)[:6] = b"second"
    landing.take(6)
    assert first[:11] == b"firstsecond"
    landing.take(len(first) - 11 - limits.KAFKA_RECEIVE_BUFFER_BYTES + 1)
    following = landing.room(0)
    assert following.obj is not first.obj
    assert len(following) == KAFKA_LANDING_BLOCK_BYTES


def _fill(landing: ReceiveBuffer) -> memoryview:
    """Receive a batch at the end of a block, so that the next one needs another."""
    room = landing.room(0)
    landing.take(len(room))
    return kept(room, len(room) - KAFKA_KEPT_IN_PLACE_BYTES_MIN, len(room))  # type: ignore[return-value]


def _owner(view: memoryview) -> int:
    return np.frombuffer(view.obj, np.uint8).ctypes.data  # type: ignore[arg-type]


def test_a_block_is_reused_once_nothing_refers_to_it() -> None:
    landing = ReceiveBuffer()
    held = [_fill(landing) for _ in range(3)]
    assert len({_owner(one) for one in held}) == 3
    first = _owner(held.pop(0))
    assert _owner(_fill(landing)) == first  # nothing refers to it any more
    part = held.pop(0)[100:200]  # a block is not free while a slice of it is referenced
    assert _owner(_fill(landing)) not in (_owner(part), _owner(held[0]))


def test_a_block_held_for_long_does_not_prevent_reuse_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainstem.doors.kafka.transport.receive_buffer.KAFKA_LANDING_BLOCKS_MAX", 4)
    landing = ReceiveBuffer()
    stuck = _fill(landing)
    stuck[:5] = b"stuck"
    owners = {_owner(_fill(landing)) for _ in range(20)}
    assert len(owners) <= 5
    assert _owner(stuck) not in owners
    assert stuck[:5] == b"stuck"


def test_unused_blocks_are_freed() -> None:
    landing = ReceiveBuffer()
    held = [_fill(landing) for _ in range(3)]
    owners = [weakref.ref(one.obj) for one in held]  # type: ignore[arg-type]
    del held[1]
    landing.let_go()
    assert [owner() is not None for owner in owners] == [True, False, True]


@pytest.mark.parametrize("left", [0, 1, limits.KAFKA_RECEIVE_BUFFER_BYTES, 900_000])
def test_there_is_space_for_another_frame_of_the_same_size(left: int) -> None:
    landing = ReceiveBuffer()
    landing.take(len(landing.room(0)) - left)
    assert len(landing.room(900_000)) >= 900_000


def test_large_frames_get_their_own_memory_instead_of_most_of_a_block() -> None:
    landing = ReceiveBuffer()
    first = landing.room(0)
    landing.take(len(first) - KAFKA_LANDING_FRAME_BYTES_MAX)
    assert landing.room(50 * limits.MIB).obj is first.obj


def test_large_requests_stay_in_place_and_small_ones_are_copied() -> None:
    block = fresh(KAFKA_KEPT_IN_PLACE_BYTES_MIN + 10)
    large = kept(block, 5, 5 + KAFKA_KEPT_IN_PLACE_BYTES_MIN)
    assert np.shares_memory(np.frombuffer(large, np.uint8), np.frombuffer(block, np.uint8))
    assert isinstance(kept(block, 0, KAFKA_KEPT_IN_PLACE_BYTES_MIN - 1), bytearray)
    shared = memoryview(bytearray(len(block)))
    assert isinstance(kept(shared, 0, len(shared)), bytearray)


async def _records(broker: Broker, partition: int) -> list[bytes]:
    end = broker.partition("t", partition).end
    found: list[bytes] = []
    while len(found) < end:
        found += [record.value or b"" for record in await broker.read("t", len(found), partition=partition)]
    return found


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """With a small tail cache, so that blocks are reused again and again."""
    broker = await Broker.open(BrokerOptions(tmp_path / "data", tail_cache_bytes=2 * limits.MIB))
    yield broker
    await broker.close()


@pytest.mark.parametrize("seed", range(3))
async def test_concurrent_producers_keep_their_bytes(kafka: KafkaStage, seed: int) -> None:
    """Small and large requests in any mixture, split anywhere, on connections that are read in turn."""
    chance = random.Random(seed)
    await kafka.broker.create_topic("t", partitions=3, config=TopicConfig(max_message_bytes=4_000_000))
    sent: list[list[bytes]] = [[], [], []]

    async def produce_all(partition: int) -> None:
        wire = await Wire.connect(kafka.address)
        frames = []
        for number in range(40):
            size = chance.choice((1, 100, 7_000, 9_000, 64_000, 64_000, 64_000, 300_000, 1_000_000))
            size = 1_500_000 if number == 20 else size
            value = b"%d/%d " % (partition, number) + chance.randbytes(4) * (size // 4)
            sent[partition].append(value)
            frames.append(request_frame(produce(9, "t", batch(value)[0], partitions=[partition]), number))
            if number % 9 == 8:
                frames.append(request_frame(metadata(12, "t"), 1000 + number))
        stream = b"".join(frames)
        answers = asyncio.ensure_future(_answers(wire, len(frames)))
        at = 0
        while at < len(stream):
            step = chance.choice((1, 3, 1_000, 65_536, 300_000, 3_000_000))
            wire.send_raw(stream[at : at + step])
            at += step
            await wire.writer.drain()
            await asyncio.sleep(0)
        correlations = await answers
        assert [one for one in correlations if one < 1000] == list(range(40))
        wire.writer.close()

    await asyncio.gather(*map(produce_all, range(3)))
    for partition in range(3):
        assert await _records(kafka.broker, partition) == sent[partition]


async def _answers(wire: Wire, count: int) -> list[int]:
    return [struct.unpack(">i", (await wire.receive_raw())[:4])[0] for _ in range(count)]

from __future__ import annotations

import asyncio

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.transactions.service import PRODUCER_IDLE_MS
from mainstem.errors import CorruptBatch, InvalidBatch, OutOfOrderSequence, ProducerFenced
from mainstem.records.building import build_batch
from tests.support.batches import produced
from tests.support.history import scan
from tests.support.machine import Machine
from tests.support.waiting import settle


async def _opened(machine: Machine) -> Broker:
    broker = await machine.open()
    await broker.create_topic("t", partitions=2)
    return broker


async def _again(machine: Machine, how: str) -> Broker:
    if how == "clean":
        return await machine.restart()
    await machine.kill()
    return await machine.open()


RESTARTS = pytest.mark.parametrize("how", ["none", "clean", "kill"])


@RESTARTS
async def test_a_retry_returns_the_first_offset_and_writes_nothing(machine: Machine, how: str) -> None:
    broker = await _opened(machine)
    for number in range(5):
        appended = await broker.append("t", produced(7, 2 * number, b"a%d" % number, b"b"))
        assert (appended.base_offset, appended.duplicate) == (2 * number, False)
    if how != "none":
        broker = await _again(machine, how)
    for number in range(5):
        appended = await broker.append("t", produced(7, 2 * number, b"a%d" % number, b"b"))
        assert (appended.base_offset, appended.duplicate) == (2 * number, True)
    assert broker.partition("t").end == 10
    assert (await broker.append("t", produced(7, 10, b"next"))).base_offset == 10


@RESTARTS
async def test_a_gap_in_the_sequence_is_refused(machine: Machine, how: str) -> None:
    broker = await _opened(machine)
    await broker.append("t", produced(7, 0, b"a", b"b"))
    if how != "none":
        broker = await _again(machine, how)
    for sequence in (1, 3, 4, 100):
        with pytest.raises(OutOfOrderSequence):
            await broker.append("t", produced(7, sequence, b"x"))
    with pytest.raises(OutOfOrderSequence):
        await broker.append("t", produced(8, 5, b"x"))
    assert broker.partition("t").end == 2
    assert (await broker.append("t", produced(7, 2, b"c"))).base_offset == 2


@RESTARTS
async def test_an_older_epoch_is_fenced(machine: Machine, how: str) -> None:
    broker = await _opened(machine)
    await broker.append("t", produced(7, 0, b"old", epoch=0))
    await broker.append("t", produced(7, 0, b"new", epoch=1))
    if how != "none":
        broker = await _again(machine, how)
    with pytest.raises(ProducerFenced):
        await broker.append("t", produced(7, 1, b"zombie", epoch=0))
    assert (await broker.append("t", produced(7, 1, b"new", epoch=1))).base_offset == 2


async def test_each_partition_has_its_own_sequence(machine: Machine) -> None:
    broker = await _opened(machine)
    for number in range(3):
        for partition in (0, 1):
            assert (await broker.append("t", produced(7, number, b"x"), partition)).base_offset == number


async def test_a_retry_in_the_same_commit_group_is_detected(machine: Machine) -> None:
    broker = await _opened(machine)
    port = machine.port
    assert port is not None
    port.append_gate.clear()
    tasks = [
        asyncio.ensure_future(broker.append("t", produced(7, sequence, b"%d" % sequence)))
        for sequence in (0, 0, 1, 0, 1, 2)
    ]
    await settle()
    port.append_gate.set()
    done = await asyncio.gather(*tasks)
    assert [(one.base_offset, one.duplicate) for one in done] == [
        (0, False),
        (0, True),
        (1, False),
        (0, True),
        (1, True),
        (2, False),
    ]
    assert (await scan(broker, "t"))[0] == {0: b"0", 1: b"1", 2: b"2"}


async def test_a_retry_is_not_acked_before_its_original_is_durable(machine: Machine) -> None:
    broker = await _opened(machine)
    port = machine.port
    assert port is not None
    await broker.log.sync()
    await port.hold_syncs()
    first = asyncio.ensure_future(broker.append("t", produced(7, 0, b"x")))
    await settle()
    again = asyncio.ensure_future(broker.append("t", produced(7, 0, b"x")))
    await settle(5000)
    assert not first.done()
    assert not again.done()
    port.sync_gate.set()
    assert [(await first).duplicate, (await again).duplicate] == [False, True]


async def test_a_batch_damaged_in_transit_is_refused_and_can_be_retried(
    machine: Machine,
) -> None:
    broker = await _opened(machine)
    batch = produced(7, 0, b"value")
    damaged = bytearray(batch)
    damaged[-2] ^= 1
    with pytest.raises(CorruptBatch):
        await broker.append("t", damaged)
    for cut in (1, 30, len(batch) - 1):
        with pytest.raises(InvalidBatch):
            await broker.append("t", batch[:cut])
    assert (await broker.append("t", batch)).base_offset == 0


async def test_long_idle_producers_are_forgotten(machine: Machine) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    producer, _ = await broker.transactions.new_producer()
    await broker.append(
        "t", build_batch([b"v"], timestamps_ms=1, producer=producer, producer_epoch=0, base_sequence=0)
    )
    await broker.transactions.enforce()
    assert len(broker.log.ledger.producers) == 1
    machine.clock.advance(PRODUCER_IDLE_MS + 2 * limits.PRODUCER_TIME_STEP_MS)
    await broker.transactions.enforce()
    assert len(broker.log.ledger.producers) == 0

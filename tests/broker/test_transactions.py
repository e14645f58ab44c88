"""Transactions through the broker: what readers of every kind see of them, before and after a crash."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.transactions.service import TRANSACTIONAL_ID_IDLE_MS, ProducerStamp
from mainstem.errors import (
    InvalidInput,
    InvalidTransaction,
    ProducerFenced,
    ProducerUnknown,
    TransactionNotFound,
)
from mainstem.ledger.config import Durability, TopicConfig
from mainstem.ledger.transactional_ids import TransactionPhase
from mainstem.log.read.views import CONTROL_BATCH_BYTES, View
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.port import Placement
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import BatchHeader, crc_matches, walk
from tests.support.clock import ManualClock
from tests.support.machine import Machine
from tests.support.waiting import until

TIME_MS = 1_700_000_000_000
CLASSES: list[Durability] = ["memory", "disk", "fsync"]


def options(path: Path) -> BrokerOptions:
    return BrokerOptions(path / "data", segment_bytes=1 << 20)


class Stage:
    """A broker that can be stopped, or abandoned as if the process were killed, and opened again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(TIME_MS)

    async def open(self) -> Broker:
        self.broker = await Broker.open(options(self.path), self.clock)
        return self.broker

    async def reopen(self, *, clean: bool) -> Broker:
        if clean:
            await self.broker.close()
        else:
            await abandon(self.broker)
        return await self.open()


async def abandon(broker: Broker) -> None:
    """Leave the directory as a killed process would: without a clean stop."""
    await broker.retention.rounds.stop()
    await broker.transactions.rounds.stop()
    await broker.log._stop_tasks()
    await broker.log._port.close()


class Writer:
    """A transactional producer."""

    def __init__(self, broker: Broker, stamp: ProducerStamp) -> None:
        self.broker = broker
        self.stamp = stamp
        self.sequences: dict[tuple[str, int], int] = {}

    @classmethod
    async def start(cls, broker: Broker, id: str = "tx", timeout_ms: int = 60_000) -> Writer:
        return cls(broker, ProducerStamp(id, *await broker.transactions.initialise(id, timeout_ms)))

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> int:
        stream = self.broker.streams.of(topic, partition)
        await self.broker.transactions.add_partitions(self.stamp, [stream])
        return await self.append(topic, *values, partition=partition)

    async def append(self, topic: str, *values: bytes, partition: int = 0) -> int:
        sequence = self.sequences.get((topic, partition), 0)
        batch = build_batch(
            values,
            timestamps_ms=TIME_MS,
            producer=self.stamp.producer,
            producer_epoch=self.stamp.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        appended = await self.broker.append(topic, batch, partition)
        self.sequences[topic, partition] = sequence + len(values)
        return appended.base_offset

    async def end(self, *, commit: bool) -> None:
        await self.broker.transactions.end(self.stamp, commit=commit)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    await stage.open()
    yield stage
    await stage.broker.close()


async def seen(broker: Broker, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    """What every reader except a Kafka client sees, read in the smallest steps."""
    start = broker.partition(topic, partition).start
    records = []
    while found := await broker.read(topic, start, partition=partition, max_records=1, max_bytes=1):
        records += found
        start = found[-1].offset + 1
    assert records == await broker.read(topic, 0, partition=partition, max_records=1_000)
    return [record.value for record in records]


async def stored(broker: Broker, topic: str = "t", max_bytes: int = 1 << 20) -> list[BatchHeader]:
    """The headers that a Kafka client gets, from start to end."""
    stream = broker.streams.of(topic, 0)
    at, end = broker.streams.bounds(stream)
    headers: list[BatchHeader] = []
    while at < end:
        cached = broker.streams.read_cached(stream, at, max_bytes)
        chunk = await broker.streams.read(stream, at, max_bytes)
        assert cached is None or cached == chunk
        assert chunk.next_offset > at
        for slice in chunk.batches:
            for header in walk(slice):
                assert crc_matches(slice, header)
                headers.append(header)
        at = chunk.next_offset
    assert at == end
    return headers


@pytest.mark.parametrize("durability", CLASSES)
async def test_readers_see_committed_records_only(stage: Stage, durability: Durability) -> None:
    broker = stage.broker
    await broker.create_topic("t", config=TopicConfig(durability=durability))
    await broker.append_values("t", [b"before"])
    good = await Writer.start(broker, "good")
    bad = await Writer.start(broker, "bad")
    await good.write("t", b"g1", b"g2")
    await bad.write("t", b"b1")
    await broker.append_values("t", [b"between"])
    assert await seen(broker) == [b"before"]
    await bad.append("t", b"b2")
    await bad.end(commit=False)
    assert await seen(broker) == [b"before"]
    await good.append("t", b"g3")
    await good.end(commit=True)
    assert await seen(broker) == [b"before", b"g1", b"g2", b"between", b"g3"]
    assert broker.partition("t").records == 5
    for clean in (False, True):
        broker = await stage.reopen(clean=clean)
        assert await seen(broker) == [b"before", b"g1", b"g2", b"between", b"g3"]
        assert broker.partition("t").records == 5


async def test_kafka_readers_get_every_batch_and_the_markers_in_their_places(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    writer = await Writer.start(broker)
    await writer.write("t", b"1", b"2")
    await writer.end(commit=True)
    await writer.write("t", b"3")
    await broker.append_values("t", [b"plain"])
    await writer.end(commit=False)
    expected = [(0, False, 2), (2, True, 1), (3, False, 1), (4, False, 1), (5, True, 1)]
    for max_bytes in (1, 100, 1 << 20):
        headers = await stored(broker, max_bytes=max_bytes)
        assert [(one.base_offset, one.control, one.count) for one in headers] == expected
    marker = headers[1]
    assert (marker.producer, marker.producer_epoch) == (writer.stamp.producer, writer.stamp.epoch)
    assert marker.transactional
    assert marker.max_timestamp == TIME_MS
    stream = broker.streams.of("t", 0)
    assert broker.streams.aborted(stream, 0, 6) == [(writer.stamp.producer, 3)]
    for clean in (False, True):
        broker = await stage.reopen(clean=clean)
        assert await stored(broker) == headers
        assert broker.streams.aborted(stream, 0, 6) == [(writer.stamp.producer, 3)]
        assert broker.streams.stable_end(stream, 6) == 6


async def test_a_control_batch_says_how_the_transaction_ended(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    writer = await Writer.start(broker)
    for commit in (True, False):
        await writer.write("t", b"x")
        await writer.end(commit=commit)
    stream = broker.streams.of("t", 0)
    for offset, kind in ((1, 1), (3, 0)):
        chunk = await broker.log.streams.of(stream).read(stream, offset, 1, view=View.STORED)
        [batch] = chunk.batches[:1]
        assert len(batch) == CONTROL_BATCH_BYTES == 78
        # length 16, attributes, time and offset deltas; then the key of 4 and the value of 6 bytes.
        assert bytes(batch[61:66]) == bytes((32, 0, 0, 0, 8))
        assert struct.unpack_from(">hh", batch, 66) == (0, kind)
        assert batch[70] == 12
        assert struct.unpack_from(">hi", batch, 71) == (0, 0)
        assert batch[77] == 0
        assert list(decode_records(batch)) == []


async def test_a_reader_at_the_stable_end_wakes_when_the_transaction_ends(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    writer = await Writer.start(broker)
    waiting = asyncio.create_task(broker.read("t", 0, max_wait_ms=20_000))
    await writer.write("t", b"x")
    await asyncio.sleep(0)
    assert not waiting.done()
    await writer.end(commit=True)
    assert [record.value for record in await waiting] == [b"x"]


async def test_no_reader_stops_at_a_marker(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    writer = await Writer.start(broker)
    for number in range(4):
        await writer.write("t", f"{number}".encode())
        await writer.end(commit=number % 2 == 1)
    assert [one.value for one in await broker.read("t", 2)] == [b"1", b"3"]
    assert await broker.read("t", 7) == []
    fetched = await broker.fetch("t", 7)
    assert (fetched.batches, fetched.next_offset, fetched.end) == ((), 8, 8)
    waiting = asyncio.create_task(broker.read("t", 7, max_wait_ms=20_000))
    await broker.append_values("t", [b"next"])
    assert [(one.offset, one.value) for one in await waiting] == [(8, b"next")]
    assert await broker.offset_at("t", TIME_MS + 1) == 9


async def test_shared_cursors_skip_markers_open_and_aborted_records(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    one, two = await Writer.start(broker, "one"), await Writer.start(broker, "two")
    await one.write("t", b"kept")
    await two.write("t", b"dropped")
    assert await broker.take("t", "g") == []
    await one.end(commit=True)
    assert [record.value for record in await broker.take("t", "g", limit=10)] == [b"kept"]
    await two.end(commit=False)
    await broker.append_values("t", [b"plain"])
    assert [record.value for record in await broker.take("t", "g", limit=10)] == [b"plain"]


async def test_offsets_move_with_the_commit_and_not_before(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    await broker.create_topic("u")
    stream = broker.streams.of("t", 0)
    await broker.commit_offset("g", "t", 1)
    writer = await Writer.start(broker)
    with pytest.raises(InvalidTransaction):
        await broker.transactions.commit_offsets(writer.stamp, "g", [(stream, 9, "")])
    for commit, expected in ((False, 1), (True, 9)):
        await writer.write("u", b"out")
        await broker.transactions.add_group(writer.stamp, "g")
        await broker.transactions.commit_offsets(writer.stamp, "g", [(stream, 9, "")])
        assert broker.committed("g", "t") == 1
        assert broker.transactions.pending("g") == {stream}
        broker = writer.broker = await stage.reopen(clean=False)
        assert broker.transactions.pending("g") == {stream}
        await writer.end(commit=commit)
        assert broker.committed("g", "t") == expected
        assert broker.transactions.pending("g") == set()
    assert await seen(broker, "u") == [b"out"]


async def test_an_open_transaction_survives_a_restart_and_can_be_committed(stage: Stage) -> None:
    await stage.broker.create_topic("t")
    writer = await Writer.start(stage.broker)
    await writer.write("t", b"1")
    writer.broker = broker = await stage.reopen(clean=False)
    assert await seen(broker) == []
    await writer.append("t", b"2")
    writer.broker = broker = await stage.reopen(clean=True)
    await writer.end(commit=True)
    assert await seen(broker) == [b"1", b"2"]
    await writer.end(commit=True)  # a retry
    assert broker.partition("t").end == 3


async def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    slow = await Writer.start(broker, "slow", timeout_ms=5_000)
    quick = await Writer.start(broker, "quick", timeout_ms=60_000)
    await slow.write("t", b"s")
    await quick.write("t", b"q")
    stage.clock.advance(4_999)
    assert await broker.transactions.enforce() == ()
    stage.clock.advance(1)
    assert await broker.transactions.enforce() == ("slow",)
    assert await broker.transactions.enforce() == ()
    with pytest.raises(ProducerFenced):
        await slow.end(commit=True)
    with pytest.raises(ProducerFenced):
        await slow.append("t", b"late")
    await quick.end(commit=True)
    assert await seen(broker) == [b"q"]


async def test_a_zombie_is_fenced(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    zombie = await Writer.start(broker)
    await zombie.write("t", b"old")
    fresh = await Writer.start(broker)
    for attempt in (zombie.append("t", b"x"), zombie.write("t", b"x"), zombie.end(commit=True)):
        with pytest.raises(ProducerFenced):
            await attempt
    await fresh.write("t", b"new")
    await fresh.end(commit=True)
    assert await seen(broker) == [b"new"]


async def test_unused_ids_are_forgotten_after_a_week(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    writer = await Writer.start(broker)
    stage.clock.advance(TRANSACTIONAL_ID_IDLE_MS)
    await broker.transactions.enforce()
    assert broker.transactions.describe("tx").phase is TransactionPhase.EMPTY
    stage.clock.advance(1)
    await broker.transactions.enforce()
    with pytest.raises(TransactionNotFound):
        broker.transactions.describe("tx")
    with pytest.raises(ProducerUnknown):
        await writer.write("t", b"x")


async def test_transactions_and_producers_can_be_described(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t", partitions=2)
    writer = await Writer.start(broker)
    await broker.append_values("t", [b"x"], partition=1)
    await writer.write("t", b"y", b"z", partition=1)
    info = broker.transactions.describe("tx")
    assert (info.phase, info.partitions, info.started_ms) == (TransactionPhase.OPEN, {"t": [1]}, TIME_MS)
    [producer] = broker.transactions.producers(broker.streams.of("t", 1))
    assert (producer.producer, producer.last_sequence, producer.open_since) == (writer.stamp.producer, 1, 1)
    assert broker.transactions.producers(broker.streams.of("t", 0)) == []
    await writer.end(commit=True)
    assert [one.phase for one in broker.transactions.all()] == [TransactionPhase.COMMITTED]
    [producer] = broker.transactions.producers(broker.streams.of("t", 1))
    assert producer.open_since == -1


async def test_ephemeral_topics_refuse_transactions(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("ram", config=TopicConfig(durability="ephemeral"))
    writer = await Writer.start(broker)
    with pytest.raises(InvalidInput):
        await writer.write("ram", b"x")
    with pytest.raises(InvalidTransaction):
        await writer.append("ram", b"x")


async def test_a_reader_does_not_pass_an_end_that_is_not_durable_yet(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    writer = await Writer.start(broker)
    await writer.write("t", b"x")
    log = broker.log
    held = asyncio.Event()
    sync = LocalCommitLog.sync

    async def append_alone(port: LocalCommitLog, *commit: Any) -> tuple[Placement, None]:
        return await port.append(*commit), None

    async def slow_sync(port: LocalCommitLog) -> int:
        await held.wait()
        return await sync(port)

    monkeypatch.setattr(LocalCommitLog, "append_synced", append_alone)
    monkeypatch.setattr(LocalCommitLog, "sync", slow_sync)
    ending = asyncio.create_task(writer.end(commit=True))
    try:
        await until(lambda: int(log.ledger.streams.end[0]) == 2)
        assert log.ledger.streams.stable_end(0) == 2
        assert log.streams.of(0).stable_end(0) == 0
        assert await seen(broker) == []
    finally:
        held.set()
    await ending
    assert log.streams.of(0).stable_end(0) == 2
    assert await seen(broker) == [b"x"]


def sorted_out(slices: list[memoryview], aborted: list[tuple[int, int]]) -> list[tuple[int, bytes | None]]:
    """What a Kafka client makes of stored batches: it skips the producers in the list, each from its first
    aborted offset on until its abort marker."""
    left = sorted(aborted, key=lambda one: one[1])
    skipped: set[int] = set()
    found: list[tuple[int, bytes | None]] = []
    for slice in slices:
        for header in walk(slice):
            while left and left[0][1] < header.next_offset:
                skipped.add(left.pop(0)[0])
            batch = slice[header.position : header.end]
            if header.control:
                if struct.unpack_from(">hh", batch, 66)[1] == 0:
                    skipped.discard(header.producer)
            elif not (header.transactional and header.producer in skipped):
                found += [(record.offset, record.value) for record in decode_records(batch)]
    return found


@pytest.mark.parametrize("seed", range(4))
async def test_kafka_clients_see_the_same_records_as_other_readers(machine: Machine, seed: int) -> None:
    broker = await machine.open()
    await broker.create_topic("t")
    randomness = random.Random(seed)
    writers = [await Writer.start(broker, id) for id in "abc"]
    for number in range(120):
        writer = randomness.choice(writers)
        chance = randomness.random()
        if chance < 0.2:
            await broker.append_values("t", [b"plain"] * randomness.randrange(1, 4))
        elif chance < 0.7:
            await writer.write("t", *[b"%d" % number] * randomness.randrange(1, 4))
        else:
            with contextlib.suppress(InvalidTransaction):
                await writer.end(commit=randomness.random() < 0.5)
    for again in range(3):
        stream = broker.streams.of("t", 0)
        stable = broker.log.streams.of(stream).stable_end(stream)
        for start in randomness.sample(range(stable), 20):
            given = []
            at = start
            while records := await broker.read("t", at, max_bytes=randomness.choice([1, 300, 1 << 20])):
                given += [(record.offset, record.value) for record in records]
                at = records[-1].offset + 1
            slices, at = [], start
            while at < stable:
                chunk = await broker.streams.read(stream, at, randomness.choice([1, 300, 1 << 20]))
                slices += list(chunk.batches)
                at = chunk.next_offset
            kept = sorted_out(slices, broker.streams.aborted(stream, start, stable))
            assert [one for one in kept if start <= one[0] < stable] == given
            headers = [header for slice in slices for header in walk(slice)]
            assert all(one.next_offset == two.base_offset for one, two in itertools.pairwise(headers))
        if again == 0:
            await machine.kill()
            broker = await machine.open()
        else:
            broker = await machine.restart()


async def test_a_transaction_with_two_phase_commit_never_times_out(stage: Stage) -> None:
    broker = stage.broker
    await broker.create_topic("t")
    started = await broker.transactions.initialise_two_phase("tx")
    writer = Writer(broker, ProducerStamp("tx", started.producer, started.epoch))
    await writer.write("t", b"x")
    idle = await Writer.start(broker, "idle")
    await broker.transactions.enforce()
    stage.clock.advance(2 * TRANSACTIONAL_ID_IDLE_MS)
    await broker.append("t", build_batch([b"y"], timestamps_ms=TIME_MS))  # ledger time follows
    assert await broker.transactions.enforce() == ()
    with pytest.raises(TransactionNotFound):  # the open one does not keep unused ids
        broker.transactions.describe(idle.stamp.id)
    started = await broker.transactions.initialise_two_phase("tx", keep=True)
    assert started.kept == (writer.stamp.producer, writer.stamp.epoch)
    await broker.transactions.end(ProducerStamp("tx", started.producer, started.epoch), commit=True)
    assert await seen(broker) == [b"x", b"y"]

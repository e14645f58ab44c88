"""However often data is copied, every reader finds the same record at every offset."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.routers.service import RouterSettings
from mainstem.broker.transactions.service import ProducerStamp
from mainstem.errors import RecordsLost
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.streams import DeleteRecords
from mainstem.log.read.extents import SealedExtents
from mainstem.log.read.views import View
from mainstem.ports.commitlog.local.layout import WAL
from mainstem.ports.commitlog.local.segments import segment_path
from mainstem.records.building import build_batch
from mainstem.records.header import walk
from tests.support.history import scan
from tests.support.lanes import step_instead_of_threads
from tests.support.machine import DIRECTORY, Machine

from .repacking import repacker, write_two

Contents = dict[tuple[int, str, int], Any]


class Writer:
    """Writes to topics of every kind: in transactions, copied by routers, and deleted again."""

    def __init__(self, broker: Broker, seed: int) -> None:
        self.broker = broker
        self.dice = random.Random(seed)
        self._sequences: dict[int, int] = {}
        self._stamp: ProducerStamp | None = None

    async def prepare(self) -> None:
        await self.broker.create_topic("plain", partitions=3, config=TopicConfig(durability="disk"))
        await self.broker.create_topic("quiet")
        await self.broker.create_topic("in_transactions")
        await self.broker.create_topic("gone")
        await self.broker.create_topic("capped", config=TopicConfig(cap_records=20))
        await self.broker.routers.put("r", RouterSettings("plain", "copy"))
        await self.broker.append_values("quiet", [b"only"])

    async def write(self, rounds: int) -> None:
        chances = [self._plain, self._plain, self._plain, self._transaction, self._capped, self._remove]
        for _ in range(rounds):
            await self.dice.choice(chances)()
        await self.broker.routers.drain("copy")

    def _values(self) -> list[bytes]:
        return [self.dice.randbytes(self.dice.choice((3, 60, 300))) for _ in range(self.dice.randint(1, 4))]

    async def _plain(self) -> None:
        for topic in ("plain", "gone"):
            if self.broker.log.ledger.topics.get(topic) is not None:
                await self.broker.append_values(topic, self._values(), partition=0)
        await self.broker.append_values("plain", self._values(), partition=self.dice.randrange(3))

    async def _capped(self) -> None:
        await self.broker.append_values("capped", self._values())
        if self.dice.random() < 0.2:
            await self.broker.append_values("quiet", self._values())

    async def _transaction(self) -> None:
        transactions = self.broker.transactions
        if self._stamp is None:
            self._stamp = ProducerStamp("tx", *await transactions.initialise("tx", 60_000))
        stamp = self._stamp
        await transactions.add_partitions(stamp, [self.broker.streams.of("in_transactions", 0)])
        for _ in range(self.dice.randint(1, 3)):
            values = self._values()
            sequence = self._sequences.get(0, 0)
            batch = build_batch(
                values,
                timestamps_ms=self.broker.clock.now_ms(),
                producer=stamp.producer,
                producer_epoch=stamp.epoch,
                base_sequence=sequence,
                transactional=True,
            )
            await self.broker.append("in_transactions", batch)
            self._sequences[0] = sequence + len(values)
        await transactions.end(stamp, commit=self.dice.random() < 0.5)

    async def _remove(self) -> None:
        topic = self.dice.choice(("plain", "in_transactions"))
        stream = self.broker.streams.of(topic, 0)
        start, end = self.broker.log.streams.of(stream).bounds(stream)
        if end - start < 4:
            return
        first = self.dice.randrange(start, end - 1)
        if self.dice.random() < 0.3:
            await self.broker.trim(topic, min(first, start + 8))
        else:
            last = min(end, first + self.dice.randint(1, 9))
            await self.broker.log.propose(DeleteRecords(stream, ((first, last),)))


async def contents(broker: Broker, step: int = 1) -> Contents:
    """What each kind of reader gets at every `step`-th offset of every stream, and what a search by time finds."""
    found: Contents = {}
    for topic in broker.log.ledger.topics:
        for stream in topic.streams:
            start, end = broker.log.streams.of(stream).bounds(stream)
            for view in View:
                for offset in range(start, end, step):
                    found[stream, view.name, offset] = await _at(broker, stream, offset, view)
            found[stream, "latest", 0] = await broker.log.streams.of(stream).latest_time(stream)
            for time_ms in (0, broker.clock.now_ms() - 500, broker.clock.now_ms()):
                found[stream, "time", time_ms] = await broker.log.streams.of(stream).offset_at(
                    stream, time_ms
                )
    return found


async def _at(broker: Broker, stream: int, offset: int, view: View) -> Any:
    """The batch that holds an offset, or the first after it."""
    at = offset
    try:
        while True:
            chunk = await broker.log.streams.of(stream).read(stream, at, 1, view=view)
            for batches in chunk.batches:
                for header in walk(batches):
                    if header.next_offset > offset:
                        return bytes(batches[header.position : header.end])
            if chunk.next_offset == at:
                return None
            at = chunk.next_offset
    except RecordsLost as loss:
        return ("lost", loss.start, loss.end, loss.reason)


def _damage(machine: Machine, broker: Broker, dice: random.Random) -> None:
    """Flip a bit in a slice of a sealed object."""
    index = broker.log._index
    numbers = [number for number in index.sealed_numbers() if len(index._spans[number])]
    if not numbers:
        return
    number = dice.choice(numbers)
    port = machine.commit_log
    rows = SealedExtents.decode(number, port.read_index(number)).rows
    row = rows[dice.randrange(len(rows))]
    machine.files.flip_bit(
        segment_path(DIRECTORY / WAL, number), int(row["start"]) + int(row["length"]) - 1, 6
    )


@pytest.mark.parametrize("seed", range(3))
async def test_every_offset_reads_the_same_before_during_and_after(
    machine: Machine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_instead_of_threads(monkeypatch, seed)
    broker = await machine.open()
    writer = Writer(broker, seed)
    dice = random.Random(seed)
    await writer.prepare()
    for turn in range(4):
        await writer.write(20)
        machine.clock.advance(400)
        if turn == 1:
            _damage(machine, broker, dice)
        if turn == 2:
            await broker.delete_topic("gone")
        before = await contents(broker)  # so that the damage is recorded
        while await repacker(broker).step():
            assert (await contents(broker, 29)).items() <= before.items()
        await broker.log.collect()
        await repacker(broker).clean()
        assert await contents(broker) == before
        if turn % 2:
            writer.broker = broker = await machine.restart()
            assert (await contents(broker, 7)).items() <= before.items()
            writer._stamp, writer._sequences = None, {}
    ledger = broker.log.ledger
    assert ledger.repacked.frontier > 1
    assert any(one.level == 2 for one in ledger.repacked.rounds)
    assert any(len(one.files) > 1 for one in ledger.repacked.rounds)


async def test_reads_in_flight_survive_the_replacement_of_their_objects(machine: Machine) -> None:
    broker = await machine.open()
    await write_two(broker, 200)
    before = await scan(broker, "busy")
    stop = asyncio.Event()

    async def read_over_and_over() -> int:
        times = 0
        while not stop.is_set():
            assert await scan(broker, "busy") == before
            times += 1
        return times

    readers = [asyncio.ensure_future(read_over_and_over()) for _ in range(3)]
    while await repacker(broker).step():
        await broker.log.collect()
        await repacker(broker).clean()
    stop.set()
    assert all(await asyncio.gather(*readers))

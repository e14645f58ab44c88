"""Readers at every offset, all the time, while the files that serve them are swapped, merged, rewritten and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.broker.read import Record
from mainstem.ledger.config import TopicConfig
from mainstem.tables.garbage import LAKE_GARBAGE_GRACE_MS
from tests.support.lake import Worker
from tests.support.machine import Machine

from .test_lake_reads import drop_log, fill, worker

Shown = dict[int, list[Record]]  # by offset: the record that a read of one record from there returns


_AT_ONCE = 4


class Readers:
    """A few readers that scan all offsets, each from another start."""

    def __init__(self, broker: Broker, expected: Shown) -> None:
        self._broker = broker
        self._expected = expected
        self._rounds = dict.fromkeys(expected, 0)
        self._ending = False
        self._moved = asyncio.Event()

    async def read(self, offsets: list[int]) -> None:
        for offset in cycle(offsets):
            if self._ending:
                return
            found = await self._broker.read("t", offset, max_records=1, max_bytes=1)
            assert found == self._expected[offset], f"offset {offset} changed"
            self._rounds[offset] += 1
            self._moved.set()
            await asyncio.sleep(0)

    async def once_each(self) -> None:
        """Wait until a read that starts after this call has completed at every offset."""
        # A read in progress at each of the readers may have started before.
        goal = {offset: count + 1 + _AT_ONCE for offset, count in self._rounds.items()}
        while any(self._rounds[offset] < count for offset, count in goal.items()):
            self._moved.clear()
            await self._moved.wait()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """They read before, during and after the body."""
        async with asyncio.TaskGroup() as group:
            offsets = list(self._expected)
            for first in range(0, len(offsets), -(-len(offsets) // _AT_ONCE)):
                group.create_task(self.read(offsets[first:] + offsets[:first]))
            await self.once_each()
            yield
            await self.once_each()
            self._ending = True


async def shown(broker: Broker) -> Shown:
    state = broker.partition("t")
    return {
        offset: await broker.read("t", offset, max_records=1, max_bytes=1)
        for offset in range(state.start, state.end)
    }


async def publish_one_by_one(broker: Broker, work: Worker, *kinds: str) -> int:
    """Returns the number of swaps."""
    swaps = 0
    while tasks := await work.plan(*kinds):  # type: ignore[arg-type]
        for task in tasks:
            await broker.lake.publish(await work.work(task))
            swaps += 1
    return swaps


async def collect_files(machine: Machine, broker: Broker) -> int:
    await broker.lake.collect()
    machine.clock.advance(LAKE_GARBAGE_GRACE_MS)
    return (await broker.lake.collect()).files


async def test_every_offset_returns_the_same_record_while_files_are_replaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PART_CHUNK_BYTES", 400)
    monkeypatch.setattr("mainstem.log.read.parts.PART_CACHE_BYTES", 2_000)  # files are read again and again
    broker = await machine.open()
    await fill(broker, batches=10)
    await broker.create_topic("filler")
    expected = await shown(broker)
    assert len(expected) == 60

    with monkeypatch.context() as small:
        small.setattr(limits, "LAKE_TASK_BYTES", 300)  # so that it takes many swaps
        async with Readers(broker, expected).reading():
            assert await publish_one_by_one(broker, worker(machine), "materialise") >= 8
    async with Readers(broker, expected).reading():
        assert await publish_one_by_one(broker, worker(machine), "merge") >= 1
    async with Readers(broker, expected).reading():
        assert await collect_files(machine, broker) >= 8  # the merged ones
    assert await shown(broker) == expected

    await drop_log(machine)
    await worker(machine).run("materialise")
    await drop_log(machine)
    broker = machine.broker or broker
    async with Readers(broker, expected).reading():
        await broker.lake.collect()

    await broker.log.streams.of(0).delete(0, ((3, 5), (30, 41)), 0)
    expected = await shown(broker)
    async with Readers(broker, expected).reading():
        assert await publish_one_by_one(broker, worker(machine), "rewrite") >= 1
        assert await collect_files(machine, broker) >= 1
    broker = await machine.restart()
    assert await shown(broker) == expected


async def test_a_compaction_under_readers_removes_only_what_it_should(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stays reads the same at every moment; what is removed reads as before, or as the next record."""
    monkeypatch.setattr(limits, "PART_CHUNK_BYTES", 400)
    broker = await machine.open()
    await fill(broker, batches=8)  # with records that have no key, which a compacted topic no longer takes
    await broker.alter_topic("t", TopicConfig(cleanup_policy="compact"))
    work = worker(machine)
    await work.run("materialise")
    machine.clock.advance(100_000)
    before = await shown(broker)
    (task,) = await work.plan("compact")
    publication = await work.work(task)
    assert await shown(broker) == before  # the files exist, and nothing is published
    newest = {record.key: offset for offset, (record,) in before.items() if record.offset == offset}
    stays = {
        offset: found
        for offset, found in before.items()
        if found[0].key is None or newest[found[0].key] == offset
    }
    async with Readers(broker, stays).reading():
        await broker.lake.publish(publication)
        assert await collect_files(machine, broker) >= 1
    after = await shown(broker)
    assert {record.offset for records in after.values() for record in records} == set(stays)

"""Several brokers over one log repack the same objects: all use the files of the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from mainstem.broker.broker import Broker
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.repacked_objects import REPACKED
from mainstem.log.log import LogOptions
from mainstem.log.objects.maintenance import LogMaintenance
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.repack.repacker import REPACK_ORPHAN_GRACE_MS
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from tests.support.clock import ManualClock
from tests.support.history import scan
from tests.support.memory_store import MemoryObjectStore

from ..cell import Cell

SMALL = RepackOptions(
    on=False, after_objects=2, least_bytes=0, bytes_per_s=0, merged_rounds=2, file_bytes=2_000, grace_s=0.0
)


class Brokers(Cell):
    """Brokers each of which would maintain the log."""

    def __init__(self) -> None:
        super().__init__(MemoryObjectStore(), object_bytes=4096)
        self.upkeeps: list[LogMaintenance] = []

    async def join(self, number: int) -> Broker:
        options = LogOptions(broker=number, shared=True, checkpoint_every_bytes=0, tail_cache_bytes=0)
        broker = await self.add(replace(options, repack=SMALL), objects=self.store)
        broker.log.maintains = lambda: True
        self.upkeeps.append(broker.log.upkeep())
        return broker

    def repacked_keys(self) -> set[str]:
        return {key for key in self.store.objects if key.startswith(REPACKED)}


@pytest.fixture
async def cell() -> AsyncIterator[Brokers]:
    made = Brokers()
    yield made
    await made.close()


async def _write(cell: Brokers, count: int) -> None:
    for number in range(count):
        broker = cell.brokers[number % len(cell.brokers)]
        await broker.append_values("busy", [b"%d" % number + b"." * 300])
        if number % 5 == 0:
            await broker.append_values("quiet", [b"%d" % number])
    await cell.meet()


async def test_two_brokers_that_repack_at_once_agree_and_leave_nothing_behind(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    await one.create_topic("busy")
    await one.create_topic("quiet")
    await cell.meet()
    for _ in range(3):
        await _write(cell, 60)
        expected = {name: await scan(one, name) for name in ("busy", "quiet")}
        for upkeep in cell.upkeeps:
            await upkeep.round()
        for _ in range(12):
            steps = [broker.log.repacker.step() for broker in cell.brokers if broker.log.repacker is not None]
            if not any(await asyncio.gather(*steps)):
                break
            await cell.meet()
        for upkeep in cell.upkeeps:
            await upkeep.round()
        await cell.meet()
        assert one.log.ledger.digest() == two.log.ledger.digest()
        for broker in cell.brokers:
            assert {name: await scan(broker, name) for name in expected} == expected
    repacked = one.log.ledger.repacked
    assert any(made.level == 2 for made in repacked.rounds)
    for broker in cell.brokers:
        assert broker.log.repacker is not None
        await broker.log.repacker.clean()
        await cell.meet()
    assert cell.repacked_keys() == {key for made in repacked.rounds for key in made.keys}
    kept = [held.number for held in cell.ports[one].objects()]
    assert kept[0] > repacked.frontier / 2  # older objects were deleted, unless replay needs them

    third = await cell.join(3)  # a broker that joins later finds everything
    assert {name: await scan(third, name) for name in expected} == expected


async def test_a_wrong_clock_deletes_no_file_that_another_broker_is_about_to_publish(
    cell: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.log.objects.repack.repacker.REPACK_ORPHANS_EVERY_S", 0.0)
    stores = ManualClock(cell.clock.now_ms())
    cell.store.clock = stores
    cell.clock.advance(2 * REPACK_ORPHAN_GRACE_MS)  # the broker's clock is ahead of the store's
    one = await cell.join(1)
    key = f"{REPACKED}{1:012d}-{2:012d}-2-1-1"
    await cell.store.put(key, b"of broker 2, not published yet")
    repacker = one.log.repacker
    assert repacker is not None
    await repacker.clean()
    assert cell.repacked_keys() == {key}
    stores.advance(REPACK_ORPHAN_GRACE_MS + 1)
    await repacker.clean()
    assert cell.repacked_keys() == set()


async def test_two_brokers_that_compact_at_once_agree(cell: Brokers) -> None:
    one, two = await cell.join(1), await cell.join(2)
    eager = TopicConfig(cleanup_policy="compact", min_cleanable_dirty_ratio=0.0, segment_ms=1)
    await one.create_topic("compacted", config=eager)
    await cell.meet()
    newest: dict[bytes, tuple[int, bytes]] = {}
    for turn in range(4):
        for number in range(30):
            key, value = b"k%d" % (number % 7), b"%d %d" % (turn, number)
            broker = cell.brokers[number % 2]
            batch = build_batch([value], keys=[key], timestamps_ms=cell.clock.now_ms())
            newest[key] = (await broker.append("compacted", batch)).base_offset, value
        await cell.meet()
        cell.clock.advance(20_000)
        for _ in range(20):
            steps = [broker.log.repacker.step() for broker in cell.brokers if broker.log.repacker is not None]
            going_on = any(await asyncio.gather(*steps))
            for upkeep in cell.upkeeps:
                await upkeep.round()
            await cell.meet()
            if not going_on and one.log.ledger.compactions.get(one.streams.of("compacted", 0)).end == 30 * (
                turn + 1
            ):
                break
    for broker in (one, two):
        assert await _keyed(broker, "compacted") == sorted(
            (offset, key, value) for key, (offset, value) in newest.items()
        )
    assert one.log.ledger.digest() == two.log.ledger.digest()


async def _keyed(broker: Broker, name: str) -> list[tuple[int, bytes | None, bytes | None]]:
    stream = broker.streams.of(name, 0)
    log = broker.log.streams.of(stream)
    at, end = log.bounds(stream)
    found = []
    while at < end:
        chunk = await log.read(stream, at, 1 << 20)
        records = [one for batch in chunk.batches for one in decode_records(batch, at)]
        found += [(one.offset, one.key, one.value) for one in records]
        at = chunk.next_offset
    return found

"""Reading parts: what is cached, and what happens when files change under a reader."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mainstem import limits
from mainstem.broker.broker import Broker
from mainstem.errors import RecordsLost, Unavailable
from mainstem.log.read.part_cache import PartCache, PartChunk
from mainstem.log.read.parts import PART_CACHE_BYTES
from mainstem.tables.garbage import LAKE_GARBAGE_GRACE_MS
from tests.support.lake import Worker
from tests.support.machine import Machine

KEY = (0, 0, 100, 1)


def chunk(base: int, end: int, size: int = 1_000) -> PartChunk:
    return PartChunk(base, end, (memoryview(bytes(size)),))


def test_a_chunk_is_found_by_any_offset_in_it() -> None:
    cache = PartCache(100_000)
    cache.put(KEY, chunk(0, 10))
    cache.put(KEY, chunk(20, 30))
    assert cache.get(KEY, 0) == cache.get(KEY, 9) == chunk(0, 10)
    assert cache.get(KEY, 29) == chunk(20, 30)
    assert cache.get(KEY, 10) is None
    assert cache.get(KEY, 30) is None
    assert cache.get((0, 0, 100, 2), 0) is None


def test_the_cache_is_bounded_and_evicts_the_least_recently_used() -> None:
    cache = PartCache(5_000)
    for base in range(0, 100, 10):
        cache.put(KEY, chunk(base, base + 10))
        assert cache.get(KEY, 0) is not None or base > 30
        assert cache.held_bytes <= 5_000
    assert cache.get(KEY, 95) is not None
    assert cache.get(KEY, 10) is None
    cache.put(KEY, chunk(90, 100))
    assert cache.held_bytes <= 5_000
    cache.put(KEY, chunk(100, 110, 99_000))  # a chunk over the limit is kept alone
    assert cache.get(KEY, 100) is not None
    assert cache.get(KEY, 95) is None


async def parts(machine: Machine, batches: int = 40, size: int = 200) -> tuple[Broker, Worker]:
    broker = await machine.open()
    await broker.create_topic("t")
    for number in range(batches):
        await broker.append_values("t", [b"%d" % number + b"x" * size] * 10, timestamps_ms=[1_000] * 10)
    assert machine.port is not None
    await Worker(broker, machine.port).run("materialise")
    broker = await machine.restart()
    return broker, Worker(broker, machine.port)


async def offsets(broker: Broker, start: int = 0) -> list[int]:
    found: list[int] = []
    while records := await broker.read("t", start, max_records=50, max_bytes=1):
        found += [record.offset for record in records]
        start = found[-1] + 1
    return found


async def test_small_chunks_add_up_to_the_whole_part(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PART_CHUNK_BYTES", 2_000)
    monkeypatch.setattr("mainstem.log.read.parts.PART_CURSORS_BYTES", 1)
    broker, _ = await parts(machine)
    assert await offsets(broker) == list(range(400))
    readers = [offsets(broker, start) for start in (0, 3, 100, 250, 399)]
    assert [len(found) for found in await asyncio.gather(*readers)] == [400, 397, 300, 150, 1]
    reader = broker.log.parts
    assert reader.open_cursors <= 1
    assert reader.cached_bytes <= PART_CACHE_BYTES


async def test_a_sequential_reader_finds_the_next_chunks_in_memory(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PART_CHUNK_BYTES", 2_000)
    broker, _ = await parts(machine)
    at = (await broker.log.streams.of(0).read(0, 0, 1)).next_offset
    waited = 0
    while at < 400:
        found = broker.log.streams.of(0).read_cached(0, at, 10_000)
        if found is None:
            waited += 1
            found = await broker.log.streams.of(0).read(0, at, 10_000)
        at = found.next_offset
        while under_way := broker.log.parts.reads_ahead:  # while the client decodes its batches
            await asyncio.wait(under_way)
    assert waited == 1  # a single read starts no read-ahead; the second one does


async def test_a_file_that_is_replaced_and_deleted_under_a_reader_is_looked_up_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, work = await parts(machine)
    await broker.log.streams.of(0).delete(0, ((5, 6),), 0)
    asked, go_on = asyncio.Event(), asyncio.Event()
    get_ranges = broker.objects.get_ranges

    async def held_back(key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        asked.set()
        await go_on.wait()
        return await get_ranges(key, ranges)

    monkeypatch.setattr(broker.objects, "get_ranges", held_back)
    reading = asyncio.create_task(broker.read("t", 0, max_records=20))
    await asyncio.wait_for(asked.wait(), 30)
    (task,) = await work.plan("rewrite")
    await broker.lake.publish(await work.work(task))
    await broker.lake.collect()
    machine.clock.advance(LAKE_GARBAGE_GRACE_MS)
    assert (await broker.lake.collect()).files == 1
    go_on.set()
    assert [record.offset for record in await reading] == [0, 1, 2, 3, 4, *range(6, 21)]


async def test_a_topic_deleted_under_a_reader_is_not_found(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mainstem.errors import NotFound

    broker, _ = await parts(machine)
    (file,) = broker.log.ledger.generations.parts(0)[0].files
    get_ranges = broker.objects.get_ranges

    async def too_late(key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        await broker.delete_topic("t")
        await broker.objects.delete(file.key)
        monkeypatch.setattr(broker.objects, "get_ranges", get_ranges)
        return await get_ranges(key, ranges)

    monkeypatch.setattr(broker.objects, "get_ranges", too_late)
    with pytest.raises(NotFound):
        await broker.log.streams.of(0).read(0, 0, 1_000)


async def test_an_unreachable_store_is_not_a_loss(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, _ = await parts(machine)
    get_ranges = broker.objects.get_ranges

    async def down(key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        raise Unavailable("the store is away")

    monkeypatch.setattr(broker.objects, "get_ranges", down)
    with pytest.raises(Unavailable):
        await broker.read("t", 0)
    monkeypatch.setattr(broker.objects, "get_ranges", get_ranges)
    assert len(await offsets(broker)) == 400


async def test_recorded_losses_are_reported_where_they_are_and_nowhere_else(machine: Machine) -> None:
    from mainstem.ledger.streams import MarkLost

    broker = await machine.open()
    await broker.create_topic("t")
    await broker.append_values("t", [b"x"] * 40)
    await broker.log.propose(MarkLost(0, 10, 20))
    assert machine.port is not None
    await Worker(broker, machine.port).run()
    broker = await machine.restart()
    assert [record.offset for record in await broker.read("t", 0, max_records=99)] == list(range(10))
    with pytest.raises(RecordsLost) as lost:
        await broker.read("t", 10)
    assert (lost.value.start, lost.value.end) == (10, 20)
    assert (await broker.read("t", 20))[0].offset == 20

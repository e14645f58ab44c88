"""A broker whose log is in a bucket: written, sealed, truncated, opened again, and all is there."""

from __future__ import annotations

from pathlib import Path

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpoints import InlineCheckpointer
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.ports.objectstore.cache import CachedObjectStore
from tests.support.clock import ManualClock
from tests.support.history import scan
from tests.support.machine import CountingRandom
from tests.support.memory_store import MemoryObjectStore
from tests.support.waiting import finished

from .logs import open_bucket_log

HOUR_MS = 3_600_000


async def open_broker(store: MemoryObjectStore, clock: ManualClock, tmp_path: Path) -> Broker:
    port = await open_bucket_log(store, reads=CachedObjectStore(store), clock=clock)
    options = LogOptions(boot_id="boot", checkpoint_every_bytes=0, tail_cache_bytes=4096)
    log = await Log.open(port, clock, options, InlineCheckpointer(port))
    return Broker(log, BrokerOptions(tmp_path), clock, CountingRandom())


async def everything(broker: Broker) -> list[object]:
    return [await scan(broker, topic) for topic in ("a", "b")]


async def test_records_survive_restarts_and_truncation(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryObjectStore(clock)
    broker = await open_broker(store, clock, tmp_path)
    for topic in ("a", "b"):
        await broker.create_topic(topic)
    for number in range(60):
        await broker.append_values("ab"[number % 2], [b"%d " % number * 30])
    before = await everything(broker)
    for _ in range(3):
        await broker.close()
        clock.advance(HOUR_MS)
        broker = await open_broker(store, clock, tmp_path)
        assert await everything(broker) == before
    await broker.append_values("a", [b"one more"])
    await broker.close()
    entries = [one.key async for one in store.list("log/entries/")]
    assert 0 < len(entries) < 60  # most of what was written is in sealed objects only


async def test_bytes_that_are_damaged_in_a_cache_alone_are_not_lost(tmp_path: Path) -> None:
    """As after a bucket was set back to an earlier state: what a broker kept of it is of a time that never was."""
    clock = ManualClock()
    store = MemoryObjectStore(clock)
    cache = CachedObjectStore(store)
    port = await open_bucket_log(store, reads=cache, clock=clock)
    repack = RepackOptions(on=False, after_objects=2, least_bytes=0, bytes_per_s=0)
    options = LogOptions(boot_id="boot", checkpoint_every_bytes=0, tail_cache_bytes=0, repack=repack)
    broker = Broker(
        await Log.open(port, clock, options, InlineCheckpointer(port), objects=store),
        BrokerOptions(tmp_path),
        clock,
        CountingRandom(),
    )
    await broker.create_topic("a")
    for number in range(40):
        await broker.append_values("a", [b"%d " % number * 100])
    await finished(broker)
    before = await scan(broker, "a")
    _spoil(cache)
    assert await scan(broker, "a") == before
    _spoil(cache)
    repacker = broker.log.repacker
    assert repacker is not None
    while await repacker.step():
        pass
    assert broker.log.ledger.repacked.rounds
    assert await scan(broker, "a") == before
    await broker.close()


def _spoil(cache: CachedObjectStore) -> None:
    blocks = cache._memory._blocks
    assert blocks
    for block, content in blocks.items():
        blocks[block] = bytes(byte ^ 1 for byte in content)

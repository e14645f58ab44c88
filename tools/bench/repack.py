"""Repacking: the read rate of one quiet stream among a thousand from the store, before and after.

Cold: the data is not in the server's memory, only in the kernel's. The requests are those that the object store sees.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import uvloop

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpoints import InlineCheckpointer
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.log.objects.repack.read_ahead import REPACKED_READS_AHEAD
from mainstem.ports.clock import SystemClock, SystemRandom
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.commitlog.port import CommitLog
from mainstem.ports.commitlog.shared.bucket.log import BucketCommitLog
from mainstem.ports.commitlog.shared.etcd.log import EtcdCommitLog, EtcdOptions
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.ports.objectstore.open import open_store
from tests.support.etcd import EtcdCluster
from tests.support.s3 import S3Server
from tools.bench.objectstore import CountedStore
from tools.bench.report import Figure, Report, measured

STREAMS = 1000
TURNS = 24
BATCH_BYTES = 12 * limits.KIB  # of every stream in each turn …
LARGER_BATCH_BYTES = 192 * limits.KIB  # … but for some of them
LOG_FILE_BYTES = 32 * limits.MIB
QUIET = range(400, 440)  # streams of 288 KiB each
LARGER = range(500, 516)  # of 4.5 MiB each
READ_BYTES = 1 * limits.MIB
BAR_MB_PER_S = 150.0
_BUCKET = "bench"
_AT_ONCE = REPACKED_READS_AHEAD
_RAW_ROUNDS = 5

# Everything is repacked and merged as soon as it can be.
_NOW = RepackOptions(on=False, after_objects=1, least_bytes=0, bytes_per_s=0, merged_rounds=3, grace_s=0.0)

Opened = Callable[[], Awaitable[Broker]]


def run(scratch: Path, report: Report) -> None:
    uvloop.run(_compare(lambda: _local(scratch / "local"), None, "local files", report))
    with S3Server(scratch / "s3") as server, EtcdCluster(scratch / "etcd") as etcd:
        server.make_bucket(_BUCKET)
        stores = [CountedStore(open_store(server.url(_BUCKET, part))) for part in ("raw", "bucket", "etcd")]
        raw, alone, ordered = stores
        rate = uvloop.run(_raw(raw))
        report.add(Figure(f"raw: get ranges of 1 MiB, {_AT_ONCE} at once", rate, "MB/s", note="one process"))
        uvloop.run(_compare(lambda: _in_bucket(scratch / "alone", alone), alone, "bucket", report))
        options = EtcdOptions(etcd.endpoints)
        uvloop.run(_compare(lambda: _in_etcd(scratch / "ordered", ordered, options), ordered, "etcd", report))


async def _raw(store: CountedStore) -> float:
    """What the S3 server gives a process that does nothing else; the best of a few rounds."""
    content = bytes(limits.STORE_OBJECT_BYTES_MAX)
    for number in range(_AT_ONCE):
        await store.put(f"{number}", content)

    async def get(number: int) -> None:
        for start in range(0, len(content), READ_BYTES):
            await store.get_ranges(f"{number}", [(start, READ_BYTES)])

    best = 0.0
    for _ in range(_RAW_ROUNDS):
        began = time.perf_counter()
        await asyncio.gather(*map(get, range(_AT_ONCE)))
        best = max(best, _AT_ONCE * len(content) / (time.perf_counter() - began) / 1e6)
    return best


async def _local(directory: Path) -> Broker:
    port = await LocalCommitLog.open(directory, segment_bytes=LOG_FILE_BYTES)
    objects = LocalObjectStore(directory / "objects")
    return await _broker(directory, port, LogOptions(), objects, InlineCheckpointer(port))


async def _in_bucket(directory: Path, store: CountedStore) -> Broker:
    return await _shared(directory, store, await BucketCommitLog.open(store, object_bytes=LOG_FILE_BYTES))


async def _in_etcd(directory: Path, store: CountedStore, options: EtcdOptions) -> Broker:
    port = await EtcdCommitLog.open(options, store, broker="b", object_bytes=LOG_FILE_BYTES)
    return await _shared(directory, store, port)


async def _shared(directory: Path, store: CountedStore, port: CommitLog) -> Broker:
    broker = await _broker(directory, port, LogOptions(shared=True, linger_ms=20), store, None)
    broker.log.maintains = lambda: True
    return broker


async def _broker(
    directory: Path,
    port: CommitLog,
    options: LogOptions,
    objects: LocalObjectStore | CountedStore,
    checkpoints: InlineCheckpointer | None,
) -> Broker:
    options = replace(options, repack=_NOW, tail_cache_bytes=0)
    log = await Log.open(port, SystemClock(), options, checkpoints, objects)
    return Broker(log, BrokerOptions(directory), SystemClock(), SystemRandom())


async def _compare(opened: Opened, store: CountedStore | None, where: str, report: Report) -> None:
    broker = await opened()
    await broker.create_topic("bench", partitions=STREAMS, config=TopicConfig(durability="disk"))
    small, large = bytes(BATCH_BYTES), bytes(LARGER_BATCH_BYTES)
    for _ in range(TURNS):
        await asyncio.gather(
            *(
                broker.append_values("bench", [large if partition in LARGER else small], partition=partition)
                for partition in range(STREAMS)
            )
        )
    await _seal_all(broker)
    before = [await _read(broker, store, some) for some in (QUIET, LARGER)]
    repacker = broker.log.repacker
    assert repacker is not None
    with measured() as spent:
        while await repacker.step():
            pass
    copied = repacker.counts.copied_bytes
    await broker.close()
    broker = await opened()
    after = [await _read(broker, store, some) for some in (QUIET, LARGER)]
    await broker.close()
    report.add(Figure(f"repacked, {where}", copied / spent.wall_s / 1e6, "MB/s", cpu_s=spent.cpu_s))
    for at, what in enumerate(("288 KiB", "4.5 MiB")):
        for when, found in (("before", before), ("after", after)):
            # Of 288 KiB a store gives one answer, and how long that takes is all there is to measure.
            bar = BAR_MB_PER_S if when == "after" and (store is None or at == 1) else None
            name = f"cold read of one of 1,000 streams, {what}, {where}, {when}"
            report.add(Figure(name, found[at][0], "MB/s", bar))
            if store is not None:
                report.add(Figure("… its requests a GB", found[at][1], ""))


async def _seal_all(broker: Broker) -> None:
    """So that all of it can be repacked."""
    log = broker.log
    await log._port.roll()
    await broker.append_values("bench", [b"the first of the next file"], partition=0)
    while any(not held.sealed for held in log._port.objects()[:-1]):  # noqa: ASYNC110 - upkeep has its own pace
        await asyncio.sleep(0.1)


async def _read(broker: Broker, store: CountedStore | None, partitions: range) -> tuple[float, float]:
    """MB/s of reading some streams from front to end, one after the other, and requests a GB."""
    requests = store.calls["get"] if store is not None else 0
    size = 0
    began = time.perf_counter()
    for partition in partitions:
        stream = broker.topic("bench").streams[partition]
        offset, end = broker.log.streams.of(stream).bounds(stream)
        while offset < end:
            chunk = await broker.log.streams.of(stream).read(stream, offset, READ_BYTES)
            size += sum(map(len, chunk.batches))
            offset = chunk.next_offset
    spent = time.perf_counter() - began
    made = (store.calls["get"] if store is not None else 0) - requests
    return size / spent / 1e6, made / size * 1e9

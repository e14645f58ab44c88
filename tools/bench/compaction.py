"""Compaction: records per CPU second, what a producer keeps of its rate meanwhile, and the size of a topic of hot keys.

The records come in batches of 500, in random order over their keys. The CPU seconds are those of the whole process from
sealed log files to compacted ones, repacking included. The default size is a fifth of the bar's. In the environment,
`RECORDS` and `KEYS` set it, and `PARTS` chooses what is measured:

    PARTS=rate RECORDS=10_000_000 KEYS=1_000_000 python -m tools.bench compaction
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import uvloop

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.log.log import Log, LogOptions
from mainstem.log.objects.checkpoints import InlineCheckpointer
from mainstem.log.objects.repack.plan import RepackOptions
from mainstem.ports.clock import SystemClock, SystemRandom
from mainstem.ports.commitlog.local.log import LocalCommitLog
from mainstem.ports.objectstore.local import LocalObjectStore
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from tools.bench.report import Figure, Report, measured

RECORDS = int(os.environ.get("RECORDS", "2_000_000"))
KEYS = int(os.environ.get("KEYS", str(RECORDS // 10)))
PER_BATCH = 500
VALUE_BYTES = 80
PARTS = os.environ.get("PARTS", "rate,producer,hot").split(",")
HOT_KEYS = 10_000
HOT_ROUNDS = 12
PRODUCER_S = 6.0
BAR_RECORDS_PER_CPU_S = 2e6
BAR_PRODUCER_SHARE = 80.0

_COMPACTED = TopicConfig(cleanup_policy="compact", durability="disk")


def run(scratch: Path, report: Report) -> None:
    uvloop.run(_rate(scratch / "warm", Report(), 200_000, 20_000))  # compiles the kernels
    if "rate" in PARTS:
        uvloop.run(_rate(scratch / "rate", report, RECORDS, KEYS))
    if "producer" in PARTS:
        uvloop.run(_beside_a_producer(scratch / "producer", report))
    if "hot" in PARTS:
        uvloop.run(_hot_keys(scratch / "hot", report))


async def _open(directory: Path, **options: object) -> Broker:
    port = await LocalCommitLog.open(directory, segment_bytes=32 * limits.MIB)
    objects = LocalObjectStore(directory / "objects")
    repack = RepackOptions(on=False, after_objects=1, least_bytes=0, grace_s=0.0, **options)  # type: ignore[arg-type]
    log = await Log.open(port, SystemClock(), LogOptions(repack=repack), InlineCheckpointer(port), objects)
    return Broker(log, BrokerOptions(directory), SystemClock(), SystemRandom())


def _batches(records: int, keys: int, seed: int = 1) -> Iterator[bytearray]:
    numbers = np.random.default_rng(seed).integers(0, keys, records).tolist()
    pad = b"x" * VALUE_BYTES
    for first in range(0, records, PER_BATCH):
        yield build_batch(
            [pad] * PER_BATCH,
            keys=[b"key-%012d" % key for key in numbers[first : first + PER_BATCH]],
            timestamps_ms=int(time.time() * 1000),
        )


async def _fill(broker: Broker, topic: str, batches: Iterator[bytearray]) -> int:
    """Returns how many bytes they have."""
    written = 0
    while some := list(islice(batches, 64)):
        written += sum(map(len, some))
        await asyncio.gather(*(broker.append(topic, batch) for batch in some))
    return written


async def _seal(broker: Broker) -> None:
    """End the open file, so that all records can be repacked."""
    await broker.log._port.roll()
    await broker.create_topic(f"after-{time.monotonic_ns()}")
    while any(not one.sealed for one in broker.log._port.objects()[:-1]):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _compact(broker: Broker) -> None:
    repacker = broker.log.repacker
    while repacker is not None and await repacker.step():
        await repacker.clean()


async def _rate(directory: Path, report: Report, records: int, keys: int) -> None:
    broker = await _open(directory, bytes_per_s=0)
    await broker.create_topic("bench", config=_COMPACTED)
    await _fill(broker, "bench", _batches(records, keys))
    await _seal(broker)
    with measured() as span:
        await _compact(broker)
    left = int(broker.log.ledger.streams.records[broker.streams.of("bench", 0)])
    repacker = broker.log.repacker
    size = sum(made.bytes for made in broker.log.ledger.repacked.rounds)
    assert repacker is not None
    note = (
        f"{records / span.wall_s / 1e6:.1f} M/s of wall time; {left} of {records} left in {size / 1e6:.0f} MB"
    )
    what = f"compact {records / 1e6:g} M records over {keys / 1e6:g} M keys"
    figure = Figure(
        what,
        records / span.cpu_s / 1e6,
        "M/CPU s",
        bar=BAR_RECORDS_PER_CPU_S / 1e6,
        cpu_s=span.cpu_s,
        note=note,
    )
    report.add(figure)
    await broker.close()


async def _beside_a_producer(directory: Path, report: Report) -> None:
    """At the default rate of repacking: writes of another topic, alone and beside a compaction, in turns."""
    broker = await _open(directory)
    await broker.create_topic("bench", config=_COMPACTED)
    await broker.create_topic("producer", config=TopicConfig(durability="disk"))
    shares = []
    for turn in range(3):
        await _fill(broker, "bench", _batches(RECORDS, KEYS, turn))
        await _seal(broker)
        alone = await _produce(broker)
        compacting = asyncio.create_task(_compact(broker))
        beside = await _produce(broker)
        compacting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await compacting
        shares.append(100 * beside / alone)
    note = "each turn: " + ", ".join(f"{share:.0f} %" for share in shares)
    report.add(
        Figure(
            "a producer beside compaction",
            sorted(shares)[1],
            "% of its rate",
            bar=BAR_PRODUCER_SHARE,
            note=note,
        )
    )
    await broker.close()


async def _produce(broker: Broker) -> float:
    """Records a second, four batches under way, as a remote producer has them."""
    batch = build_batch([b"x" * VALUE_BYTES] * 100, timestamps_ms=int(time.time() * 1000))
    until = time.monotonic() + PRODUCER_S
    count = 0

    async def writer() -> None:
        nonlocal count
        while time.monotonic() < until:
            await broker.append("producer", bytearray(batch))
            count += 100
            await asyncio.sleep(0.002)  # the way to a client and back

    await asyncio.gather(*(writer() for _ in range(4)))
    return count / PRODUCER_S


async def _hot_keys(directory: Path, report: Report) -> None:
    """The bytes of repacked files after each round of writes: they must not grow with the writes."""
    broker = await _open(directory, bytes_per_s=0)
    await broker.create_topic("bench", config=_COMPACTED)
    sizes, written = [], 0
    for turn in range(HOT_ROUNDS):
        written += await _fill(broker, "bench", _batches(RECORDS // 10, HOT_KEYS, turn))
        await _seal(broker)
        await _compact(broker)
        sizes.append(sum(made.bytes for made in broker.log.ledger.repacked.rounds))
    stream = broker.streams.of("bench", 0)
    chunk = await broker.log.streams.of(stream).read(stream, 0, 64 * limits.MIB)
    found = {one.key for batch in chunk.batches for one in decode_records(batch)}
    assert found, "the keys are there"
    note = f"{written / 1e6:.0f} MB written; first round {sizes[0] / 1e6:.1f} MB, largest {max(sizes) / 1e6:.1f} MB"
    report.add(
        Figure(
            f"{HOT_KEYS} hot keys, size after {HOT_ROUNDS} rounds of writes",
            sizes[-1] / sizes[0],
            "of the first",
            bar=3.0,
            lower_is_better=True,
            note=note,
        )
    )
    await broker.close()

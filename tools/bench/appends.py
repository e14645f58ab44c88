"""Appends of 1000-record batches in process, against a raw `pwritev` of the same bytes.

Each append passes a new copy of a prepared batch, because the log takes ownership of it. The copy is part of the
measurement, and the raw loop makes it too. The raw rate is one thread that writes groups of 16 copies to a new file:
writing the same warm buffer repeatedly would measure the processor's cache. The sync rate of the disk limits the fsync
class, so the raw rate with one sync per group is measured too.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import Durability, TopicConfig
from mainstem.records.building import build_batch
from tools.bench.report import Figure, Report, Span, measured

RECORDS = 1000
BATCHES = 6000
WRITERS = 16


def batch() -> bytearray:
    return build_batch([os.urandom(100) for _ in range(RECORDS)], timestamps_ms=1_700_000_000_000)


def run(scratch: Path, report: Report) -> None:
    raw = max(_raw_rate(scratch / f"raw-{attempt}") for attempt in range(2))
    report.add(Figure("raw pwritev of the same bytes", raw / 1e6, "MB/s"))
    synced = max(_raw_rate(scratch / f"raw-synced-{attempt}", sync=True) for attempt in range(2))
    report.add(Figure("raw pwritev, each group with its fdatasync", synced / 1e6, "MB/s"))
    rates: dict[str, float] = {}
    durability: Durability
    for durability in ("disk", "fsync"):
        span, size = min(
            (uvloop.run(_append(scratch / f"{durability}-{attempt}", durability)) for attempt in range(2)),
            key=lambda result: result[0].wall_s,
        )
        rates[durability] = BATCHES * RECORDS / span.wall_s
        baseline = raw if durability == "disk" else synced
        note = f"{size / span.wall_s / 1e6:.0f} MB/s, {size / span.wall_s / baseline:.0%} of raw"
        what = f"append 1000 × 100 B batches, {durability}, {WRITERS} writers"
        bar = 5e6 if durability == "disk" else None
        report.add(Figure(what, rates[durability], "rec/s", bar, cpu_s=span.cpu_s, note=note))
        if durability == "disk":
            report.add(Figure("… as a share of raw", size / span.wall_s / raw * 100, "%", 50))
    report.add(Figure("fsync as a share of disk", rates["fsync"] / rates["disk"] * 100, "%", 80))


def _raw_rate(path: Path, *, sync: bool = False) -> float:
    ready = bytes(batch())
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        written = 0
        with measured() as span:
            for _ in range(BATCHES // WRITERS):
                written += os.pwritev(fd, [bytearray(ready) for _ in range(WRITERS)], written)
                if sync:
                    os.fdatasync(fd)
    finally:
        os.close(fd)
        path.unlink()
    return written / span.wall_s


async def _append(directory: Path, durability: Durability) -> tuple[Span, int]:
    broker = await Broker.open(BrokerOptions(directory))
    await broker.create_topic("bench", config=TopicConfig(durability=durability))
    ready = bytes(batch())
    left = BATCHES

    async def writer() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await broker.append("bench", bytearray(ready))

    with measured() as span:
        await asyncio.gather(*(writer() for _ in range(WRITERS)))
    end = broker.partition("bench").end
    if end != BATCHES * RECORDS:
        raise SystemExit(f"the log holds {end} records, not {BATCHES * RECORDS}")
    await broker.close()
    shutil.rmtree(
        directory
    )  # or the next run's syncs would wait for what the kernel still has to write of this
    return span, BATCHES * len(ready)

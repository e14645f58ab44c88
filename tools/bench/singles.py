"""One record per append, 64 callers in flight: the cost of the commit path without the bytes."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import Durability, TopicConfig
from tools.bench.report import Figure, Report, Span, measured

APPENDS = 300_000
WRITERS = 64


def run(scratch: Path, report: Report) -> None:
    durability: Durability
    for durability, bar in (("disk", 100e3), ("fsync", 30e3)):
        span = min(
            (uvloop.run(_append(scratch / f"{durability}-{attempt}", durability)) for attempt in range(2)),
            key=lambda span: span.wall_s,
        )
        note = f"{span.cpu_s / APPENDS * 1e6:.1f} µs CPU each"
        what = f"single appends, {WRITERS} in flight, {durability}"
        report.add(Figure(what, APPENDS / span.wall_s, "rec/s", bar, cpu_s=span.cpu_s, note=note))


async def _append(directory: Path, durability: Durability) -> Span:
    broker = await Broker.open(BrokerOptions(directory))
    await broker.create_topic("bench", config=TopicConfig(durability=durability))
    value = b"v" * 100

    async def writer() -> None:
        for _ in range(APPENDS // WRITERS):
            await broker.append_values("bench", [value])

    await broker.append_values("bench", [value])
    with measured() as span:
        await asyncio.gather(*(writer() for _ in range(WRITERS)))
    await broker.close()
    shutil.rmtree(
        directory
    )  # or the next run's syncs would wait for what the kernel still has to write of this
    return span

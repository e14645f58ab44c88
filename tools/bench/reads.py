"""Sequential reads of undecoded batches, 1 MiB at a time, from the WAL files, beyond the size of the tail cache."""

from __future__ import annotations

from pathlib import Path

import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from tools.bench.appends import batch
from tools.bench.report import Figure, Report, measured

BATCHES = 12_000


def run(scratch: Path, report: Report) -> None:
    uvloop.run(_read(scratch, report))


async def _read(scratch: Path, report: Report) -> None:
    broker = await Broker.open(BrokerOptions(scratch))
    await broker.create_topic("bench", config=TopicConfig(durability="disk"))
    ready = bytes(batch())
    for _ in range(BATCHES):
        await broker.append("bench", bytearray(ready))
    end = broker.partition("bench").end
    for attempt in ("first", "second"):
        offset = total = 0
        with measured() as span:
            while offset < end:
                fetched = await broker.fetch("bench", offset)
                total += sum(map(len, fetched.batches))
                offset = fetched.next_offset
        if total != BATCHES * len(ready):
            raise SystemExit(f"{total} bytes came back, not {BATCHES * len(ready)}")
        report.add(
            Figure(f"sequential read, {attempt} pass", total / span.wall_s, "B/s", 1e9, cpu_s=span.cpu_s)
        )
    await broker.close()

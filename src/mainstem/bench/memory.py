"""Resident memory of the server process: idle, and after 20 M records spread over 1,000 streams."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import psutil
import uvloop

from mainstem.bench.appends import batch
from mainstem.bench.report import Figure, Report
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig

RECORDS = 20_000_000
STREAMS = 1000


def run(scratch: Path, report: Report) -> None:
    for what, mode, bar in (
        ("RSS idle", "idle", 150.0),
        ("RSS after 20 M records on 1,000 streams", "full", 500.0),
    ):
        child = subprocess.run(
            [sys.executable, "-m", "mainstem.bench.memory", str(scratch / mode), mode],
            stdout=subprocess.PIPE,
            check=True,
        )
        report.add(Figure(what, int(child.stdout) / 1e6, "MB", bar, lower_is_better=True))


async def _serve(directory: Path, mode: str) -> None:
    broker = await Broker.open(BrokerOptions(directory))
    if mode == "full":
        await _fill(broker)
    print(psutil.Process().memory_info().rss)
    await broker.close()


async def _fill(broker: Broker) -> None:
    await broker.create_topic("bench", partitions=STREAMS, config=TopicConfig(durability="disk"))
    ready = bytes(batch())
    for _ in range(RECORDS // STREAMS // 1000):
        await asyncio.gather(
            *(broker.append("bench", bytearray(ready), partition=partition) for partition in range(STREAMS))
        )


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), sys.argv[2]))

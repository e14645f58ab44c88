"""Resident memory of the server: idle, after 20 M records in 1,000 streams, and with a long history of a million slices
in thousands of sealed log files, which does not grow memory because they are repacked.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from tools.bench.appends import batch
from tools.bench.report import Figure, Report

RECORDS = 20_000_000
STREAMS = 1000
EXTENTS = 1_000_000
READS = 5_000  # at random offsets
READ_RECORDS = 100
SEGMENT_BYTES = 48 << 10  # so that the extents lie in about 3,300 files


def run(scratch: Path, report: Report) -> None:
    idle = _measured(scratch / "idle", "idle")
    report.add(Figure("RSS idle", idle / 1e6, "MB", 150.0, lower_is_better=True))
    full = _measured(scratch / "full", "full")
    report.add(
        Figure("RSS after 20 M records on 1,000 streams", full / 1e6, "MB", 500.0, lower_is_better=True)
    )
    for what, mode in (
        ("RSS over idle, 1 M extents in 3,300 log files, 1,000 streams", "history"),
        ("the same, started again and read here and there", "again"),
    ):
        over = _measured(scratch / "history", mode) - idle
        report.add(Figure(what, over / 1e6, "MB", 100.0, lower_is_better=True))


def _measured(directory: Path, mode: str) -> int:
    child = subprocess.run(
        [sys.executable, "-m", "tools.bench.memory", str(directory), mode],
        stdout=subprocess.PIPE,
        check=True,
    )
    return int(child.stdout)


async def _serve(directory: Path, mode: str) -> None:
    options = BrokerOptions(directory)
    if mode in ("history", "again"):
        options = replace(
            options, segment_bytes=SEGMENT_BYTES, tail_cache_bytes=1 << 20, checkpoint_every_bytes=64 << 20
        )
    broker = await Broker.open(options)
    if mode == "full":
        await _fill(broker)
    elif mode == "history":
        await _live_long(broker)
    elif mode == "again":
        await _look_around(broker)
    print(psutil.Process().memory_info().rss)
    await broker.close()


async def _live_long(broker: Broker) -> None:
    await broker.create_topic("bench", partitions=STREAMS, config=TopicConfig(durability="disk"))
    for _ in range(EXTENTS // STREAMS):
        for first in range(0, STREAMS, 100):  # so that no commit is larger than a file
            await asyncio.gather(
                *(
                    broker.append_values("bench", [b"0123456789"], partition=partition)
                    for partition in range(first, first + 100)
                )
            )
    await _look_around(broker)


async def _look_around(broker: Broker) -> None:
    """Have the indexes that readers need in memory: one stream from end to end, and all of them here and there."""
    for offset in range(0, EXTENTS // STREAMS, READ_RECORDS):
        await broker.read("bench", offset, max_records=READ_RECORDS)
    chance = random.Random(1)
    for _ in range(READS):
        partition, offset = chance.randrange(STREAMS), chance.randrange(EXTENTS // STREAMS)
        await broker.read("bench", offset, partition=partition, max_records=1)


async def _fill(broker: Broker) -> None:
    await broker.create_topic("bench", partitions=STREAMS, config=TopicConfig(durability="disk"))
    ready = bytes(batch())
    for _ in range(RECORDS // STREAMS // 1000):
        await asyncio.gather(
            *(broker.append("bench", bytearray(ready), partition=partition) for partition in range(STREAMS))
        )


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), sys.argv[2]))

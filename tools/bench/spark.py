"""The Spark source and sink: rows per CPU second of the JVM and its Python workers together.

4 M records of 100 bytes; MAINSTEM_BENCH_SPARK_RECORDS sets another number. The session is warm. The server is a
separate process whose CPU time does not count.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import uvloop

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from mainstem.spark.session import open_session
from mainstem.testing.server import ServerProcess
from tools.bench.report import Figure, Report

RECORDS_ENV = "MAINSTEM_BENCH_SPARK_RECORDS"
RECORDS = 4_000_000
PARTITIONS = 2
_BATCH = 1000
_ROUNDS = 3


def run(scratch: Path, report: Report) -> None:
    records = int(os.environ.get(RECORDS_ENV) or RECORDS) // (_BATCH * PARTITIONS) * _BATCH * PARTITIONS
    uvloop.run(_fill(scratch / "data", records))
    spark = open_session("mainstem bench")
    try:
        with ServerProcess(scratch / "data", "--text", "off", "--kafka", "off") as server:
            url = f"http://{server.address('http')}"
            reader = spark.read.format("mainstem").option("url", url)
            count = _best(server.pid, lambda: _counted(reader.load("records"), records))
            report.add(_figure("Spark source, count of 100 B records", records, count, 0.8e6))
            paged = reader.option("readFrom", "broker")
            through = _best(server.pid, lambda: _counted(paged.load("records"), records))
            report.add(_figure("… all of it through the broker", records, through, None))
            frame = reader.option("readFrom", "objects").load("records").select("key", "value")
            write = frame.write.format("mainstem").mode("append").option("url", url)
            copy = _best(server.pid, lambda: write.option("topic", "copy").save())
            report.add(_figure("Spark source to sink, a copy of the topic", records, copy, None))
    finally:
        spark.stop()


async def _fill(directory: Path, records: int) -> None:
    options = BrokerOptions(data_dir=directory, default_config=TopicConfig(durability="disk"))
    broker = await Broker.open(options)
    batch = build_batch([os.urandom(100) for _ in range(_BATCH)], timestamps_ms=1_700_000_000_000)
    try:
        for topic in ("records", "copy"):
            await broker.create_topic(topic, partitions=PARTITIONS, config=options.default_config)
        for _ in range(records // _BATCH // PARTITIONS):
            await asyncio.gather(
                *(broker.append("records", bytearray(batch), number) for number in range(PARTITIONS))
            )
    finally:
        await broker.close()


def _counted(frame: Any, expected: int) -> None:
    found = frame.count()
    if found != expected:
        raise RuntimeError(f"{found} rows came out of {expected}")


def _best(server: int, work: Callable[[], None]) -> tuple[float, float]:
    """Wall and CPU seconds of the cheapest of a few rounds; the first one warms up."""
    rounds = []
    for _ in range(_ROUNDS):
        started, cpu = time.perf_counter(), _cpu_s(server)
        work()
        rounds.append((time.perf_counter() - started, _cpu_s(server) - cpu))
    return min(rounds, key=lambda found: found[1])


def _cpu_s(server: int) -> float:
    """Of this process and all it started, but for the server. Workers are kept between jobs, so none is missed."""
    total = 0.0
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        if process.pid != server:
            times = process.cpu_times()
            total += times.user + times.system
    return total


def _figure(what: str, records: int, spent: tuple[float, float], bar: float | None) -> Figure:
    wall_s, cpu_s = spent
    note = f"{records / wall_s / 1e6:.2f} M rows/s"
    return Figure(what, records / cpu_s, "rows/CPU-s", bar, cpu_s=cpu_s, note=note)

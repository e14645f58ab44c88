"""Reading old offsets that only stand in Parquet: in this process, then through the Kafka door by librdkafka."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import uvloop

from mainstem.bench.librdkafka import CallbackConsumer
from mainstem.bench.report import Figure, Report, measured
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.plans import PlanRequest
from mainstem.lake.materialise import materialise
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from mainstem.testing.server import ServerProcess

_MIB = 1 << 20
_TOTAL_BYTES = 192 * _MIB
_TICKS = os.sysconf("SC_CLK_TCK")


def run(scratch: Path, report: Report) -> None:
    for size in (100, 1_000):
        data = scratch / f"data-{size}"
        records = uvloop.run(_fill_and_read(data, size, report))
        _consume(data, size, records, report)


async def _fill_and_read(data: Path, size: int, report: Report) -> int:
    broker = await Broker.open(BrokerOptions(data, lake_topics="all", tail_cache_bytes=0))
    await broker.create_topic("bench", config=TopicConfig(durability="disk"))
    words = [f"{random.Random(number).getrandbits(64):x}" for number in range(512)]
    values = [(words[i % 512] * (size // 12 + 1))[:size].encode() for i in range(_MIB // 2 // size)]
    ready = bytes(build_batch(values, timestamps_ms=int(time.time() * 1000)))
    for _ in range(_TOTAL_BYTES // len(ready)):
        await broker.append("bench", bytearray(ready))
    while tasks := (await broker.lake.plan(PlanRequest("bench", kinds=("materialise",)))).tasks:
        for task in tasks:
            await broker.lake.publish(materialise(task))
    end = broker.partition("bench").end
    for attempt in ("first", "second"):
        offset = total = 0
        with measured() as span:
            while offset < end:
                fetched = await broker.fetch("bench", offset)
                total += sum(map(len, fetched.batches))
                offset = fetched.next_offset
        report.add(
            Figure(
                f"read parts, {size} B records, {attempt} pass", total / span.wall_s, "B/s", cpu_s=span.cpu_s
            )
        )
    with measured() as span:
        spots = random.Random(7).sample(range(end), 20)
        for spot in spots:
            await broker.fetch("bench", spot, max_bytes=1)
    report.add(
        Figure(f"read parts, {size} B records, one anywhere", span.wall_s / 20 * 1e3, "ms", cpu_s=span.cpu_s)
    )
    await broker.close()
    return end


def _consume(data: Path, size: int, records: int, report: Report) -> None:
    """A server that has nothing in memory, and a client that throws everything away."""
    settings: dict[str, object] = {
        "fetch.message.max.bytes": 4 * _MIB,
        "queued.min.messages": 1_000_000,
        "check.crcs": False,
    }
    with ServerProcess(data, "--tail-cache-bytes", "0") as server:
        settings["bootstrap.servers"] = str(server.address("kafka"))
        for attempt in ("first", "second"):
            before = _cpu_s(server.pid)
            with measured() as span, CallbackConsumer("bench", settings) as consumer:
                consumer.consume(records)
            report.add(
                Figure(
                    f"Kafka fetch of parts, {size} B records, {attempt} pass",
                    records * size / span.wall_s,
                    "B/s",
                    200e6,
                    cpu_s=_cpu_s(server.pid) - before,
                    note=f"{_rss(server.pid) / _MIB:.0f} MiB resident",
                )
            )


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

"""Reads of old offsets that are only in Parquet: in this process, then through the Kafka door by two clients.

The values are realistic JSON, with repeating names and varying numbers. A second topic with the same records stays in
the log: its rate shows what the client can receive on the same machine.

librdkafka creates a message for every record, which on two cores and for 100-byte records takes more time than the
server. So the target applies to a client that checks only the header and checksum of every batch (rawfetch.py); the
rate of librdkafka is shown next to it.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from pathlib import Path

import psutil
import uvloop

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ledger.config import TopicConfig
from mainstem.records.building import build_batch
from mainstem.tables.parts.materialise import materialise
from mainstem.testing.server import ServerProcess
from tools.bench.librdkafka import CallbackConsumer
from tools.bench.rawfetch import RawConsumer
from tools.bench.report import Figure, Report, Span, measured

_MIB = 1 << 20
_TOTAL_BYTES = 192 * _MIB
_BATCH_BYTES = _MIB // 2
_BATCHES_MADE = 96  # different ones: more than a window of zstd
_PASSES = 5
_SMALL = 100
_FETCH_BYTES = 4 * _MIB
_TICKS = os.sysconf("SC_CLK_TCK")


def run(scratch: Path, report: Report) -> None:
    for size in (_SMALL, 1_000):
        data = scratch / f"data-{size}"
        records = uvloop.run(_fill_and_read(data, size, report))
        _consume_all(data, size, records, report)


async def _fill_and_read(data: Path, size: int, report: Report) -> int:
    broker = await Broker.open(BrokerOptions(data, lake_topics="all", tail_cache_bytes=0))
    batches = [_batch(number, size) for number in range(_BATCHES_MADE)]
    for topic in ("parts", "log"):
        await broker.create_topic(topic, config=TopicConfig(durability="disk"))
        for number in range(_TOTAL_BYTES // _BATCH_BYTES):
            await broker.append(topic, bytearray(batches[number % _BATCHES_MADE]))
    packed = 0
    while tasks := (await broker.lake.plan(PlanRequest("bench", ("parts",), ("materialise",)))).tasks:
        for task in tasks:
            made = materialise(task)
            packed += sum(part.bytes for part in made.parts)
            await broker.lake.publish(made)
    end = broker.partition("parts").end
    report.add(Figure(f"Parquet of {size} B records, of their bytes", packed / (end * size) * 100, "%"))
    for attempt in ("first", "second"):
        offset = total = 0
        with measured() as span:
            while offset < end:
                fetched = await broker.fetch("parts", offset)
                total += sum(map(len, fetched.batches))
                offset = fetched.next_offset
        _add(report, f"read parts, {size} B records, {attempt} pass", total, span)
    with measured() as span:
        spots = random.Random(7).sample(range(end), 20)
        for spot in spots:
            await broker.fetch("parts", spot, max_bytes=1)
    report.add(
        Figure(f"read parts, {size} B records, one anywhere", span.wall_s / 20 * 1e3, "ms", cpu_s=span.cpu_s)
    )
    await broker.close()
    return end


def _batch(number: int, size: int) -> bytearray:
    words = random.Random(number)
    values = []
    for _ in range(_BATCH_BYTES // size):
        text = b""
        while len(text) < size - 2:
            order = words.getrandbits(40)
            text += b'{"order":%d,"customer":"c-%05d","state":"%s"},' % (
                order,
                order % 99_991,
                (b"open", b"paid", b"sent")[order % 3],
            )
        values.append(b"[" + text[: size - 2] + b"]")
    return build_batch(values, timestamps_ms=int(time.time() * 1000))


def _consume_all(data: Path, size: int, records: int, report: Report) -> None:
    """A server that has nothing in memory, and clients that throw everything away."""
    with ServerProcess(data, "--tail-cache-bytes", "0") as server:
        cold = _consume(server, "librdkafka", "parts", records)
        _add(report, f"Kafka fetch of parts, {size} B records, after a start", records * size, cold)
        spans: dict[tuple[str, str], list[Span]] = {
            (client, topic): [] for client in ("librdkafka", "raw") for topic in ("log", "parts")
        }
        for _ in range(_PASSES):  # by turns, so that all meet the same machine
            for (client, topic), found in spans.items():
                found.append(_consume(server, client, topic, records))
        memory = psutil.Process(server.pid).memory_info().rss / _MIB
        for (client, topic), found in spans.items():
            span = sorted(found, key=lambda one: one.wall_s)[_PASSES // 2]
            span.cpu_s = statistics.median(one.cpu_s for one in found)
            bar = 200e6 if (client, topic) == ("raw", "parts") else None
            what = f"Kafka fetch of {topic}, {size} B, {client}, median of {_PASSES}"
            _add(report, what, records * size, span, bar, f", {memory:.0f} MiB resident")
            if size == _SMALL and topic == "parts":
                spent = span.cpu_s / records * 5e6
                report.add(Figure("… CPU seconds for 5 M records", spent, "s", 6.0, lower_is_better=True))


def _consume(server: ServerProcess, client: str, topic: str, records: int) -> Span:
    opened = _raw if client == "raw" else _librdkafka
    with opened(server, topic) as consumer:
        first = consumer.consume(
            1
        )  # connected; what the server did for it is in the measure of the first pass
        span = Span()
        wall, cpu = time.perf_counter(), _cpu_s(server.pid)
        consumer.consume(records - first)
        span.wall_s, span.cpu_s = time.perf_counter() - wall, _cpu_s(server.pid) - cpu
    return span


def _raw(server: ServerProcess, topic: str) -> RawConsumer:
    return RawConsumer(server.address("kafka"), topic, _FETCH_BYTES)


def _librdkafka(server: ServerProcess, topic: str) -> CallbackConsumer:
    settings: dict[str, object] = {
        "bootstrap.servers": str(server.address("kafka")),
        "fetch.message.max.bytes": _FETCH_BYTES,
        "queued.min.messages": 1_000_000,
        "queued.max.messages.kbytes": 1_000_000,  # or the client pauses for a second when it holds enough
        "fetch.wait.max.ms": 100,
        "check.crcs": False,
    }
    return CallbackConsumer(topic, settings)


def _add(
    report: Report, what: str, total: float, span: Span, bar: float | None = None, more: str = ""
) -> None:
    note = f"{total / span.cpu_s / 1e6:.0f} MB a CPU s{more}" if span.cpu_s else more
    report.add(Figure(what, total / span.wall_s, "B/s", bar, cpu_s=span.cpu_s, note=note))


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS

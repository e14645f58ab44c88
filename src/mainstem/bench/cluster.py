"""One broker of a shared log: in a bucket on an S3 server beside it, and ordered by an etcd.

The S3 server shares the machine and its disk with the broker and the client, so this is the least a real store gives.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

from mainstem import limits
from mainstem.bench.kafka import Served, serving
from mainstem.bench.librdkafka import BatchProducer
from mainstem.bench.report import Figure, Report
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.ports.commitlog.places import SharedPlace
from mainstem.ports.objectstore.open import open_store
from mainstem.testing.etcd import EtcdCluster
from mainstem.testing.s3 import S3Server

_LINGER_MS = 100
_RECORD_BYTES = 1_000
_RECORDS = 600_000
_ACKED_RATE, _ACKED_S = 200, 8.0
_COMMANDS = 1_000
_RAW_PUTS = 40


def run(scratch: Path, report: Report) -> None:
    with S3Server(scratch / "s3") as server:
        server.make_bucket("log")
        url = server.url("log")
        raw = asyncio.run(_raw(url))
        report.add(Figure("raw: put 8 MiB objects, 4 at once", raw, "MB/s", note="what the S3 server takes"))
        with serving(scratch / "broker", "--store", url, "--linger-ms", str(_LINGER_MS)) as served:
            _throughput(served, report, url)
            _latency(served, report)
    with EtcdCluster(scratch / "etcd") as etcd:
        store = (scratch / "bucket").absolute().as_uri()
        asyncio.run(_commands(BrokerOptions(scratch / "b", place=SharedPlace(store, etcd.endpoints)), report))


def _throughput(served: Served, report: Report, url: str) -> None:
    settings: dict[str, object] = {
        "bootstrap.servers": served.bootstrap,
        "acks": "all",
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 200_000,
        "max.in.flight": 64,
    }
    with BatchProducer("t", b"x" * _RECORD_BYTES, settings) as producer:
        producer.produce(1)
        producer.flush()
        puts = asyncio.run(_objects(url))
        with served.measured() as span:
            producer.produce(_RECORDS)
            producer.flush()
        puts = asyncio.run(_objects(url)) - puts
    size = _RECORDS * _RECORD_BYTES
    report.add(
        Figure("bucket: in, 1 broker, linger 100 ms", size / span.wall_s / 1e6, "MB/s", 100, cpu_s=span.cpu_s)
    )
    report.add(Figure("bucket: objects put a GB", puts / size * 1e9, "puts"))


async def _raw(url: str) -> float:
    store, content = open_store(url), b"x" * limits.GROUP_COMMIT_BYTES_MAX
    began = time.perf_counter()

    async def put(lane: int) -> None:
        for number in range(_RAW_PUTS // limits.UPLOADS_IN_FLIGHT_MAX):
            await store.put(f"raw/{lane}-{number}", content)

    await asyncio.gather(*map(put, range(limits.UPLOADS_IN_FLIGHT_MAX)))
    return _RAW_PUTS * len(content) / (time.perf_counter() - began) / 1e6


async def _objects(url: str) -> int:
    return len([one async for one in open_store(url).list("log/wal/")]) + len(
        [one async for one in open_store(url).list("log/entries/")]
    )


def _latency(served: Served, report: Report) -> None:
    """From the call to the acknowledgement, of single records at a steady pace."""
    from confluent_kafka import Producer

    taken: list[float] = []
    producer = Producer({"bootstrap.servers": served.bootstrap, "acks": "all", "linger.ms": 0})
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            producer.poll(0.01)

    poller = threading.Thread(target=poll)
    poller.start()
    began = time.perf_counter()
    for number in range(int(_ACKED_RATE * _ACKED_S)):
        time.sleep(max(0.0, began + number / _ACKED_RATE - time.perf_counter()))
        sent = time.perf_counter()

        def acked(error: Any, _: Any, sent: float = sent) -> None:
            if error is None:
                taken.append(time.perf_counter() - sent)

        producer.produce("latency", b"x" * 100, callback=acked)
    producer.flush(30)
    stop.set()
    poller.join()
    _percentiles(report, "bucket: ack", taken, bar_ms=_LINGER_MS + 150)


async def _commands(options: BrokerOptions, report: Report) -> None:
    """Commits without records, one after the other."""
    broker = await Broker.open(options)
    await broker.create_topic("t")
    await broker.append_values("t", [b"x"])
    taken = []
    for number in range(_COMMANDS):
        began = time.perf_counter()
        await broker.commit_offset("g", "t", number % 2)
        taken.append(time.perf_counter() - began)
    await broker.close()
    _percentiles(report, "etcd: commit of a command", taken, bar_ms=30)


def _percentiles(report: Report, what: str, taken: list[float], bar_ms: float) -> None:
    taken.sort()
    p50, p99 = (taken[int(len(taken) * part)] * 1000 for part in (0.5, 0.99))
    report.add(Figure(f"{what} p50", p50, "ms", lower_is_better=True))
    report.add(Figure(f"{what} p99", p99, "ms", bar_ms, lower_is_better=True))

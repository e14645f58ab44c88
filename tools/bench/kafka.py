"""The Kafka door, with librdkafka as the client and the server in its own process.

CPU seconds are the broker's alone. On two cores the client is often the limit. Each load runs several times, each time
after the server is idle, and the best run counts: on a shared machine the same code differs by a third from run to run.
The note shows every run.
"""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from mainstem.limits import MIB
from mainstem.testing.server import ServerProcess
from tools.bench.floor import received_and_synced
from tools.bench.librdkafka import BatchProducer, CallbackConsumer
from tools.bench.machine import settle, touch_pages
from tools.bench.report import Figure, Report, Span

_IN_A_ROW = 1_000_000  # messages in line in the client
_TOUCHED_BESIDE_BYTES = (
    256 * MIB
)  # what a server writes beside the records: the next file's zeros, older ones repacked
_IDLE_CONNECTIONS, _IDLE_PARTITIONS, _IDLE_S = 500, 20, 8.0
_LATENCY_RATE, _LATENCY_S = 1000, 8.0


@dataclass(slots=True)
class Served:
    """A running server and what it has used."""

    server: ServerProcess
    process: psutil.Process

    @property
    def bootstrap(self) -> str:
        return str(self.server.address("kafka"))

    @property
    def scratch(self) -> Path:
        return self.server.ports_file.parent

    @contextmanager
    def measured(self) -> Iterator[Span]:
        """Wall time, and the server's CPU seconds."""
        span = Span()
        wall, cpu = time.perf_counter(), self.cpu_s()
        yield span
        span.wall_s = time.perf_counter() - wall
        span.cpu_s = self.cpu_s() - cpu

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@contextmanager
def serving(directory: Path, *flags: str) -> Iterator[Served]:
    with ServerProcess(directory, "--http", "off", *flags) as server:
        yield Served(server, psutil.Process(server.pid))


def run(scratch: Path, report: Report) -> None:
    span, size = received_and_synced(scratch / "floor")
    raw = size / span.wall_s / 1e6
    note = f"{raw:.0f} MB/s; no broker can do with less"
    report.add(Figure("raw: receive, write and sync 100 MB", span.cpu_s / size * 1e8, "CPU s", note=note))
    with serving(scratch / "produce") as served:
        _produce_and_consume(served, report, raw)
        _singles(served, report)
    with serving(scratch / "files", "--tail-cache-bytes", "0") as served:
        _consume_files(served, report)
    for durability, bars in (("disk", (1.0, 5.0)), ("fsync", (2.0, 8.0))):
        with serving(scratch / durability, "--durability", durability) as served:
            _latency(served, report, durability, bars)
    with serving(scratch / "idle") as served:
        asyncio.run(_idle(served, report))


def _producer(served: Served, **settings: object) -> dict[str, object]:
    return {
        "bootstrap.servers": served.bootstrap,
        "acks": "all",
        "linger.ms": 20,
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": _IN_A_ROW,
        "queue.buffering.max.kbytes": 2_000_000,
        **settings,
    }


def _consumer(served: Served) -> dict[str, object]:
    return {
        "bootstrap.servers": served.bootstrap,
        "fetch.wait.max.ms": 100,
        "fetch.message.max.bytes": 4_000_000,
        "queued.min.messages": _IN_A_ROW,
        "queued.max.messages.kbytes": 1_000_000,
    }


def _produce(served: Served, topic: str, size: int, count: int, **settings: object) -> Span:
    with BatchProducer(topic, b"x" * size, _producer(served, **settings)) as producer:
        producer.produce(1)
        producer.flush()  # connected, and the topic is made
        touch_pages(served.scratch, size * count + _TOUCHED_BESIDE_BYTES)
        with served.measured() as span:
            producer.produce(count)
            producer.flush()
        end = producer.end_offset()
    if end != count + 1:
        raise SystemExit(f"the log holds {end} records, not {count + 1}")
    return span


def _produce_thrice(
    served: Served, topic: str, size: int, count: int, **settings: object
) -> tuple[Span, list[Span]]:
    """The least time and the least CPU that it took, and what it took each time: others share the machine."""
    spans: list[Span] = []
    for number in range(3):
        settle(served.cpu_s)
        spans.append(_produce(served, f"{topic}{number}", size, count, **settings))
    return _least(spans), spans


def _consume(served: Served, topic: str, count: int, times: int) -> tuple[Span, list[Span]]:
    """The least time and the least CPU that it took, and what it took each time. Those that come while the client gets
    going are not measured, but taken to be like the others."""
    spans: list[Span] = []
    for _ in range(times):
        settle(served.cpu_s)
        with CallbackConsumer(topic, _consumer(served)) as consumer:
            before = consumer.consume(count // 50)
            with served.measured() as span:
                consumer.consume(count - before)
        share = (count - before) / count
        spans.append(Span(span.wall_s / share, span.cpu_s / share))
    return _least(spans), spans


def _least(spans: Sequence[Span]) -> Span:
    return Span(min(span.wall_s for span in spans), min(span.cpu_s for span in spans))


def _rate(
    report: Report,
    what: str,
    span: Span,
    count: int,
    bar: float,
    cpu_bar: float | None,
    each: Sequence[Span] = (),
) -> None:
    rates = ", ".join(f"{count / one.wall_s / 1e6:.2f}" for one in each)
    report.add(Figure(what, count / span.wall_s, "msg/s", bar, cpu_s=span.cpu_s, note=rates))
    if cpu_bar is not None:
        per_million = span.cpu_s / count * 1e6
        note = ", ".join(f"{one.cpu_s / count * 1e6:.3f}" for one in each)
        report.add(
            Figure("… broker CPU a million", per_million, "s", cpu_bar, lower_is_better=True, note=note)
        )


def _produce_and_consume(served: Served, report: Report, raw: float) -> None:
    _produce(served, "warm", 100, 200_000)
    span, each = _produce_thrice(served, "large", 100, 5_000_000, **{"batch.size": 1_000_000})
    _rate(report, "Kafka: produce 100 B, 1 MB batches, fsync", span, 5_000_000, 2e6, 0.12, each)
    span, each = _produce_thrice(served, "small", 100, 3_000_000, **{"batch.size": 65_536})
    _rate(report, "Kafka: produce 100 B, 64 KB batches, fsync", span, 3_000_000, 1.8e6, 0.2, each)
    _produce(served, "tail", 100, 500_000, **{"batch.size": 1_000_000})
    span, each = _consume(served, "tail", 500_000, 5)
    _rate(report, "Kafka: consume 100 B from memory", span, 500_000, 2e6, 0.05, each)
    span, each = _produce_thrice(served, "kib", 1024, 800_000, **{"batch.size": 1_000_000})
    rate = 800_000 * 1024 / span.wall_s / 1e6
    rates = ", ".join(f"{800_000 * 1024 / one.wall_s / 1e6:.0f}" for one in each)
    note = f"{rates}; {rate / raw:.0%} of raw"
    report.add(Figure("Kafka: produce 1 KiB, fsync", rate, "MB/s", 500, cpu_s=span.cpu_s, note=note))
    span, each = _consume(served, "kib2", 800_000, 3)
    rates = ", ".join(f"{800_000 * 1024 / one.wall_s / 1e6:.0f}" for one in each)
    rate = 800_000 * 1024 / span.wall_s / 1e6
    report.add(Figure("Kafka: consume 1 KiB", rate, "MB/s", 900, cpu_s=span.cpu_s, note=rates))


def _singles(served: Served, report: Report) -> None:
    count = 150_000
    span = _produce(served, "single", 100, count, **{"batch.num.messages": 1, "linger.ms": 0})
    each = span.cpu_s / count * 1e6
    note = f"{count / span.wall_s:.0f} requests/s"
    what = "Kafka: one record a request, pipelined, fsync"
    report.add(Figure(what, each, "µs CPU", 7, lower_is_better=True, cpu_s=span.cpu_s, note=note))


def _consume_files(served: Served, report: Report) -> None:
    _produce(served, "cold", 100, 4_000_000, **{"batch.size": 1_000_000})
    span, each = _consume(served, "cold", 4_000_000, 2)
    _rate(report, "Kafka: consume 100 B from log files", span, 4_000_000, 1.5e6, None, each)


def _latency(served: Served, report: Report, durability: str, bars: tuple[float, float]) -> None:
    """From produce to consume, one message a millisecond, each sent at once."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    delays: list[float] = []
    total = int(_LATENCY_RATE * _LATENCY_S)
    producer = Producer({"bootstrap.servers": served.bootstrap, "linger.ms": 0, "acks": "all"})
    producer.produce("latency", struct.pack("d", 0.0))
    producer.flush()
    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap, "group.id": "latency", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("latency", 0, 0)])
    while consumer.poll(10) is None:
        pass  # the first message: the consumer is connected

    def receive() -> None:
        while len(delays) < total:
            message = consumer.poll(10)
            if message is not None and message.error() is None:
                delays.append(time.perf_counter() - struct.unpack("d", message.value() or b"")[0])

    receiver = threading.Thread(target=receive)
    receiver.start()
    with served.measured() as span:
        begin = time.perf_counter()
        for index in range(total):
            time.sleep(max(0.0, begin + index / _LATENCY_RATE - time.perf_counter()))
            producer.produce("latency", struct.pack("d", time.perf_counter()))
            producer.poll(0)
        producer.flush()
        receiver.join()
    consumer.close()
    delays.sort()
    for share, bar in zip((0.5, 0.99), bars, strict=True):
        delay = delays[int(len(delays) * share)] * 1000
        what = f"Kafka: end to end at {_LATENCY_RATE}/s, {durability}, p{share * 100:.0f}"
        report.add(Figure(what, delay, "ms", bar, lower_is_better=True, cpu_s=span.cpu_s))


async def _idle(served: Served, report: Report) -> None:
    """Consumers that wait for records that do not come."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    topic = "idle"
    address = served.server.address("kafka")
    admin = AdminClient({"bootstrap.servers": served.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic(topic, _IDLE_PARTITIONS)])[topic].result)
    streams = [await asyncio.open_connection(address.host, address.port) for _ in range(_IDLE_CONNECTIONS)]
    polls = [asyncio.ensure_future(_poll(*stream, topic)) for stream in streams]
    await asyncio.sleep(1.0)
    with served.measured() as span:
        await asyncio.sleep(_IDLE_S)
    memory = served.process.memory_info().rss / 1e6
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    share = span.cpu_s / span.wall_s * 100
    what = f"Kafka: {_IDLE_CONNECTIONS} idle consumers of {_IDLE_PARTITIONS} partitions"
    report.add(Figure(what, share, "% of a core", 5, lower_is_better=True, cpu_s=span.cpu_s))
    report.add(Figure("… memory of the server", memory, "MB", 100, lower_is_better=True))


async def _poll(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, topic: str) -> None:
    """Fetch version 11 over and over, with the wait most clients have."""
    name = topic.encode()
    parts = b"".join(
        struct.pack(">iiqqi", partition, -1, 0, -1, 1 << 20) for partition in range(_IDLE_PARTITIONS)
    )
    body = struct.pack(">iiiibii", -1, 500, 1, 50 << 20, 0, 0, -1)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", _IDLE_PARTITIONS) + parts
    body += struct.pack(">ih", 0, 0)
    request = struct.pack(">hhih", 1, 11, 1, -1) + body
    while True:
        writer.write(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        await reader.readexactly(length)

"""`--workers`: what a second process adds, and the part of the work that only the writer can do.

Writes and reads by HTTP, deliveries to watchers and Kafka batches of 64 KB, from a light client: first to one worker,
then to two. Then the writes are sent to a follower: what the writer uses meanwhile is its share of the work of others,
and the total divided by that share is how many workers one writer can keep busy. Rates need a quiet machine with a core
for each worker; shares do not.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil
import uvloop

from mainstem.address import Address
from mainstem.testing.server import ServerProcess
from tools.bench.http import RECORD, request
from tools.bench.librdkafka import BatchProducer
from tools.bench.machine import settle
from tools.bench.report import Figure, Report
from tools.bench.watch import BURST_RECORDS, Audience

RECORDS = 100
REQUESTS = 6_000
DIFF_RECORDS = 1_000
DIFFS = 2_000
WATCHERS = 1_000
WATCHED_WRITES = 60  # of many records, each delivered to every watcher
CONNECTIONS = 32
WARM_REQUESTS = 10  # on each connection, before the clock runs
BATCH_BYTES = 64 << 10
BATCHES = 6_000
PARTITIONS = 8
FASTER = 1.5


class Worker(NamedTuple):
    process: psutil.Process
    http: Address  # its own
    kafka: Address

    def cpu_s(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(slots=True)
class Used:
    wall_s: float
    cpu_s: list[float]  # of each worker
    client_cpu_s: float


class Workers:
    """A server and its workers; the writer comes first."""

    def __init__(self, server: ServerProcess, directory: Path) -> None:
        self.shared = server.address("http")
        self.bootstrap = str(server.address("kafka"))
        ready = [line for line in server.lines if line["event"] == "worker ready"] or [server.ready]
        writer = int((directory / "LOCK").read_text())
        found = [
            Worker(
                psutil.Process(int(str(line["pid"]))),
                Address.parse(str(line.get("worker_http", line["http"]))),
                Address.parse(str(line["kafka"])),
            )
            for line in ready
        ]
        self.all = sorted(found, key=lambda one: one.process.pid != writer)

    def measure(self, load: Callable[[], None]) -> Used:
        settle(lambda: sum(one.cpu_s() for one in self.all))
        before = [one.cpu_s() for one in self.all]
        wall, client = time.perf_counter(), _own_cpu_s()
        load()
        return Used(
            time.perf_counter() - wall,
            [one.cpu_s() - was for one, was in zip(self.all, before, strict=True)],
            _own_cpu_s() - client,
        )


def run(scratch: Path, report: Report) -> None:
    rates: dict[tuple[str, int], float] = {}
    for count in (1, 2):
        with _serving(scratch / f"workers{count}", count) as workers:
            for what, number, load, written in (
                (f"HTTP: POST {RECORDS} records", REQUESTS, _http, True),
                (f"HTTP: diff of {DIFF_RECORDS}", DIFFS, _diffs, False),
                (f"deliveries to {WATCHERS} watchers", WATCHED_WRITES * BURST_RECORDS, _watched, False),
                (f"Kafka: produce {BATCH_BYTES >> 10} KB batches", BATCHES, _kafka, True),
            ):
                used = workers.measure(load(workers, None))
                rates[what, count] = rate = number / used.wall_s
                note = f"workers {_listed(used.cpu_s)} CPU-s, client {used.client_cpu_s:.2f}"
                report.add(Figure(f"{what}, {count} workers", rate, "1/s", cpu_s=sum(used.cpu_s), note=note))
                if count == 2:
                    report.add(Figure(f"{what}, 2 workers to 1", rate / rates[what, 1], "x", FASTER))
                if count == 2 and written:
                    used = workers.measure(load(workers, workers.all[1]))
                    share = used.cpu_s[0] / sum(used.cpu_s)
                    note = f"writer {used.cpu_s[0] / number * 1e6:.0f} of {sum(used.cpu_s) / number * 1e6:.0f} us each"
                    report.add(
                        Figure(f"{what}, to a follower: the writer's share", share * 100, "%", note=note)
                    )


@contextmanager
def _serving(directory: Path, count: int) -> Iterator[Workers]:
    flags = ["--text", "off", "--s3", "off", "--pulsar", "off", "--kafka-num-partitions", str(PARTITIONS)]
    if count > 1:
        flags += ["--workers", str(count), "--kafka", "127.0.0.1:0"]
    with ServerProcess(directory.resolve(), *flags) as server:
        yield Workers(server, directory)
        server.terminate()


def _http(workers: Workers, only: Worker | None) -> Callable[[], None]:
    address = workers.shared if only is None else only.http
    post = request("POST", "/v0/topics/posted", {"records": [RECORD] * RECORDS})
    return _requests(address, post, REQUESTS)


def _diffs(workers: Workers, only: Worker | None) -> Callable[[], None]:
    address = workers.shared if only is None else only.http
    post = request("POST", "/v0/topics/read", {"records": [RECORD] * DIFF_RECORDS})
    uvloop.run(_send(address, post, 1))
    return _requests(
        address, request("POST", "/v0/topics/read/diff", {"from_seq": 0, "limit": DIFF_RECORDS}), DIFFS
    )


def _requests(address: Address, asked: bytes, count: int) -> Callable[[], None]:
    """So many requests, on several connections."""

    async def send_all(times: int) -> None:
        await asyncio.gather(*(_send(address, asked, times) for _ in range(CONNECTIONS)))

    uvloop.run(send_all(WARM_REQUESTS))  # every worker compiles for its first clients
    return lambda: uvloop.run(send_all(count // CONNECTIONS))


async def _send(address: Address, asked: bytes, times: int) -> None:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    for _ in range(times):
        writer.write(asked)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        if not head.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 201 ")):
            raise RuntimeError(f"the server answered {head!r} {body!r}")
    writer.close()


def _watched(workers: Workers, only: Worker | None) -> Callable[[], None]:
    address = workers.shared if only is None else only.http
    audience = Audience(address, WATCHERS)

    def deliver() -> None:
        audience.deliver(WATCHED_WRITES)
        audience.close()

    return deliver


def _kafka(workers: Workers, only: Worker | None) -> Callable[[], None]:
    topic = "produced" if only is None else f"produced{only.kafka.port}"
    settings = {
        "bootstrap.servers": workers.bootstrap,
        "batch.num.messages": 1,  # a message is a batch
        "linger.ms": 0,
        "queue.buffering.max.messages": 2 * BATCHES,
        "log_level": 0,
    }
    led = range(PARTITIONS) if only is None else _led_by(workers, only, topic)

    def produce() -> None:
        with BatchProducer(topic, bytes(BATCH_BYTES), settings, a_call=64) as producer:
            for number in range(BATCHES // 64):
                producer.produce(64, led[number % len(led)])
            producer.flush(300)

    return produce


def _led_by(workers: Workers, only: Worker, topic: str) -> list[int]:
    """The partitions that Kafka clients write through this worker."""
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": workers.bootstrap, "log_level": 0})
    while True:
        found = admin.list_topics(topic, timeout=60)
        (broker,) = [one.id for one in found.brokers.values() if one.port == only.kafka.port]
        led = [number for number, one in found.topics[topic].partitions.items() if one.leader == broker]
        if led:
            return led


def _own_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _listed(seconds: list[float]) -> str:
    return " + ".join(f"{one:.2f}" for one in seconds)

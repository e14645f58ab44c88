"""Brokers that share a log, one and three of them: in a bucket, and with an etcd that orders the log.

Everything runs on one machine: the S3 server (seaweedfs), etcd, the brokers and the client. The S3 server uses 7 to 9
CPU seconds per GB written, a broker 2.5 and the client 0.8, so two cores are busy at about 120 MB/s; a store on its own
machines accepts more. The first line is the rate of the S3 server for a process that only writes, and the notes of the
other lines compare with it. Acknowledgements are timed right after the bulk load. Repacking is off: see repack.py.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.log.write.shared_writes import UPLOADS_IN_FLIGHT_MAX
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.objectstore.open import open_store
from tests.support.cluster import BrokerProcesses, broker_processes, eventually
from tests.support.etcd import EtcdCluster
from tests.support.s3 import S3Server
from tools.bench.acks import acknowledged_s, percentiles
from tools.bench.librdkafka import BatchProducer, CallbackConsumer
from tools.bench.report import Figure, Report, Span

_LINGER_MS = 100
_RECORD_BYTES = 1_000
_RECORDS = 600_000
_GB = _RECORDS * _RECORD_BYTES / 1e9
_A_CALL = 10_000
_ACKED_RATE, _ACKED_S = 200, 8.0
_COMMANDS = 1_000
_RAW_PUTS, _RAW_ROUNDS = 6, 3
_BULK, _SINGLES = "bulk", "singles"
_PARTITIONS = 6  # where there are several brokers, so that each leads some


@dataclass(frozen=True, slots=True)
class _Cell:
    """Brokers on one log."""

    name: str
    ordered_by: str
    server: S3Server
    brokers: BrokerProcesses
    partitions: int

    @contextmanager
    def measured(self) -> Iterator[Span]:
        """Wall time, and the CPU seconds of the brokers."""
        span = Span()
        wall, cpu = time.perf_counter(), self._cpu_s()
        yield span
        span.wall_s = time.perf_counter() - wall
        span.cpu_s = self._cpu_s() - cpu

    def _cpu_s(self) -> float:
        times = [psutil.Process(one.pid).cpu_times() for one in self.brokers.running.values()]
        return float(sum(one.user + one.system for one in times))

    def commits(self) -> int:
        """In the log so far."""
        first = next(iter(self.brokers.running))
        return int(self.brokers.request(first, "GET", "/v0/cluster").position or 0)


def run(scratch: Path, report: Report) -> None:
    with S3Server(scratch / "raw") as server:
        server.make_bucket("raw")
        raw = asyncio.run(_raw(server.url("raw")))
    note = "what the S3 server takes of a process that does nothing else"
    report.add(Figure("raw: put 8 MiB objects, 4 at once", raw, "MB/s", note=note))
    for ordered_by in ("bucket", "etcd"):
        for count in (1, 3):
            with _cell(scratch, ordered_by, count) as cell:
                _write(cell, report, raw)
                _acks(cell, report)
                _start_again(cell, report)
                _read(cell, report)
    with EtcdCluster(scratch / "etcd") as etcd:
        store = (scratch / "bucket").absolute().as_uri()
        asyncio.run(_commands(BrokerOptions(scratch / "b", place=SharedPlace(store, etcd.endpoints)), report))


async def _raw(url: str) -> float:
    """The best of a few rounds: the server is slower while it makes its first files."""
    store, content = open_store(url), b"x" * limits.STORE_OBJECT_BYTES_MAX

    async def put(lane: str) -> None:
        for number in range(_RAW_PUTS):
            await store.put(f"raw/{lane}-{number}", content)

    best = 0.0
    for turn in range(_RAW_ROUNDS):
        began = time.perf_counter()
        await asyncio.gather(*(put(f"{turn}-{lane}") for lane in range(UPLOADS_IN_FLIGHT_MAX)))
        size = _RAW_PUTS * UPLOADS_IN_FLIGHT_MAX * len(content)
        best = max(best, size / (time.perf_counter() - began) / 1e6)
    return best


@contextmanager
def _cell(scratch: Path, ordered_by: str, count: int) -> Iterator[_Cell]:
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        server = held.enter_context(S3Server(folder / "s3"))
        server.make_bucket("log")
        flags = ["--store", server.url("log"), "--repack", "off"]
        if ordered_by == "etcd":
            etcd = held.enter_context(EtcdCluster(folder / "etcd"))
            flags += ["--etcd", ",".join(etcd.endpoints)]
        else:
            flags += ["--linger-ms", str(_LINGER_MS)]
        brokers = held.enter_context(broker_processes(folder, *flags))
        names = [f"b{number}" for number in range(count)]
        brokers.start(*names)
        eventually(lambda: len(brokers.numbers(names[0])), lambda known: known == count)
        partitions = 1 if count == 1 else _PARTITIONS
        _make_topics(brokers, partitions)
        yield _Cell(f"{ordered_by}, {count}", ordered_by, server, brokers, partitions)


def _make_topics(brokers: BrokerProcesses, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for made in admin.create_topics([NewTopic(one, partitions) for one in (_BULK, _SINGLES)]).values():
        made.result()


def _write(cell: _Cell, report: Report, raw: float) -> None:
    settings: dict[str, object] = {
        "bootstrap.servers": cell.brokers.bootstrap,
        "acks": "all",
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 200_000,
        "max.in.flight": 64,
    }
    with BatchProducer(_BULK, b"x" * _RECORD_BYTES, settings, _A_CALL) as producer:
        for partition in range(cell.partitions):
            producer.produce(1, partition)
        producer.flush()
        requests, commits = cell.server.requests(), cell.commits()
        with cell.measured() as span:
            for number in range(_RECORDS // _A_CALL):
                producer.produce(_A_CALL, number % cell.partitions)
            producer.flush()
        commits = cell.commits() - commits
        requests = cell.server.requests() - requests
    rate = _GB * 1000 / span.wall_s
    bar = 100 if cell.name == "bucket, 1" else None
    note = f"{rate / raw:.0%} of raw"
    report.add(Figure(f"{cell.name}: in", rate, "MB/s", bar, cpu_s=span.cpu_s, note=note))
    report.add(Figure(f"{cell.name}: commits while it came in", commits / span.wall_s, "commits/s"))
    _cost(report, f"{cell.name}: requests a GB written", requests)


def _acks(cell: _Cell, report: Report) -> None:
    taken = acknowledged_s(cell.brokers.bootstrap, _SINGLES, _ACKED_RATE, _ACKED_S)
    bar = _LINGER_MS + 150 if cell.ordered_by == "bucket" else None
    percentiles(report, f"{cell.name}: ack", taken, bar)


def _start_again(cell: _Cell, report: Report) -> None:
    names = list(cell.brokers.running)
    for name in names:
        cell.brokers.kill(name)
    began = time.perf_counter()
    cell.brokers.start(*names)
    spent = time.perf_counter() - began
    note = "from the start of the process; all were killed"
    report.add(Figure(f"{cell.name}: recovery", spent, "s", lower_is_better=True, note=note))


def _read(cell: _Cell, report: Report) -> None:
    """All of it, a partition after the other, by brokers that have nothing of it in memory or on disk."""
    settings: dict[str, object] = {
        "bootstrap.servers": cell.brokers.bootstrap,
        "fetch.message.max.bytes": 4_000_000,
        "queued.max.messages.kbytes": 100_000,
    }
    requests, each = cell.server.requests(), _RECORDS // cell.partitions
    with cell.measured() as span:
        for partition in range(cell.partitions):
            with CallbackConsumer(_BULK, settings, partition) as consumer:
                consumer.consume(each)
    requests = cell.server.requests() - requests
    rate = _GB * 1000 / span.wall_s
    report.add(Figure(f"{cell.name}: cold read, not repacked", rate, "MB/s", cpu_s=span.cpu_s))
    _cost(report, f"{cell.name}: requests a GB read", requests)


def _cost(report: Report, what: str, requests: Counter[str]) -> None:
    note = ", ".join(f"{count / _GB:.0f} {kind}" for kind, count in sorted(requests.items()))
    report.add(Figure(what, requests.total() / _GB, "", lower_is_better=True, note=note))


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
    percentiles(report, "etcd, 1: commit of a command", taken, bar_ms=30)

"""Acknowledgements of three brokers over an etcd of three members, beside bare puts to the same etcd.

Then what a broker pays for the records that another one accepts.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil

from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, EtcdOptions, put
from tests.support.cluster import BrokerProcesses, broker_processes, eventually
from tests.support.etcd import EtcdCluster
from tests.support.s3 import S3Server
from tools.bench.librdkafka import BatchProducer
from tools.bench.lone_requests import cpu_s
from tools.bench.report import Figure, Report

_BROKERS, _MEMBERS, _PARTITIONS = 3, 3, 6
_BARS_MS = {1_000: 10.0, 20_000: 25.0}  # of the 99th percentile, by records a second
_SECONDS = 8.0
_PUT_EVERY_S = 0.02
_TOPIC = "acks"
_FOLLOWED, _A_CALL, _CATCH_UP_S = 2_000_000, 1_000, 2.0  # records
_FOLLOWER_BAR_S = 0.1  # a million records


def run(scratch: Path, report: Report) -> None:
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(dir=scratch)))
        server = held.enter_context(S3Server(folder / "s3"))
        server.make_bucket("log")
        etcd = held.enter_context(EtcdCluster(folder / "etcd", _MEMBERS))
        flags = ["--store", server.url("log"), "--repack", "off", "--etcd", ",".join(etcd.endpoints)]
        brokers = held.enter_context(broker_processes(folder, *flags))
        names = [f"b{number}" for number in range(_BROKERS)]
        brokers.start(*names)
        eventually(lambda: len(brokers.numbers(names[0])), lambda known: known == _BROKERS)
        _make_topic(brokers.bootstrap)
        _acked_s(brokers.bootstrap, 100, 1.0)
        for rate, bar in _BARS_MS.items():
            with _Puts(etcd.endpoints) as puts:
                taken = _acked_s(brokers.bootstrap, rate, _SECONDS)
            what = f"etcd, {_BROKERS} brokers, {_MEMBERS} members, {rate:,} msg/s"
            note = f"a bare put at the same time: p50 {_at(puts.taken, 0.5):.1f}, p99 {_at(puts.taken, 0.99):.1f} ms"
            report.add(Figure(f"{what}: ack p50", _at(taken, 0.5), "ms", lower_is_better=True))
            report.add(
                Figure(f"{what}: ack p99", _at(taken, 0.99), "ms", bar, lower_is_better=True, note=note)
            )
        _followed(brokers, report)


def _at(taken_s: list[float], part: float) -> float:
    return sorted(taken_s)[int(len(taken_s) * part)] * 1000


def _make_topic(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(_TOPIC, _PARTITIONS)]).values():
        made.result()


def _acked_s(bootstrap: str, rate: int, seconds: float) -> list[float]:
    """How long each record took, to partitions in turn. Sends what is due every millisecond."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0}
    producer = Producer({**settings, "queue.buffering.max.messages": 1_000_000})
    taken: list[float] = []
    total = int(rate * seconds)
    began = time.perf_counter()
    sent = 0
    while sent < total:
        due = min(total, int((time.perf_counter() - began) * rate) + 1)
        for number in range(sent, due):
            asked = time.perf_counter()

            def acked(error: Any, _: Any, asked: float = asked) -> None:
                if error is None:
                    taken.append(time.perf_counter() - asked)

            producer.produce(_TOPIC, b"x" * 100, partition=number % _PARTITIONS, callback=acked)
        sent = due
        producer.poll(0.001)
    left = producer.flush(60)
    if left or len(taken) < total:
        raise SystemExit(f"of {total} records {len(taken)} were acknowledged")
    return taken


def _followed(brokers: BrokerProcesses, report: Report) -> None:
    """Produce to what one broker leads, and measure the others."""
    from confluent_kafka import Producer

    known = Producer({"bootstrap.servers": brokers.bootstrap}).list_topics(_TOPIC, 30)
    leads = {number: one.leader for number, one in known.topics[_TOPIC].partitions.items()}
    leader = leads[0]
    address = f":{known.brokers[leader].port}"
    followers = [
        psutil.Process(one.pid)
        for one in brokers.running.values()
        if not str(one.last_address("kafka")).endswith(address)
    ]
    led = [number for number, one in leads.items() if one == leader]
    settings = {"bootstrap.servers": brokers.bootstrap, "acks": "all", "linger.ms": 5}
    before = [cpu_s(one) for one in followers]
    began = time.perf_counter()
    with BatchProducer(
        _TOPIC, bytes(100), {**settings, "queue.buffering.max.messages": 1_000_000}
    ) as producer:
        for number in range(_FOLLOWED // _A_CALL):
            producer.produce(_A_CALL, led[number % len(led)])
        producer.flush(60)
    wall_s = time.perf_counter() - began
    time.sleep(_CATCH_UP_S)
    each = [cpu_s(one) - was for one, was in zip(followers, before, strict=True)]
    idle = [_idle_cpu_s(one) * (wall_s + _CATCH_UP_S) for one in followers]
    spent = [(one - rest) / _FOLLOWED * 1e6 for one, rest in zip(each, idle, strict=True)]
    rate = _FOLLOWED / wall_s / 1e3
    note = f"{', '.join(f'{one:.2f}' for one in spent)}, without that of an idle broker; {rate:.0f} k/s"
    what = "etcd: CPU of a broker for a million records of another"
    report.add(Figure(what, max(spent), "s", _FOLLOWER_BAR_S, lower_is_better=True, note=note))


def _idle_cpu_s(process: psutil.Process) -> float:
    """A second."""
    before = cpu_s(process)
    time.sleep(_CATCH_UP_S)
    return (cpu_s(process) - before) / _CATCH_UP_S


class _Puts:
    """Puts a small value over and over, in its own thread."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self.taken: list[float] = []
        self._endpoints = endpoints
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> _Puts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    async def _run(self) -> None:
        client = EtcdClient(EtcdOptions(self._endpoints))
        while not self._stop.is_set():
            began = time.perf_counter()
            await client.txn([], [put(b"bench", b"x" * 500)])
            self.taken.append(time.perf_counter() - began)
            await asyncio.sleep(_PUT_EVERY_S)
        await client.close()

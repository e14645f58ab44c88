"""Acknowledgements of three brokers over an etcd of three members, beside bare puts to the same etcd."""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mainstem.ports.commitlog.shared.etcd.client import EtcdClient, EtcdOptions, put
from tests.support.cluster import broker_processes, eventually
from tests.support.etcd import EtcdCluster
from tests.support.s3 import S3Server
from tools.bench.report import Figure, Report

_BROKERS, _MEMBERS, _PARTITIONS = 3, 3, 6
_BARS_MS = {1_000: 10.0, 20_000: 25.0}  # of the 99th percentile, by records a second
_SECONDS = 8.0
_PUT_EVERY_S = 0.02
_TOPIC = "acks"


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

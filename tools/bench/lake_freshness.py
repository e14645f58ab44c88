"""The lake in service: how old a record is when its table shows it, and how long a pass over many small topics takes.

One driver runs as `mainstem lake run` does, in this process, with a warm session. A producer writes 5,000 records of
100 bytes a second to one topic. An observer loads the table from the catalog all the time and notes when the newest
snapshot shows which offset. A record's age is the time from its append to that.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import mainstem
from mainstem.client.broker import BrokerClient
from mainstem.spark.driver.driver import Driver, DriverOptions
from mainstem.spark.driver.jobs import SparkRunner
from mainstem.spark.driver.local_workers import LocalWorkers
from mainstem.tables.publishing.backoff import Backoff
from mainstem.tables.publishing.publisher import publish_tables
from mainstem.testing.server import ServerProcess
from tools.bench.report import Figure, Report

TOPICS = 500
RECORDS_PER_TOPIC = 3
_RATE = 5_000
_PER_BATCH = 100
_SECONDS = 25.0
_WARM_S = 5.0
_OBSERVE_EVERY_S = 0.02


class _Silent:
    def event(self, name: str, **fields: object) -> None:
        if "error" in fields:
            raise RuntimeError(f"{name}: {fields['error']}")

    def status(self, status: object) -> None: ...

    def close(self) -> None: ...


def run(scratch: Path, report: Report, spark: Any) -> None:
    with ServerProcess(scratch / "service", "--text", "off", "--kafka", "off") as server:
        url = f"http://{server.address('http')}"
        _freshness(url, spark, report)
    with ServerProcess(scratch / "topics", "--text", "off", "--kafka", "off") as server:
        _many_topics(f"http://{server.address('http')}", spark, report)


@contextmanager
def _driver(url: str, spark: Any, stop: threading.Event | None = None) -> Iterator[Driver]:
    with BrokerClient(url, timeout_s=60.0) as broker:
        workers = LocalWorkers(SparkRunner(spark), broker)
        workers.start()
        publish = partial(publish_tables, backoff=Backoff(), publish_chunk=workers.publish_chunk)
        options = DriverOptions(holder="bench")
        try:
            yield Driver(broker, workers, options, _Silent(), publish_tables=publish, stop=stop)
        finally:
            workers.close()


def _freshness(url: str, spark: Any, report: Report) -> None:
    with mainstem.Client(url) as client:
        client.produce("fresh", {"n": 0})
        _ask(url, "PUT", "/v0/topics/fresh/table", {"enabled": True})
        stop = threading.Event()
        with _driver(url, spark, stop) as driver:
            driver.run_once()
            thread = threading.Thread(target=driver.run)
            thread.start()
            try:
                appended: list[tuple[int, float]] = []  # (end offset, time)
                shown: list[tuple[int, float]] = []
                observer = threading.Thread(target=_observe, args=(url, shown, stop))
                observer.start()
                _produce(client, appended)
                _await_shown(shown, appended[-1][0])
            finally:
                stop.set()
                thread.join()
                observer.join()
        files = _ask(url, "GET", "/v0/topics/fresh/table")["files"]
    ages = _ages(appended, shown)
    note = f"{_RATE} records/s for {_SECONDS:.0f} s, {len(shown)} snapshots seen, {files} files at the end"
    report.add(Figure("age of a record when its table shows it, p50", statistics.median(ages), "s", 2, True))
    p99 = sorted(ages)[int(len(ages) * 0.99)]
    report.add(Figure("… p99", p99, "s", 5, True, note=note))


def _produce(client: mainstem.Client, appended: list[tuple[int, float]]) -> None:
    value = {"order": 123456789, "customer": "c-00042", "state": "open", "note": "x" * 30}
    started = time.monotonic()
    batches = int(_RATE / _PER_BATCH * _SECONDS)
    for number in range(batches):
        due = started + number * _PER_BATCH / _RATE
        time.sleep(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        client.produce_many("fresh", [value] * _PER_BATCH)
        appended.append((1 + (number + 1) * _PER_BATCH, now))


def _observe(url: str, shown: list[tuple[int, float]], stop: threading.Event) -> None:
    last = 0
    while not stop.wait(_OBSERVE_EVERY_S):
        metadata = _ask(url, "GET", "/iceberg/v1/namespaces/default/tables/fresh")["metadata"]
        current = metadata.get("current-snapshot-id")
        for snapshot in metadata.get("snapshots", ()):
            if snapshot["snapshot-id"] == current:
                end = json.loads(snapshot["summary"]["mainstem.offsets"])["0"]
                if end > last:
                    last = end
                    shown.append((end, time.monotonic()))


def _await_shown(shown: list[tuple[int, float]], end: int) -> None:
    deadline = time.monotonic() + 60
    while not shown or shown[-1][0] < end:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the table shows {shown[-1:]} of {end} records")
        time.sleep(_OBSERVE_EVERY_S)


def _ages(appended: list[tuple[int, float]], shown: list[tuple[int, float]]) -> list[float]:
    """Of each batch, after the warm-up."""
    ages, at = [], 0
    begun = appended[0][1] + _WARM_S
    for end, appended_at in appended:
        while shown[at][0] < end:
            at += 1
        if appended_at >= begun:
            ages.append(shown[at][1] - appended_at)
    return ages


def _many_topics(url: str, spark: Any, report: Report) -> None:
    with mainstem.Client(url) as client, _driver(url, spark) as driver:
        for number in range(TOPICS):
            client.produce(f"t{number}", {"n": 0})
            _ask(url, "PUT", f"/v0/topics/t{number}/table", {"enabled": True})
        driver.run_once()
        seconds = []
        for _ in range(2):
            for number in range(TOPICS):
                client.produce_many(f"t{number}", [{"n": n} for n in range(RECORDS_PER_TOPIC)])
            started = time.perf_counter()
            driver.run_once()
            seconds.append(time.perf_counter() - started)
    what = f"a pass over {TOPICS} topics with {RECORDS_PER_TOPIC} new records each"
    report.add(Figure(what, max(seconds), "s", 5, True, note="the slower of two"))


def _ask(url: str, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers, method=method)) as response:
        return json.load(response)

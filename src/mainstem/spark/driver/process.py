"""The driver as a process: Spark session, signals, shutdown."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.client.broker import BrokerClient
from mainstem.errors import MainstemError, SparkMissing
from mainstem.spark.driver.child import CHILD_ENV, SPARK_MISSING
from mainstem.spark.driver.driver import Driver, DriverOptions, PublishTables, RunTasks
from mainstem.spark.driver.jobs import SparkLost, SparkRunner
from mainstem.spark.driver.progress import Progress, open_progress
from mainstem.spark.driver.status import DriverStatus
from mainstem.spark.session import on_this_machine, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_MS = 60_000
_CALL_S = 10.0
_CANCEL_EVERY_S = 0.2
# The JVM only plans and waits, Python handles the bytes: without JIT optimisation it starts with half the CPU work.
JVM_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def run_driver(
    url: str | None, *, once: bool, topics: tuple[str, ...] = (), lease_ms: int = LEASE_MS
) -> DriverStatus:
    """Run the driver until SIGTERM or SIGINT, or for one pass. Raises MainstemError."""
    progress = open_progress()
    stop = threading.Event()
    holder = f"{socket.gethostname()}-{os.getpid()}"
    options = DriverOptions(holder=holder, topics=topics, lease_ms=lease_ms)
    signals = _SignalHandler(stop)
    signals.arm()
    try:
        with BrokerClient(url, timeout_s=_CALL_S) as broker:
            progress.event("starting", holder=options.holder, url=broker.url)
            spark = SparkRunner(_session(progress))
            signals.cancel = spark.cancel
            signals.arm()  # again: PySpark installed its own handler
            with _work(spark, broker) as (run_tasks, publish):
                progress.event("ready", holder=options.holder)
                driver = Driver(broker, run_tasks, options, progress, publish_tables=publish, stop=stop)
                return _drive(driver, progress, once)
    finally:
        signals.disarm()
        progress.close()


@contextmanager
def _work(spark: SparkRunner, broker: BrokerClient) -> Iterator[tuple[RunTasks, PublishTables]]:
    """How tasks run and tables are published: what is small in processes of the driver, unless Spark runs on a cluster,
    because the driver then may not reach the log."""
    from mainstem.spark.driver.local_workers import LocalWorkers
    from mainstem.tables.publishing.backoff import Backoff
    from mainstem.tables.publishing.publisher import publish_tables

    publish = partial(publish_tables, backoff=Backoff())
    if not on_this_machine():
        yield spark, publish
        return
    workers = LocalWorkers(spark, broker)
    workers.start()
    try:
        yield workers, partial(publish, publish_chunk=workers.publish_chunk)
    finally:
        workers.close()


def _session(progress: Progress) -> SparkSession:
    try:
        return open_session(settings=JVM_SETTINGS)
    except SparkMissing as missing:
        progress.event(SPARK_MISSING, error=str(missing))
        raise


def _drive(driver: Driver, progress: Progress, once: bool) -> DriverStatus:
    try:
        if once:
            return driver.run_once()
        driver.run()
        return driver.driver_status
    except SparkLost as lost:
        if once:
            raise MainstemError(f"the Spark JVM ended: {lost}") from lost
        # A process can start only one JVM, so this process restarts itself with the same command line.
        progress.event("spark lost", error=str(lost))
        progress.close()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


class _SignalHandler:
    """Stops the driver on SIGTERM, on SIGINT, and when the server that started it exits."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._before: dict[signal.Signals, Any] = {}
        self.cancel: Callable[[], None] = lambda: None  # cancels the running Spark jobs
        if os.environ.get(CHILD_ENV):
            threading.Thread(target=self._exit_with_parent, name="parent", daemon=True).start()

    def arm(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, lambda *_: self._request_stop())
            self._before.setdefault(number, before)

    def disarm(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _request_stop(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            # On a thread: the signal may have interrupted a call to the same JVM.
            threading.Thread(target=self._cancel, name="cancel", daemon=True).start()

    def _cancel(self) -> None:
        while True:  # until the process exits: the driver may be about to start another job
            self.cancel()
            time.sleep(_CANCEL_EVERY_S)

    def _exit_with_parent(self) -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os._exit(0)  # the broker is gone too, so there are no leases to release

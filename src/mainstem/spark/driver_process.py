"""A driver as a process: its session, its signals, its end."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mainstem.errors import MainstemError, SparkMissing
from mainstem.lake.broker import LakeBroker
from mainstem.spark.child import CHILD_ENV, SPARK_MISSING
from mainstem.spark.driver import Driver, DriverOptions, PublishTables
from mainstem.spark.driver_status import DriverStatus
from mainstem.spark.jobs import SparkLost, SparkRunner
from mainstem.spark.progress import Progress, open_progress
from mainstem.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE_MS = 60_000
_CALL_S = 10.0
_CANCEL_EVERY_S = 0.2
# The JVM plans and waits, the bytes are Python's: it starts with half the work when it does not optimise its code.
JVM_SETTINGS = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


def run_driver(
    url: str | None, *, once: bool, topics: tuple[str, ...] = (), lease_ms: int = LEASE_MS
) -> DriverStatus:
    """Drive the lake until SIGTERM or SIGINT, or one pass. Raises MainstemError."""
    progress = open_progress()
    stop = threading.Event()
    holder = f"{socket.gethostname()}-{os.getpid()}"
    options = DriverOptions(holder=holder, topics=topics, lease_ms=lease_ms)
    signals = _SignalHandler(stop)
    signals.arm()
    try:
        with LakeBroker(url, timeout_s=_CALL_S) as broker:
            progress.event("starting", holder=options.holder, url=broker.url)
            runner = SparkRunner(_session(progress))
            signals.cancel = runner.cancel
            signals.arm()  # again, for PySpark has set a handler of its own
            progress.event("ready", holder=options.holder)
            driver = Driver(broker, runner, options, progress, publish_tables=_publish_tables(), stop=stop)
            return _drive(driver, progress, once)
    finally:
        signals.disarm()
        progress.close()


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
            raise MainstemError(f"Spark is gone: {lost}") from lost
        # A process has one JVM in its life. This one begins again, with the same command line.
        progress.event("spark lost", error=str(lost))
        progress.close()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _publish_tables() -> PublishTables:
    from mainstem.lake.backoff import Backoff
    from mainstem.lake.iceberg.outbox import publish_tables

    return partial(publish_tables, backoff=Backoff())


class _SignalHandler:
    """SIGTERM, SIGINT, and the end of a server that started us, end the driver."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._before: dict[signal.Signals, Any] = {}
        self.cancel: Callable[[], None] = lambda: None  # what is under way on Spark, if anything
        if os.environ.get(CHILD_ENV):
            threading.Thread(target=self._end_with_parent, name="parent", daemon=True).start()

    def arm(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, lambda *_: self._end())
            self._before.setdefault(number, before)

    def disarm(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _end(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            # Not here: a handler may interrupt a call to the same JVM.
            threading.Thread(target=self._cancel, name="cancel", daemon=True).start()

    def _cancel(self) -> None:
        while True:  # until the process ends: the driver may just be about to start something
            self.cancel()
            time.sleep(_CANCEL_EVERY_S)

    def _end_with_parent(self) -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        os._exit(0)  # the broker went with it: there is nobody to give anything back to

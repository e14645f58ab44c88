"""A server and a driver that are killed and started again, and how often."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from types import TracebackType

import psutil

from mainstem.testing.server import ServerProcess

from ..driver_process import DriverProcess

_DRIVER = str(Path(__file__).with_name("driver.py"))
_FLAGS = (
    "--text",
    "off",
    "--lake-topics",
    "all",
    "--segment-bytes",
    "256KiB",
    "--checkpoint-every-bytes",
    "256KiB",
    "--tail-cache-bytes",
    "64KiB",
)
_KINDS = ("workers", "broker", "driver")


class Victims:
    """Leaving the block ends both."""

    def __init__(self, data_dir: Path, *, with_spark: bool) -> None:
        self._data_dir = data_dir
        self._driver_flags = () if with_spark else ("--without-spark",)
        self._with_spark = with_spark
        self.kills: Counter[str] = Counter()
        self._spared = list(_KINDS)
        self.server = ServerProcess(data_dir, *_FLAGS).wait_ready()
        self.bootstrap = str(self.server.address("kafka"))
        self._http = str(self.server.address("http"))
        self.url = f"http://{self._http}"
        self.driver: DriverProcess | None = None

    def __enter__(self) -> Victims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.driver is not None and self.driver.process.poll() is None:
            self.driver.kill()
        if self.server.running:
            self.server.kill()

    def start_driver(self) -> None:
        self.driver = DriverProcess(self.url, *self._driver_flags, program=(_DRIVER,))
        self.driver.wait_for("ready")

    def kill_one(self, pick: random.Random) -> None:
        """Each kind once at first; then workers the most often, which are started again by themselves."""
        if self._spared:
            kind = self._spared.pop(pick.randrange(len(self._spared)))
        else:
            (kind,) = pick.choices(_KINDS, (5, 3, 2))
        getattr(self, f"_kill_{kind}")()
        self.kills[kind] += 1

    def _kill_workers(self) -> None:
        assert self.driver is not None
        for process in psutil.Process(self.driver.process.pid).children(recursive=True):
            try:
                parent = process.parent()
                above = "" if parent is None else " ".join(parent.cmdline())
                command = " ".join(process.cmdline())
                forked = "pyspark.daemon" in above and "pyspark.daemon" in command
                local = "spawn_main" in command  # of the driver itself, for small passes
                if local or (forked if self._with_spark else "--worker" in process.cmdline()):
                    process.kill()
                    self.kills["single workers"] += 1
            except psutil.NoSuchProcess:
                continue

    def _kill_broker(self) -> None:
        self.server.kill()
        self.server = ServerProcess(
            self._data_dir, *_FLAGS, "--http", self._http, "--kafka", self.bootstrap
        ).wait_ready()

    def _kill_driver(self) -> None:
        assert self.driver is not None
        assert self.driver.process.poll() is None, self.driver.told()
        self.driver.kill()
        self.start_driver()

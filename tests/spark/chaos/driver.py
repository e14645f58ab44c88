"""`mainstem lake run` that never waits for more to do, so that minutes hold what hours do elsewhere.

python driver.py --url URL --lease-ms MS [--without-spark]

Without Spark its tasks are done by Python workers all the same, processes of their own that may be killed: a slice of
the long runs has no time for a JVM.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import IO, Any

import msgspec

from mainstem.api.lake import Publication, Task
from mainstem.spark.driver import driver, process
from mainstem.spark.driver.driver import DriverOptions
from mainstem.spark.driver.jobs import TaskOutcome, run_task
from mainstem.tables.publishing import backoff

_WORKERS = 2
_LENGTH_BYTES = 4


class Workers:
    """In place of a SparkRunner. A worker that dies fails its task, and another takes its place."""

    def __init__(self, session: object) -> None:
        self._idle = [self._started() for _ in range(_WORKERS)]
        self._threads = ThreadPoolExecutor(_WORKERS)

    def __call__(self, tasks: Sequence[Task]) -> list[TaskOutcome]:
        return list(self._threads.map(self._do, tasks))

    def cancel(self) -> None: ...

    def _do(self, task: Task) -> TaskOutcome:
        worker = self._idle.pop()
        started = time.monotonic()
        try:
            assert worker.stdin is not None
            assert worker.stdout is not None
            _send(worker.stdin, msgspec.msgpack.encode(task))
            publication, error, seconds, damaged_at = msgspec.msgpack.decode(_received(worker.stdout))
        except (OSError, EOFError):
            worker.kill()
            worker.wait()
            self._idle.append(self._started())
            return TaskOutcome(task, None, "its worker died", time.monotonic() - started)
        self._idle.append(worker)
        made = None if publication is None else msgspec.msgpack.decode(publication, type=Publication)
        return TaskOutcome(task, made, error or "", seconds, damaged_at)

    @staticmethod
    def _started() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, __file__, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )


def _work() -> None:
    """Runs until the sender of tasks disconnects."""
    while True:
        try:
            task = _received(sys.stdin.buffer)
        except EOFError:
            return
        _send(sys.stdout.buffer, msgspec.msgpack.encode(tuple(run_task(task))))


def _send(to: IO[bytes], message: bytes) -> None:
    to.write(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
    to.flush()


def _received(source: IO[bytes]) -> bytes:
    length = source.read(_LENGTH_BYTES)
    message = source.read(int.from_bytes(length, "big"))
    if len(length) < _LENGTH_BYTES or len(message) < int.from_bytes(length, "big"):
        raise EOFError
    return message


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--url")
    parser.add_argument("--lease-ms", type=int)
    parser.add_argument("--without-spark", action="store_true")
    chosen = parser.parse_args()
    if chosen.worker:
        _work()
        return
    replaced: dict[Any, dict[str, Any]] = {
        process: {"DriverOptions": partial(DriverOptions, wait_for_bytes=0, wait_for_ms=0)},
        driver: {"_PAUSE_S": 0.05, "_PAUSE_MAX_S": 0.2, "_ERROR_PAUSE_MAX_S": 0.2},
        backoff: {"LAKE_RETRY_S": 0.2, "LAKE_RETRY_MAX_S": 1.0},
    }
    if chosen.without_spark:
        replaced[process] |= {"_session": lambda progress: None, "SparkRunner": Workers}
    for module, names in replaced.items():
        for name, value in names.items():
            assert hasattr(module, name)
            setattr(module, name, value)
    process.run_driver(chosen.url, once=False, lease_ms=chosen.lease_ms)


if __name__ == "__main__":
    main()

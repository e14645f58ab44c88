"""A driver of the lake as a process of its own, to be watched and killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import psutil

WAIT_S = 120.0
LAKE_RUN = ("-m", "mainstem", "lake", "run")


class DriverProcess:
    """`mainstem lake run` against a server, or another program that does the same. Leaving the block ends it."""

    def __init__(self, url: str, *flags: str, program: Sequence[str] = LAKE_RUN) -> None:
        self.events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, *program, "--url", url, "--lease-ms", "1000", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._read_events, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> DriverProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._finish()

    def wait_for(self, name: str, count: int = 1) -> dict[str, Any]:
        """The event of that name, or the `count`th of them."""

        def found() -> list[dict[str, Any]]:
            return [event for event in self.events if event["event"] == name]

        with self._changed:
            ended = self.process.poll
            assert self._changed.wait_for(lambda: len(found()) >= count or ended() is not None, WAIT_S)
        assert len(found()) >= count, self.told()
        return found()[count - 1]

    def told(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Its last events, and what it wrote beside them."""
        return self.events[-20:], self._errors[-20:]

    def wait(self, seconds: float = WAIT_S) -> int:
        code = self.process.wait(seconds)
        self._finish()
        return code

    def kill(self) -> None:
        """At once, as kill -9 does; its JVM and workers notice."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.wait()
        _, alive = psutil.wait_procs(family, timeout=WAIT_S)
        assert not alive

    def _finish(self) -> None:
        self.process.wait(WAIT_S)
        for thread in self._threads:
            thread.join(WAIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def _read_events(self) -> None:
        for line in self.process.stdout or ():
            with self._changed:
                self.events.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def _read_errors(self) -> None:
        for line in self.process.stderr or ():
            self._errors.append(line)

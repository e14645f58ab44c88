"""A real server process, for tests that start, kill and restart it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from mainstem.address import Address
from mainstem.testing.ports import consecutive_ports

_START_S = 120.0


class ServerHandle(Protocol):
    """The part of `subprocess.Popen` that a server process needs."""

    @property
    def pid(self) -> int: ...

    @property
    def stderr(self) -> IO[str] | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float) -> int: ...

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...


def execute(arguments: Sequence[str], environment: dict[str, str], folder: Path) -> ServerHandle:
    """Start the command line in a new process."""
    return subprocess.Popen(
        [sys.executable, "-m", "mainstem", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=folder,
    )


start = execute  # the project's own tests replace it with a fork


class ServerProcess:
    """`mainstem serve` on free ports. Leaving the `with` block kills it if it still runs."""

    def __init__(self, data_dir: Path, *flags: str, env: dict[str, str] | None = None) -> None:
        data_dir = data_dir.resolve()  # the server runs in another working directory than the caller
        self.ports_file = data_dir.parent / f"{data_dir.name}.ports.json"
        arguments = ["serve", "--log-format", "json"]
        arguments += [
            "--data-dir",
            str(data_dir),
            "--ports-file",
            str(self.ports_file),
        ]
        workers = int(flags[flags.index("--workers") + 1]) if "--workers" in flags else 1
        for door in ("--http", "--text", "--kafka", "--s3", "--pulsar"):
            # Reserved, so that a restarted server finds them free.
            arguments += [door, f"127.0.0.1:{consecutive_ports(workers)}"]
        self.lines: list[dict[str, object]] = []  # parsed log lines
        self.stray_output = ""  # output that is not a log line
        self._ready = threading.Event()
        # In the test's process group, so that killing the test kills its server too.
        self._process = start([*arguments, *flags], {**os.environ, **(env or {})}, data_dir.parent)
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    def __enter__(self) -> ServerProcess:
        return self.wait_ready()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._wait_exit()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_ready(self) -> ServerProcess:
        """Raises RuntimeError with the output if the process exits instead."""
        if not self._ready.wait(_START_S) or "ready" not in self.events():
            self._process.kill()
            self._wait_exit()
            raise RuntimeError(f"the server did not start: {self.stray_output or self.lines}")
        return self

    def address(self, door: str) -> Address:
        return Address.parse(json.loads(self.ports_file.read_text())[door])

    def last_address(self, door: str) -> Address:
        """The address of a door, also after the process exited."""
        return Address.parse(str(self.ready[door]))

    @property
    def ready(self) -> dict[str, object]:
        """Fields of the `ready` event, such as every door's address."""
        return next(line for line in reversed(self.lines) if line["event"] == "ready")

    def events(self) -> list[object]:
        return [line["event"] for line in self.lines]

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """Wait until the process exits. Returns its exit code."""
        self._process.wait(_START_S)
        return self._wait_exit()

    def terminate(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.wait()

    def _wait_exit(self) -> int:
        code = self._process.wait(_START_S)
        self._reader.join(_START_S)
        if self._process.stderr is not None:
            self._process.stderr.close()
        return code

    def _read_log(self) -> None:
        for line in self._process.stderr or ():
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.stray_output += line
            if self.lines and self.lines[-1].get("event") == "ready":
                self._ready.set()
        self._ready.set()

"""A peer: a server with its own folder, and a client that writes and reads."""

from __future__ import annotations

import abc
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

_START_S = 60.0
_END_S = 20.0
LOOPBACK = "127.0.0.1"


class Unavailable(Exception):
    """Why a peer is left out."""


class Peer(abc.ABC):
    """One system. Topics are named by the caller; each is written by one producer and then read from its start."""

    name: str
    client: str  # which one, and what it is written in
    durability: str  # what an acknowledgement means in these runs

    @abc.abstractmethod
    def start(self, folder: Path) -> contextlib.AbstractContextManager[psutil.Process]:
        """Run the server; gives its process. Raises Unavailable."""

    @abc.abstractmethod
    def version(self) -> str: ...

    @abc.abstractmethod
    def write_many(self, topic: str, payload: bytes, seconds: float) -> int:
        """Write at the full speed of the client, with many in flight and all acknowledged. Returns how many."""

    @abc.abstractmethod
    def write_singles(self, topic: str, payload: bytes, seconds: float) -> list[float]:
        """Write one at a time and wait for its acknowledgement. Returns the latencies."""

    @abc.abstractmethod
    def read(self, topic: str, count: int) -> int:
        """Read this many from the start. Returns how many arrived."""


def free_port() -> int:
    with socket.socket() as one:
        one.bind((LOOPBACK, 0))
        port: int = one.getsockname()[1]
        return port


def program(name: str, package: str, install: bool) -> str:
    """Where a server's program is; with `install`, and as root, its Debian package is installed first."""
    beside = Path(sys.executable).parent / name
    found = (
        str(beside) if beside.exists() else shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    )
    if found:
        return found
    if not install or os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"{name} is not installed (Debian: {package}; `--install` as root installs it)")
    done = subprocess.run(
        ["apt-get", "install", "-y", "--no-install-recommends", package],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"},  # 1: no service is started
        capture_output=True,
        text=True,
    )
    again = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if done.returncode or again is None:
        raise Unavailable(f"{package} could not be installed: {done.stderr.strip().splitlines()[-1:]}")
    return again


@contextlib.contextmanager
def process(
    command: list[str], folder: Path, ready: Callable[[], bool], env: dict[str, str] | None = None
) -> Iterator[psutil.Process]:
    """Run a server until the block ends. It is ended by its process, whatever it started with it."""
    log = folder / "server.log"
    with log.open("wb") as output:
        popen = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = psutil.Process(popen.pid)
    try:
        _wait(popen, ready, log)
        yield server
    finally:
        family = server.children(recursive=True) if popen.poll() is None else []
        popen.terminate()
        try:
            popen.wait(_END_S)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait(_END_S)
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


def _wait(popen: subprocess.Popen[bytes], ready: Callable[[], bool], log: Path) -> None:
    until = time.monotonic() + _START_S
    while not ready():
        if popen.poll() is not None or time.monotonic() > until:
            # Not for the page: it is full of this machine's paths.
            print(log.read_text(errors="replace")[-2000:], file=sys.stderr, flush=True)
            raise Unavailable("it did not start")
        time.sleep(0.1)


def listens(port: int) -> bool:
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex((LOOPBACK, port)) == 0


def cpu_s(server: psutil.Process) -> float:
    """CPU time of a server and what it started, so far."""
    total = 0.0
    for one in [server, *server.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def timed(write: Callable[[], object], seconds: float) -> list[float]:
    """How long each of the calls took that fit into the time."""
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < until:
        write()
        taken.append(time.perf_counter() - begun)
    return taken

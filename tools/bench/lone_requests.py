"""A client that waits for each answer, and what its requests cost the server."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from tools.bench.machine import settle

RUNS = 3
REQUESTS = 4_000
_WARM_UP = 500
_RECEIVE_BYTES = 1 << 16

Ask = Callable[[], None]


class Asked(NamedTuple):
    """The best of some runs."""

    rate: float
    cpu_us: float  # of the server, each
    p50_ms: float
    p99_ms: float

    @property
    def note(self) -> str:
        return (
            f"{self.rate:.0f}/s, {self.cpu_us:.0f} µs CPU, p50 {self.p50_ms:.2f} ms, p99 {self.p99_ms:.2f} ms"
        )


def best(process: psutil.Process, ask: Ask, count: int = REQUESTS) -> Asked:
    for _ in range(min(_WARM_UP, count)):
        ask()
    settle(lambda: cpu_s(process))
    runs = []
    for _ in range(RUNS):
        taken = []
        cpu, began = cpu_s(process), time.perf_counter()
        for _ in range(count):
            sent = time.perf_counter()
            ask()
            taken.append(time.perf_counter() - sent)
        wall_s, spent_s = time.perf_counter() - began, cpu_s(process) - cpu
        taken.sort()
        p50, p99 = (taken[int(count * part)] * 1e3 for part in (0.5, 0.99))
        runs.append(Asked(count / wall_s, spent_s / count * 1e6, p50, p99))
    return Asked(
        max(one.rate for one in runs),
        min(one.cpu_us for one in runs),
        min(one.p50_ms for one in runs),
        min(one.p99_ms for one in runs),
    )


def cpu_s(process: psutil.Process) -> float:
    """From the scheduler: the clock ticks of /proc/…/stat are too coarse for short runs."""
    total = 0
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def ask_over(connection: socket.socket, request: bytes, accepted: Callable[[bytes], bool]) -> Ask:
    """Send one request, and wait for its answer."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask() -> None:
        connection.sendall(request)
        answer = connection.recv(_RECEIVE_BYTES)  # answers are small, and nothing else is on its way
        if not accepted(answer):
            raise SystemExit(f"the server answered {answer[:200]!r}")

    return ask

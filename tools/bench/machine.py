"""Prepares the machine for a measurement, and describes it in the report.

- The memory of a virtual machine may be allocated only when it is first written, and some guests return free memory to
  the host within seconds. The first write to a page then costs microseconds of the writer's CPU time. `touch_pages`
  allocates the memory right before a measurement.
- After a new installation the server compiles its kernels on first use, on a thread.
- A Python built without profile-guided optimisation is a quarter slower: the heading shows its speed.
"""

from __future__ import annotations

import mmap
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from mainstem.limits import MIB

_TOUCHED_BYTES_MAX = 6 * 1024 * MIB  # more than any benchmark uses at once
_QUIET_S = 0.5
_QUIET_SHARE = 0.05  # of a core


def touch_memory() -> None:
    """Write to much of the free memory once, so that nobody who is measured does so first."""
    size = min(_TOUCHED_BYTES_MAX, psutil.virtual_memory().free // 2)
    zeros = bytes(MIB)
    with mmap.mmap(-1, max(size, MIB)) as memory:
        for _ in range(size // MIB):
            memory.write(zeros)


def touch_pages(scratch: Path, size: int) -> None:
    """Write that much to a file and drop it, so that what is written next finds pages that exist."""
    zeros = bytes(MIB)
    with tempfile.TemporaryFile(dir=scratch, buffering=0) as file:
        for _ in range(size // MIB):
            file.write(zeros)


def settle(cpu_s: Callable[[], float], patience_s: float = 120.0) -> None:
    """Wait until a server whose CPU seconds these are does nothing by itself, unless that takes too long.

    One just started may compile for half a minute, or prepare its files."""
    give_up = time.monotonic() + patience_s
    while time.monotonic() < give_up:
        before = cpu_s()
        time.sleep(_QUIET_S)
        if cpu_s() - before < _QUIET_SHARE * _QUIET_S:
            return


def description() -> str:
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}, "
        f"Python {platform.python_version()}, which adds a million numbers in {_loop_ms():.0f} ms"
    )


def _loop_ms() -> float:
    """How fast this Python is on this machine: builds of one version differ by a quarter."""
    best = float("inf")
    for _ in range(5):
        begun = time.perf_counter()
        total = 0
        for number in range(1_000_000):
            total += number
        best = min(best, time.perf_counter() - begun)
    return best * 1000

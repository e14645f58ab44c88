"""The machine that is measured: brought to rest first, and named in the report.

Three things made figures of the same code differ by half:

- A virtual machine's memory may exist only once it was written. Until then every page of a file's cache or of a
  buffer costs its first writer some µs in the host, which are counted as the writer's own. Some guests give what
  is free back to the host within seconds (free page reporting), so that this happens again and again: writing a GB
  to a new file took 0.2 CPU seconds, or 2. `touch_pages` sees to it just before something is measured, since a
  machine that has been at work for a while has its memory.
- On a new installation the kernels are compiled when they are first needed, by a thread of the server.
- A Python that was built without profile-guided optimisation is a quarter slower: the heading says how fast it is.
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

"""The shortcut: small commits are written on the event loop, as long as that is quick.

Handing a write to a thread and back costs two switches, some 100 µs: more than a small write into the
kernel's memory takes. But a kernel short of clean pages makes the writer wait, and then the loop must not be
the writer: one write that took long closes the shortcut for a while.
"""

from __future__ import annotations

import time
from types import TracebackType

from mainstem import limits


class Shortcut:
    """Use `open` to ask, then `with` around the write, which is timed."""

    def __init__(self) -> None:
        self._closed_until = 0.0
        self._began = 0.0

    def open(self, size: int) -> bool:
        return size <= limits.SHORTCUT_BYTES_MAX and time.perf_counter() >= self._closed_until

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ended = time.perf_counter()
        if ended - self._began > limits.SHORTCUT_SLOW_S:
            self._closed_until = ended + limits.SHORTCUT_CLOSED_S

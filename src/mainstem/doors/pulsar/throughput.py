"""Throughput: how much a producer or a consumer moved, and how fast lately."""

from __future__ import annotations

import time
from collections.abc import Callable

WINDOW_S = 10.0  # a rate is that of at most twice this time
_WINDOW_S_MIN = 1.0  # a reader of the rate begins the next window, if this one is as long


class Throughput:
    """Counts since the start, and the rates of the last complete window."""

    __slots__ = (
        "_at",
        "_bytes_before",
        "_clock",
        "_messages_before",
        "_rates",
        "bytes",
        "messages",
    )

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.messages = 0
        self.bytes = 0
        self._clock = clock
        self._at = clock()
        self._messages_before = 0
        self._bytes_before = 0
        self._rates = 0.0, 0.0

    def rates(self) -> tuple[float, float]:
        """Messages and bytes a second."""
        now = self._clock()
        elapsed_s = now - self._at
        if elapsed_s >= _WINDOW_S_MIN:
            self._rates = (
                (self.messages - self._messages_before) / elapsed_s,
                (self.bytes - self._bytes_before) / elapsed_s,
            )
            self._at, self._messages_before, self._bytes_before = now, self.messages, self.bytes
        return self._rates

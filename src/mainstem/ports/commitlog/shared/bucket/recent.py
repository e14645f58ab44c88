"""The newest entry objects as they were read or written, for followers and readers that come right after."""

from __future__ import annotations

import threading
from collections import OrderedDict

from mainstem import limits
from mainstem.ports.commitlog.port import Buffer


class RecentEntries:
    """Entry objects by position, the oldest giving way. Any thread may use it."""

    def __init__(self, bytes_max: int = limits.BUCKET_RECENT_BYTES) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, Buffer] = OrderedDict()
        self._bytes = 0

    def add(self, position: int, stored: Buffer) -> None:
        with self._lock:
            if position in self._entries or len(stored) > self._bytes_max:
                return
            self._entries[position] = stored
            self._bytes += len(stored)
            while self._bytes > self._bytes_max:
                _, old = self._entries.popitem(last=False)
                self._bytes -= len(old)

    def forget(self, position: int) -> None:
        """What was read is not whole: maybe it is where it is stored."""
        with self._lock:
            self._bytes -= len(self._entries.pop(position, b""))

    def get(self, position: int) -> Buffer | None:
        with self._lock:
            return self._entries.get(position)

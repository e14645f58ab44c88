"""What the clients of a run saw, recorded by many threads."""

from __future__ import annotations

import threading
from collections import Counter

from tests.support.histories import ClusterHistory


class Notes:
    """`with notes as history:` — under a lock, so that the history has one order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._history = ClusterHistory()
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []  # problems that the clients found

    def __enter__(self) -> ClusterHistory:
        self._lock.acquire()
        return self._history

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def count(self, what: str, number: int = 1) -> None:
        with self:
            self.counts[what] += number

    def found(self, what: str) -> None:
        with self:
            self.findings.append(what)


def stream(topic: str, partition: int) -> str:
    return f"{topic}/{partition}"

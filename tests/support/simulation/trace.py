"""What happened in a simulation, in order. The same seed gives the same trace; a difference means outside influence."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable

_KEPT = 200  # the newest lines, to be shown when a scenario fails


class Trace:
    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._hash = hashlib.sha256()
        self._count = 0
        self.newest: deque[str] = deque(maxlen=_KEPT)
        self.effects: Counter[str] = Counter()  # what went wrong, and was not in vain: somebody met it

    def note(self, who: str, what: str) -> None:
        line = f"{self._time():12.6f} {who}: {what}"
        self._hash.update(line.encode() + b"\n")
        self._count += 1
        self.newest.append(line)

    @property
    def count(self) -> int:
        return self._count

    def digest(self) -> str:
        """Of every line so far."""
        return self._hash.hexdigest()

    def __str__(self) -> str:
        return "\n".join(self.newest)

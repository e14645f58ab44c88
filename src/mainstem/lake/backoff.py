"""Back-off: what failed is left alone for a while, twice as long with every failure in a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from mainstem import limits


@dataclass(frozen=True, slots=True)
class _Failure:
    error: str
    failures: int  # one after another
    until_s: float


class Backoff:
    """Keeps the last failure of each key. It belongs to one driver and ends with it."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._failures: dict[Hashable, _Failure] = {}

    def failed(self, key: Hashable, error: str) -> None:
        known = self._failures.get(key)
        failures = known.failures + 1 if known else 1
        self._failures[key] = _Failure(error, failures, self._now_s() + delay_s(failures))

    def succeeded(self, key: Hashable) -> None:
        self._failures.pop(key, None)

    def waiting(self, key: Hashable) -> str | None:
        """Why the key failed, if it is too early to try again."""
        known = self._failures.get(key)
        return known.error if known is not None and self._now_s() < known.until_s else None


def delay_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(limits.LAKE_RETRY_S * float(1 << min(failures - 1, 16)), limits.LAKE_RETRY_MAX_S)

"""Exponential backoff: each consecutive failure of a key doubles the wait before the next attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

LAKE_RETRY_S = 5.0  # delay before a failed stream or table is retried, doubled with each failure …
LAKE_RETRY_MAX_S = 600.0  # … up to this


@dataclass(frozen=True, slots=True)
class _Failure:
    error: str
    failures: int  # consecutive
    until_s: float


class Backoff:
    """Keeps the last failure of each key, in the memory of one driver."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._failures: dict[Hashable, _Failure] = {}

    def failed(self, key: Hashable, error: str) -> None:
        last = self._failures.get(key)
        failures = last.failures + 1 if last else 1
        self._failures[key] = _Failure(error, failures, self._now_s() + delay_s(failures))

    def succeeded(self, key: Hashable) -> None:
        self._failures.pop(key, None)

    def waiting(self, key: Hashable) -> str | None:
        """The last error of the key while its retry is not due; None if the key may be tried."""
        last = self._failures.get(key)
        return last.error if last is not None and self._now_s() < last.until_s else None


def delay_s(failures: int) -> float:
    """Seconds to wait after this number of consecutive failures."""
    return min(LAKE_RETRY_S * float(1 << min(failures - 1, 16)), LAKE_RETRY_MAX_S)

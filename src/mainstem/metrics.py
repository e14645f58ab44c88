"""Metrics as they are published, from any part of the server."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[tuple[Labels, float], ...]
    suffix: str = ""  # of the samples' names: it distinguishes the parts of a histogram


def one(name: str, kind: Literal["counter", "gauge"], help: str, value: float) -> Metric:
    """A metric with a single number."""
    return Metric(name, kind, help, (((), float(value)),))


class Histogram:
    """A histogram with fixed bounds. Observing costs one search among a few bounds."""

    __slots__ = ("_bounds", "_counts", "_help", "_name", "_sum")

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self._name = name
        self._help = help
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)  # the last has no upper bound
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def count(self) -> int:
        return sum(self._counts)

    def published(self) -> Iterator[Metric]:
        """The parts of a Prometheus histogram."""
        totals = [*accumulate(self._counts)]
        bounds = (*map(str, self._bounds), "+Inf")
        buckets = tuple(((("le", bound),), float(total)) for bound, total in zip(bounds, totals, strict=True))
        yield Metric(self._name, "histogram", self._help, buckets, "_bucket")
        yield Metric(self._name, "histogram", self._help, (((), self._sum),), "_sum")
        yield Metric(self._name, "histogram", self._help, (((), float(totals[-1])),), "_count")

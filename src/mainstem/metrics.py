"""A metric as it is published, whichever part of the server counts it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: tuple[tuple[Labels, float], ...]
    suffix: str = ""  # of the samples' names: the parts of a histogram are told apart by it


def one(name: str, kind: Literal["counter", "gauge"], help: str, value: float) -> Metric:
    """A metric of a single number."""
    return Metric(name, kind, help, (((), float(value)),))

"""Results of a benchmark, and their output."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tools.bench.machine import description


@dataclass(slots=True)
class Span:
    """Wall and CPU seconds (this process, all threads) of a stretch of work."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


@contextmanager
def measured() -> Iterator[Span]:
    span = Span()
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        yield span
    finally:
        span.wall_s = time.perf_counter() - wall
        span.cpu_s = time.process_time() - cpu


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the report: what was measured, what came out, and the bar it is held to."""

    what: str
    value: float
    unit: str
    bar: float | None = None
    lower_is_better: bool = False
    cpu_s: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value <= self.bar if self.lower_is_better else self.value >= self.bar


@dataclass(slots=True)
class Report:
    figures: list[Figure] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(_line(figure), flush=True)

    def summary(self) -> str:
        judged = [figure for figure in self.figures if figure.met is not None]
        return f"{sum(bool(figure.met) for figure in judged)} of {len(judged)} bars met"


def heading() -> str:
    return f"{description()}\n{'what':<58} {'reached':>14}  {'bar':>12}  {'':<6} {'CPU s':>7}  note"


def _line(figure: Figure) -> str:
    sign = "≤" if figure.lower_is_better else "≥"
    bar = "" if figure.bar is None else f"{sign} {_number(figure.bar)}"
    verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
    cpu = "" if figure.cpu_s is None else f"{figure.cpu_s:.2f}"
    reached = f"{_number(figure.value)} {figure.unit}"
    return f"{figure.what:<58} {reached:>14}  {bar:>12}  {verdict:<6} {cpu:>7}  {figure.note}".rstrip()


def _number(value: float) -> str:
    for limit, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.2f} {sign}"
    return f"{value:.2f}"

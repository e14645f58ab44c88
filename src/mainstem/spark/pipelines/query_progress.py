"""Queries at work: what they did, line by line, until they end, fail, or are told to stop."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK_EVERY_S = 0.3


class SeesBatches(Protocol):
    def batch(self, query: StreamingQuery, progress: Any) -> None:
        """A query has done another batch, with rows in it."""
        ...


class QueryLines:
    """One line a batch: JSON for programs, words on a terminal."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out

    def event(self, name: str, **fields: object) -> None:
        if self._out.isatty():
            told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in fields.items())
            self._out.write(f"{name}: {told}\n" if told else f"{name}\n")
        else:
            self._out.write(json.dumps({"event": name, **fields}, default=str) + "\n")
        self._out.flush()

    def batch(self, query: StreamingQuery, progress: Any) -> None:
        rows, took_ms = int(progress["numInputRows"]), duration_ms(progress)
        rate = round(rows / max(took_ms, 1) * 1000)
        batch = int(progress["batchId"])
        self.event("batch", output=query.name, batch=batch, rows=rows, ms=took_ms, rows_per_s=rate)


def duration_ms(progress: Any) -> int:
    """What a batch took, from its planning to its commit."""
    return int(progress["durationMs"].get("triggerExecution", 0))


class _Batches:
    """The batches of each query that nobody was told of yet; empty ones are not worth a word."""

    def __init__(self, seers: Sequence[SeesBatches]) -> None:
        self._seers = seers
        self._told: dict[str, int] = {}  # the last batch, by query

    def tell(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            batch = int(progress["batchId"])
            if batch <= self._told.get(str(query.id), -1) or not int(progress["numInputRows"]):
                continue
            self._told[str(query.id)] = batch
            for seer in self._seers:
                seer.batch(query, progress)


def watch(queries: Sequence[StreamingQuery], stop: threading.Event, *seers: SeesBatches) -> None:
    """Until all have ended, or `stop` is set: then they are stopped. Raises MainstemError if one fails."""
    batches = _Batches(seers)
    try:
        while not stop.is_set() and any(query.isActive for query in queries):
            for query in queries:
                batches.tell(query)
                _check(query)
            stop.wait(_LOOK_EVERY_S)
        for query in queries:
            batches.tell(query)
            _check(query)
    finally:
        for query in queries:
            if query.isActive:
                query.stop()


def _check(query: StreamingQuery) -> None:
    failed = query.exception() if not query.isActive else None
    if failed is not None:
        raise MainstemError(f"output {query.name} failed: {_reason(str(failed))}")


def _reason(text: str) -> str:
    """The line that says why: Spark puts a page of its own around it."""
    ours = [line for line in text.splitlines() if line.startswith("mainstem.errors.")]
    return ours[-1].partition(": ")[2] if ours else text.strip().splitlines()[0]


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

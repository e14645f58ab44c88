"""Watch running queries and write a line for each batch, until they end, fail or are stopped."""

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

_POLL_EVERY_S = 0.3


class BatchObserver(Protocol):
    def batch(self, query: StreamingQuery, progress: Any) -> None:
        """Called when a query completed a batch that has rows."""
        ...


class QueryLines:
    """Writes one line a batch: JSON for programs, text on a terminal."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = sys.stdout if out is None else out

    def event(self, name: str, **fields: object) -> None:
        if self._out.isatty():
            text = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in fields.items())
            self._out.write(f"{name}: {text}\n" if text else f"{name}\n")
        else:
            self._out.write(json.dumps({"event": name, **fields}, default=str) + "\n")
        self._out.flush()

    def batch(self, query: StreamingQuery, progress: Any) -> None:
        rows, took_ms = int(progress["numInputRows"]), duration_ms(progress)
        rate = round(rows / max(took_ms, 1) * 1000)
        batch = int(progress["batchId"])
        self.event("batch", output=query.name, batch=batch, rows=rows, ms=took_ms, rows_per_s=rate)


def duration_ms(progress: Any) -> int:
    """Duration of a batch from planning to commit."""
    return int(progress["durationMs"].get("triggerExecution", 0))


class _Batches:
    """Passes each query's new batches to the observers; empty batches are skipped."""

    def __init__(self, observers: Sequence[BatchObserver]) -> None:
        self._observers = observers
        self._last: dict[str, int] = {}  # last batch passed on, by query

    def notify(self, query: StreamingQuery) -> None:
        for progress in query.recentProgress:
            batch = int(progress["batchId"])
            if batch <= self._last.get(str(query.id), -1) or not int(progress["numInputRows"]):
                continue
            self._last[str(query.id)] = batch
            for observer in self._observers:
                observer.batch(query, progress)


def watch(queries: Sequence[StreamingQuery], stop: threading.Event, *observers: BatchObserver) -> None:
    """Wait until all queries end, or stop them when `stop` is set. Raises MainstemError if one fails."""
    batches = _Batches(observers)
    try:
        while not stop.is_set() and any(query.isActive for query in queries):
            for query in queries:
                batches.notify(query)
                _check(query)
            stop.wait(_POLL_EVERY_S)
        for query in queries:
            batches.notify(query)
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
    """The line with the reason, without the page of text that Spark puts around it."""
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

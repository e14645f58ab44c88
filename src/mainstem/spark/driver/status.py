"""A driver's status: counters since its start, and the streams and tables that fail."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from mainstem.api.lake import DriverReport, Publication, Task, TopicFailure
from mainstem.tables.publishing.backoff import delay_s

LAKE_FAILURES_REPORTED_MAX = 100  # topics in a driver's report …
LAKE_FAILURE_CHARS_MAX = 300  # … each with this much of its error


@dataclass(slots=True)
class _FailingStream:
    """A stream whose tasks fail."""

    failure: TopicFailure
    until: float  # monotonic time of the next attempt


@dataclass(slots=True)
class DriverStatus:
    rounds: int = 0
    tasks: int = 0
    failed: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    tables_error: str = ""  # of the last round
    _failing: dict[int, _FailingStream] = field(default_factory=dict)  # by stream
    _tables: dict[str, TopicFailure] = field(default_factory=dict)  # topics whose table is not up to date
    _plans: dict[str, TopicFailure] = field(default_factory=dict)  # topics that the broker cannot plan

    def task_published(self, publication: Publication, seconds: float) -> None:
        """Count a published task."""
        self.tasks += 1
        self.records += sum(part.records for part in publication.parts)
        self.bytes += sum(part.bytes for part in publication.parts)
        self.seconds += seconds
        self._failing.pop(publication.stream, None)

    def task_failed(self, task: Task, error: str) -> int:
        """Count a failed task. Returns the number of consecutive failures of its stream."""
        last = self._failing.get(task.stream)
        failures = last.failure.failures + 1 if last else 1
        self._failing[task.stream] = _FailingStream(
            TopicFailure(task.topic, error, failures, _now_ms()), time.monotonic() + delay_s(failures)
        )
        self.failed += 1
        return failures

    def tables_behind(self, problems: Mapping[str, str], waiting: Collection[str] = ()) -> list[str]:
        """Record the tables that are not up to date after a publishing round; those in `waiting` were not tried.
        Returns the topics whose error is new."""
        before, self._tables = self._tables, _counted(self._tables, problems, waiting)
        return _changed(before, self._tables)

    def unplanned(self, problems: Mapping[str, str]) -> list[str]:
        """Record the topics that the broker cannot plan. Returns those whose error is new."""
        before, self._plans = self._plans, _counted(self._plans, problems)
        return _changed(before, self._plans)

    def is_failing(self, stream: int) -> bool:
        """Whether the stream's last task failed."""
        return stream in self._failing

    def in_backoff(self, stream: int) -> bool:
        """Whether the stream's last task failed and its retry is not due."""
        stream_failure = self._failing.get(stream)
        return stream_failure is not None and time.monotonic() < stream_failure.until

    def failing(self) -> tuple[TopicFailure, ...]:
        streams = (stream.failure for stream in self._failing.values())
        return (*streams, *self._plans.values(), *self._tables.values())

    def report(self, holder: str, state: str, running: int) -> DriverReport:
        return DriverReport(
            holder,
            state,
            self.rounds,
            running,
            self.tasks,
            self.failed,
            self.records,
            self.bytes,
            self.seconds,
            tuple(_short(failure) for failure in self.failing()[:LAKE_FAILURES_REPORTED_MAX]),
            self.tables_error[:LAKE_FAILURE_CHARS_MAX],
        )


def _counted(
    before: Mapping[str, TopicFailure], problems: Mapping[str, str], waiting: Collection[str] = ()
) -> dict[str, TopicFailure]:
    """The current problems as failures, with their consecutive counts."""
    found = {}
    for topic, error in problems.items():
        last = before.get(topic)
        if last is not None and topic in waiting:
            found[topic] = last
        else:
            found[topic] = TopicFailure(topic, error, last.failures + 1 if last else 1, _now_ms())
    return found


def _changed(before: Mapping[str, TopicFailure], now: Mapping[str, TopicFailure]) -> list[str]:
    """Topics that fail now, and did not fail before or failed with another error."""
    return [
        topic for topic, failure in now.items() if topic not in before or before[topic].error != failure.error
    ]


def _short(failure: TopicFailure) -> TopicFailure:
    """Truncate the message, so that a report of many failures stays within `REPORT_BYTES_MAX`."""
    return msgspec.structs.replace(failure, error=failure.error[:LAKE_FAILURE_CHARS_MAX])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

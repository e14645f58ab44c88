"""How a driver is doing: what it did since its start, and the streams it gets no further with."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from mainstem import limits
from mainstem.broker.lake_reports import DriverReport, TopicFailure
from mainstem.broker.plans import Publication, Task
from mainstem.lake.backoff import delay_s


@dataclass(slots=True)
class _FailingStream:
    """A stream whose tasks fail."""

    failure: TopicFailure
    until: float  # monotonic: no sooner than this it is tried again


@dataclass(slots=True)
class DriverStatus:
    rounds: int = 0
    tasks: int = 0
    failed: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    tables_error: str = ""  # of the last round
    _troubles: dict[int, _FailingStream] = field(default_factory=dict)  # by stream
    _tables: dict[str, TopicFailure] = field(default_factory=dict)  # by topic: what is wrong with its table
    _plans: dict[str, TopicFailure] = field(
        default_factory=dict
    )  # by topic: why the broker has no plan for it

    def did(self, publication: Publication, seconds: float) -> None:
        """A task is done and published."""
        self.tasks += 1
        self.records += sum(part.records for part in publication.parts)
        self.bytes += sum(part.bytes for part in publication.parts)
        self.seconds += seconds
        self._troubles.pop(publication.stream, None)

    def failed_at(self, task: Task, error: str) -> int:
        """A task failed. Returns how often the stream's did, one after another."""
        known = self._troubles.get(task.stream)
        failures = known.failure.failures + 1 if known else 1
        self._troubles[task.stream] = _FailingStream(
            TopicFailure(task.topic, error, failures, _now_ms()), time.monotonic() + delay_s(failures)
        )
        self.failed += 1
        return failures

    def tables_behind(self, problems: Mapping[str, str], waiting: Collection[str] = ()) -> list[str]:
        """A round of publishing ended with these tables not what they should be; those of `waiting` were not tried
        again. Returns the topics with news."""
        before, self._tables = self._tables, _counted(self._tables, problems, waiting)
        return _news(before, self._tables)

    def unplanned(self, problems: Mapping[str, str]) -> list[str]:
        """The broker has no plan for these topics. Returns those with news."""
        before, self._plans = self._plans, _counted(self._plans, problems)
        return _news(before, self._plans)

    def in_trouble(self, stream: int) -> bool:
        """Whether its last task failed."""
        return stream in self._troubles

    def held_back(self, stream: int) -> bool:
        """Whether it failed so lately that it is left alone."""
        trouble = self._troubles.get(stream)
        return trouble is not None and time.monotonic() < trouble.until

    def failing(self) -> tuple[TopicFailure, ...]:
        troubles = (trouble.failure for trouble in self._troubles.values())
        return (*troubles, *self._plans.values(), *self._tables.values())

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
            tuple(_short(failure) for failure in self.failing()[: limits.LAKE_FAILURES_REPORTED_MAX]),
            self.tables_error[: limits.LAKE_FAILURE_CHARS_MAX],
        )


def _counted(
    before: Mapping[str, TopicFailure], problems: Mapping[str, str], waiting: Collection[str] = ()
) -> dict[str, TopicFailure]:
    """What is wrong now, with how often it was in a row."""
    found = {}
    for topic, error in problems.items():
        known = before.get(topic)
        if known is not None and topic in waiting:
            found[topic] = known
        else:
            found[topic] = TopicFailure(topic, error, known.failures + 1 if known else 1, _now_ms())
    return found


def _news(before: Mapping[str, TopicFailure], now: Mapping[str, TopicFailure]) -> list[str]:
    """Topics that fail, and did not or not so before."""
    return [topic for topic, one in now.items() if topic not in before or before[topic].error != one.error]


def _short(failure: TopicFailure) -> TopicFailure:
    """Cut the message, so that a report of many failures stays within `REPORT_BYTES_MAX`."""
    return msgspec.structs.replace(failure, error=failure.error[: limits.LAKE_FAILURE_CHARS_MAX])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

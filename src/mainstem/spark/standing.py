"""How a driver is doing: what it did since its start, and the streams it gets no further with."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from mainstem.api.lake import DriverReport, Publication, Task, TopicFailure

_PENALTY_S = 5.0  # a stream whose task failed is left alone for this long, doubled with each failure …
_PENALTY_MAX_S = 600.0  # … up to this


@dataclass(slots=True)
class _Trouble:
    """A stream whose tasks fail."""

    failure: TopicFailure
    until: float  # monotonic: no sooner than this it is tried again


@dataclass(slots=True)
class Standing:
    rounds: int = 0
    tasks: int = 0
    failed: int = 0
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    tables_error: str = ""  # of the last round
    _troubles: dict[int, _Trouble] = field(default_factory=dict)  # by stream
    _tables: dict[str, TopicFailure] = field(default_factory=dict)  # by topic: what is wrong with its table

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
        penalty_s = min(_PENALTY_S * 2 ** min(failures - 1, 16), _PENALTY_MAX_S)
        self._troubles[task.stream] = _Trouble(
            TopicFailure(task.topic, error, failures, _now_ms()), time.monotonic() + penalty_s
        )
        self.failed += 1
        return failures

    def tables_behind(self, problems: Mapping[str, str]) -> list[str]:
        """A round of publishing ended with these tables not what they should be. Returns the topics with news."""
        before, self._tables = self._tables, {}
        for topic, error in problems.items():
            known = before.get(topic)
            self._tables[topic] = TopicFailure(topic, error, known.failures + 1 if known else 1, _now_ms())
        return [
            topic for topic, error in problems.items() if topic not in before or before[topic].error != error
        ]

    def in_trouble(self, stream: int) -> bool:
        """Whether its last task failed."""
        return stream in self._troubles

    def held_back(self, stream: int) -> bool:
        """Whether it failed so lately that it is left alone."""
        trouble = self._troubles.get(stream)
        return trouble is not None and time.monotonic() < trouble.until

    def failing(self) -> tuple[TopicFailure, ...]:
        return (*(trouble.failure for trouble in self._troubles.values()), *self._tables.values())

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
            self.failing(),
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

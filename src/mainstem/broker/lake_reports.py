"""What drivers of the lake say about themselves, kept while they are heard of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from mainstem import limits
from mainstem.broker.report_store import ReportStore
from mainstem.ledger.reports import LAKE_DRIVER
from mainstem.metrics import Metric
from mainstem.ports.clock import Clock

if TYPE_CHECKING:  # drivers import this module for its structs, and need no log for that
    from mainstem.log.log import Log


class TopicFailure(msgspec.Struct, frozen=True):
    """A topic that a driver gets no further with."""

    topic: str
    error: str
    failures: int  # one after another
    at_ms: int


class DriverReport(msgspec.Struct, frozen=True):
    """How a driver is doing. Totals count from its start."""

    holder: str  # its name, as in the leases it takes
    state: str  # starting, idle, working, waiting for a broker, stopping
    rounds: int = 0
    running: int = 0  # tasks
    tasks: int = 0  # done
    failed: int = 0
    records: int = 0
    bytes: int = 0  # of the files made
    seconds: float = 0.0  # that workers spent
    failing: tuple[TopicFailure, ...] = ()  # the first of them, if they are many
    tables_error: str = ""  # why the last round published no table at all


class ReceivedDriverReport(msgspec.Struct, frozen=True):
    report: DriverReport
    heard_ms: int


class LakeReports:
    """The last report of each driver."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._clock = clock
        self._told = ReportStore(LAKE_DRIVER, DriverReport, log, clock)

    async def hear(self, report: DriverReport) -> None:
        await self._told.hear(report.holder, report)

    def drivers(self) -> list[ReceivedDriverReport]:
        """Those heard of lately."""
        since = self._clock.now_ms() - limits.LAKE_DRIVER_SILENT_MS
        return [ReceivedDriverReport(*heard) for heard in self._told.heard(since).values()]

    def problems(self) -> dict[str, str]:
        """What keeps topics from becoming files and tables, by topic."""
        return {failure.topic: failure.error for heard in self.drivers() for failure in heard.report.failing}

    def published(self) -> Iterator[Metric]:
        """As metrics."""
        reports = [heard.report for heard in self.drivers()]

        def of_each(name: str, kind: str, help: str, values: list[float]) -> Metric:
            samples = tuple(
                ((("driver", report.holder),), value) for report, value in zip(reports, values, strict=True)
            )
            return Metric(f"mainstem_lake_{name}", "counter" if kind == "counter" else "gauge", help, samples)

        yield of_each("tasks_running", "gauge", "Tasks under way.", [r.running for r in reports])
        yield of_each("tasks_total", "counter", "Tasks done.", [r.tasks for r in reports])
        yield of_each("tasks_failed_total", "counter", "Tasks that failed.", [r.failed for r in reports])
        yield of_each("records_total", "counter", "Records put into files.", [r.records for r in reports])
        yield of_each("file_bytes_total", "counter", "Bytes of files made.", [r.bytes for r in reports])
        yield of_each(
            "worker_seconds_total", "counter", "Time workers spent on tasks.", [r.seconds for r in reports]
        )
        yield of_each(
            "topics_failing", "gauge", "Topics it gets no further with.", [len(r.failing) for r in reports]
        )
        yield of_each(
            "tables_failed",
            "gauge",
            "1 if its last round published no table at all because of an error.",
            [bool(r.tables_error) for r in reports],
        )
        problems = sorted(self.problems())[: limits.LAKE_TOPICS_MEASURED_MAX]
        yield Metric(
            "mainstem_lake_topic_problem",
            "gauge",
            "1 for a topic that a driver fails to make into files or to publish as a table. "
            f"Of at most {limits.LAKE_TOPICS_MEASURED_MAX} topics.",
            tuple(((("topic", topic),), 1.0) for topic in problems),
        )

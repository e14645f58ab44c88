"""The reports of the lake's drivers, kept while the drivers keep reporting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mainstem import limits
from mainstem.api.lake import DriverReport, ReceivedDriverReport
from mainstem.broker.report_store import ReportStore
from mainstem.ledger.reports import LAKE_DRIVER
from mainstem.metrics import Metric
from mainstem.ports.clock import Clock

if TYPE_CHECKING:  # drivers import this module for its structs, and do not need the log
    from mainstem.log.log import Log


class LakeReports:
    """The last report of each driver."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._clock = clock
        self._reports = ReportStore(LAKE_DRIVER, DriverReport, log, clock)

    async def hear(self, report: DriverReport) -> None:
        await self._reports.hear(report.holder, report)

    def drivers(self) -> list[ReceivedDriverReport]:
        """The drivers that reported recently."""
        since = self._clock.now_ms() - limits.LAKE_DRIVER_SILENT_MS
        return [ReceivedDriverReport(*heard) for heard in self._reports.heard(since).values()]

    def problems(self) -> dict[str, str]:
        """Why topics are not materialised or published, by topic."""
        return {failure.topic: failure.error for heard in self.drivers() for failure in heard.report.failing}

    def published(self) -> Iterator[Metric]:
        """The reports as metrics."""
        reports = [heard.report for heard in self.drivers()]

        def of_each(name: str, kind: str, help: str, values: list[float]) -> Metric:
            samples = tuple(
                ((("driver", report.holder),), value) for report, value in zip(reports, values, strict=True)
            )
            return Metric(f"mainstem_lake_{name}", "counter" if kind == "counter" else "gauge", help, samples)

        yield of_each("tasks_running", "gauge", "Running tasks.", [r.running for r in reports])
        yield of_each("tasks_total", "counter", "Finished tasks.", [r.tasks for r in reports])
        yield of_each("tasks_failed_total", "counter", "Failed tasks.", [r.failed for r in reports])
        yield of_each("records_total", "counter", "Records written to files.", [r.records for r in reports])
        yield of_each("file_bytes_total", "counter", "Bytes of files written.", [r.bytes for r in reports])
        yield of_each(
            "worker_seconds_total",
            "counter",
            "Time that workers spent on tasks.",
            [r.seconds for r in reports],
        )
        yield of_each(
            "topics_failing", "gauge", "Topics whose tasks or tables fail.", [len(r.failing) for r in reports]
        )
        yield of_each(
            "tables_failed",
            "gauge",
            "1 if an error kept the last round from publishing any table.",
            [bool(r.tables_error) for r in reports],
        )
        problems = sorted(self.problems())[: limits.LAKE_TOPICS_MEASURED_MAX]
        yield Metric(
            "mainstem_lake_topic_problem",
            "gauge",
            "1 for a topic that a driver cannot convert to files or publish as a table. "
            f"Of at most {limits.LAKE_TOPICS_MEASURED_MAX} topics.",
            tuple(((("topic", topic),), 1.0) for topic in problems),
        )

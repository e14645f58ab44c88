"""Reports of the lake's drivers and of pipelines. One broker receives a report, and every broker shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

import msgspec

from mainstem import limits
from mainstem.api.lake import DriverReport, ReceivedDriverReport
from mainstem.api.server import (
    OutputReport,
    OutputStatus,
    PipelineReport,
    PipelineState,
    PipelineStatus,
    Position,
)
from mainstem.errors import MainstemError, Unavailable
from mainstem.ledger.reports import LAKE_DRIVER, PIPELINE, KeepReport
from mainstem.log.log import Log
from mainstem.metrics import Labels, Metric
from mainstem.ports.clock import Clock

LAKE_DRIVER_SILENT_MS = 120_000  # a driver without a report for this long counts as gone

PIPELINE_SILENT_MS = 60_000  # a running pipeline without a report for this long is called silent
PIPELINE_KEPT_MS = 86_400_000  # after this, its last report is deleted

T = TypeVar("T")


class ReceivedReport(NamedTuple, Generic[T]):
    report: T
    heard_ms: int


class ReportStore(Generic[T]):
    """The last report of each sender of one kind. The ledger keeps them. Brokers of other versions read them too, so a
    report's struct may only gain fields."""

    def __init__(self, kind: str, report: type[T], log: Log, clock: Clock) -> None:
        self._kind = kind
        self._decoder = msgspec.json.Decoder(report)
        self._log = log
        self._clock = clock
        self._unwritten: dict[str, ReceivedReport[T]] = {}  # by sender, the newest last

    async def put(self, name: str, report: T) -> None:
        try:
            await self._log.propose(KeepReport(self._kind, name, msgspec.json.encode(report)))
        except Unavailable:
            # A report may be about the full disk that keeps it from being written: this broker still shows it.
            self._unwritten.pop(name, None)
            self._unwritten[name] = ReceivedReport(report, self._clock.now_ms())
            if len(self._unwritten) > limits.REPORTS_OF_A_KIND_MAX:
                del self._unwritten[next(iter(self._unwritten))]
        else:
            self._unwritten.pop(name, None)

    def since(self, since_ms: int) -> dict[str, ReceivedReport[T]]:
        """By sender, the reports received since then."""
        kept = {
            report.name: ReceivedReport(self._decoder.decode(report.body), report.heard_ms)
            for report in self._log.ledger.reports.of(self._kind)
        }
        for name, received in self._unwritten.items():
            if name not in kept or kept[name].heard_ms <= received.heard_ms:
                kept[name] = received
        return {name: received for name, received in kept.items() if received.heard_ms >= since_ms}


class LakeReports:
    """The last report of each driver."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._clock = clock
        self._reports = ReportStore(LAKE_DRIVER, DriverReport, log, clock)

    async def hear(self, report: DriverReport) -> None:
        await self._reports.put(report.holder, report)

    def drivers(self) -> list[ReceivedDriverReport]:
        """The drivers that reported recently."""
        since = self._clock.now_ms() - LAKE_DRIVER_SILENT_MS
        return [ReceivedDriverReport(*received) for received in self._reports.since(since).values()]

    def problems(self) -> dict[str, str]:
        """Why topics are not materialised or published, by topic."""
        return {
            failure.topic: failure.error for received in self.drivers() for failure in received.report.failing
        }

    def published(self) -> Iterator[Metric]:
        """The reports as metrics."""
        reports = [received.report for received in self.drivers()]

        def per_driver(
            name: str, kind: Literal["counter", "gauge"], help: str, value: Callable[[DriverReport], float]
        ) -> Metric:
            samples = tuple(((("driver", report.holder),), value(report)) for report in reports)
            return Metric(f"mainstem_lake_{name}", kind, help, samples)

        yield per_driver("tasks_running", "gauge", "Running tasks.", lambda r: r.running)
        yield per_driver("tasks_total", "counter", "Finished tasks.", lambda r: r.tasks)
        yield per_driver("tasks_failed_total", "counter", "Failed tasks.", lambda r: r.failed)
        yield per_driver("records_total", "counter", "Records written to files.", lambda r: r.records)
        yield per_driver("file_bytes_total", "counter", "Bytes of files written.", lambda r: r.bytes)
        yield per_driver(
            "worker_seconds_total", "counter", "Time that workers spent on tasks.", lambda r: r.seconds
        )
        yield per_driver(
            "topics_failing", "gauge", "Topics whose tasks or tables fail.", lambda r: len(r.failing)
        )
        yield per_driver(
            "tables_failed",
            "gauge",
            "1 if an error kept the last round from publishing any table.",
            lambda r: bool(r.tables_error),
        )
        problems = sorted(self.problems())[: limits.LAKE_TOPICS_MEASURED_MAX]
        yield Metric(
            "mainstem_lake_topic_problem",
            "gauge",
            "1 for a topic that a driver cannot convert to files or publish as a table. "
            f"Of at most {limits.LAKE_TOPICS_MEASURED_MAX} topics.",
            tuple(((("topic", topic),), 1.0) for topic in problems),
        )


class PipelineReports:
    """The last report of each pipeline."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._reports = ReportStore(PIPELINE, PipelineReport, log, clock)

    async def hear(self, report: PipelineReport) -> None:
        await self._reports.put(report.pipeline, report)

    def pipelines(self) -> list[PipelineStatus]:
        """The pipelines that reported recently, by name."""
        recent = self._reports.since(self._clock.now_ms() - PIPELINE_KEPT_MS)
        return [self._status(received) for _, received in sorted(recent.items())]

    def _status(self, received: ReceivedReport[PipelineReport]) -> PipelineStatus:
        report = received.report
        active = report.state in ("starting", "running")
        silent = active and received.heard_ms < self._clock.now_ms() - PIPELINE_SILENT_MS
        return PipelineStatus(
            report.pipeline,
            report.run,
            "silent" if silent else report.state,
            report.started_ms,
            received.heard_ms,
            list(report.topics),
            [self._output(output) for output in report.outputs],
            report.error,
        )

    def _output(self, output: OutputReport) -> OutputStatus:
        return OutputStatus(
            output.output,
            output.target,
            output.batch,
            output.batch_ms,
            output.rows_in,
            output.rows_out,
            sum(map(self._behind, output.positions)) if output.positions else None,
        )

    def _behind(self, position: Position) -> int:
        """The current lag, which grows while a pipeline is silent. A deleted topic has none."""
        topic = self._log.ledger.topics.get(position.topic)
        if topic is None or position.partition >= len(topic.streams):
            return 0
        stream = topic.streams[position.partition]
        try:
            start = self._log.streams.of(stream).bounds(stream)[0]
            return max(0, self._log.streams.of(stream).stable_end(stream) - max(position.offset, start))
        except MainstemError:  # deleted meanwhile
            return 0

    def published(self) -> Iterator[Metric]:
        """The reports as metrics."""
        found = self.pipelines()
        states = Counter(one.state for one in found)
        yield Metric(
            "mainstem_pipelines",
            "gauge",
            "Pipelines that reported within the last day, by state.",
            tuple(
                ((("state", state),), float(states[state])) for state in (*get_args(PipelineState), "silent")
            ),
        )
        outputs: list[tuple[Labels, OutputStatus]] = [
            ((("pipeline", one.pipeline), ("output", output.output)), output)
            for one in found
            for output in one.outputs
        ]
        yield Metric(
            "mainstem_pipeline_rows_in_total",
            "counter",
            "Rows that the query of an output read since its start.",
            tuple((labels, float(output.rows_in)) for labels, output in outputs),
        )
        yield Metric(
            "mainstem_pipeline_rows_out_total",
            "counter",
            "Rows that an output wrote since its start.",
            tuple((labels, float(output.rows_out)) for labels, output in outputs),
        )
        yield Metric(
            "mainstem_pipeline_behind_offsets",
            "gauge",
            "Offsets that the query of an output has not read yet.",
            tuple((labels, float(o.behind)) for labels, o in outputs if o.behind is not None),
        )

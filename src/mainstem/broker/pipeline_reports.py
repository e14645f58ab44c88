"""Status reports of pipelines, with their lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from mainstem.api.server import (
    OutputReport,
    OutputStatus,
    PipelineReport,
    PipelineState,
    PipelineStatus,
    Position,
)
from mainstem.broker.report_store import ReceivedReport, ReportStore
from mainstem.broker.streams import find_stream
from mainstem.errors import MainstemError
from mainstem.ledger.reports import PIPELINE
from mainstem.metrics import Labels, Metric
from mainstem.ports.clock import Clock

if TYPE_CHECKING:  # clients import this module for its structs, without the log
    from mainstem.log.log import Log

PIPELINE_SILENT_MS = 60_000  # a running pipeline without a report for this long is called silent
PIPELINE_KEPT_MS = 86_400_000  # after this, its last report is deleted


class PipelineReports:
    """The last report of each pipeline."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._told = ReportStore(PIPELINE, PipelineReport, log, clock)

    async def hear(self, report: PipelineReport) -> None:
        await self._told.hear(report.pipeline, report)

    def pipelines(self) -> list[PipelineStatus]:
        """Pipelines that reported recently, by name."""
        kept = self._told.heard(self._clock.now_ms() - PIPELINE_KEPT_MS)
        return [self._status(heard) for _, heard in sorted(kept.items())]

    def _status(self, heard: ReceivedReport[PipelineReport]) -> PipelineStatus:
        report = heard.report
        at_work = report.state in ("starting", "running")
        silent = at_work and heard.heard_ms < self._clock.now_ms() - PIPELINE_SILENT_MS
        return PipelineStatus(
            report.pipeline,
            report.run,
            "silent" if silent else report.state,
            report.started_ms,
            heard.heard_ms,
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
        """The current lag, which grows while a pipeline is silent. A deleted topic has no lag."""
        topic = self._log.ledger.topics.get(position.topic)
        stream = find_stream(topic, position.partition)
        if stream < 0:
            return 0
        try:
            start = self._log.streams.of(stream).bounds(stream)[0]
            return max(0, self._log.streams.of(stream).stable_end(stream) - max(position.offset, start))
        except MainstemError:  # deleted in the meantime
            return 0

    def published(self) -> Iterator[Metric]:
        """As metrics."""
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
        for name, help, values in (
            (
                "rows_in_total",
                "Rows that the query of an output read since its start.",
                [o.rows_in for _, o in outputs],
            ),
            (
                "rows_out_total",
                "Rows that an output wrote since its start.",
                [o.rows_out for _, o in outputs],
            ),
        ):
            samples = tuple((labels, float(v)) for (labels, _), v in zip(outputs, values, strict=True))
            yield Metric(f"mainstem_pipeline_{name}", "counter", help, samples)
        yield Metric(
            "mainstem_pipeline_behind_offsets",
            "gauge",
            "Offsets that the query of an output has not read yet.",
            tuple((labels, float(o.behind)) for labels, o in outputs if o.behind is not None),
        )

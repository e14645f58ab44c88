"""What pipelines say about themselves, kept while it is of use; how far behind they are is reckoned here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.broker.report_store import ReceivedReport, ReportStore
from mainstem.errors import MainstemError
from mainstem.ledger.reports import PIPELINE
from mainstem.metrics import Labels, Metric
from mainstem.ports.clock import Clock

if TYPE_CHECKING:  # clients import this module for its structs, and need no log for that
    from mainstem.log.log import Log

State = Literal["starting", "running", "done", "stopped", "failed"]

_Name = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS_MAX)]
_Partition = Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_PER_TOPIC_MAX)]
_Count = Annotated[int, Meta(ge=0, le=limits.OFFSET_MAX)]


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The next offset that a query reads of a partition."""

    topic: _Name
    partition: _Partition
    offset: _Count


class OutputReport(msgspec.Struct, frozen=True):
    """One output of a pipeline. Rows count from the start of the run."""

    output: _Name
    target: _Name  # the topic or the table that its rows go to
    batch: Annotated[int, Meta(ge=-1, le=limits.OFFSET_MAX)] = -1  # the last one that is done; -1: none
    batch_ms: _Count = 0  # that it took
    rows_in: _Count = 0
    rows_out: _Count = 0
    positions: Annotated[tuple[Position, ...], Meta(max_length=limits.PIPELINE_POSITIONS_MAX)] = ()


class PipelineReport(msgspec.Struct, frozen=True):
    """How a pipeline is doing."""

    pipeline: _Name
    run: _Name  # tells one start of it from the next: host and process
    state: State
    started_ms: _Count
    topics: Annotated[tuple[_Name, ...], Meta(max_length=limits.PIPELINE_TOPICS_MAX)] = ()  # read or written
    outputs: Annotated[tuple[OutputReport, ...], Meta(max_length=limits.PIPELINE_OUTPUTS_MAX)] = ()
    error: Annotated[str, Meta(max_length=limits.PIPELINE_ERROR_CHARS_MAX)] = ""  # why it failed

    def named(self) -> set[str]:
        """Every topic that the report tells something about."""
        return {
            *self.topics,
            *(position.topic for output in self.outputs for position in output.positions),
        }


class OutputStatus(msgspec.Struct, frozen=True):
    output: str
    target: str
    batch: int
    batch_ms: int
    rows_in: int
    rows_out: int
    behind: int | None  # offsets of its topics that it has not read; None before it has read anything


class PipelineStatus(msgspec.Struct, frozen=True):
    """A pipeline as its last report tells, and what has become of it since."""

    pipeline: str
    run: str
    state: str  # as it said, or "silent": it said it was at work, but that was a while ago
    started_ms: int
    heard_ms: int
    topics: Sequence[str]
    outputs: list[OutputStatus]
    error: str


class PipelineReports:
    """The last report of each pipeline."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._told = ReportStore(PIPELINE, PipelineReport, log, clock)

    async def hear(self, report: PipelineReport) -> None:
        await self._told.hear(report.pipeline, report)

    def pipelines(self) -> list[PipelineStatus]:
        """Those heard of lately, by name."""
        kept = self._told.heard(self._clock.now_ms() - limits.PIPELINE_KEPT_MS)
        return [self._status(heard) for _, heard in sorted(kept.items())]

    def _status(self, heard: ReceivedReport[PipelineReport]) -> PipelineStatus:
        report = heard.report
        at_work = report.state in ("starting", "running")
        silent = at_work and heard.heard_ms < self._clock.now_ms() - limits.PIPELINE_SILENT_MS
        return PipelineStatus(
            report.pipeline,
            report.run,
            "silent" if silent else report.state,
            report.started_ms,
            heard.heard_ms,
            report.topics,
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
        """As of now, so that it grows while a pipeline is silent. A topic that is gone has nothing left to read."""
        topic = self._log.ledger.topics.get(position.topic)
        if topic is None or position.partition >= len(topic.streams):
            return 0
        stream = topic.streams[position.partition]
        try:
            start = self._log.streams.of(stream).bounds(stream)[0]
            return max(0, self._log.streams.of(stream).stable_end(stream) - max(position.offset, start))
        except MainstemError:  # deleted a moment ago
            return 0

    def published(self) -> Iterator[Metric]:
        """As metrics."""
        found = self.pipelines()
        states = Counter(one.state for one in found)
        yield Metric(
            "mainstem_pipelines",
            "gauge",
            "Pipelines heard of within a day, by their state.",
            tuple(((("state", state),), float(states[state])) for state in (*get_args(State), "silent")),
        )
        outputs: list[tuple[Labels, OutputStatus]] = [
            ((("pipeline", one.pipeline), ("output", output.output)), output)
            for one in found
            for output in one.outputs
        ]
        for name, help, values in (
            (
                "rows_in_total",
                "Rows an output's query read since its start.",
                [o.rows_in for _, o in outputs],
            ),
            ("rows_out_total", "Rows an output wrote since its start.", [o.rows_out for _, o in outputs]),
        ):
            samples = tuple((labels, float(v)) for (labels, _), v in zip(outputs, values, strict=True))
            yield Metric(f"mainstem_pipeline_{name}", "counter", help, samples)
        yield Metric(
            "mainstem_pipeline_behind_offsets",
            "gauge",
            "Offsets an output's query has not read yet.",
            tuple((labels, float(o.behind)) for labels, o in outputs if o.behind is not None),
        )

"""A pipeline tells its broker how it is doing, so that people see it where they look at everything else."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from mainstem import limits
from mainstem.broker.pipeline_reports import OutputReport, PipelineReport, Position, State
from mainstem.errors import MainstemError
from mainstem.spark.broker import RemoteBroker
from mainstem.spark.pipelines.pipeline import Pipeline
from mainstem.spark.pipelines.query_progress import duration_ms

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_EVERY_S = 5.0
_ANSWER_S = 5.0  # a broker that is away is told next time: the pipeline does not wait for it

ROWS_OUT = "rows"  # the name of the count among what a query observes


@dataclass(slots=True)
class _OutputProgress:
    """What one output did since its start."""

    target: str
    batch: int = -1
    batch_ms: int = 0
    rows_in: int = 0
    rows_out: int = 0
    positions: dict[tuple[str, int], int] = field(default_factory=dict)

    def report(self, name: str) -> OutputReport:
        told = [Position(topic, number, offset) for (topic, number), offset in sorted(self.positions.items())]
        if len(told) > limits.PIPELINE_POSITIONS_MAX:
            told = []  # half of them would say that it is less behind than it is
        return OutputReport(
            name, self.target, self.batch, self.batch_ms, self.rows_in, self.rows_out, tuple(told)
        )


class PipelineReporter:
    """Reports while it is a context; leaving it says how the pipeline ended. It never fails the pipeline."""

    def __init__(
        self,
        pipeline: Pipeline,
        broker: RemoteBroker,
        *,
        label: str = "",
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`label`: of a run with checkpoints of its own. `told` hears why a report was not taken."""
        self._name = f"{pipeline.name} {label}".strip()
        self._broker = broker
        self._told = told
        self._run = f"{socket.gethostname()}-{os.getpid()}"
        self._started_ms = time.time_ns() // 1_000_000
        self._topics = _topics(pipeline)
        self._outputs = {name: _OutputProgress(output.target) for name, output in pipeline.outputs.items()}
        self._lock = threading.Lock()
        self._state: State = "starting"
        self._ended = threading.Event()
        self._stopped = False
        self._refused = ""  # why the last report was not taken
        self._thread = threading.Thread(target=self._keep_reporting, name="pipeline-reports", daemon=True)

    @classmethod
    @contextlib.contextmanager
    def connected(
        cls, pipeline: Pipeline, url: str, api_key: str, *, label: str, told: Callable[[str], None]
    ) -> Iterator[PipelineReporter]:
        with (
            RemoteBroker(url, api_key, timeout_s=_ANSWER_S) as broker,
            cls(pipeline, broker, label=label, told=told) as reporter,
        ):
            yield reporter

    def __enter__(self) -> PipelineReporter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if error is None:
            self._state = "stopped" if self._stopped else "done"
            self._report()
        else:
            self._state = "failed"
            self._report(str(error) or type(error).__name__)

    def running(self) -> None:
        """Its queries are started."""
        self._state = "running"

    def stopped(self) -> None:
        """It was told to end before it had done all there is."""
        self._stopped = True

    def batch(self, query: StreamingQuery, progress: Any) -> None:
        name = query.name.partition(":")[2]
        with self._lock:
            output = self._outputs[name]
            output.batch = int(progress["batchId"])
            output.batch_ms = duration_ms(progress)
            output.rows_in += int(progress["numInputRows"])
            output.rows_out += _rows_out(progress)
            for source in progress["sources"]:
                output.positions |= _positions(source["endOffset"])

    def report(self, error: str = "") -> PipelineReport:
        with self._lock:
            outputs = tuple(output.report(name) for name, output in self._outputs.items())
        return PipelineReport(
            self._name,
            self._run,
            self._state,
            self._started_ms,
            self._topics,
            outputs[: limits.PIPELINE_OUTPUTS_MAX],
            error[: limits.PIPELINE_ERROR_CHARS_MAX],
        )

    def _keep_reporting(self) -> None:
        while True:
            self._report()
            if self._ended.wait(_EVERY_S):
                return

    def _report(self, error: str = "") -> None:
        try:
            self._broker.report_pipeline(self.report(error))
            self._refused = ""
        except MainstemError as refusal:
            if str(refusal) != self._refused:  # else it has been told
                self._refused = str(refusal)
                self._told(self._refused)


def _topics(pipeline: Pipeline) -> tuple[str, ...]:
    """Every topic it reads or writes by name."""
    read = {source.topic for source in pipeline.sources.values() if source.topic}
    written = {output.topic for output in pipeline.outputs.values() if output.topic}
    return tuple(sorted(read | written))[: limits.PIPELINE_TOPICS_MAX]


def _rows_out(progress: Any) -> int:
    observed = progress["observedMetrics"] or {}
    return sum(int(counted[ROWS_OUT] or 0) for counted in observed.values() if ROWS_OUT in counted)


def _positions(offset: str | None) -> dict[tuple[str, int], int]:
    """From what Spark says of a source; nothing for sources of another kind."""
    try:
        told = json.loads(offset or "{}")
        return {
            (topic, int(partition)): int(at)
            for topic, known in told.items()
            for partition, at in known["offsets"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}

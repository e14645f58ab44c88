"""What a pipeline tells its broker, with queries that are only said to have run."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mainstem import limits
from mainstem.api.server import PipelineReport, Position
from mainstem.errors import MainstemError, Unreachable
from mainstem.spark.pipelines import Pipeline
from mainstem.spark.pipelines.query_progress import watch
from mainstem.spark.pipelines.reporting import PipelineReporter


class Ear:
    """A broker that hears reports, or does not."""

    def __init__(self, *, away: bool = False) -> None:
        self.heard: list[PipelineReport] = []
        self._away = away

    def report_pipeline(self, report: PipelineReport) -> None:
        if self._away:
            raise Unreachable("http://nowhere", "it is gone")
        self.heard.append(report)


def pipeline() -> Pipeline:
    made = Pipeline("enrich")
    made.source("orders")
    made.source("prices", table="default.prices")

    @made.to_topic("orders.large")
    def large(orders):  # type: ignore[no-untyped-def]
        return orders

    return made


def batch(number: int, rows: int, written: int | None, offset: dict[str, Any] | str | None) -> dict[str, Any]:
    """In the form that Spark reports."""
    return {
        "batchId": number,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 120},
        "sources": [{"endOffset": json.dumps(offset) if isinstance(offset, dict) else offset}],
        "observedMetrics": {} if written is None else {"large": {"rows": written}},
    }


def at(offset: int, partitions: int = 1) -> dict[str, Any]:
    return {"orders": {"id": "x", "offsets": {str(number): offset for number in range(partitions)}}}


def query(*progress: dict[str, Any]) -> Any:
    return SimpleNamespace(
        id="q", name="enrich:large", isActive=False, recentProgress=list(progress), exception=lambda: None
    )


def reporter(ear: Ear, told: list[str], label: str = "") -> PipelineReporter:
    return PipelineReporter(pipeline(), ear, label=label, on_refusal=told.append)  # type: ignore[arg-type]


def test_batches_add_up_and_empty_ones_do_not_hide_those_that_follow() -> None:
    ear, told = Ear(), list[str]()
    with reporter(ear, told, "from-start-0") as reports:
        reports.running()
        ran = query(batch(0, 10, 4, at(10)), batch(1, 0, 0, at(10)), batch(1, 5, 5, at(15)))
        watch([ran], threading.Event(), reports)
    last = ear.heard[-1]
    assert (last.pipeline, last.state, last.error) == ("enrich from-start-0", "done", "")
    assert last.topics == ("orders", "orders.large")
    (output,) = last.outputs
    assert (output.output, output.target, output.batch, output.batch_ms) == ("large", "orders.large", 1, 120)
    assert (output.rows_in, output.rows_out) == (15, 9)
    assert output.positions == (Position("orders", 0, 15),)
    assert ear.heard[0].state in ("starting", "running", "done")
    assert told == []


def test_one_that_is_stopped_and_one_that_fails_say_so() -> None:
    ear = Ear()
    with reporter(ear, []) as reports:
        reports.stopped()
    assert ear.heard[-1].state == "stopped"
    with pytest.raises(MainstemError), reporter(ear, []):
        raise MainstemError("output large failed: " + "x" * 10_000)
    assert ear.heard[-1].state == "failed"
    assert ear.heard[-1].error.startswith("output large failed: xxx")
    assert len(ear.heard[-1].error) == limits.PIPELINE_ERROR_CHARS_MAX


def test_a_broker_that_does_not_hear_costs_the_pipeline_nothing() -> None:
    told = list[str]()
    with reporter(Ear(away=True), told) as reports:
        watch([query(batch(0, 1, 1, at(1)))], threading.Event(), reports)
    assert len(told) == 1, "two reports were refused, and it is said once"
    assert "it is gone" in told[0]


@pytest.mark.parametrize("offset", [None, "no JSON", '"text"', '{"orders": 3}', "[1]"])
def test_sources_that_are_not_ours_have_no_position(offset: str | None) -> None:
    ear = Ear()
    with reporter(ear, []) as reports:
        reports.batch(query(), batch(0, 1, None, offset))
    (output,) = ear.heard[-1].outputs
    assert (output.rows_in, output.rows_out, output.positions) == (1, 0, ())


def test_rather_than_some_of_too_many_positions_none_is_told() -> None:
    ear = Ear()
    with reporter(ear, []) as reports:
        reports.batch(query(), batch(0, 1, 1, at(5, limits.PIPELINE_POSITIONS_MAX + 1)))
    assert ear.heard[-1].outputs[0].positions == ()

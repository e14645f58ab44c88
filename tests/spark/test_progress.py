"""What a driver shows of itself."""

from __future__ import annotations

import io
import json

import pytest

from mainstem.api.lake import LakeStatus, PartitionProgress, TopicProgress
from mainstem.spark.driver.progress import JsonProgress, TerminalProgress, open_progress


def _status(lag: int) -> LakeStatus:
    partition = PartitionProgress(0, 5, 0, 100, 100 - lag, lag, 2, 3, 4 << 20, 90, 0, [1])
    return LakeStatus("file:///x", [TopicProgress("orders", "00", True, [partition], lag, 4 << 20)], [], 0, 0)


def test_a_program_gets_json_lines_and_a_status_only_when_it_changed() -> None:
    out = io.StringIO()
    progress = open_progress(out)
    assert isinstance(progress, JsonProgress)
    progress.event("published", topic="orders", records=7)
    for lag in (3, 3, 0):
        progress.status(_status(lag))
    progress.close()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["published", "status", "status"]
    assert lines[0]["records"] == 7
    assert [line["lag_records"] for line in lines[1:]] == [{"orders": 3}, {"orders": 0}]


def test_a_terminal_shows_lag_files_rate_and_what_went_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    progress = TerminalProgress()
    progress.event("tasks", count=2, of="orders")
    progress.event("published", topic="orders", records=1_000_000, seconds=0.5)
    progress.event("failed", topic="orders", error="the disk is [made] of cheese")
    progress.status(_status(12_345))
    progress.close()
    shown = capsys.readouterr().out
    assert "12,345" in shown
    assert "1,000,000 records" in shown
    assert "the disk is [made] of cheese" in shown

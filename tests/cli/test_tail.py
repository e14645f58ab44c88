"""Following topics from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.request

from mainstem.testing.broker import ThrowAwayBroker
from tests.support.cluster import eventually

from .conftest import Shell


def test_everything_from_the_start(online: Shell, broker: ThrowAwayBroker) -> None:
    broker.client.produce("t", {"a": [1, 2.50]}, key="k", node="n")
    broker.client.produce("t", b"\xff")
    assert online("tail", "t", "--from-start", "-n", "2", "-f", r"%o %k %s %h\n").out == (
        b'0 k {"a":[1,2.5]} node=n\n1  \xff \n'
    )
    lines = online("tail", "t", "--from-start", "-n", "1", "--json").out.splitlines()
    found = json.loads(lines[0])
    assert (found["topic"], found["offset"], found["key"], found["value"]) == ("t", 0, "k", '{"a":[1,2.5]}')


def _streams(broker: ThrowAwayBroker) -> float:
    """How many are watching."""
    with urllib.request.urlopen(f"{broker.url}/v0/metrics", timeout=60) as answer:
        (line,) = [line for line in answer if line.startswith(b"mainstem_http_streams ")]
    return float(line.split()[1])


def test_gaps_and_deleted_topics_are_said(online: Shell, broker: ThrowAwayBroker) -> None:
    broker.client.create_topic("t", cap_records=2)
    broker.client.produce_many("t", [1, 2, 3, 4])
    outcome = online("tail", "t", "--from-start", "-n", "2")
    assert (outcome.out, outcome.err) == (
        b"3\n4\n",
        "warning: t: records 0 to 1 are lost (from_seq_too_old)\n",
    )
    eventually(lambda: _streams(broker), lambda count: count == 0)  # those of other tests

    def delete() -> None:
        eventually(lambda: _streams(broker), lambda count: count == 1)
        broker.client.delete_topic("t")

    deleting = threading.Thread(target=delete)
    deleting.start()
    outcome = online("tail", "t")
    deleting.join()
    assert (outcome.code, outcome.err) == (0, "warning: t: the topic was deleted\n")


def test_new_records_come_until_it_is_interrupted(online: Shell, broker: ThrowAwayBroker) -> None:
    broker.client.create_topic("t")
    broker.client.produce("t", "old")
    tail = subprocess.Popen(
        [sys.executable, "-m", "mainstem", "tail", "t", "--url", broker.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert tail.stdout is not None
    arrived = threading.Event()

    def produce() -> None:
        while not arrived.wait(0.05):  # until it watches
            broker.client.produce("t", "new")

    producing = threading.Thread(target=produce)
    producing.start()
    assert tail.stdout.readline() == b'"new"\n'
    arrived.set()
    producing.join()
    tail.send_signal(signal.SIGINT)
    _, err = tail.communicate(timeout=30)
    assert (tail.returncode, err.decode().strip()) == (130, "interrupted")


def test_a_topic_that_is_not_there_is_an_error(online: Shell) -> None:
    outcome = online("tail", "t")
    assert (outcome.code, outcome.err.startswith("error: no topic named 't'")) == (1, True)

"""`mainstem serve --workers`: workers are killed under load, and a directory changes between one worker and several."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from mainstem.address import Address
from mainstem.testing.server import ServerProcess
from tests.support.cluster import eventually

pytestmark = pytest.mark.slow

_WAIT_S = 90.0
_TOPIC = "t"


def ask(url: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=_WAIT_S) as answer:
        return json.loads(answer.read())


def records(url: str, topic: str) -> list[Any]:
    """Every value of a topic, in order."""
    found: list[Any] = []
    since = 0
    while page := ask(url, f"/v0/topics/{topic}/diff", {"from_seq": since, "limit": 1000})["records"]:
        found += [record["data"] for record in page]
        since = page[-1]["$seq"]
    return found


def workers(process: ServerProcess) -> dict[int, int]:
    """Process ids of the running workers, by index."""
    found: dict[int, int] = {}
    for line in list(process.lines):
        if line["event"] == "worker started":
            found[int(str(line["worker"]))] = int(str(line["worker_pid"]))
    return found


def writer(directory: Path) -> int:
    """Process id of the worker that writes the log."""
    return int((directory / "LOCK").read_text() or 0)


class HttpWriter(threading.Thread):
    """Posts numbered records, each on a new connection, so that they go to any worker."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self.acked: list[str] = []
        self.unknown: set[str] = set()
        self.acked_at: list[float] = []
        self._url = url
        self._name = name
        self.done = threading.Event()

    def run(self) -> None:
        number = 0
        while not self.done.is_set():
            value = f"{self._name} {number}"
            number += 1
            try:
                ask(self._url, f"/v0/topics/{_TOPIC}", {"records": [{"data": value}]})
            except (OSError, urllib.error.URLError):
                self.unknown.add(value)  # the worker died with the request, or is not there
            else:
                self.acked.append(value)
                self.acked_at.append(time.monotonic())


@pytest.mark.parametrize("dies", ["writer", "follower"])
def test_a_killed_worker_loses_and_doubles_nothing(tmp_path: Path, dies: str) -> None:
    directory = tmp_path / "data"
    with ServerProcess(directory, "--workers", "2") as process:  # all doors, each on ports of its own
        url = f"http://{process.address('http')}"
        ask(url, f"/v0/topics/{_TOPIC}", {"records": [{"data": "first"}]})
        writers = [HttpWriter(url, name) for name in ("a", "b")]
        for one in writers:
            one.start()
        eventually(lambda: min(len(one.acked) for one in writers), lambda count: count >= 20)
        wrote, running = writer(directory), set(workers(process).values())
        killed = wrote if dies == "writer" else (running - {wrote}).pop()
        os.kill(killed, signal.SIGKILL)
        killed_at = time.monotonic()
        eventually(
            lambda: [line["worker_pid"] for line in list(process.lines) if line["event"] == "worker ended"],
            lambda ended: ended == [killed],
        )
        eventually(
            lambda: [line["pid"] for line in list(process.lines) if line["event"] == "worker ready"],
            lambda ready: len(ready) == 3,
        )
        goal = {one: len(one.acked) + 20 for one in writers}
        eventually(lambda: all(len(one.acked) >= goal[one] for one in writers), bool)
        for one in writers:
            one.done.set()
        for one in writers:
            one.join(_WAIT_S)
        if dies == "writer":
            assert writer(directory) != killed
            acked_at = sorted(at for one in writers for at in one.acked_at)
            pause = max(after - at for at, after in itertools.pairwise(acked_at) if after > killed_at)
            sys.stdout.write(f"longest pause after the writer was killed: {pause:.3f} s\n")
        assert process.terminate() == 0
    # What one worker finds in the same directory.
    with ServerProcess(directory, "--pulsar", "off", "--s3", "off") as process:
        url = f"http://{process.address('http')}"
        found = records(url, _TOPIC)
        counts = Counter(found)
        assert max(counts.values()) == 1
        for one in writers:
            assert [value for value in one.acked if value not in counts] == []
            own = [value for value in found if value.split()[0] == one.acked[0].split()[0]]
            assert own == sorted(own, key=lambda value: int(value.split()[1]))
            assert set(own) <= set(one.acked) | one.unknown
        cluster = ask(url, "/v0/cluster")
        assert [one["broker"] for one in cluster["brokers"]] == [1]
        process.terminate()


def test_kafka_clients_use_every_worker_and_what_they_wrote_stays_with_one(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with ServerProcess(
        directory, "--workers", "2", "--kafka", "127.0.0.1:0", "--pulsar", "off", "--s3", "off"
    ) as process:
        url = f"http://{process.address('http')}"
        producer = Producer({"bootstrap.servers": str(process.address("kafka")), "log_level": 0})
        ask(url, "/v0/topics/many", {"records": [{"data": 0}]})
        brokers = {
            one.id: Address(one.host, one.port) for one in producer.list_topics(timeout=60).brokers.values()
        }
        assert sorted(brokers) == [1, 2]
        assert len(set(brokers.values())) == 2
        for number in range(1, 200):
            producer.produce("many", json.dumps(number))
        assert producer.flush(_WAIT_S) == 0
        assert records(url, "many") == list(range(200))
        assert process.terminate() == 0
    for several in (False, True, False):  # one worker, two again, one
        flags = ("--workers", "2", "--kafka", "127.0.0.1:0") if several else ()
        with ServerProcess(directory, *flags, "--pulsar", "off", "--s3", "off") as process:
            url = f"http://{process.address('http')}"
            before = records(url, "many")
            ask(url, "/v0/topics/many", {"records": [{"data": len(before)}]})
            assert records(url, "many") == list(range(len(before) + 1))
            if several:
                process.kill()
            else:
                process.terminate()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    flags = ("--kafka", "127.0.0.1:0", "--pulsar", "off", "--s3", "off")
    with ServerProcess(tmp_path / "data", "--workers", "2", *flags):
        for others in (("--workers", "2"), ()):
            with pytest.raises(RuntimeError, match="in use"):
                ServerProcess(tmp_path / "data", *others, *flags).wait_ready()

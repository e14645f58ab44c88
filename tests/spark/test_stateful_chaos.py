"""A count by key, which Spark keeps in its state store, while the pipeline, its JVM and the broker are killed."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from mainstem.testing.server import ServerProcess

from .chaos.writers import WAIT_S, IdempotentWriter
from .conftest import Broker

_KEYS = 20
_KILLS = 6
_DELAY_S = 5.0  # after a batch, until something is killed
_WAIT_S = 400.0  # for a batch, which needs a JVM first

_PIPELINE = """
from pyspark.sql.functions import count
from mainstem.spark.pipelines import Pipeline

pipeline = Pipeline("counts")
pipeline.source("events", schema="key string")

@pipeline.to_topic("counts", key="key", mode="update")
def counts(events):
    return events.groupBy("key").agg(count("*").alias("n"))
"""


class _EventWriter(IdempotentWriter):
    def record(self) -> dict[str, Any]:
        self._number += 1
        event = {"key": f"k{self.random.randrange(_KEYS)}", "number": self._number}
        return {"key": None, "value": json.dumps(event).encode(), "partition": self.random.randrange(2)}


class _PipelineProcess:
    """`mainstem pipeline run`, with its JVM and workers in a process group of its own."""

    def __init__(self, file: Path, url: str, state: Path, *flags: str) -> None:
        command = [sys.executable, "-m", "mainstem", "pipeline", "run", str(file), "--url", url]
        command += ["--state", str(state), *flags]
        self._process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)

    def wait(self) -> int:
        return self._process.wait(_WAIT_S)

    @property
    def running(self) -> bool:
        return self._process.poll() is None


def _end(broker: Broker) -> int:
    """The offset after the last count."""
    return int(broker.ask("GET", "/v0/topics/counts/offsets")["partitions"][0]["end"])


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_counts_by_key_stay_exact_through_kills_of_everything(
    tmp_path: Path, lake_seed: int, chaos: bool
) -> None:
    if not chaos:
        pytest.skip("a JVM for every kill: with --chaos only")
    pick = random.Random(f"{lake_seed} stateful")
    file, state, data = tmp_path / "counts.py", tmp_path / "state", tmp_path / "data"
    file.write_text(_PIPELINE)
    server = ServerProcess(data, "--text", "off").wait_ready()
    addresses = [flag for door in ("http", "kafka") for flag in (f"--{door}", str(server.address(door)))]
    broker = Broker(server)
    broker.create("events", 2)
    broker.create("counts")
    writer = _EventWriter("events", random.Random(f"{lake_seed} events"), str(server.address("kafka")))
    writer.start()
    kills: Counter[str] = Counter()
    pipeline = _PipelineProcess(file, broker.url, state)
    try:
        pace = threading.Event()
        for _ in range(_KILLS):
            written = _end(broker)
            deadline = time.monotonic() + _WAIT_S
            while _end(broker) == written:
                assert time.monotonic() < deadline, "no batch was written"
                if not pipeline.running:  # its query failed without the broker
                    pipeline = _PipelineProcess(file, broker.url, state)
                pace.wait(0.2)
            pace.wait(pick.uniform(0, _DELAY_S))
            if pick.random() < 0.5:
                kills["broker"] += 1
                server.kill()
                server = ServerProcess(data, "--text", "off", *addresses).wait_ready()
            else:
                kills["pipeline"] += 1
                pipeline.kill()
                pipeline = _PipelineProcess(file, broker.url, state)
            if writer.fault is not None:
                raise writer.fault
        writer.finish()
        pipeline.kill()
        pipeline = _PipelineProcess(file, broker.url, state, "--once")
        assert pipeline.wait() == 0
        events = [value["key"] for partition in range(2) for value in broker.values("events", partition)]
        updates: dict[str, list[int]] = defaultdict(list)
        for value in broker.values("counts"):
            updates[value["key"]].append(value["n"])
    finally:
        pipeline.kill()
        broker.client.close()
        server.kill()
    logging.getLogger(__name__).warning(
        "seed %d: %d events, %d updates; killed %s",
        lake_seed,
        len(events),
        sum(map(len, updates.values())),
        dict(kills),
    )
    assert len(writer.acked) <= len(events)
    assert {key: found[-1] for key, found in updates.items()} == Counter(events)
    assert all(found == sorted(set(found)) for found in updates.values()), "an update was written twice"

"""Stream processors in Python, which count words while they are killed: their state is in changelog topics."""

from __future__ import annotations

import json
import os
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from mainstem.testing.broker import ThrowAwayBroker, throw_away_broker
from tools.outside.kafka_java_kit import records, wait
from tools.outside.suite import Suite, Tally, python_with

_PROGRAMS = Path(__file__).parent / "python"
_WORDS = ("alpha", "beta", "gamma", "delta")
KILLS = int(os.environ.get("OUTSIDE_KILLS", "2"))
Counts = Callable[[str], Counter[str]]


def run(name: str, package: str, counts: Counts, arguments: tuple[str, ...], folder: Path) -> Tally:
    python = python_with(folder, package)
    tally = Tally()
    with throw_away_broker() as broker:
        try:
            _count_through_kills(name, python, broker, counts, arguments, folder)
        except Exception:  # noqa: BLE001 - it is the test's result
            tally.failed["words_are_counted_through_kills"] = traceback.format_exc()[-3000:]
        else:
            tally.passed.append("words_are_counted_through_kills")
    return tally


def _count_through_kills(
    name: str, python: Path, broker: ThrowAwayBroker, counts: Counts, arguments: tuple[str, ...], folder: Path
) -> None:
    expected: Counter[str] = Counter()
    kafka = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": kafka})
    for made in admin.create_topics([NewTopic(f"{name}-lines", 2), NewTopic(f"{name}-counts", 2)]).values():
        made.result()
    process: subprocess.Popen[bytes] | None = None
    with (folder / "program.log").open("wb") as log:
        try:
            for step in range(2 * KILLS + 1):
                if step % 2 == 0 or process is None:  # the program starts again, with no state of its own
                    process = _restarted(process, python, name, kafka, arguments, folder, step, log.fileno())
                else:
                    broker.kill()
                    broker.restart()
                before = sum(counts(kafka).values())
                _feed(kafka, f"{name}-lines", step, expected)
                wait(partial(_counts_more, counts, kafka, before, process), "more words are counted")
            wait(lambda: counts(kafka) == expected, f"{expected}, not {counts(kafka)}")
        finally:
            if process is not None:
                process.kill()
                process.wait()


def _counts_more(counts: Counts, kafka: str, before: int, process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        raise AssertionError(f"the program ended with {process.returncode}: see program.log")
    return sum(counts(kafka).values()) > before


def _restarted(
    process: subprocess.Popen[bytes] | None,
    python: Path,
    name: str,
    kafka: str,
    arguments: tuple[str, ...],
    folder: Path,
    step: int,
    log: int,
) -> subprocess.Popen[bytes]:
    if process is not None:
        process.kill()
        process.wait()
    state = str(folder / f"state-{time.time_ns()}-{step}")
    said = {"BROKERS": kafka, "STATE": state}
    return subprocess.Popen(
        [python, _PROGRAMS / f"{name}_count.py", *(one.format(**said) for one in arguments)],
        cwd=folder,
        env={**os.environ, **said},
        stdout=log,
        stderr=log,
    )


def _feed(kafka: str, topic: str, step: int, expected: Counter[str]) -> None:
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "log_level": 0})
    for n in range(250):
        line = f"{_WORDS[n % 4]} {_WORDS[(n + step) % 4]}"
        expected.update(line.split())
        producer.produce(topic, line.encode(), key=str(n))
    producer.flush(60)


def _quix_counts(kafka: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for _key, value in records(kafka, "quix-counts", 2):
        said: Mapping[str, int] = json.loads(value)
        found[str(said["word"])] = said["count"]
    return found


def _faust_counts(kafka: str) -> Counter[str]:
    """The newest count of each word in the changelog of the table."""
    topic = "faust-count-counts-changelog"
    if topic not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=30).topics:
        return Counter()
    return Counter({json.loads(key): json.loads(value) for key, value in records(kafka, topic, 2)})


QUIX, FAUST = "3.28.1", "0.15.3"
SUITES = (
    Suite(
        "quixstreams",
        QUIX,
        partial(run, "quix", f"quixstreams=={QUIX}", _quix_counts, ("{BROKERS}", "{STATE}")),
        {},
    ),
    Suite(
        "faust-streaming",
        FAUST,
        partial(run, "faust", f"faust-streaming=={FAUST}", _faust_counts, ("worker", "-l", "info")),
        {},
    ),
)

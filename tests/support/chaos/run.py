"""One run: clients at work, trouble for a while, calm, judgement."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.errors import InvariantBroken
from tests.support.chaos.client import ChaosClient
from tests.support.chaos.loops import PROCESSED, TransactionalLoop
from tests.support.chaos.notes import Notes, stream
from tests.support.chaos.producers import (
    PARTITIONS,
    IdempotentProducer,
    PlainProducer,
    TransactionalProducer,
)
from tests.support.chaos.queues import CONFIG, LEASE_MS, QUEUE, Jobs, QueueWorker, ask
from tests.support.chaos.readers import GroupReader
from tests.support.chaos.stage import NAMES, Stage
from tests.support.cluster import eventually
from tests.support.histories import Record

_TOPICS = ("idempotent", "plain", "transactional", PROCESSED)
_LONG_RUN_S = 60.0
_PROGRESS_S = 15.0  # in which every client gets on, once it is calm …
_PROGRESS_LOADED_S = 120.0  # … and in a short run, which shares the machine with other tests
_DRAIN_S = 120.0
_READ_S = 120.0


@dataclass(slots=True)
class Report:
    troubles: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    records: int = 0  # in the end

    def __str__(self) -> str:
        return f"troubles {dict(self.troubles)}; clients {dict(sorted(self.counts.items()))}; {self.records} records"


def run(kind: str, *, seed: int, seconds: float, folder: Path) -> Report:
    """`kind`: where the log is, "bucket" or "etcd". Raises InvariantBroken with all that was broken."""
    notes, jobs = Notes(), Jobs()
    with Stage(kind, seed, folder) as stage:
        _make_topics(stage)
        clients = _clients(stage, seed, notes, jobs)
        for client in clients:
            client.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stage.trouble()
        stage.calm()
        _go_on(clients, _PROGRESS_S if seconds >= _LONG_RUN_S else _PROGRESS_LOADED_S)
        _stop(clients)
        _drain(stage, seed, notes, jobs)
        final = _final(stage, notes)
    with notes as history:
        found = [str(finding) for finding in history.findings(final)]
    found += notes.findings
    found += [f"job {name} was put in and never came out" for name in sorted(jobs.lost())]
    report = Report(Counter(stage.troubles), notes.counts, sum(map(len, final.values())))
    if found:
        raise InvariantBroken("\n".join([*found[:50], f"{len(found)} in all", str(report)]))
    return report


def _make_topics(stage: Stage) -> None:
    admin = AdminClient({"bootstrap.servers": stage.bootstrap, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, PARTITIONS) for name in _TOPICS]).values():
        made.result(30)
    eventually(
        lambda: ask(stage.http("a"), "PUT", f"/v0/topics/{QUEUE}", CONFIG)[0], lambda got: got in (200, 201)
    )


def _clients(stage: Stage, seed: int, notes: Notes, jobs: Jobs) -> list[ChaosClient]:
    bootstrap = stage.bootstrap
    return [
        IdempotentProducer("i1", seed, notes, bootstrap),
        IdempotentProducer("i2", seed, notes, bootstrap),
        PlainProducer("p1", seed, notes, bootstrap),
        TransactionalProducer("t1", seed, notes, bootstrap),
        TransactionalProducer("t2", seed, notes, bootstrap),
        TransactionalLoop("l1", seed, notes, bootstrap),
        GroupReader("g1", seed, notes, bootstrap, ["idempotent", "transactional"]),
        GroupReader("g2", seed, notes, bootstrap, ["plain", "transactional"]),
        QueueWorker("q1", seed, notes, stage.http_addresses, jobs),
        QueueWorker("q2", seed, notes, stage.http_addresses, jobs),
    ]


def _go_on(clients: list[ChaosClient], within_s: float) -> None:
    """Once it is calm, every client gets on with its work. Raises AssertionError if one does not."""
    before = {client.name: client.progress for client in clients}
    eventually(
        lambda: [client.name for client in clients if client.progress == before[client.name]],
        lambda stuck: not stuck,
        within_s,
    )


def _stop(clients: list[ChaosClient]) -> None:
    for client in clients:
        client.stop()
    for client in clients:
        client.join()


def _drain(stage: Stage, seed: int, notes: Notes, jobs: Jobs) -> None:
    """Take out all that is left, after every lease is over: until who asks so long after a job, or after a call that
    failed, gets none."""
    worker = QueueWorker("last", seed, notes, stage.http_addresses, jobs)
    quiet_since = time.monotonic()
    give_up_at = quiet_since + _DRAIN_S
    while (asked_at := time.monotonic()) < give_up_at:
        if worker.work() != 0:
            quiet_since = time.monotonic()
        elif asked_at - quiet_since >= 2 * LEASE_MS / 1000:
            return
        else:
            time.sleep(0.1)


def _final(stage: Stage, notes: Notes) -> dict[str, list[Record]]:
    """What every stream holds, on which all brokers have to agree."""
    seen = {name: _read(stage, name) for name in NAMES}
    for name in NAMES[1:]:
        if seen[name] != seen[NAMES[0]]:
            notes.found(f"{name} holds something else than {NAMES[0]}")
    return seen[NAMES[0]]


def _read(stage: Stage, name: str) -> dict[str, list[Record]]:
    stage.brokers.barrier(name)
    found: dict[str, list[Record]] = {}
    for topic in _TOPICS:
        for partition in range(PARTITIONS):
            found[stream(topic, partition)] = _records(stage.http(name), topic, partition)
    return found


def _records(address: str, topic: str, partition: int) -> list[Record]:
    found: list[Record] = []
    page = {"caught_up": False, "next_from_seq": 0}
    while not page["caught_up"]:
        page = _page(address, f"/v0/topics/{topic}/diff?partition={partition}", page["next_from_seq"])
        found += [(record["$seq"] - 1, f'"{record["data"]}"'.encode()) for record in page["records"]]
    return found


def _page(address: str, path: str, since: int) -> Any:
    asked = {"from_seq": since, "limit": 1_000}
    return eventually(lambda: ask(address, "POST", path, asked), lambda answer: answer[0] == 200, _READ_S)[1]

"""A server's log moves to where two brokers share it: everything is there, and writing goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mainstem.ports.commitlog.layout import LOCK
from mainstem.ports.files import OsFiles
from mainstem.testing.cluster import broker_processes
from mainstem.testing.etcd import EtcdCluster
from mainstem.testing.server import ServerProcess

pytestmark = pytest.mark.slow

_QUIET = {"log_level": 0}
_WAIT_S = 20


@pytest.fixture(params=["bucket", "etcd"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, ...]]:
    store = ("--store", (tmp_path / "bucket").as_uri())
    if request.param == "bucket":
        yield store
        return
    with EtcdCluster(tmp_path / "etcd") as etcd:
        yield (*store, "--etcd", etcd.endpoints[0])


def _mainstem(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainstem", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def _ask(server: ServerProcess, method: str, path: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://{server.last_address('http')}{path}",
        data,
        {"content-type": "application/json"},
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=_WAIT_S) as answer:
            return json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as refused:
        raise AssertionError(f"{method} {path}: {refused.read().decode()}") from refused


def _transaction(bootstrap: str, values: list[str], *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer", **_QUIET})
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value)
    producer.flush(_WAIT_S)
    if commit:
        producer.commit_transaction(_WAIT_S)
    else:
        producer.abort_transaction(_WAIT_S)


def _consumer(bootstrap: str) -> Consumer:
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False}
    return Consumer(
        {**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest", **_QUIET}
    )


def _read(bootstrap: str, offset: int, count: int) -> list[tuple[int, str]]:
    consumer = _consumer(bootstrap)
    try:
        consumer.assign([TopicPartition("t", 0, offset)])
        found: list[tuple[int, str]] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), _WAIT_S)
            assert messages
            found += [
                (one.offset() or 0, (one.value() or b"").decode()) for one in messages if one.error() is None
            ]
        return found
    finally:
        consumer.close()


def _committed(bootstrap: str) -> int:
    consumer = _consumer(bootstrap)
    try:
        (found,) = consumer.committed([TopicPartition("t", 0)], _WAIT_S)
        return int(found.offset)
    finally:
        consumer.close()


def _filled(data: Path) -> list[tuple[int, str]]:
    """A life that ends by a kill. Returns the committed records of `t`."""
    with ServerProcess(data, "--text", "off", "--segment-bytes", "64KiB") as server:
        kafka = str(server.address("kafka"))
        producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, **_QUIET})
        for number in range(600):
            producer.produce("t", f"plain {number} " + "." * 300)
        assert producer.flush(_WAIT_S) == 0
        _transaction(kafka, ["kept 1", "kept 2"], commit=True)
        _transaction(kafka, ["dropped"], commit=False)
        consumer = _consumer(kafka)
        consumer.commit(offsets=[TopicPartition("t", 0, 123)], asynchronous=False)
        consumer.close()
        _ask(server, "PUT", "/v0/topics/jobs", {"type": "queue"})
        _ask(server, "POST", "/v0/topics/jobs", {"records": [{"data": number} for number in range(3)]})
        claimed = _ask(server, "POST", "/v0/topics/jobs/claim", {"node": "n", "max": 1})["claimed"]
        assert len(claimed) == 1
        _ask(server, "POST", "/v0/topics/jobs/ack", {"node": "n", "seqs": [claimed[0]["$seq"]]})
        records = _read(kafka, 0, 602)
        server.kill()
        return records


def test_a_directory_goes_on_as_a_log_of_two_brokers(place: tuple[str, ...], tmp_path: Path) -> None:
    data = tmp_path / "data"
    records = _filled(data)
    moving = ("migrate", "--data-dir", str(data), *place)

    before = sorted((path, path.stat().st_size) for path in data.rglob("*") if path.is_file())
    planned = _mainstem(*moving, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["dry_run"] is True
    assert sorted((path, path.stat().st_size) for path in data.rglob("*") if path.is_file()) == before

    lock = OsFiles().lock(data / LOCK)  # as a server holds it
    busy = _mainstem(*moving)
    lock.release()
    assert busy.returncode == 1
    assert "process" in busy.stderr

    done = _mainstem(*moving, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["topics"] == 2
    assert report["objects"] >= 1
    assert report["records"] == 604
    again = _mainstem(*moving)
    assert again.returncode == 1
    assert "already" in again.stderr or "not empty" in again.stderr

    (tmp_path / "brokers").mkdir()
    with broker_processes(tmp_path / "brokers", *place, "--text", "off") as brokers:
        brokers.start("one", "two")
        for name in ("one", "two"):
            kafka = str(brokers[name].last_address("kafka"))
            assert _read(kafka, 0, 602) == records
        assert _committed(brokers.bootstrap) == 123
        left = brokers.request("two", "POST", "/v0/topics/jobs/claim", {"node": "n", "max": 9}).json
        assert sorted(job["data"] for job in left["claimed"]) == [1, 2]
        _transaction(brokers.bootstrap, ["after"], commit=True)
        found = _read(brokers.bootstrap, records[-1][0] + 1, 1)
        assert found[0][1] == "after"
        assert found[0][0] > records[-1][0]

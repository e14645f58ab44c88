"""A server's log migrates to a log of two brokers: everything is there, and writes continue."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.broker.storage.migrations import migrate
from mainstem.errors import DirectoryLocked, InvalidInput
from mainstem.ledger.config import TopicConfig
from mainstem.ports.commitlog.local.layout import LOCK
from mainstem.ports.commitlog.shared.open import SharedPlace
from mainstem.ports.files import OsFiles
from mainstem.tables.parts.materialise import materialise
from mainstem.testing.server import ServerProcess
from tests.support.cluster import broker_processes
from tests.support.etcd import EtcdCluster

pytestmark = pytest.mark.slow

_QUIET = {"log_level": 0}
_WAIT_S = 60


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


def _register(server: ServerProcess) -> None:
    """Schemas whose ids have a gap."""
    for number, name in enumerate(("a", "b", "c"), 1):
        schema = {"schema": json.dumps({"type": "enum", "name": name, "symbols": ["one"]})}
        assert _ask(server, "POST", f"/subjects/{name}/versions", schema)["id"] == number
    for permanent in ("", "?permanent=true"):
        _ask(server, "DELETE", f"/subjects/b{permanent}")


def _filled(data: Path) -> list[tuple[int, str]]:
    """A run that ends by a kill. Returns the committed records of `t`."""
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
        _register(server)
        records = _read(kafka, 0, 602)
        server.kill()
        return records


def test_a_migrated_directory_continues_as_a_log_of_two_brokers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    place = ("--store", (tmp_path / "bucket").as_uri())
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
    assert "already holds a log" in again.stderr

    (tmp_path / "brokers").mkdir()
    with broker_processes(tmp_path / "brokers", *place, "--text", "off") as brokers:
        brokers.start("one", "two")
        for name in ("one", "two"):
            kafka = str(brokers[name].last_address("kafka"))
            assert _read(kafka, 0, 602) == records
        assert _committed(brokers.bootstrap) == 123
        left = brokers.request("two", "POST", "/v0/topics/jobs/claim", {"node": "n", "max": 9}).json
        assert sorted(job["data"] for job in left["claimed"]) == [1, 2]
        ids = [brokers.request("two", "GET", f"/subjects/{name}/versions/latest").json["id"] for name in "ac"]
        assert ids == [1, 3]
        _transaction(brokers.bootstrap, ["after"], commit=True)
        found = _read(brokers.bootstrap, records[-1][0] + 1, 1)
        assert found[0][1] == "after"
        assert found[0][0] > records[-1][0]


async def test_a_directory_migrates_to_etcd(tmp_path: Path) -> None:
    """With parts."""
    data = tmp_path / "data"
    broker = await Broker.open(BrokerOptions(data, segment_bytes=16 * 1024, lake_topics="all"))
    await broker.create_topic("t", partitions=2)
    for number in range(120):
        await broker.append_values("t", [b"%d" % number + b"." * 300], partition=number % 2)
    for task in (await broker.lake.plan(PlanRequest("test"))).tasks[:1]:
        await broker.lake.publish(await asyncio.to_thread(materialise, task))
    await broker.append_values("t", [b"last"])
    before = await _scanned(broker)
    with EtcdCluster(tmp_path / "etcd") as etcd:
        place = SharedPlace((tmp_path / "bucket").as_uri(), (etcd.endpoints[0],))
        with pytest.raises(DirectoryLocked):
            await migrate(data, place, objects="", showing=_unseen, dry_run=False)
        await broker.close()
        report = await migrate(data, place, objects="", showing=_unseen, dry_run=False)
        assert (report.topics, report.records, report.files) == (1, 121, 1)
        with pytest.raises(InvalidInput, match="already"):
            await migrate(data, place, objects="", showing=_unseen, dry_run=False)
        broker = await Broker.open(BrokerOptions(tmp_path / "broker", place=place))
        try:
            assert await _scanned(broker) == before
            placed = await broker.append_values("t", [b"next"])
            assert placed.base_offset == 61
        finally:
            await broker.close()


async def test_ephemeral_topics_do_not_migrate(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    await broker.create_topic("volatile", config=TopicConfig(durability="ephemeral"))
    await broker.close()
    place = SharedPlace((tmp_path / "bucket").as_uri())
    with pytest.raises(InvalidInput, match="volatile"):
        await migrate(tmp_path / "data", place, objects="", showing=_unseen, dry_run=False)
    assert not (tmp_path / "bucket" / "log" / "id").exists()


async def _scanned(broker: Broker) -> list[list[tuple[int, bytes | None]]]:
    found = []
    for partition in range(2):
        records = []
        at, end = 0, broker.partition("t", partition).end
        while at < end:
            some = await broker.read("t", at, partition=partition)
            records += [(record.offset, record.value) for record in some]
            at = some[-1].offset + 1
        found.append(records)
    return found


@contextmanager
def _unseen(total: int) -> Iterator[Callable[[int], None]]:
    yield lambda _: None

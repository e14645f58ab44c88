"""A server whose older log files are in a bucket: killed, checked, backed up, and cut off from its store."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from mainstem.api.lake import PlanRequest
from mainstem.client.broker import BrokerClient
from mainstem.ports.objectstore.open import STORE_ENV
from mainstem.tables.parts.materialise import materialise
from mainstem.testing.server import ServerProcess
from tests.support.s3 import S3Server

pytestmark = pytest.mark.slow

_QUIET = {"log_level": 0}
_SMALL = ("--segment-bytes", "64KiB", "--checkpoint-every-bytes", "256KiB", "--text", "off")
_HOT = ("--lake-topics", "all", "--hot-retain-segments", "2", "--hot-retain-bytes", "0")


def _produce(server: ServerProcess, first: int, count: int, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": str(server.address("kafka")), "acks": "all", **_QUIET})
    for number in range(first, first + count):
        producer.produce(topic, b"%06d" % number + b"." * 500)
        if number % 50 == 49:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def _consumed(server: ServerProcess, count: int, topic: str = "t") -> list[int]:
    consumer = Consumer({"bootstrap.servers": str(server.address("kafka")), "group.id": "none", **_QUIET})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[int] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), 10)
            assert messages
            found += [int((one.value() or b"")[:6]) for one in messages if one.error() is None]
        return found
    finally:
        consumer.close()


def _get(server: ServerProcess, path: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(f"http://{server.address('http')}{path}", timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def _in_tier(server: ServerProcess, tier: str) -> int:
    text = _get(server, "/v0/metrics")[1].decode()
    found = re.search(rf'^mainstem_tier_objects{{tier="{tier}"}} (\S+)', text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def _written_until_cold(server: ServerProcess) -> int:
    """Files leave the disk only behind checkpoints, and checkpoints need writes; both take time."""
    count = 0
    until = time.monotonic() + 60
    while time.monotonic() < until:
        _produce(server, count, 300)
        count += 300
        if _in_tier(server, "store") >= 3:
            return count
        time.sleep(0.1)
    raise AssertionError("the disk keeps everything")


def _mainstem(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mainstem", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _storage(server: ServerProcess) -> list[dict[str, Any]]:
    objects: list[dict[str, Any]] = json.loads(_get(server, "/v0/storage")[1])["objects"]
    return objects


def _materialise(server: ServerProcess) -> None:
    """The lake's work on one topic, without Spark: cold files are read from the bucket."""
    with BrokerClient(f"http://{server.address('http')}") as broker:
        (task,) = broker.plan(PlanRequest("test", ("u",))).tasks
        assert any(extents.pieces for extents in task.sources.wal)
        assert "secret" not in task.sources.store
        broker.publish(materialise(task))


def test_older_files_of_a_server_are_in_the_bucket_through_kills_backups_and_outages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, copy, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    with S3Server(tmp_path / "s3") as s3:
        s3.make_bucket("cold")
        flags = ("--objects", s3.url("cold", "one"), *_HOT, *_SMALL)
        with ServerProcess(data, *flags) as server:
            _produce(server, 0, 60, "u")
            count = _written_until_cold(server)
            assert {one["tier"] for one in _storage(server)} >= {"store", "disk"}
            assert _consumed(server, count) == list(range(count))
            server.kill()
        with ServerProcess(data, *flags) as server:
            assert _consumed(server, count) == list(range(count))
            with monkeypatch.context() as worker:
                worker.setenv(STORE_ENV, s3.url("cold"))
                _materialise(server)
            assert _consumed(server, 60, "u") == list(range(60))
            _produce(server, count, 50)
            http = f"http://{server.address('http')}"
            assert "files from the object store" in _mainstem("backup", str(copy), "--url", http)
            assert server.terminate() == 0

        moving = ("migrate", "--data-dir", str(data), "--objects", s3.url("cold", "one"))
        moved = json.loads(_mainstem(*moving, "--store", (tmp_path / "shared").as_uri(), "--json"))
        assert moved["files"] >= 1
        with ServerProcess(
            tmp_path / "broker", "--store", (tmp_path / "shared").as_uri(), "--text", "off"
        ) as server:
            assert _consumed(server, count + 50) == list(range(count + 50))
            assert _consumed(server, 60, "u") == list(range(60))
            server.kill()

        assert "are in an object store" in _mainstem("check", "--data-dir", str(data))
        refused = subprocess.run(
            [sys.executable, "-m", "mainstem", "topic", "list", "--data-dir", str(data)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert refused.returncode != 0
        assert "--objects" in refused.stderr

        offline = ("backup", str(tmp_path / "offline"), "--data-dir", str(data))
        _mainstem(*offline, "--objects", s3.url("cold", "one"))
        _mainstem("restore", str(tmp_path / "offline"), "--data-dir", str(tmp_path / "alone"))
        with ServerProcess(tmp_path / "alone", *_SMALL) as server:  # it needs no store any more
            assert _consumed(server, count + 50) == list(range(count + 50))
            assert _consumed(server, 60, "u") == list(range(60))
            server.kill()

        flags = ("--objects", s3.url("cold", "two"), *_HOT, *_SMALL)
        _mainstem("restore", str(copy), "--data-dir", str(restored), *flags[:2])
        with ServerProcess(restored, *flags) as server:
            assert _in_tier(server, "store") >= 3
            assert _consumed(server, count + 50) == list(range(count + 50))
            server.kill()
        shutil.rmtree(restored / "cache", ignore_errors=True)
        with ServerProcess(restored, *flags) as server:
            s3.kill()
            code, body = _get(server, "/v0/topics/t/batches?partition=0&from=0&max_bytes=1")
            assert code == 503, body
            _produce(server, count + 50, 50)  # writes continue, and so do reads from disk
            page = f"/v0/topics/t/batches?partition=0&from={count + 90}&max_bytes=1"
            assert _get(server, page)[0] == 200
            server.kill()

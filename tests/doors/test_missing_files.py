"""A server whose WAL file is missing: every door names the loss, and serves what is around it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
import pytest

from mainstem.testing.server import ServerProcess
from tests.support.text import TextClient

RECORDS = 600
_FLAGS = ("--segment-bytes", "64KiB")


def _url(server: ServerProcess) -> str:
    return f"http://{server.address('http')}"


def _write(server: ServerProcess) -> None:
    with httpx.Client(base_url=_url(server), timeout=60) as client:
        for first in range(0, RECORDS, 20):
            records = [{"data": {"n": n, "pad": "." * 300}, "tag": "k"} for n in range(first, first + 20)]
            client.post("/v0/topics/t", json={"records": records}).raise_for_status()


def _diff(server: ServerProcess) -> tuple[list[int], list[dict[str, Any]]]:
    found: list[int] = []
    gaps: list[dict[str, Any]] = []
    at = 0
    with httpx.Client(base_url=_url(server), timeout=60) as client:
        while True:
            answer = client.post("/v0/topics/t/diff", json={"from_seq": at, "limit": 1000})
            answer.raise_for_status()
            page = answer.json()
            found += [record["data"]["n"] for record in page["records"]]
            if page["tombstone"]:
                gaps.append(page["tombstone"])
            at = page["next_from_seq"]
            if page["caught_up"]:
                return found, gaps


def _kafka(server: ServerProcess) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": str(server.address("kafka")),
            "group.id": "g",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[int] = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        error = message.error()
        if error is None:
            found.append(message.offset())
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            consumer.close()
            return found


def _metrics(server: ServerProcess) -> dict[str, Any]:
    answer = httpx.get(f"{_url(server)}/v0/metrics", headers={"accept": "application/json"}, timeout=60)
    found: dict[str, Any] = answer.json()
    return found


def _count(server: ServerProcess) -> int:
    return int(httpx.get(f"{_url(server)}/v0/topics/t", timeout=60).json()["count"])


@pytest.mark.parametrize("which", [0, 1])
def test_every_door_names_what_a_missing_file_held(tmp_path: Path, which: int) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, *_FLAGS) as server:
        _write(server)
        assert server.terminate() == 0
    path = sorted((data / "wal").iterdir())[which]
    content = path.read_bytes()
    gone = [n for n in range(RECORDS) if b'"n":%d,' % n in content]
    assert 0 < len(gone) < RECORDS
    kept = [n for n in range(RECORDS) if n not in gone]
    shutil.move(path, tmp_path / path.name)
    with ServerProcess(data, *_FLAGS) as server:
        event = next(line for line in server.lines if line["event"] == "records missing")
        assert (event["topic"], event["start"], event["end"]) == ("t", gone[0], gone[-1] + 1)
        found, gaps = _diff(server)
        assert found == kept
        assert [(gap["gap_from"], gap["gap_to"]) for gap in gaps] == [(gone[0] + 1, gone[-1] + 1)]
        assert _kafka(server) == kept
        assert _metrics(server)["mainstem_kafka_records_lost_total"] == len(gone)
        assert _metrics(server)["mainstem_records_missing"] == len(gone)
        assert _count(server) == len(kept)
        doctor = subprocess.run(
            [sys.executable, "-m", "mainstem", "doctor", "--json", "--url", _url(server)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        findings = [one for one in json.loads(doctor.stdout)["findings"] if one["about"] == "records"]
        assert doctor.returncode == 1
        assert [one["what"].split()[0] for one in findings] == [str(len(gone))]
        with TextClient(server.address("text")) as client:
            texts = [client.ask("GET t") for _ in kept]
            assert [json.loads(str(text).removeprefix("OK "))["n"] for text in texts] == kept
            assert client.ask("GET t") == "EMPTY"
        with httpx.Client(base_url=_url(server), timeout=60) as web:
            web.put("/v0/topics/dest", json={}).raise_for_status()
            body = {"source": "t", "dest": "dest", "filter": "k"}
            web.put("/v0/routers/r", json=body).raise_for_status()
            record = {"records": [{"data": {"n": RECORDS, "pad": ""}, "tag": "k"}]}
            web.post("/v0/topics/t", json=record).raise_for_status()
            page = web.post("/v0/topics/dest/diff", json={"wait_ms": 10_000}).json()
            assert page["records"][-1]["data"]["n"] == RECORDS
        assert server.terminate() == 0
    shutil.move(tmp_path / path.name, path)
    with ServerProcess(data, *_FLAGS) as server:
        assert "records missing" not in server.events()
        assert _diff(server) == (list(range(RECORDS + 1)), [])
        assert _count(server) == RECORDS + 1
        assert _metrics(server)["mainstem_records_missing"] == 0

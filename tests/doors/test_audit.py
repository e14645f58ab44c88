"""The audit log of a real server: every door writes to it, and every door reads it."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mainstem.cli.audit import audit
from mainstem.testing.server import ServerProcess
from tests.support.cluster_server import server_process

_ROOT = {"authorization": "Bearer root"}
_READER = {"authorization": "Bearer reader"}


def _quiet(error: KafkaError) -> None:
    """Failed logins are part of the test."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    env = {
        "MAINSTEM_API_KEYS": "root,reader:r",
        "MAINSTEM_KAFKA_USERS": "admin:secret,bob:secret",
        "MAINSTEM_KAFKA_SUPER_USERS": "admin",
        "MAINSTEM_KAFKA_SASL": "scram-sha-256",
    }
    with server_process(tmp_path_factory.mktemp("audit"), env=env) as process:
        yield process


def _client(server: ServerProcess, user: str, password: str = "secret") -> dict[str, Any]:
    return {
        "bootstrap.servers": str(server.address("kafka")),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": password,
        "error_cb": _quiet,
        "logger": None,
    }


def _http(server: ServerProcess, method: str, path: str, body: object = None, **headers: str) -> int:
    return httpx.request(
        method, f"http://{server.address('http')}{path}", json=body, headers=headers
    ).status_code


def _text(server: ServerProcess, *requests: str) -> list[str]:
    host, port = str(server.address("text")).rsplit(":", 1)
    answers = []
    with socket.create_connection((host, int(port)), 10) as client:
        for request in requests:
            client.sendall(struct.pack("<I", len(request)) + request.encode())
            reader = client.makefile("rb")
            (length,) = struct.unpack("<I", reader.read(4))
            answers.append(reader.read(length).decode())
    return answers


def _log(server: ServerProcess) -> list[dict[str, Any]]:
    answer = httpx.post(
        f"http://{server.address('http')}/v0/topics/__audit/diff", json={"limit": 1000}, headers=_ROOT
    )
    return [record["data"] for record in answer.json()["records"]] if answer.status_code == 200 else []


def _row(server: ServerProcess, **wanted: str) -> dict[str, Any]:
    """The record with these fields, once it is there."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for row in _log(server):
            if wanted.items() <= row.items():
                return row
        time.sleep(0.05)
    raise AssertionError((wanted, _log(server)))


def test_every_door_writes_to_the_audit_log_and_reads_it(server: ServerProcess) -> None:
    # Administrative operations
    admin = AdminClient(_client(server, "admin"))
    admin.create_topics([NewTopic("made", 1)])["made"].result(30)
    row = _row(server, operation="CreateTopics", name="made", outcome="done")
    assert (row["principal"], row["door"], row["host"]) == ("User:admin", "kafka", "127.0.0.1")
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("made", 1)])["made"].result(30)
    _row(server, operation="CreateTopics", name="made", outcome="failed")
    assert _http(server, "PUT", "/v0/topics/web", {}, **_ROOT) == 201
    row = _row(server, operation="PUT /v0/topics/{topic}", name="web", outcome="done")
    assert (row["door"], row["resource"]) == ("http", "topic")
    assert _text(server, "AUTH root", "REGISTER plain") == ["OK", "OK"]
    _row(server, door="text", operation="CREATE", name="plain", outcome="done")

    # Denied operations
    assert _http(server, "DELETE", "/v0/topics/web", **_READER) == 403
    row = _row(server, door="http", operation="DELETE", name="web", outcome="denied")
    assert row["resource"] == "topic"
    assert _http(server, "GET", "/v0/topics", authorization="Bearer wrong") == 401
    _row(server, door="http", operation="AUTHENTICATE", outcome="denied")
    assert _text(server, "AUTH reader", "PUT made x")[1] == "ERR forbidden"
    _row(server, door="text", operation="PUT", name="made", outcome="denied")
    producer = Producer({**_client(server, "bob"), "enable.idempotence": False})
    producer.produce("made", b"x")
    producer.flush(10)
    _row(server, principal="User:bob", door="kafka", operation="DESCRIBE", name="made", outcome="denied")
    AdminClient(_client(server, "bob", "wrong")).poll(0.5)
    _row(server, door="kafka", operation="AUTHENTICATE", outcome="denied")

    # Every door reads it; nobody without the right to the cluster changes it
    consumer = Consumer({**_client(server, "admin"), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["__audit"])
    message = consumer.poll(30)
    assert message is not None
    assert json.loads(message.value() or b"")["principal"]
    consumer.close()
    assert _text(server, "AUTH root", "GET __audit")[1].startswith('OK {"time_ms"')
    assert _text(server, "AUTH reader", "PUT __audit {}")[1] == "ERR forbidden"
    assert _http(server, "DELETE", "/v0/topics/__audit", **_READER) == 403
    url = f"http://{server.address('http')}"
    shown = CliRunner().invoke(audit, ["--url", url, "--api-key", "root"], catch_exceptions=False)
    assert "done CreateTopics topic made by User:admin from 127.0.0.1 over kafka" in shown.output

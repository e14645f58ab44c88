"""Random records through any door come back through every other one, with message ids that outlive the server."""

from __future__ import annotations

import base64
import socket
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pulsar
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.testing.server import ServerProcess

from .conftest import connect

_WAIT_MS = 10_000
_plain = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=12)
_text = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)


class Sent(NamedTuple):
    door: str
    key: str | None
    value: bytes
    headers: dict[str, str]


@st.composite
def _records(draw: st.DrawFn) -> Sent:
    door = draw(st.sampled_from(("kafka", "http", "text", "pulsar", "pulsar batch")))
    if door == "text":
        return Sent(door, None, draw(_plain).encode(), {})
    key = draw(st.none() | _text)
    if door == "http":  # its values are JSON
        return Sent(door, key, msgspec.json.encode(draw(_text | st.integers(-9, 9))), {})
    return Sent(door, key, draw(st.binary(max_size=40)), draw(st.dictionaries(_text, _text, max_size=3)))


class Doors:
    """Clients of one server."""

    def __init__(self, server: ServerProcess) -> None:
        self.pulsar = connect(server)
        self._http = httpx.Client(base_url=f"http://{server.address('http')}", timeout=30)
        self._kafka = {"bootstrap.servers": str(server.address("kafka"))}
        self._producer = Producer({**self._kafka, "log_level": 0})  # it outlives the server
        address = server.address("text")
        self._text = socket.create_connection((address.host, address.port), timeout=30)

    def close(self) -> None:
        self.pulsar.close()
        self._http.close()
        self._text.close()

    def write(self, topic: str, records: list[Sent]) -> None:
        for record in records:
            getattr(self, f"_write_{record.door.replace(' ', '_')}")(topic, record)

    def _write_kafka(self, topic: str, record: Sent) -> None:
        self._producer.produce(topic, record.value, key=record.key, headers=list(record.headers.items()))
        assert self._producer.flush(10) == 0

    def _write_http(self, topic: str, record: Sent) -> None:
        row: dict[str, Any] = {"data": msgspec.json.decode(record.value)}
        if record.key is not None:
            row["tag"] = record.key
        self._http.post(f"/v0/topics/{topic}", json={"records": [row]}).raise_for_status()

    def _write_text(self, topic: str, record: Sent) -> None:
        assert self.ask_text(f"PUT {topic} {record.value.decode()}") == b"OK"

    def ask_text(self, request: str) -> bytes:
        data = request.encode()
        self._text.sendall(len(data).to_bytes(4, "little") + data)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "little"):
            answer += self._text.recv(65_536)
        return answer[4:]

    def _write_pulsar(self, topic: str, record: Sent) -> None:
        producer = self.pulsar.create_producer(topic)
        producer.send(record.value, partition_key=record.key, properties=record.headers)
        producer.close()

    def _write_pulsar_batch(self, topic: str, record: Sent) -> None:
        """Two of the same."""
        producer = self.pulsar.create_producer(
            topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
        )
        for _ in range(2):
            producer.send_async(record.value, None, partition_key=record.key, properties=record.headers)
        producer.flush()
        producer.close()

    def read_pulsar(self, topic: str, count: int) -> tuple[list[Sent], list[str]]:
        reader = self.pulsar.create_reader(topic, pulsar.MessageId.earliest)
        got = [reader.read_next(_WAIT_MS) for _ in range(count)]
        assert not reader.has_message_available()
        reader.close()
        rows = [Sent("", one.partition_key() or None, one.data(), one.properties()) for one in got]
        return rows, [str(one.message_id()) for one in got]

    def read_kafka(self, topic: str, count: int) -> list[Sent]:
        consumer = Consumer({**self._kafka, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition(topic, 0, 0)])
        got: list[Any] = []
        while len(got) < count:
            got += consumer.consume(count - len(got), 10)
        consumer.close()
        return [
            Sent(
                "",
                None if one.key() is None else one.key().decode(),
                one.value(),
                _shown(one.headers() or []),
            )
            for one in got
        ]

    def read_http(self, topic: str) -> list[Sent]:
        answer = self._http.get(f"/v0/topics/{topic}/messages", params={"from": 0, "limit": 100})
        return [
            Sent(
                "",
                None if one["key"] is None else _content(one["key"]).decode(),
                _content(one["value"]),
                _shown([(row["name"], _content(row["content"])) for row in one["headers"]]),
            )
            for one in answer.raise_for_status().json()["messages"]
        ]

    def read_text(self, topic: str, count: int) -> list[bytes]:
        return [self.ask_text(f"GET {topic}") for _ in range(count)]

    def read_sql(self, topic: str) -> list[tuple[int, str | None, bytes]]:
        query = f'SELECT _offset, decode(_key), to_base64(_value) FROM "{topic}" ORDER BY _offset'
        answer = self._http.post("/v0/sql", json={"query": query}).raise_for_status()
        return [(offset, key, base64.b64decode(value)) for offset, key, value in answer.json()["rows"]]


def _content(shown: dict[str, str]) -> bytes:
    return shown["text"].encode() if "text" in shown else base64.b64decode(shown["base64"])


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _shown(headers: list[tuple[str, bytes]]) -> dict[str, str]:
    """Without those that describe a message to its own door."""
    return {name: value.decode() for name, value in headers if not name.startswith(("pulsar.", "mainstem."))}


def test_every_door_shows_the_records_of_every_other_one(tmp_path: Path) -> None:
    written: dict[str, tuple[int, list[str]]] = {}  # by topic: how many records it has, and their message ids

    with ServerProcess(tmp_path / "data", "--text", "127.0.0.1:0") as server:
        doors = Doors(server)

        @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(_records(), min_size=1, max_size=6))
        def check(records: list[Sent]) -> None:
            topic = f"t-{uuid.uuid4().hex}"
            doors.pulsar.create_producer(topic).close()
            doors.write(topic, records)
            wanted = [
                Sent("", one.key, one.value, one.headers)
                for one in records
                for _ in range(2 if one.door == "pulsar batch" else 1)
            ]
            shown, ids = doors.read_pulsar(topic, len(wanted))
            assert shown == wanted
            assert doors.read_kafka(topic, len(wanted)) == wanted
            assert doors.read_http(topic) == wanted
            assert doors.read_sql(topic) == [(at, one.key, one.value) for at, one in enumerate(wanted)]
            if all(_is_text(one.value) for one in wanted):  # that door has nothing else
                assert doors.read_text(topic, len(wanted)) == [b"OK " + one.value for one in wanted]
            written[topic] = len(wanted), ids

        check()
        doors.close()
        server.kill()
    with ServerProcess(tmp_path / "data", "--text", "127.0.0.1:0") as server:
        doors = Doors(server)
        for topic, (count, ids) in written.items():
            assert doors.read_pulsar(topic, count)[1] == ids
        doors.close()

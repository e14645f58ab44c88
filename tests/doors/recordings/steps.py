"""The steps that are recorded: what the client of each door sends."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema

from mainstem.doors.pulsar.wire import simple_frame
from tests.doors.kafka.messages import make
from tests.doors.kafka.requests import fetch, list_offsets, metadata, produce
from tests.doors.kafka.wire import request_frame
from tests.doors.pulsar.raw_client import RawClient
from tests.support.batches import TIME_MS, batch, produced

from .recording import Step

_S = timedelta(seconds=1)
_MASK = bytes(4)  # of a WebSocket client's frames: the payload stays readable


def steps_of(door: str) -> list[Step]:
    return list({"kafka": _kafka, "http": _http, "text": _text, "pulsar": _pulsar, "s3": _s3}[door]())


# Kafka


def _kafka() -> Iterator[Step]:
    correlation = 0

    def step(title: str, request: Any, connects: str = "") -> Step:
        nonlocal correlation
        correlation += 1
        return Step(title, request_frame(request, correlation), connects=connects)

    def call(title: str, api: int, version: int, connects: str = "", /, **fields: Any) -> Step:
        return step(f"{title} v{version}", make(load_request_schema(api, version), fields), connects)

    member = {"group_id": "g", "generation_id": -1, "member_id": ""}
    offsets = [
        {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": -1, "committed_metadata": "m"}
    ]
    yield call("ApiVersions", 18, 0, "Metadata and records")
    yield call("ApiVersions", 18, 3, client_software_name="test", client_software_version="1")
    yield call(
        "CreateTopics",
        19,
        4,
        topics=[
            {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        ],
        timeout=_S,
        validate_only=False,
    )
    yield step("Metadata v1, one topic", metadata(1, "t"))
    yield step("Metadata v12, one topic and an unknown one", metadata(12, "t", "unknown", create=False))
    yield step("Produce v3, two records", produce(3, "t", batch(b"one", b"two")[0]))
    yield step("Produce v9, one record", produce(9, "t", batch(b"three")[0]))
    damaged = bytearray(batch(b"four")[0])
    damaged[-1] ^= 1
    yield step("Produce v9, a wrong checksum", produce(9, "t", damaged))
    yield step("Produce v9, an unknown partition", produce(9, "t", batch(b"four")[0], partitions=[7]))
    yield call(
        "InitProducerId",
        22,
        4,
        transactional_id=None,
        transaction_timeout=_S,
        producer_id=-1,
        producer_epoch=-1,
    )
    yield step("Produce v9, idempotent", produce(9, "t", produced(1, 0, b"four")))
    yield step("Produce v9, the same again", produce(9, "t", produced(1, 0, b"four")))
    yield step("Produce v9, a gap in the sequence", produce(9, "t", produced(1, 5, b"five")))
    yield step("Fetch v4, from the start", fetch(4, "t", (0, 0)))
    yield step("Fetch v12, in the middle", fetch(12, "t", (0, 2), rack=""))
    yield step("Fetch v12, out of range", fetch(12, "t", (0, 99), rack=""))
    yield step(
        "ListOffsets v1, earliest, latest and by time", list_offsets(1, "t", (0, -2), (0, -1), (0, TIME_MS))
    )
    yield call("FindCoordinator", 10, 1, "A group of the classic protocol", key="g", key_type=0)
    yield call(
        "JoinGroup, without a member id",
        11,
        3,
        group_id="g",
        session_timeout=10 * _S,
        rebalance_timeout=10 * _S,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"m"}],
    )
    yield call("Heartbeat, an unknown member", 12, 1, group_id="g", generation_id=1, member_id="stranger")
    yield call(
        "OffsetCommit, without a member",
        8,
        2,
        "Committed offsets",
        **member
        | {
            "group_id": "plain",
            "generation_id_or_member_epoch": -1,
            "retention_time": -_S / 1000,
            "topics": [{"name": "t", "partitions": offsets}],
        },
    )
    yield call(
        "OffsetFetch",
        9,
        7,
        group_id="plain",
        require_stable=False,
        topics=[{"name": "t", "partition_indexes": [0]}],
    )
    yield call("DeleteTopics", 20, 3, topic_names=["t", "unknown"], timeout=_S)


# HTTP and S3


def request(
    method: str, path: str, body: bytes | object = b"", host: str = "localhost", **headers: str
) -> bytes:
    if not isinstance(body, bytes):
        headers["content_type"] = "application/json"
        body = json.dumps(body, separators=(",", ":")).encode()
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body or method in ("POST", "PUT"):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def _http() -> Iterator[Step]:
    yield Step("an empty topic", request("PUT", "/v0/topics/h", {"durability": "disk"}), connects="Requests")
    yield Step("the same again", request("PUT", "/v0/topics/h", {"durability": "disk"}))
    yield Step("the topics", request("GET", "/v0/topics"))
    records = [{"data": {"a": 1}, "tag": "k"}, {"data": "two", "node": "n", "meta": {"m": True}}]
    yield Step("append", request("POST", "/v0/topics/h", {"records": records, "node": "me"}))
    keyed = {"records": [{"data": 3}], "idempotency_key": "once", "return_seqs": True}
    yield Step("append with an idempotency key", request("POST", "/v0/topics/h", keyed))
    yield Step("append with the same key again", request("POST", "/v0/topics/h", keyed))
    yield Step("read", request("POST", "/v0/topics/h/diff", {"from_seq": 0}))
    yield Step(
        "read other nodes' records", request("POST", "/v0/topics/h/diff", {"from_seq": 0, "node": "me"})
    )
    yield Step("messages", request("GET", "/v0/topics/h/messages?limit=2"))
    yield Step("the state", request("GET", "/v0/topics/h?touch=false"))
    yield Step("an unknown topic", request("POST", "/v0/topics/unknown/diff", {"from_seq": 0}))
    yield Step("an unknown field", request("POST", "/v0/topics/h/diff", {"from_seq": 0, "to": 9}))
    yield Step("not JSON", request("POST", "/v0/topics/h", b"{", content_type="application/json"))
    yield Step("an unknown route", request("GET", "/v0/nothing"))
    yield Step("a wrong method", request("PATCH", "/v0/topics/h"))
    yield Step("a queue", request("PUT", "/v0/topics/q", {"type": "queue"}))
    yield Step("a job", request("POST", "/v0/topics/q", {"records": [{"data": "job"}]}))
    yield Step("claim it", request("POST", "/v0/topics/q/claim", {"node": "n", "max": 1, "lease_ms": 1000}))
    yield Step("two requests at once", request("GET", "/v0/nothing") + request("GET", "/v0/nowhere"))
    watched = {"topics": {"h": {"from_seq": 0}}, "heartbeat_ms": 60_000}
    yield Step("a watch session", request("POST", "/v0/watch", watched))
    yield Step(
        "its events",
        request("GET", "/v0/watch/«wid»", accept="text/event-stream"),
        connects="Server-sent events",
    )
    key = base64.b64encode(bytes(16)).decode()
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": key,
    }
    yield Step("upgrade", request("GET", "/v0/ws", **upgrade), connects="WebSocket")
    yield Step("ping", _frame({"op": "ping"}))
    yield Step("subscribe", _frame({"op": "subscribe", "request_id": 1, "topic": "h", "from_seq": 2}))
    yield Step(
        "publish", _frame({"op": "publish", "request_id": "2", "topic": "h", "records": [{"data": 4}]})
    )
    yield Step("not JSON", _frame(b"{"))
    yield Step("an unknown command", _frame({"op": "what", "request_id": [3]}))
    yield Step("close", _frame((1000).to_bytes(2, "big"), opcode=8))


def _frame(command: bytes | object, opcode: int = 1) -> bytes:
    """A WebSocket frame of a client."""
    body = command if isinstance(command, bytes) else json.dumps(command, separators=(",", ":")).encode()
    assert len(body) < 126
    return bytes((0x80 | opcode, 0x80 | len(body))) + _MASK + body


def _s3() -> Iterator[Step]:
    yield Step("create a bucket", request("PUT", "/bucket"), connects="Buckets and objects")
    yield Step("the buckets", request("GET", "/"))
    yield Step(
        "put an object",
        request("PUT", "/bucket/a/b.txt", b"hello", content_type="text/plain", x_amz_meta_m="v"),
    )
    yield Step(
        "put it only if it does not exist", request("PUT", "/bucket/a/b.txt", b"other", if_none_match="*")
    )
    yield Step("get it", request("GET", "/bucket/a/b.txt"))
    yield Step("its head", request("HEAD", "/bucket/a/b.txt"))
    yield Step("a range", request("GET", "/bucket/a/b.txt", range="bytes=1-3"))
    yield Step("a range outside", request("GET", "/bucket/a/b.txt", range="bytes=9-"))
    yield Step(
        "not modified", request("GET", "/bucket/a/b.txt", if_none_match='"5d41402abc4b2a76b9719d911017c592"')
    )
    yield Step("list", request("GET", "/bucket?list-type=2&delimiter=/"))
    yield Step("list a folder", request("GET", "/bucket?list-type=2&prefix=a/"))
    yield Step("start an upload", request("POST", "/bucket/big?uploads"))
    yield Step("an object that does not exist", request("GET", "/bucket/none"))
    yield Step("a bucket that is not empty", request("DELETE", "/bucket"))
    yield Step("delete the object", request("DELETE", "/bucket/a/b.txt"))
    yield Step("a bucket that does not exist", request("GET", "/other"))


# Text


def _text() -> Iterator[Step]:
    def frame(text: str) -> bytes:
        return len(text.encode()).to_bytes(4, "little") + text.encode()

    yield Step("register", frame("REGISTER news"), connects="Requests")
    for text in (
        "PUT news hello",
        "PUT news big  world",
        "STATE news",
        "GET news",
        "GET news",
        "GET news",
        "GET y",
        "PUT news",
        "what",
    ):
        yield Step(text, frame(text))
    yield Step("three at once", frame("PUT news 1") + frame("PUT news 2") + frame("GET news"))
    yield Step("a frame that is too long", (1 << 31).to_bytes(4, "little"), connects="Errors")


# Pulsar


def _pulsar() -> Iterator[Step]:
    topic = "persistent://public/default/p"

    def step(title: str, name: str, connects: str = "", /, **fields: Any) -> Step:
        return Step(title, simple_frame(name, **fields), connects=connects)

    yield step("connect", "connect", "A producer and a consumer", client_version="test", protocol_version=21)
    yield step("partitions of a topic", "partitioned_metadata", topic=topic, request_id=1)
    yield step("look up", "lookup", topic=topic, request_id=2)
    yield step("a producer", "producer", topic=topic, producer_id=1, request_id=3, producer_name="p")
    yield Step("send", RawClient.send_frame(0, b"one", key=b"k"))
    yield Step("send two", RawClient.send_frame(1, b"two") + RawClient.send_frame(2, b"three"))
    damaged = bytearray(RawClient.send_frame(3, b"four"))
    damaged[-1] ^= 1
    yield Step("a wrong checksum", bytes(damaged))
    yield step(
        "subscribe",
        "subscribe",
        topic=topic,
        subscription="s",
        subType=0,
        consumer_id=1,
        request_id=4,
        initialPosition=1,
    )
    yield step("permits for two messages", "flow", consumer_id=1, messagePermits=2)
    yield step("another one", "flow", consumer_id=1, messagePermits=5)
    yield step("the last message", "get_last_message_id", consumer_id=1, request_id=5)
    yield step("unsubscribe", "unsubscribe", consumer_id=1, request_id=6)
    yield step("close the producer", "close_producer", producer_id=1, request_id=7)
    yield step("ping", "ping")
    yield step("a producer of an invalid topic", "producer", topic="a://b", producer_id=2, request_id=8)
    yield Step("a command before connect", simple_frame("ping"), connects="Errors")

"""Batches with the right checksum and garbage inside: readers pass them on every door, and name their offsets."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.api.lake import PlanRequest
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.client.broker import BrokerClient
from mainstem.client.responses import ConsumerRecord as Record
from mainstem.client.responses import Gap
from mainstem.client.sync import Client
from mainstem.errors import InvalidBatch, RecordsLost
from mainstem.records.building import build_batch
from mainstem.records.compression import CODECS
from mainstem.records.header import HEADER_BYTES, seal
from mainstem.tables.parts.materialise import materialise
from mainstem.tables.parts.source_rows import source_rows
from mainstem.testing.server import ServerProcess
from tests.doors.kafka.requests import produce
from tests.doors.kafka.wire import Wire
from tests.support.text import TextClient

_NOW_MS = 1_700_000_000_000


def _values(first: int, count: int) -> list[bytes]:
    return [json.dumps({"n": number}).encode() for number in range(first, first + count)]


def _good(first: int, count: int) -> bytearray:
    return build_batch(_values(first, count), keys=[b"k"] * count, timestamps_ms=_NOW_MS)


def _sealed(section: bytes, codec: str = "none", count: int = 3) -> bytearray:
    return seal(
        bytearray(HEADER_BYTES) + section,
        attributes=CODECS.index(codec),  # type: ignore[arg-type]
        last_offset_delta=count - 1,
        base_timestamp=_NOW_MS,
        max_timestamp=_NOW_MS,
        count=count,
    )


def _bad(kind: str) -> bytearray:
    section = bytes(_good(0, 3)[HEADER_BYTES:])
    length = section[0]
    record = section[: 1 + length // 2]  # the length is a zigzag varint of one byte
    match kind:
        case "zstd" | "gzip" | "lz4" | "snappy":
            return _sealed(b"\x28\xb5\x2f\xfd garbage that no codec takes", kind)
        case "count":
            return _sealed(section, count=5)
        case "offsets":
            return _sealed(record * 3)
        case "varint":
            return _sealed(b"\xff" * 40)
        case "cut":
            return _sealed(section[:-7])
    raise AssertionError(kind)


KINDS = ["zstd", "gzip", "lz4", "snappy", "count", "offsets", "varint", "cut"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("undecodable") / "data", "--lake-topics", "all") as running:
        yield running


def _url(server: ServerProcess) -> str:
    return f"http://{server.address('http')}"


def _send(server: ServerProcess, topic: str, *batches: bytearray) -> list[int]:
    """Over Kafka's wire. Returns the error codes."""

    async def send() -> list[int]:
        wire = await Wire.connect(server.address("kafka"))
        try:
            codes = []
            for batch in batches:
                answer = await wire.ask(produce(9, topic, bytes(batch)))
                codes.append(int(answer.responses[0].partition_responses[0].error_code))
            return codes
        finally:
            await wire.close()

    return asyncio.run(send())


def _post(server: ServerProcess, path: str, body: object) -> Any:
    answer = httpx.post(f"{_url(server)}{path}", json=body, timeout=60)
    assert answer.status_code < 300, answer.text
    return answer.json()


def _lost_count(kind: str) -> int:
    return 5 if kind == "count" else 3


def _written(server: ServerProcess, kind: str, name: str) -> tuple[str, int]:
    """A topic of two good records, a bad batch, and two good records. Returns where the latter begin."""
    topic = f"{name}-{kind}"
    httpx.put(f"{_url(server)}/v0/topics/{topic}", json={}, timeout=60).raise_for_status()
    after = 2 + _lost_count(kind)
    assert _send(server, topic, _good(0, 2), _bad(kind), _good(after, 2)) == [0, 0, 0]
    return topic, after


@pytest.mark.parametrize("kind", KINDS)
def test_readers_get_past_a_batch_that_cannot_be_decoded(server: ServerProcess, kind: str) -> None:
    topic, after = _written(server, kind, "read")
    good = [0, 1, after, after + 1]
    # diff
    found: list[int] = []
    gaps = []
    at = 0
    while True:
        page = _post(server, f"/v0/topics/{topic}/diff", {"from_seq": at})
        found += [record["data"]["n"] for record in page["records"]]
        if page["tombstone"]:
            gaps.append(page["tombstone"])
        at = page["next_from_seq"]
        if page["caught_up"]:
            break
    assert found == good
    assert [(gap["gap_from"], gap["gap_to"], gap["reason"]) for gap in gaps] == [(3, after, "undecodable")]
    # messages
    answer = httpx.get(f"{_url(server)}/v0/topics/{topic}/messages", timeout=60)
    assert answer.status_code == 200, answer.text
    # The text door's cursor
    with TextClient(server.address("text")) as client:
        got = [client.ask(f"GET {topic}") for _ in range(12)]
    # It decodes one record at a time, so it may serve those before the fault in the bad batch.
    texts = [json.loads(str(text).removeprefix("OK "))["n"] for text in got if text != "EMPTY"]
    assert texts[:2] == [0, 1]
    assert texts[-2:] == [after, after + 1]
    assert got[-1] == "EMPTY"
    # SSE, through the Python client
    with Client(_url(server)) as python:
        events = []
        for event in python.watch({topic: 0}):
            if isinstance(event, Record | Gap):
                events.append(event)
            if len([one for one in events if isinstance(one, Record)]) == 4:
                break
        assert [event.value["n"] for event in events if isinstance(event, Record)] == good
        assert [(gap.first_seq, gap.last_seq) for gap in events if isinstance(gap, Gap)] == [(3, after)]
        # The Python client's pages
        with pytest.raises(RecordsLost) as loss:
            python.read_arrow(topic)
        assert (loss.value.start, loss.value.end) == (2, after)
        assert python.read_arrow(topic, from_seq=after).num_rows == 2
        # Search by time
        assert python.offset_at(topic, _NOW_MS) == 0


@pytest.mark.parametrize("kind", ["zstd", "offsets"])
def test_a_filtered_router_goes_on_behind_a_bad_batch(server: ServerProcess, kind: str) -> None:
    topic, after = _written(server, kind, "routed")
    dest = f"{topic}-dest"
    httpx.put(f"{_url(server)}/v0/topics/{dest}", json={}, timeout=60).raise_for_status()
    body = {"source": topic, "dest": dest, "filter": "k"}
    httpx.put(f"{_url(server)}/v0/routers/{dest}", json=body, timeout=60).raise_for_status()
    _send(server, topic, _good(after + 2, 1), _bad(kind), _good(after + 6, 1))
    found: list[int] = []
    at = 0
    for _ in range(50):
        page = _post(server, f"/v0/topics/{dest}/diff", {"from_seq": at, "wait_ms": 200})
        found += [record["data"]["n"] for record in page["records"]]
        at = page["next_from_seq"]
        if found[-1:] == [after + 6]:
            break
    assert found[-2:] == [after + 2, after + 6]


@pytest.mark.parametrize("kind", ["zstd", "cut"])
def test_the_lake_goes_on_and_records_what_the_parts_lack(server: ServerProcess, kind: str) -> None:
    topic, after = _written(server, kind, "lake")
    with BrokerClient(_url(server)) as broker:
        (task,) = broker.plan(PlanRequest("test", (topic,))).tasks
        undecodable: list[tuple[int, int]] = []
        rows = list(source_rows(task.sources, topic, 0, undecodable=undecodable))
        assert sum(batch.num_rows for batch in rows) == 4
        assert undecodable == [(2, after)]
        broker.publish(materialise(task))
    page = _post(server, f"/v0/topics/{topic}/diff", {"from_seq": 2})
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (3, after)
    assert [record["data"]["n"] for record in page["records"]] == [after, after + 1]


def test_a_topic_with_full_validation_refuses_what_cannot_be_decoded(server: ServerProcess) -> None:
    with Client(_url(server)) as client:
        client.create_topic("full")
        client.change_settings("full", {"mainstem.validate.records": "full"})
        client.create_topic("compacted")
        client.change_settings("compacted", {"cleanup.policy": "compact"})
    invalid_record = 87
    codes = _send(server, "full", *map(_bad, KINDS), _good(0, 2))
    assert codes == [invalid_record] * len(KINDS) + [0]
    keyless = build_batch([b"1", b"2"], keys=[b"k", None], timestamps_ms=_NOW_MS)
    assert _send(server, "compacted", keyless, _bad("zstd"), _good(0, 2)) == [invalid_record] * 2 + [0]


async def test_a_queue_and_a_delete_by_key_get_past_a_bad_batch(tmp_path: Path) -> None:
    broker = await Broker.open(BrokerOptions(tmp_path / "data"))
    try:
        await broker.create_topic("t")
        for batch in (_good(0, 2), _bad("zstd"), _good(5, 2)):
            await broker.append("t", batch)
        found = [record.value for record in await broker.read("t", 0)]
        assert found == _values(0, 2)
        with pytest.raises(RecordsLost) as loss:
            await broker.read("t", 2)
        assert (loss.value.start, loss.value.end, loss.value.reason) == (2, 5, "undecodable")
        with pytest.raises(InvalidBatch):
            await broker.append("t", bytearray(struct.pack(">q", 0) * 10))
        from mainstem.broker.routers.tag_matching import Match

        assert await broker.deletes.delete(broker.topic("t"), match=Match(b"k")) == 4
    finally:
        await broker.close()


@pytest.mark.parametrize("kind", ["zstd", "cut"])
def test_a_watcher_at_the_tail_gets_past_a_bad_batch(server: ServerProcess, kind: str) -> None:
    topic = f"tail-{kind}"
    httpx.put(f"{_url(server)}/v0/topics/{topic}", json={}, timeout=60).raise_for_status()
    _send(server, topic, _good(0, 2))
    found: list[int] = []
    gaps: list[tuple[int, int]] = []
    sent = False
    with Client(_url(server)) as python:
        for event in python.watch({topic: 0}):
            if isinstance(event, Record):
                found.append(event.value["n"])
            elif isinstance(event, Gap):
                gaps.append((event.first_seq, event.last_seq))
            if len(found) == 2 and not sent:
                sent = True
                _send(server, topic, _good(2, 1), _bad(kind), _good(6, 1))
            if found[-1:] == [6]:
                break
    assert found == [0, 1, 2, 6]
    assert gaps == [(4, 6)]

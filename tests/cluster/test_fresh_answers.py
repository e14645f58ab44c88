"""A broker that lags behind the others catches up before it says what exists, what is new, or what it deletes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.broker.broker import Broker
from mainstem.broker.routers.service import StreamForwarder
from mainstem.doors.http.routes.apicurio import ApicurioApi
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.context import Context
from mainstem.doors.text.requests import parse
from mainstem.doors.text.service import TextService
from mainstem.doors.text.status import SegmentLeader
from mainstem.errors import StoreUnreachable
from tests.doors.http.watching import WebSocket
from tests.support.cluster import brokers_here


class _Lagging:
    """Two brokers over one bucket. The one behind applies what the other wrote only when something makes it."""

    def __init__(self, ahead: Broker, behind: Broker) -> None:
        self.behind = behind
        self.context = Context(behind)
        self._clients = [
            httpx.AsyncClient(transport=httpx.ASGITransport(App(context)), base_url="http://localhost")
            for context in (Context(ahead), self.context)
        ]
        self.text = [
            TextService(broker, SegmentLeader(broker.cluster.broker, "n", "h:1", 1))
            for broker in (ahead, behind)
        ]

    async def ahead(self, method: str, path: str, body: object = None) -> Any:
        return await self._ask(0, method, path, body)

    async def later(self, method: str, path: str, body: object = None) -> Any:
        """The same at the broker behind."""
        return await self._ask(1, method, path, body)

    async def _ask(self, number: int, method: str, path: str, body: object) -> Any:
        answer = await self._clients[number].request(method, path, json=body)
        return {"status": answer.status_code, **answer.json()}

    async def write(self, topic: str, *values: object, tag: str = "g") -> None:
        records = [{"data": value, "tag": tag} for value in values]
        assert (await self.ahead("POST", f"/v0/topics/{topic}", {"records": records}))["status"] < 300

    async def said(self, number: int, *requests: str) -> list[bytes]:
        """What a broker answers at the text door."""
        caller = self.text[number].caller("127.0.0.1")
        return [(await self.text[number].answer([parse(one.encode())], caller))[0] for one in requests]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@pytest.fixture
async def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[_Lagging]:
    monkeypatch.setattr("mainstem.ports.commitlog.shared.bucket.commits.BUCKET_POLL_S", 3_600.0)
    async with brokers_here(tmp_path, "ahead", "behind") as brokers:
        lagging = _Lagging(*brokers)
        yield lagging
        await lagging.close()


async def test_a_reader_at_the_end_is_not_told_that_the_topic_was_recreated(two: _Lagging) -> None:
    await two.ahead("PUT", "/v0/topics/t", {})
    await two.later("GET", "/v0/topics/t")
    await two.write("t", 1, 2, 3)
    answer = await two.later("POST", "/v0/topics/t/diff", {"from_seq": 3})
    assert (answer["tombstone"], answer["next_from_seq"], answer["head_seq"]) == (None, 3, 3)


async def test_a_reader_gets_what_another_broker_acknowledged(two: _Lagging) -> None:
    await two.ahead("PUT", "/v0/topics/t", {})
    for count in range(1, 4):
        await two.write("t", count)
        answer = await two.later("POST", "/v0/topics/t/diff", {"from_seq": count - 1})
        assert [record["data"] for record in answer["records"]] == [count]
    await two.ahead("PATCH", "/v0/topics/p/settings", {"create": True, "partitions": 2})
    assert (await two.later("POST", "/v0/topics/p/diff", {}))["records"] == []
    await two.write("p", 1)
    assert len((await two.later("POST", "/v0/topics/p/diff", {}))["records"]) == 1


async def test_records_that_another_broker_deleted_are_not_read(two: _Lagging) -> None:
    await two.write("t", 1, 2)
    assert len((await two.later("POST", "/v0/topics/t/diff", {}))["records"]) == 2
    await two.ahead("POST", "/v0/topics/t/delete", {"before_seq": 2})
    await two.write("t", 3)
    answer = await two.later("POST", "/v0/topics/t/diff", {})
    assert [record["data"] for record in answer["records"]] == [2, 3]


async def test_reads_and_claims_find_the_copies_of_a_router_that_another_broker_created(
    two: _Lagging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StreamForwarder, "changed", lambda forwarder: None)  # only reads copy
    for dest, kind in (("d", "log"), ("q", "queue")):
        await two.ahead("PUT", f"/v0/topics/{dest}", {"type": kind})
    await two.later("GET", "/v0/topics")
    await two.ahead("PUT", "/v0/routers/to-log", {"source": "s", "dest": "d"})
    await two.write("s", 1)
    read = (await two.later("POST", "/v0/topics/d/diff", {}))["records"]
    assert [record["data"] for record in read] == [1]
    await two.ahead("PUT", "/v0/routers/to-queue", {"source": "s", "dest": "q"})
    await two.write("s", 2)
    claimed = (await two.later("POST", "/v0/topics/q/claim", {"node": "w"}))["claimed"]
    assert [job["data"] for job in claimed] == [2]


async def test_a_gap_is_not_made_up_while_the_store_is_away(
    two: _Lagging, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two.ahead("PUT", "/v0/topics/t", {})
    await two.later("GET", "/v0/topics/t")
    await two.write("t", 1)
    sharing = two.behind.log.sharing
    assert sharing is not None

    async def away() -> None:
        raise StoreUnreachable("the store is away")

    monkeypatch.setattr(sharing, "barrier", away)
    answer = await two.later("POST", "/v0/topics/t/diff", {"from_seq": 1})
    assert (answer["status"], answer["error"]["code"]) == (503, "not_ready")
    # What is known is still told.
    assert (await two.later("POST", "/v0/topics/t/diff", {}))["caught_up"]
    assert (await two.later("GET", "/v0/topics/t"))["status"] == 200


async def test_serializers_of_apicurio_find_what_another_broker_registered(two: _Lagging) -> None:
    two.context.mounted["apis"] = ApicurioApi()
    body = {"schema": '"string"'}
    id = (await two.ahead("POST", "/subjects/v/versions", body))["id"]
    found = await two.later("GET", "/apis/registry/v3/groups/default/artifacts/v/versions/1")
    assert (found["status"], found["globalId"]) == (200, id)


async def test_deletes_cover_what_another_broker_acknowledged(two: _Lagging) -> None:
    await two.write("t", 1, 2)
    await two.later("GET", "/v0/topics/t")
    await two.write("t", 3)
    assert (await two.later("POST", "/v0/topics/t/delete", {"match": "g"}))["deleted"] == 3
    await two.write("t", 4)
    refused = await two.later("DELETE", "/v0/topics/t?if_empty=true")
    assert (refused["status"], refused["error"]["detail"]["count"]) == (409, 1)
    await two.ahead("PUT", "/v0/routers/r", {"source": "t", "dest": "d"})
    assert (await two.later("DELETE", "/v0/topics/t"))["routers_removed"] == ["r"]


async def test_states_and_lists_are_current(two: _Lagging) -> None:
    await two.ahead("PUT", "/v0/topics/t", {})
    await two.later("GET", "/v0/topics/t")
    await two.ahead("PUT", "/v0/topics/t", {"ttl_ms": 60_000})
    assert (await two.later("GET", "/v0/topics/t"))["config"]["ttl_ms"] == 60_000
    await two.write("t", 1)
    assert (await two.later("GET", "/v0/topics/t"))["count"] == 1
    await two.ahead("PUT", "/v0/topics/u", {})
    assert [topic["topic"] for topic in (await two.later("GET", "/v0/topics"))["topics"]] == ["t", "u"]
    await two.ahead("PUT", "/v0/routers/r", {"source": "t", "dest": "u"})
    assert [router["router"] for router in (await two.later("GET", "/v0/routers"))["routers"]] == ["r"]
    await two.ahead("DELETE", "/v0/topics/u")
    assert (await two.later("GET", "/v0/topics/u"))["status"] == 404
    await two.write("t", 2)
    watch = await two.later("POST", "/v0/watch", {"topics": {"t": {"tail": True}}})
    assert watch["topics"]["t"]["from_seq"] == 2


async def test_a_write_knows_the_topic_that_another_broker_created(two: _Lagging) -> None:
    await two.ahead("PUT", "/v0/topics/q", {"type": "queue"})
    written = await two.later("POST", "/v0/topics/q", {"records": [{"data": 1, "delay_ms": 1}]})
    assert (written["status"], written["created"]) == (200, False)


async def test_a_socket_knows_the_topic_that_another_broker_created(two: _Lagging) -> None:
    await two.ahead("PUT", "/v0/topics/t", {})
    async with WebSocket(two.context) as socket:
        assert (await socket.ask(op="subscribe", topic="t"))["op"] == "subscribed"


async def test_the_text_door_knows_the_topic_that_another_broker_created(two: _Lagging) -> None:
    assert await two.said(0, "REGISTER t") == [b"OK"]
    assert await two.said(1, "PUT t a") == [b"OK"]
    assert await two.said(0, "GET t", "GET t") == [b"OK a", b"EMPTY"]
    await two.said(0, "REGISTER u")
    assert await two.said(1, "GET u") == [b"EMPTY"]
    await two.said(0, "PUT u b")
    (state,) = await two.said(1, "STATE u")
    assert json.loads(state)["sealed_segments"] == {"1": 1}
    assert await two.said(1, "GET none") == [b"ERR unknown topic none"]

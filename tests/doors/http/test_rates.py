"""Rates on the HTTP door: waits, 429, and event streams and sockets that get records at their pace."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.rates import THROTTLE_MS_MAX

from .conftest import Api, code
from .watching import EventStream, WebSocket

Open = Callable[..., Any]


async def _limit(api: Api, limits: dict[str, float | None], **entity: str) -> Any:
    status, body = await api.ask("PUT", "/v0/rates", {**entity, "limits": limits})
    assert status == 200, body
    return body["rate"]


async def test_rates_are_set_listed_and_removed(api: Api) -> None:
    assert await _limit(api, {"consumer_byte_rate": 5.0, "burst_s": 2.0}, group="g") == {
        "group": "g",
        "limits": {"burst_s": 2.0, "consumer_byte_rate": 5.0},
        "throttled_total": 0,
        "throttled_ms": 0,
    }
    await _limit(api, {"producer_record_rate": 1.0}, user="ann", client="")
    await _limit(api, {"burst_s": None}, group="g")
    rates = (await api.ask("GET", "/v0/rates"))[1]["rates"]
    assert [(row.get("user"), row.get("client"), row.get("group"), row["limits"]) for row in rates] == [
        ("ann", "", None, {"producer_record_rate": 1.0}),
        (None, None, "g", {"consumer_byte_rate": 5.0}),
    ]
    status, body = await api.ask("DELETE", "/v0/rates?user=ann&client=")
    assert (status, body["rate"]["limits"]) == (200, {})
    assert len((await api.ask("GET", "/v0/rates"))[1]["rates"]) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"limits": {"producer_byte_rate": 1}},
        {"group": "g", "user": "u", "limits": {"producer_byte_rate": 1}},
        {"group": "g", "limits": {"producer_byte_rate": 0}},
        {"group": "g", "limits": {"request_percentage": 1}},
        {"group": "g", "limits": {"cores": 1}},
        {"group": "g", "limits": {"burst_s": 1e9}},
    ],
)
async def test_a_rate_that_makes_no_sense_is_refused(api: Api, body: dict[str, object]) -> None:
    assert code(await api.ask("PUT", "/v0/rates", body)) == (400, "invalid_request")


async def test_rates_are_for_administrators(open_api: Open) -> None:
    async with open_api(api_keys="rw:rw") as api:
        for method in ("GET", "DELETE"):
            assert code(await api.ask(method, "/v0/rates?group=g", key="rw")) == (403, "forbidden")


@pytest.mark.alone("every broker counts for itself")
async def test_a_write_over_its_rate_waits_and_says_so(api: Api) -> None:
    await _limit(api, {"producer_record_rate": 20.0, "burst_s": 0.1}, user="ANONYMOUS")
    assert "throttle_wait_ms" not in (await api.write("t", 1, 2, 3, 4))["performance"]
    began = time.monotonic()
    answer = await api.write("t", 5)
    assert 50 <= answer["performance"]["throttle_wait_ms"] <= 200
    assert time.monotonic() - began >= 0.05


@pytest.mark.alone("every broker counts for itself")
async def test_what_would_wait_too_long_gets_429_and_has_no_effect(api: Api) -> None:
    await _limit(api, {"producer_byte_rate": 10.0, "burst_s": 1.0}, namespace="default")
    await api.write("t", "x" * 100)
    answer = await api.client.post("/v0/topics/t", json={"records": [{"data": 1}]})
    assert code((answer.status_code, answer.json())) == (429, "throttled")
    assert 5 < int(answer.headers["retry-after"]) <= THROTTLE_MS_MAX / 1000
    detail = answer.json()["error"]["detail"]
    assert detail["limit"] == "producer_rate"
    assert detail["max"] == 10
    assert (await api.state("t"))["head_seq"] == 1
    api.clock.advance(60_000)
    await api.write("t", 1)


@pytest.mark.alone("every broker counts for itself")
async def test_reads_wait_for_reads_before_them(api: Api) -> None:
    await api.write("t", *range(10))
    await _limit(api, {"consumer_record_rate": 1.0, "burst_s": 1.0}, user="ANONYMOUS")
    first = await api.diff("t")
    assert len(first["records"]) == 10
    assert "throttle_wait_ms" not in first["performance"]
    for path, body in (
        ("/v0/topics/t/diff", {}),
        ("/v0/topics/t/messages", None),
        ("/v0/topics/t/batches", None),
    ):
        method = "GET" if body is None else "POST"
        assert code(await api.ask(method, path, body)) == (429, "throttled")
    api.clock.advance(9_900)
    second = await api.diff("t", 9)
    assert second["performance"].get("throttle_wait_ms", 0) <= 200


@pytest.mark.alone("every broker counts for itself")
async def test_claims_are_limited_and_lease_nothing_while_they_wait(api: Api) -> None:
    await api.put("q", type="queue")
    await api.write("q", *range(10))
    await _limit(api, {"consumer_record_rate": 1.0, "burst_s": 1.0}, namespace="")
    status, claimed = await api.ask("POST", "/v0/topics/q/claim", {"node": "w", "max": 9})
    assert (status, claimed["count"]) == (200, 9)
    assert code(await api.ask("POST", "/v0/topics/q/claim", {"node": "w"})) == (429, "throttled")
    assert (await api.state("q"))["queue"]["in_flight"] == 9


@pytest.mark.alone("every broker counts for itself")
async def test_one_key_is_limited_and_another_is_not(open_api: Open) -> None:
    async with open_api(api_keys="slow,free") as api:
        status, _ = await api.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]}, key="slow")
        assert status == 201
        slow = api.broker.authentication.by_key(b"slow")
        assert slow is not None
        user = slow.name.removeprefix("User:")
        body = {"user": user, "limits": {"producer_record_rate": 0.1, "burst_s": 1.0}}
        assert (await api.ask("PUT", "/v0/rates", body, key="free"))[0] == 200
        write = {"records": [{"data": 1}, {"data": 2}]}
        assert (await api.ask("POST", "/v0/topics/t", write, key="slow"))[0] == 200
        assert code(await api.ask("POST", "/v0/topics/t", write, key="slow")) == (429, "throttled")
        for _ in range(3):
            assert (await api.ask("POST", "/v0/topics/t", write, key="free"))[0] == 200


async def _advance(api: Api, until: Callable[[], bool]) -> float:
    """Let real and manual time run together. Returns the seconds it took."""
    began = time.monotonic()
    while not until():
        await asyncio.sleep(0.01)
        api.clock.advance(10)
        assert time.monotonic() - began < 30
    return time.monotonic() - began


async def test_an_event_stream_gets_records_at_its_rate(api: Api) -> None:
    await api.write("t", *range(40))
    body = {"topics": {"t": {}}, "limit": 10}
    url = (await api.ask("POST", "/v0/watch", body))[1]["stream_url"]
    await _limit(api, {"consumer_record_rate": 50.0, "burst_s": 0.2}, user="ANONYMOUS")
    async with EventStream(api.context, url) as stream:
        seen: list[int] = []

        async def read() -> None:
            while len(seen) < 40:
                (event,) = await stream.events(1)
                if event.name == "record":
                    seen.extend(record["$seq"] for record in event.data["records"])

        reading = asyncio.ensure_future(read())
        took = await _advance(api, reading.done)
        assert seen == list(range(1, 41))
        assert (
            took >= 0.3
        )  # 40 records at 50 a second, less the burst and the page that is paid for afterwards


async def test_a_socket_gets_records_at_its_rate(api: Api) -> None:
    await api.write("t", *range(40))
    await _limit(api, {"consumer_record_rate": 50.0, "burst_s": 0.2}, namespace="default")
    async with WebSocket(api.context) as socket:
        seen: list[int] = []

        async def read() -> None:
            while len(seen) < 40:
                message = await socket.next()
                if message["op"] == "record":
                    seen.extend(record["$seq"] for record in message["records"])

        socket.send(json.dumps({"op": "subscribe", "topic": "t", "limit": 10}))
        reading = asyncio.ensure_future(read())
        took = await _advance(api, reading.done)
        assert seen == list(range(1, 41))
        assert took >= 0.3


async def test_a_socket_publishes_in_order_at_its_rate(api: Api) -> None:
    await api.put("t")
    await _limit(api, {"producer_record_rate": 50.0, "burst_s": 0.02}, user="ANONYMOUS")
    async with WebSocket(api.context) as socket:
        for number in range(8):
            command = {"op": "publish", "topic": "t", "records": [{"data": number}]}
            socket.send(json.dumps(command))
        acks = 0

        async def read() -> None:
            nonlocal acks
            while acks < 8:
                acks += (await socket.next())["op"] == "ack"

        reading = asyncio.ensure_future(read())
        assert await _advance(api, reading.done) >= 0.05
    assert [record["data"] for record in (await api.diff("t"))["records"]] == list(range(8))


@pytest.mark.alone("every broker counts for itself")
async def test_each_limit_has_metrics(api: Api) -> None:
    await _limit(api, {"producer_record_rate": 1.0, "burst_s": 1.0}, user="ANONYMOUS")
    await api.write("t", 1, 2, 3)
    text = (await api.client.get("/v0/metrics")).text
    labels = 'entity="user=ANONYMOUS",limit="producer_record_rate"'
    assert f"mainstem_rate_limit{{{labels}}} 1" in text
    assert f"mainstem_rate_throttled_total{{{labels}}} 1" in text
    assert f"mainstem_rate_throttled_seconds_total{{{labels}}} 2" in text

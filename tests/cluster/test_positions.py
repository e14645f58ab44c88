"""Read your writes over HTTP: a broker that gets the position of another's response waits until it has applied it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from mainstem.broker.broker import Broker
from mainstem.doors.http.transport.app import App
from mainstem.doors.http.transport.context import Context

_POSITION = "mainstem-position"


@pytest.fixture
async def two(two_brokers: list[Broker]) -> AsyncIterator[list[httpx.AsyncClient]]:
    doors = [httpx.ASGITransport(App(Context(broker))) for broker in two_brokers]
    async with (
        httpx.AsyncClient(transport=doors[0], base_url="http://one") as one,
        httpx.AsyncClient(transport=doors[1], base_url="http://two") as other,
    ):
        yield [one, other]


async def _write(client: httpx.AsyncClient, *values: object) -> str:
    answer = await client.post("/v0/topics/t", json={"records": [{"data": value} for value in values]})
    assert answer.status_code in (200, 201)
    return answer.headers[_POSITION]


async def test_a_position_makes_the_next_broker_wait_until_it_has_applied_it(
    two: list[httpx.AsyncClient],
) -> None:
    one, other = two
    for count in range(1, 20):
        position = await _write(one, count)
        answer = await other.post("/v0/topics/t/diff", json={}, headers={_POSITION: position})
        assert [record["data"] for record in answer.json()["records"]] == list(range(1, count + 1))
        assert int(answer.headers[_POSITION]) >= int(position)
        one, other = other, one


async def test_a_position_that_does_not_arrive_is_answered_with_a_retry(
    two: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainstem.doors.http.routes.positions.POSITION_WAIT_S", 0.05)
    position = int(await _write(two[0], 1))
    answer = await two[1].get("/v0/topics/t", headers={_POSITION: str(position + 1_000_000)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize("position", ["x", "-1", "1.5", "9" * 20, ""])
async def test_an_invalid_position_is_refused(two: list[httpx.AsyncClient], position: str) -> None:
    answer = await two[0].get("/v0/topics", headers={_POSITION: position})
    assert answer.status_code == 400

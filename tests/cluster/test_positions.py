"""Read your writes over HTTP: what one broker answered, every other one knows when it is told of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest

from mainstem import limits
from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.doors.http.app import App
from mainstem.doors.http.context import Context
from mainstem.ports.commitlog.places import SharedPlace

_POSITION = "mainstem-position"


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[httpx.AsyncClient]]:
    place = SharedPlace((tmp_path / "bucket").as_uri())
    async with AsyncExitStack() as stack:
        clients = []
        for name in ("one", "two"):
            broker = await Broker.open(BrokerOptions(tmp_path / name, place=place))
            stack.push_async_callback(broker.close)
            client = httpx.AsyncClient(
                transport=httpx.ASGITransport(App(Context(broker))), base_url=f"http://{name}"
            )
            clients.append(await stack.enter_async_context(client))
        yield clients


async def _write(client: httpx.AsyncClient, *values: object) -> str:
    answer = await client.post("/v0/topics/t", json={"records": [{"data": value} for value in values]})
    assert answer.status_code in (200, 201)
    return answer.headers[_POSITION]


async def test_a_position_makes_the_next_broker_wait_until_it_knows_as_much(
    two: list[httpx.AsyncClient],
) -> None:
    one, other = two
    for count in range(1, 20):
        position = await _write(one, count)
        answer = await other.post("/v0/topics/t/diff", json={}, headers={_POSITION: position})
        assert [record["data"] for record in answer.json()["records"]] == list(range(1, count + 1))
        assert int(answer.headers[_POSITION]) >= int(position)
        one, other = other, one


async def test_a_position_that_does_not_come_is_told_to_be_tried_again(
    two: list[httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POSITION_WAIT_S", 0.05)
    position = int(await _write(two[0], 1))
    answer = await two[1].get("/v0/topics/t", headers={_POSITION: str(position + 1_000_000)})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert answer.headers["retry-after"]


@pytest.mark.parametrize("position", ["x", "-1", "1.5", "9" * 20, ""])
async def test_what_is_no_position_is_refused(two: list[httpx.AsyncClient], position: str) -> None:
    answer = await two[0].get("/v0/topics", headers={_POSITION: position})
    assert answer.status_code == 400

"""Consumer groups over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Api, code


@pytest.fixture
async def topic(api: Api) -> str:
    await api.broker.create_topic("t", partitions=2)
    await api.broker.append_values("t", [b"1", b"2", b"3"], timestamps_ms=[10, 20, 30])
    await api.broker.commit_offset("g", "t", 1)
    return "t"


async def test_a_group_is_listed_and_shown_with_its_lag(api: Api, topic: str) -> None:
    status, body = await api.ask("GET", "/v0/groups")
    assert status == 200
    assert body["groups"] == [{"group": "g", "state": "Empty", "kind": "Classic", "protocol_type": ""}]
    assert body["performance"]["server_total_ms"] >= 0
    status, body = await api.ask("GET", "/v0/groups/g")
    assert (status, body["lag"], body["members"]) == (200, 2, [])
    assert body["offsets"] == [
        {"topic": "t", "partition": 0, "offset": 1, "start": 0, "end": 3, "lag": 2, "metadata": ""}
    ]


async def test_records_that_are_gone_are_no_lag(api: Api, topic: str) -> None:
    await api.broker.trim("t", 2)
    assert (await api.ask("GET", "/v0/groups/g"))[1]["lag"] == 1


async def test_a_group_nobody_knows(api: Api) -> None:
    for method in ("GET", "DELETE"):
        status, body = await api.ask(method, "/v0/groups/none%2Fsuch")
        assert (status, body["error"]["code"]) == (404, "group_not_found")
        assert body["error"]["detail"] == {"group": "none/such"}


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ({"to": "earliest"}, [0, 0]),
        ({"to": "latest"}, [3, 0]),
        ({"to": "offset", "offset": 2}, [2, 0]),
        ({"to": "offset", "offset": 2**70}, [3, 0]),
        ({"to": "time", "timestamp_ms": 15}, [1, 0]),
        ({"to": "time", "timestamp_ms": 31}, [3, 0]),
        ({"to": "latest", "partitions": [0]}, [3]),
    ],
)
async def test_a_reset_moves_and_a_rehearsal_does_not(
    api: Api, topic: str, body: dict[str, Any], after: list[int]
) -> None:
    status, planned = await api.ask("POST", "/v0/groups/g/reset", {"topic": topic, "dry_run": True, **body})
    assert (status, [move["after"] for move in planned["moved"]]) == (200, after)
    assert planned["moved"][0]["before"] == 1
    assert api.broker.committed("g", "t") == 1
    assert (await api.ask("POST", "/v0/groups/g/reset", {"topic": topic, **body}))[0] == 200
    assert [api.broker.committed("g", "t", number) for number in range(len(after))] == after


@pytest.mark.parametrize(
    "body",
    [
        {"topic": "t"},
        {"topic": "t", "to": "sideways"},
        {"topic": "t", "to": "offset"},
        {"topic": "t", "to": "time"},
        {"topic": "t", "to": "offset", "offset": -1},
        {"topic": "t", "to": "latest", "partitions": [-1]},
        {"to": "latest"},
    ],
)
async def test_a_reset_that_makes_no_sense_moves_nothing(api: Api, topic: str, body: dict[str, Any]) -> None:
    assert code(await api.ask("POST", "/v0/groups/g/reset", body)) == (400, "invalid_request")
    assert api.broker.committed("g", "t") == 1


async def test_a_reset_to_what_is_not_there(api: Api, topic: str) -> None:
    reset = "/v0/groups/g/reset"
    assert code(await api.ask("POST", reset, {"topic": "x", "to": "latest"})) == (404, "topic_not_found")
    assert code(await api.ask("POST", reset, {"topic": "t", "to": "latest", "partitions": [2]})) == (
        404,
        "topic_not_found",
    )


async def test_a_group_is_forgotten(api: Api, topic: str) -> None:
    assert (await api.ask("DELETE", "/v0/groups/g"))[0] == 200
    assert (await api.ask("GET", "/v0/groups"))[1]["groups"] == []


async def test_who_may_see_and_move_groups(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="all,reader:r,team:r+a:a.") as api:
        for name in ("a.x", "b.x"):
            await api.broker.create_topic(name)
            await api.broker.commit_offset(f"of-{name}", name, 0)
        reset = {"topic": "b.x", "to": "latest"}
        assert code(await api.ask("GET", "/v0/groups")) == (401, "unauthorized")
        assert len((await api.ask("GET", "/v0/groups", key="reader"))[1]["groups"]) == 2
        assert code(await api.ask("POST", "/v0/groups/of-b.x/reset", reset, key="reader")) == (
            403,
            "forbidden",
        )
        assert code(await api.ask("DELETE", "/v0/groups/of-b.x", key="reader")) == (403, "forbidden")
        listed = (await api.ask("GET", "/v0/groups", key="team"))[1]["groups"]
        assert [row["group"] for row in listed] == ["of-a.x"]
        assert code(await api.ask("GET", "/v0/groups/of-b.x", key="team")) == (404, "group_not_found")
        assert code(await api.ask("POST", "/v0/groups/of-b.x/reset", reset, key="team")) == (403, "forbidden")
        assert code(await api.ask("DELETE", "/v0/groups/of-b.x", key="team")) == (403, "forbidden")
        assert (await api.ask("DELETE", "/v0/groups/of-a.x", key="team"))[0] == 200

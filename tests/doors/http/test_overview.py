"""The server overview, its topics in any order, and the scopes of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Api, code


async def rows(api: Api, query: str = "") -> Any:
    status, body = await api.ask("GET", f"/v0/overview/topics{query}")
    assert status == 200, body
    return body


def names(body: Any) -> list[str]:
    return [row["topic"] for row in body["topics"]]


@pytest.mark.alone("every broker counts its own traffic")
async def test_the_overview_counts_what_exists(api: Api) -> None:
    await api.broker.create_topic("a", partitions=3)
    await api.write("b", "x", "y")
    status, body = await api.ask("GET", "/v0/overview")
    assert status == 200
    assert (body["topics"], body["partitions"], body["records"], body["appended"]) == (2, 4, 2, 2)
    assert body["tiers"]["wal_objects"] >= 1
    assert body["tiers"]["wal_bytes"] > 0
    assert body["tiers"]["memory_bytes"] > 0
    assert 0 < body["disk"]["free_bytes"] <= body["disk"]["total_bytes"]
    assert [(one["broker"], one["here"]) for one in body["brokers"]] == [(1, True)]
    assert body["refusal"] is None
    await api.ask("DELETE", "/v0/topics/b")
    _, after = await api.ask("GET", "/v0/overview")
    assert (after["topics"], after["records"], after["appended"]) == (1, 0, 0)


async def test_topics_are_found_by_any_part_of_their_name_and_sorted_as_asked(api: Api) -> None:
    await api.broker.create_topic("Orders.eu", partitions=3)
    await api.write("orders.us", *["x" * 100] * 3)
    await api.write("border", *["y"] * 5)
    assert names(await rows(api)) == ["Orders.eu", "border", "orders.us"]
    assert names(await rows(api, "?search=ORDERS")) == ["Orders.eu", "orders.us"]
    assert names(await rows(api, "?sort=bytes&descending=true")) == ["orders.us", "border", "Orders.eu"]
    assert names(await rows(api, "?sort=records&descending=1")) == ["border", "orders.us", "Orders.eu"]
    assert names(await rows(api, "?sort=partitions")) == ["border", "orders.us", "Orders.eu"]
    assert names(await rows(api, "?sort=written"))[0] == "Orders.eu"
    page = await rows(api, "?skip=1&limit=1")
    assert (names(page), page["total"]) == (["border"], 3)
    assert (await rows(api, "?search=nothing")) | {"performance": None} == {
        "topics": [],
        "total": 0,
        "performance": None,
    }
    assert names(await rows(api, "?sort=bytes&search=nothing")) == []


@pytest.mark.alone("makes an ephemeral topic")
async def test_a_row_sums_partitions_and_marks_queues(api: Api) -> None:
    await api.broker.create_topic("t", partitions=2)
    await api.broker.append_values("t", [b"ab", b"c"], partition=0)
    await api.broker.append_values("t", [b"d"], partition=1)
    await api.put("q", type="queue")
    await api.put("e", durability="ephemeral")
    await api.write("e", 1, 2)
    found = {row["topic"]: row for row in (await rows(api))["topics"]}
    assert (found["t"]["partitions"], found["t"]["records"], found["t"]["end"]) == (2, 3, 3)
    assert found["t"]["bytes"] == 4
    assert (found["q"]["type"], found["q"]["last_write_ms"]) == ("queue", None)
    assert (found["e"]["records"], found["e"]["durability"]) == (2, "ephemeral")
    assert names(await rows(api, "?type=queue")) == ["q"]


async def test_an_invalid_order_is_refused(api: Api) -> None:
    assert code(await api.ask("GET", "/v0/overview/topics?sort=colour")) == (400, "invalid_request")


async def test_a_key_sees_its_own_rights_and_only_topics_of_its_prefixes(
    open_api: Callable[..., Any],
) -> None:
    async with open_api(api_keys="boss,reader:r:a.,writer:w") as api:
        await api.broker.create_topic("a.1")
        await api.broker.create_topic("b.1")
        assert (await api.ask("GET", "/v0/key", key="reader"))[1] == {
            "authentication": True,
            "scopes": ["read"],
            "prefixes": ["a."],
        }
        assert (await api.ask("GET", "/v0/key", key="boss"))[1]["scopes"] == [
            "read",
            "write",
            "delete",
            "admin",
        ]
        assert code(await api.ask("GET", "/v0/key")) == (401, "unauthorized")
        _, body = await api.ask("GET", "/v0/overview/topics", key="reader")
        assert (names(body), body["total"]) == (["a.1"], 1)
        assert code(await api.ask("GET", "/v0/overview", key="writer")) == (403, "forbidden")


async def test_without_keys_everyone_may_do_all(api: Api) -> None:
    _, body = await api.ask("GET", "/v0/key")
    assert (body["authentication"], body["prefixes"]) == (False, [])
    assert body["scopes"] == ["read", "write", "delete", "admin"]

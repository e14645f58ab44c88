"""The storage map: which files hold what."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from .conftest import Api, code


@pytest.mark.alone("looks at the files of a log of its own")
async def test_a_file_names_the_ranges_in_it_while_it_grows_and_once_it_is_full(
    open_api: Callable[..., Any],
) -> None:
    async with open_api(segment_bytes=64 << 10) as api:
        for _ in range(40):
            await api.write("big", *["x" * 1000] * 4)
        await api.write("small", "y")
        status, body = await api.ask("GET", "/v0/storage")
        assert status == 200
        assert body["objects_total"] == len(body["objects"]) >= 2
        assert [one["sealed"] for one in body["objects"][:1]] == [False], "the newest comes first, and grows"
        ranges = [range for one in body["objects"] for range in one["ranges"]]
        assert {range["topic"] for range in ranges} == {"big", "small"}
        big = sorted((range["base"], range["end"]) for range in ranges if range["topic"] == "big")
        assert (big[0][0], big[-1][1]) == (0, 160)
        assert all(before[1] == after[0] for before, after in pairwise(big)), "no gap between files"
        assert all(range["live"] for range in ranges)


async def test_dead_ranges_are_marked(open_api: Callable[..., Any]) -> None:
    async with open_api(segment_bytes=64 << 10) as api:
        for _ in range(40):
            await api.write("t", *["x" * 1000] * 4)
        await api.broker.trim("t", 100)
        _, body = await api.ask("GET", "/v0/topics/t/storage")
        found = sorted((one["end"], one["live"]) for held in body["objects"] for one in held["ranges"])
        assert found
        assert all(live == (end > 100) for end, live in found)


async def test_maps_by_topic_and_by_key_leave_out_other_topics(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="boss,a:r:a.") as api:
        for topic in ("a.1", "b.1"):
            await api.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}]}, key="boss")
        for path, key in (("/v0/topics/a.1/storage", "boss"), ("/v0/storage", "a")):
            _, body = await api.ask("GET", path, key=key)
            assert {one["topic"] for held in body["objects"] for one in held["ranges"]} == {"a.1"}
        assert code(await api.ask("GET", "/v0/topics/b.1/storage", key="a")) == (403, "forbidden")
        assert code(await api.ask("GET", "/v0/topics/nope/storage", key="boss")) == (404, "topic_not_found")


async def test_a_server_without_records_has_an_empty_map(api: Api) -> None:
    _, body = await api.ask("GET", "/v0/storage")
    assert (body["parts"], body["parts_total"], body["garbage"]) == ([], 0, 0)
    assert all(held["ranges"] == [] for held in body["objects"])

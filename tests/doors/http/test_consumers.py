"""The consumer groups of a topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.groups.offsets import CommittedOffsets, OffsetToCommit

from .conftest import Api, code


async def commit(api: Api, group: str, *rows: tuple[str, int, int]) -> None:
    outcomes = await CommittedOffsets(api.broker.log).commit(group, [OffsetToCommit(*row) for row in rows])
    assert outcomes == [None] * len(rows)


@pytest.mark.alone("asks a broker that may not be the group's")
async def test_every_group_that_has_read_a_topic_shows_its_lag_by_partition(api: Api) -> None:
    await api.broker.create_topic("t", partitions=2)
    await api.broker.create_topic("other")
    await api.broker.append_values("t", [b"x"] * 10, partition=1)
    await commit(api, "g", ("t", 0, 0), ("t", 1, 4))
    await commit(api, "elsewhere", ("other", 0, 0))
    _, body = await api.ask("GET", "/v0/topics/t/consumers")
    assert body["consumers"] == [
        {
            "group": "g",
            "state": "Empty",
            "kind": "Classic",
            "lag": 6,
            "partitions": [
                {"partition": 0, "offset": 0, "lag": 0},
                {"partition": 1, "offset": 4, "lag": 6},
            ],
        }
    ]


async def test_truncated_records_are_not_lag(api: Api) -> None:
    await api.broker.create_topic("t")
    await api.broker.append_values("t", [b"x"] * 10)
    await commit(api, "g", ("t", 0, 2))
    await api.broker.trim("t", 7)
    _, body = await api.ask("GET", "/v0/topics/t/consumers")
    assert body["consumers"][0]["lag"] == 3


async def test_groups_of_topics_outside_the_keys_prefixes_are_left_out(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="boss,a:r:a.") as api:
        await api.broker.create_topic("a.1")
        await api.broker.create_topic("b.1")
        await commit(api, "both", ("a.1", 0, 0), ("b.1", 0, 0))
        await commit(api, "one", ("a.1", 0, 0))
        _, body = await api.ask("GET", "/v0/topics/a.1/consumers", key="a")
        assert [row["group"] for row in body["consumers"]] == ["one"]
        assert code(await api.ask("GET", "/v0/topics/nope/consumers", key="boss")) == (404, "topic_not_found")

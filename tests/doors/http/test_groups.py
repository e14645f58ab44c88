"""Consumer groups over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.broker.groups.streams_member import StreamsHeartbeat
from mainstem.broker.groups.topology_topics import Subtopology, Topology
from mainstem.broker.share.shares import AcquireLimits

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
    (row,) = body["groups"]
    state, members = row.pop("state"), row.pop("members")
    elsewhere = (
        [("Unknown", None)] if api.broker.cluster.shared else []
    )  # only the coordinator knows of members
    assert (state, members) in [("Empty", 0), *elsewhere]
    assert row == {
        "group": "g",
        "kind": "Classic",
        "protocol_type": "",
        "lag": 2,
        "topics": ["t"],
        "recent": [],
    }
    assert body["performance"]["server_total_ms"] >= 0
    status, body = await api.ask("GET", "/v0/groups/g")
    assert (status, body["lag"], body["members"]) == (200, 2, [])
    assert body["offsets"] == [
        {
            "topic": "t",
            "partition": 0,
            "offset": 1,
            "start": 0,
            "end": 3,
            "lag": 2,
            "metadata": "",
            "subscription": None,
        },
        {
            "topic": "t",
            "partition": 1,
            "offset": None,
            "start": 0,
            "end": 0,
            "lag": 0,
            "metadata": "",
            "subscription": None,
        },
    ]


async def test_partitions_without_a_commit_are_part_of_the_lag(api: Api, topic: str) -> None:
    await api.broker.append_values("t", [b"4", b"5", b"6", b"7"], partition=1)
    _, group = await api.ask("GET", "/v0/groups/g")
    assert (group["lag"], [row["lag"] for row in group["offsets"]]) == (6, [2, 4])
    _, shown = await api.ask("GET", "/v0/topics/t/consumers")
    (consumer,) = shown["consumers"]
    assert consumer["lag"] == 6
    assert consumer["partitions"][1] == {"partition": 1, "offset": None, "lag": 4}
    await api.broker.trim("t", 3, partition=1)
    assert (await api.ask("GET", "/v0/groups/g"))[1]["lag"] == 3


async def test_deleted_records_are_not_lag(api: Api, topic: str) -> None:
    await api.broker.trim("t", 2)
    assert (await api.ask("GET", "/v0/groups/g"))[1]["lag"] == 1


async def test_an_unknown_group(api: Api) -> None:
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
async def test_a_reset_moves_and_a_dry_run_does_not(
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
async def test_an_invalid_reset_moves_nothing(api: Api, topic: str, body: dict[str, Any]) -> None:
    assert code(await api.ask("POST", "/v0/groups/g/reset", body)) == (400, "invalid_request")
    assert api.broker.committed("g", "t") == 1


async def test_a_reset_to_a_missing_offset(api: Api, topic: str) -> None:
    reset = "/v0/groups/g/reset"
    assert code(await api.ask("POST", reset, {"topic": "x", "to": "latest"})) == (404, "topic_not_found")
    assert code(await api.ask("POST", reset, {"topic": "t", "to": "latest", "partitions": [2]})) == (
        404,
        "topic_not_found",
    )


async def test_a_group_is_forgotten(api: Api, topic: str) -> None:
    assert (await api.ask("DELETE", "/v0/groups/g"))[0] == 200
    assert (await api.ask("GET", "/v0/groups"))[1]["groups"] == []


@pytest.mark.alone("asks a broker that may not be the group's")
async def test_keys_for_reading_and_moving_groups(open_api: Callable[..., Any]) -> None:
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


@pytest.mark.alone("asks a broker that may not be the group's")
async def test_a_share_group_is_shown_moved_and_forgotten(api: Api, topic: str) -> None:
    stream = api.broker.streams.of("t", 0)
    await api.broker.shares.change_settings("s", [("share.auto.offset.reset", "earliest")], [])
    await api.broker.shares.acquire("s", "m", stream, AcquireLimits(3, 1 << 20))
    await api.broker.shares.settle("s", "m", stream, [(0, 1, 1), (2, 3, 1)])
    listed = (await api.ask("GET", "/v0/groups"))[1]["groups"]
    share = {"group": "s", "state": "Empty", "kind": "Share", "protocol_type": "share"}
    assert listed[1] == {**share, "members": 0, "lag": 1, "topics": ["t"], "recent": []}
    status, body = await api.ask("GET", "/v0/groups/s")
    assert (status, body["lag"], body["members"]) == (200, 1, [])
    consumers = (await api.ask("GET", "/v0/topics/t/consumers"))[1]["consumers"]
    assert [(row["group"], row["kind"], row["lag"]) for row in consumers if row["group"] == "s"] == [
        ("s", "Share", 1)
    ]
    assert body["offsets"] == [
        {
            "topic": "t",
            "partition": 0,
            "offset": 1,
            "start": 0,
            "end": 3,
            "lag": 1,
            "metadata": "",
            "subscription": None,
        }
    ]
    await api.broker.trim("t", 2)
    body = (await api.ask("GET", "/v0/groups/s"))[1]
    assert (body["lag"], body["offsets"][0]["offset"]) == (0, 2)  # nobody lags behind deleted records
    for dry_run in (True, False):
        reset = {"topic": "t", "to": "earliest", "partitions": [0], "dry_run": dry_run}
        status, body = await api.ask("POST", "/v0/groups/s/reset", reset)
        assert (status, body["moved"][0]["before"], body["moved"][0]["after"]) == (200, 1, 2)
    assert (await api.ask("GET", "/v0/groups/s"))[1]["lag"] == 1
    assert api.broker.committed("s", "t") is None
    assert (await api.ask("DELETE", "/v0/groups/s"))[0] == 200
    assert not api.broker.shares.has("s")


@pytest.mark.alone("has members at a broker that may not be the group's")
async def test_members_of_a_share_group_are_shown(api: Api, topic: str) -> None:
    groups = api.broker.groups
    beat = ConsumerHeartbeat(
        group="s", member_id="m", epoch=0, topics=frozenset({"t"}), client_id="c", client_host="/h"
    )
    await groups.share_heartbeat(beat)
    members = (await api.ask("GET", "/v0/groups/s"))[1]["members"]
    reads = [{"topic": "t", "partitions": [0, 1]}]
    assert members == [
        {"member_id": "m", "client_id": "c", "client_host": "/h", "instance_id": None, "assignment": reads}
    ]
    reset = {"topic": "t", "to": "earliest"}
    assert code(await api.ask("POST", "/v0/groups/s/reset", reset))[0] == 409


@pytest.mark.alone("asks a broker that may not be the group's")
async def test_a_key_sees_share_groups_of_its_own_topics_only(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="all,team:r+a:a.") as api:
        for name in ("a.x", "b.x"):
            await api.broker.create_topic(name)
            stream = api.broker.streams.of(name, 0)
            await api.broker.shares.move(f"of-{name}", [(stream, 0)])
        listed = (await api.ask("GET", "/v0/groups", key="team"))[1]["groups"]
        assert [row["group"] for row in listed] == ["of-a.x"]
        assert code(await api.ask("DELETE", "/v0/groups/of-b.x", key="team")) == (403, "forbidden")
        assert (await api.ask("DELETE", "/v0/groups/of-a.x", key="team"))[0] == 200


@pytest.mark.alone("asks a broker that may not be the group's")
async def test_the_lag_of_a_share_group_is_measured(api: Api, topic: str) -> None:
    await api.broker.shares.move("s", [(api.broker.streams.of("t", 0), 1)])
    samples = {metric.name: dict(metric.samples) for metric in api.broker.group_lags.metrics()}
    assert samples["mainstem_group_lag_records"] == {(("group", "g"),): 2.0, (("group", "s"),): 2.0}


@pytest.mark.alone("has members at a broker that may not be the group's")
async def test_members_of_a_streams_group_are_shown_with_the_partitions_of_their_tasks(
    api: Api, topic: str
) -> None:
    topology = Topology(0, (Subtopology("0", ("t",), (), (), (), ()),))
    beat = StreamsHeartbeat(
        group="s", member_id="m", epoch=0, rebalance_ms=1_000, topology=topology, process_id="p"
    )

    async def create(_: object) -> None:
        raise AssertionError("it has no internal topics")

    await api.broker.groups.streams_heartbeat(beat, create)
    found = (await api.ask("GET", "/v0/groups/s"))[1]
    assert (found["kind"], found["state"]) == ("Streams", "Stable")
    assert [member["assignment"] for member in found["members"]] == [[{"topic": "t", "partitions": [0, 1]}]]

"""The server's metrics, and that their number and cost stay bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstem import limits
from mainstem.broker.groups.consumer_member import ConsumerHeartbeat
from mainstem.ledger.cursors import CommitOffsets
from mainstem.metrics import Histogram

from .conftest import Api


async def published(api: Api) -> dict[str, Any]:
    answer = await api.client.get("/v0/metrics", headers={"accept": "application/json"})
    found: dict[str, Any] = answer.json()
    return found


async def commit(api: Api, group: str, topic: str, offset: int) -> None:
    body = {"offsets": [{"topic": topic, "offset": offset}]}
    assert (await api.ask("POST", f"/v0/groups/{group}/offsets", body))[0] == 200


def test_a_histogram_counts_each_value_below_every_bound_it_does_not_exceed() -> None:
    histogram = Histogram("h", "Help.", (1, 10))
    for value in (0, 1, 1.5, 10, 11, 1000):
        histogram.observe(value)
    buckets, total, count = histogram.published()
    assert buckets.samples == (((("le", "1"),), 2.0), ((("le", "10"),), 4.0), ((("le", "+Inf"),), 6.0))
    assert (total.suffix, total.samples) == ("_sum", (((), 1023.5),))
    assert (count.suffix, count.samples) == ("_count", (((), 6.0),))
    assert histogram.count == 6


@pytest.mark.alone("every broker measures its own commits")
async def test_commits_and_syncs_are_measured_once_a_group_not_once_a_record(api: Api) -> None:
    await api.put("orders", durability="fsync")
    before = await published(api)
    await api.write("orders", *range(500))
    after = await published(api)

    def grown(name: str) -> float:
        return float(after[name] - before[name])

    commits = grown("mainstem_commits_total")
    assert 1 <= commits <= 3
    assert grown("mainstem_commit_seconds_count") == commits
    assert grown("mainstem_commit_commands_count") == commits
    assert grown("mainstem_commit_bytes_sum") > 500
    assert grown("mainstem_sync_seconds_count") >= 1, "a record is acknowledged once it is synced"


@pytest.mark.alone("has members at a broker that may not be the group's")
async def test_lag_and_members_of_groups(api: Api) -> None:
    await api.write("orders", *range(10))
    await commit(api, "billing", "orders", 4)
    await commit(api, "done", "orders", 10)
    await api.broker.log.propose(
        CommitOffsets("mainstem:own", ((api.broker.topic("orders").streams[0], 1, ""),))
    )
    await api.broker.groups.consumer_heartbeat(
        ConsumerHeartbeat(
            group="live", member_id="m1", epoch=0, rebalance_ms=1000, topics=frozenset({"orders"})
        )
    )
    found = await published(api)
    assert {row["group"]: row["value"] for row in found["mainstem_group_members"]} == {
        "live": 1.0,
        "billing": 0.0,
        "done": 0.0,
    }
    assert {row["group"]: row["value"] for row in found["mainstem_group_lag_records"]} == {
        "live": 0.0,
        "billing": 6.0,
        "done": 0.0,
    }
    assert found["mainstem_groups"] == 2.0
    await api.ask("POST", "/v0/topics/orders/delete", {"before_seq": 9})
    lags = (await published(api))["mainstem_group_lag_records"]
    assert {"group": "billing", "value": 2.0} in lags, "what was deleted is not left to read"


async def test_the_number_of_group_labels_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainstem.broker.groups.lags.GROUPS_MEASURED_MAX", 3)
    monkeypatch.setattr("mainstem.broker.groups.lags.GROUP_CURSORS_MEASURED_MAX", 2)
    await api.write("orders", 1)
    for number in range(6):
        await commit(api, f"g{number}", "orders", 0)
    found = await published(api)
    assert found["mainstem_groups"] == 6.0
    assert len(found["mainstem_group_members"]) == 3
    assert len(found["mainstem_group_lag_records"]) == 2, "nor are more cursors looked at than a scrape may"


@pytest.mark.alone("the metrics are those of one broker")
async def test_a_key_for_some_topics_learns_no_names_of_others(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="boss,team:r:a.") as api:
        await api.broker.create_topic("b.secret")
        await api.ask(
            "POST",
            "/v0/groups/b.group/offsets",
            {"offsets": [{"topic": "b.secret", "offset": 0}]},
            key="boss",
        )
        texts = {
            key: (await api.client.get("/v0/metrics", headers={"authorization": f"Bearer {key}"})).text
            for key in ("boss", "team")
        }
    assert 'group="b.group"' in texts["boss"]
    assert "b.group" not in texts["team"]
    assert "mainstem_groups 1.0" in texts["team"]


async def test_the_lag_of_the_lake(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await published(api))["mainstem_lake_lag_records"] == 0.0
    monkeypatch.setattr(limits, "LAKE_TOPICS_MEASURED_MAX", 1)
    for topic, count in (("small", 1), ("large", 5), ("plain", 9)):
        await api.write(topic, *range(count))
    for topic in ("small", "large"):
        assert (await api.ask("PUT", f"/v0/topics/{topic}/table", {"enabled": True}))[0] == 200
    found = await published(api)
    assert found["mainstem_lake_lag_records"] == 6.0
    assert found["mainstem_lake_topic_lag_records"] == [{"topic": "large", "value": 5.0}]
    assert found["mainstem_table_lag_records"] == [{"topic": "large", "value": 5.0}]

"""Samples of the last hour, and alerts."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.api.history import LagSample
from mainstem.broker import history
from mainstem.broker.alerts import grows
from mainstem.broker.history import RequestCounters
from mainstem.doors.http.routes.history import take_sample

from .conftest import Api, code


async def got(api: Api, path: str) -> Any:
    status, body = await api.ask("GET", path)
    assert status == 200, body
    return body


@pytest.mark.alone("counts the samples of one broker")
async def test_samples_have_rates_of_the_server_and_of_each_topic_and_the_lag_of_each_group(api: Api) -> None:
    await api.write("orders", 1, 2)
    await api.broker.create_topic("idle")
    await api.broker.commit_offset("billing", "orders", 1)
    take_sample(api.context)
    await api.write("orders", *range(20))
    api.clock.advance(5_000)
    take_sample(api.context)
    api.clock.advance(5_000)
    take_sample(api.context)
    server = await got(api, "/v0/overview/history")
    assert server["every_ms"] == 5_000
    assert [sample["appended"] for sample in server["samples"]] == [4.0, 0.0]
    assert server["samples"][0]["http_write_ms"] > 0
    assert server["samples"][1]["http_write_ms"] is None
    first = server["samples"][0]["at_ms"]
    assert len((await got(api, f"/v0/overview/history?after={first}"))["samples"]) == 1
    topic = (await got(api, "/v0/topics/orders/history"))["samples"]
    assert [sample["records"] for sample in topic] == [4.0, 0.0]
    assert topic[0]["bytes"] > 0
    lags = (await got(api, "/v0/groups/billing/history"))["samples"]
    assert [sample["lag"] for sample in lags] == [1, 21, 21]
    listed = (await got(api, "/v0/groups"))["groups"]
    assert [(row["group"], row["recent"]) for row in listed] == [("billing", [1, 21, 21])]
    rows = {row["topic"]: row["recent"] for row in (await got(api, "/v0/overview/topics"))["topics"]}
    assert rows == {"orders": [4.0, 0.0], "idle": []}
    assert code(await api.ask("GET", "/v0/groups/nobody/history"))[0] == 404


@pytest.mark.alone("counts the samples of one broker")
async def test_the_history_is_bounded(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HISTORY_TOPICS_MAX", 2)
    take_sample(api.context)
    for number in range(4):
        await api.write(f"t{number}", 1)
        api.clock.advance(5_000)
        take_sample(api.context)
    sampled = [(await got(api, f"/v0/topics/t{number}/history"))["samples"] for number in range(4)]
    assert [any(sample["records"] for sample in samples) for samples in sampled] == [False, False, True, True]


async def test_appended_leaves_out_the_copies_of_routers(api: Api) -> None:
    for name, filter in (("all", None), ("some", "k")):
        body = {"source": "orders", "dest": f"orders.{name}", "filter": filter}
        await api.ask("PUT", f"/v0/routers/{name}", body)
    await api.ask("POST", "/v0/topics/orders", {"records": [{"data": 1, "tag": "k"}, {"data": 2}]})
    for name in ("all", "some"):
        await api.ask(
            "POST", f"/v0/topics/orders.{name}/diff", {"from_seq": 0}
        )  # after everything was copied
    overview = await got(api, "/v0/overview")
    assert (overview["records"], overview["appended"]) == (5, 2)


async def test_dead_letters_and_hanging_transactions_are_alerts(api: Api) -> None:
    assert (await got(api, "/v0/overview"))["alerts"] == []
    await api.ask(
        "PUT", "/v0/topics/jobs", {"type": "queue", "max_deliveries": 1, "dead_letter": "jobs.dead"}
    )
    await api.write("jobs", 1)
    await api.ask("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 1})
    await api.ask("POST", "/v0/topics/jobs/nack", {"node": "w", "seqs": [1]})
    await api.ask("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 1})
    alerts = (await got(api, "/v0/overview"))["alerts"]
    assert [(one["kind"], one["topic"], one["text"]) for one in alerts] == [
        ("dead_letters", "jobs", "1 dead letter")
    ]


def test_a_lag_that_grew_much_in_minutes_is_an_alert() -> None:
    def samples(*lags: int) -> list[LagSample]:
        return [LagSample(at * 60_000, lag) for at, lag in enumerate(lags)]

    assert grows(samples(0, 5_000))
    assert grows(samples(4_000, 4_500, 6_500))
    assert not grows(samples())
    assert not grows(samples(0, 999)), "too few"
    assert not grows(samples(5_000, 5_100, 5_200)), "it hardly grew"
    assert not grows(samples(9_000, 8_000, 7_000)), "it shrinks"
    assert not grows(samples(5_000)), "one sample shows no growth"


def test_the_percentile_is_the_bound_that_covers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = RequestCounters(kafka_write_buckets=((0.001, 90.0), (0.01, 100.0), (float("inf"), 100.0)))
    before = RequestCounters(kafka_write_buckets=((0.001, 40.0), (0.01, 40.0), (float("inf"), 40.0)))
    share = history.percentile_ms
    assert share(before.kafka_write_buckets, counted.kafka_write_buckets, 0.5) == 1.0
    assert share(before.kafka_write_buckets, counted.kafka_write_buckets, 0.99) == 10.0
    assert share(counted.kafka_write_buckets, counted.kafka_write_buckets, 0.99) is None

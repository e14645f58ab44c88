"""delay_ms and ttl_ms of single records (section 11 of the contract)."""

from __future__ import annotations

from typing import Any

import pytest

from mainstem.broker.broker import Broker, BrokerOptions
from mainstem.records.building import build_batch

from .conftest import Api, code
from .test_queues import claim, counts, queue, seqs, settle


async def _data(api: Api, topic: str, **query: Any) -> list[Any]:
    return [row["data"] for row in (await api.ask("POST", f"/v0/topics/{topic}/diff", query))[1]["records"]]


async def test_a_delayed_job_is_handed_out_when_it_is_due(api: Api) -> None:
    await queue(api)
    await api.records("q", {"data": 1, "delay_ms": 1_000}, {"data": 2}, {"data": 3, "delay_ms": 500})
    assert await counts(api) == (1, 0, 0)
    assert seqs(await claim(api, max=10)) == [2]
    api.clock.advance(600)
    first = await claim(api, max=10)
    assert seqs(first) == [3]
    assert first["claimed"][0]["deliveries"] == 1
    await settle(api, "ack", "w1", [2, 3])
    assert seqs(await claim(api, max=10)) == []
    api.clock.advance(600)
    assert seqs(await claim(api, max=10)) == [1]
    await settle(api, "nack", "w1", [1])
    assert (await claim(api))["claimed"][0]["deliveries"] == 2


async def test_a_record_is_gone_when_its_own_time_is_over(api: Api) -> None:
    await api.put("t", ttl_ms=60_000)
    await api.records("t", {"data": 1, "ttl_ms": 100}, {"data": 2}, {"data": 3, "ttl_ms": 300})
    api.clock.advance(100)
    assert await _data(api, "t") == [1, 2, 3]
    api.clock.advance(1)
    assert await _data(api, "t") == [2, 3]
    answer = (await api.ask("POST", "/v0/topics/t/diff", {}))[1]
    assert answer["tombstone"] is None
    assert answer["earliest_seq"] == 2
    api.clock.advance(200)
    assert (await api.state("t"))["count"] == 1
    assert await _data(api, "t") == [2]


async def test_a_job_whose_time_is_over_is_not_handed_out(api: Api) -> None:
    await queue(api)
    await api.records(
        "q", {"data": 1, "ttl_ms": 100}, {"data": 2, "ttl_ms": 100, "delay_ms": 50}, {"data": 3}
    )
    api.clock.advance(101)
    assert seqs(await claim(api, max=10)) == [3]
    assert await counts(api) == (0, 1, 0)


@pytest.mark.parametrize(
    ("config", "record"),
    [
        ({}, {"data": 1, "delay_ms": 1}),
        ({"durability": "ephemeral"}, {"data": 1, "ttl_ms": 1}),
        ({}, {"data": 1, "ttl_ms": 2**63}),
    ],
)
async def test_times_that_a_topic_cannot_give_are_refused(
    api: Api, config: dict[str, Any], record: dict[str, Any]
) -> None:
    await api.put("t", **config)
    body = {"records": [{"data": 0}, record]}
    assert code(await api.ask("POST", "/v0/topics/t", body)) == (400, "invalid_record")
    assert (await api.state("t"))["count"] == 0
    refused = await api.ask("POST", "/v0/topics/new", {"config": config, **body})
    assert code(refused) == (400, "invalid_record")
    assert code(await api.ask("GET", "/v0/topics/new")) == (404, "topic_not_found")


async def test_a_retry_keeps_the_times_of_the_first_attempt(api: Api) -> None:
    await queue(api)
    body = {"records": [{"data": 1, "delay_ms": 1_000}], "idempotency_key": "k"}
    first = (await api.ask("POST", "/v0/topics/q", body))[1]
    api.clock.advance(900)
    again = (await api.ask("POST", "/v0/topics/q", body))[1]
    assert (again["seqs"], again["deduped"]) == (first["seqs"], True)
    api.clock.advance(200)
    assert seqs(await claim(api, max=10)) == [1]


async def test_each_record_of_several_partitions_keeps_its_own_time(api: Api) -> None:
    await api.broker.create_topic("m", partitions=4)
    rows = [{"data": n, "tag": f"k{n}", "ttl_ms": 100 if n % 2 else 0} for n in range(20)]
    await api.records("m", *rows)
    api.clock.advance(101)
    assert sorted(await _data(api, "m")) == list(range(0, 20, 2))


async def test_a_batch_takes_times_for_all_its_records(api: Api) -> None:
    await queue(api)
    batch = bytes(build_batch([b"1", b"2"], timestamps_ms=api.clock.now_ms()))
    answer = await api.client.post(
        "/v0/topics/q/raw?delay_ms=1000",
        content=batch,
        headers={"content-type": "application/octet-stream"},
    )
    assert answer.status_code == 200, answer.text
    assert seqs(await claim(api, max=10)) == []
    api.clock.advance(1_000)
    assert seqs(await claim(api, max=10)) == [1, 2]


@pytest.mark.alone("opens a directory again")
async def test_times_survive_a_restart(api: Api) -> None:
    await queue(api)
    await api.records("q", {"data": 1, "delay_ms": 1_000}, {"data": 2, "ttl_ms": 500})
    await api.broker.close()
    broker = await Broker.open(BrokerOptions(api.broker.options.data_dir), clock=api.clock)
    try:
        assert [job.offset for job in (await broker.queues.claim("q", "w", limit=9)).jobs] == [1]
        api.clock.advance(1_001)
        assert broker.states.state(broker.streams.topic("q")).count == 2
        await broker.retention.expire_due()  # without a read of the queue
        assert broker.states.state(broker.streams.topic("q")).count == 1
        assert [job.offset for job in (await broker.queues.claim("q", "w", limit=9)).jobs] == [0]
    finally:
        await broker.close()

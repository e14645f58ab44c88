"""Offsets of topics, and of groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainstem.broker.transactions.service import ProducerStamp
from mainstem.records.building import build_batch
from mainstem.records.header import TRANSACTIONAL, seal

from .conftest import Api, code

TIME_MS = 1_700_000_000_000


async def offsets(api: Api, query: str = "") -> Any:
    status, body = await api.ask("GET", f"/v0/topics/t/offsets{query}")
    assert status == 200, body
    return body


async def test_each_partition_has_a_start_and_an_end_offset(api: Api) -> None:
    await api.broker.create_topic("t", partitions=2)
    await api.broker.append_values("t", [b"a", b"b", b"c"], partition=1)
    await api.broker.trim("t", 1, partition=1)
    body = await offsets(api)
    assert body["partitions"] == [
        {"partition": 0, "start": 0, "end": 0, "offset": 0},
        {"partition": 1, "start": 1, "end": 3, "offset": 3},
    ]
    assert body["id"] == api.broker.topic("t").topic_id.hex()
    assert (body["timestamp_type"], body["max_batch_bytes"]) == ("CreateTime", 1_048_588)
    one = await offsets(api, "?partition=1&at=earliest")
    assert one["partitions"] == [{"partition": 1, "start": 1, "end": 3, "offset": 1}]
    assert one["partitions_total"] == 2


async def test_an_offset_by_time_is_the_first_record_of_that_time_or_later(api: Api) -> None:
    await api.broker.create_topic("t")
    times = [TIME_MS, TIME_MS + 10, TIME_MS + 20]
    await api.broker.append_values("t", [b"a", b"b", b"c"], timestamps_ms=times)
    for time_ms, offset in (
        (0, 0),
        (TIME_MS + 1, 1),
        (TIME_MS + 10, 1),
        (TIME_MS + 20, 2),
        (TIME_MS + 21, None),
    ):
        body = await offsets(api, f"?at={time_ms}")
        assert body["partitions"][0]["offset"] == offset


async def test_the_end_is_the_last_stable_offset_unless_asked_otherwise(api: Api) -> None:
    await api.broker.create_topic("t")
    await api.broker.append_values("t", [b"a"])
    producer, epoch = await api.broker.transactions.initialise("tx", 60_000)
    stream = api.broker.topic("t").streams[0]
    await api.broker.transactions.add_partitions(ProducerStamp("tx", producer, epoch), [stream])
    batch = build_batch([b"b"], timestamps_ms=TIME_MS)
    seal(
        batch,
        attributes=TRANSACTIONAL,
        last_offset_delta=0,
        base_timestamp=TIME_MS,
        max_timestamp=TIME_MS,
        producer=producer,
        producer_epoch=epoch,
        base_sequence=0,
        count=1,
    )
    await api.broker.append("t", batch)
    assert (await offsets(api))["partitions"][0]["end"] == 1
    assert (await offsets(api, "?isolation=read_uncommitted"))["partitions"][0]["end"] == 2


async def test_a_group_commits_offsets(api: Api) -> None:
    await api.broker.create_topic("t", partitions=2)
    positions = [{"topic": "t", "partition": 0, "offset": 7}, {"topic": "t", "partition": 1, "offset": 9}]
    answer = await api.ask("POST", "/v0/groups/g/offsets", {"offsets": positions})
    assert answer == (200, {"group": "g", "committed": 2})
    assert [api.broker.committed("g", "t", partition) for partition in (0, 1)] == [7, 9]


async def test_invalid_offsets_are_refused(api: Api) -> None:
    await api.broker.create_topic("t")
    for query in ("?at=never", "?at=-1", "?at=99999999999999999999", "?isolation=none"):
        assert code(await api.ask("GET", f"/v0/topics/t/offsets{query}")) == (400, "invalid_request")
    assert code(await api.ask("GET", "/v0/topics/t/offsets?partition=1")) == (404, "topic_not_found")
    assert code(await api.ask("GET", "/v0/topics/none/offsets")) == (404, "topic_not_found")
    for position in ({"topic": "none", "offset": 1}, {"topic": "t", "partition": 5, "offset": 1}):
        answer = await api.ask("POST", "/v0/groups/g/offsets", {"offsets": [position]})
        assert code(answer) == (404, "topic_not_found")
    wrong = {"offsets": [{"topic": "t", "offset": -1}]}
    assert code(await api.ask("POST", "/v0/groups/g/offsets", wrong)) == (400, "invalid_request")
    long = await api.ask("POST", f"/v0/groups/{'g' * 300}/offsets", {"offsets": []})
    assert code(long) == (400, "invalid_request")


async def test_keys_see_only_the_topics_they_may(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="k:read:my-,all") as api:
        await api.broker.create_topic("t")
        denied = await api.ask("GET", "/v0/topics/t/offsets", key="k")
        assert denied[0] == 403
        body = {"offsets": [{"topic": "t", "offset": 1}]}
        assert (await api.ask("POST", "/v0/groups/g/offsets", body, key="k"))[0] == 403
        assert (await api.ask("POST", "/v0/groups/g/offsets", body, key="all"))[0] == 200

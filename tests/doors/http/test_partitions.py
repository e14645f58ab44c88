"""Topics with several partitions: writes go by key, everything else covers all partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainstem.records.building import build_batch
from mainstem.records.partitioner import partition_of

from .conftest import Api
from .watching import EventStream, event_id

KEYS = [f"key-{number}" for number in range(12)]


async def keyed(api: Api, **more: Any) -> Any:
    """Twelve keys in four partitions."""
    await api.broker.create_topic("t", partitions=4)
    records = [{"data": number, "tag": key} for number, key in enumerate(KEYS)]
    status, answer = await api.ask("POST", "/v0/topics/t", {"records": records, **more})
    assert status == 200, answer
    return answer


async def read_all(api: Api, **body: Any) -> Any:
    status, answer = await api.ask("POST", "/v0/topics/t/diff", {"include_tags": True, **body})
    assert status == 200, answer
    return answer


async def test_a_write_goes_to_the_partition_of_its_tag(api: Api) -> None:
    answer = await keyed(api)
    expected = [partition_of(key.encode(), 4) for key in KEYS]
    assert len(set(expected)) == 4
    assert answer["partitions"] == expected
    assert answer["seqs"] == [expected[: row + 1].count(expected[row]) for row in range(12)]
    for partition in range(4):
        _, page = await api.ask("POST", f"/v0/topics/t/diff?partition={partition}", {"include_tags": True})
        assert [r["$tag"] for r in page["records"]] == [
            key for key, p in zip(KEYS, expected, strict=True) if p == partition
        ]


@pytest.mark.alone("every broker takes the partitions in turn")
async def test_a_write_without_tags_stays_in_one_partition_and_the_next_goes_to_another(api: Api) -> None:
    await api.broker.create_topic("t", partitions=4)
    used = []
    for _ in range(4):
        answer = await api.write("t", *range(5))
        assert answer["last_seq"] - answer["first_seq"] == 4
        used.append(answer["partition"])
    assert sorted(used) == [0, 1, 2, 3]


async def test_a_named_partition_wins(api: Api) -> None:
    await api.broker.create_topic("t", partitions=4)
    records = [{"data": 1, "tag": key} for key in KEYS]
    _, answer = await api.ask("POST", "/v0/topics/t?partition=2", {"records": records})
    assert (answer["partition"], answer["seqs"]) == (2, list(range(1, 13)))


async def test_a_retry_of_a_write_over_several_partitions_appends_nothing(api: Api) -> None:
    first = await keyed(api, idempotency_key="once")
    records = [{"data": number, "tag": key} for number, key in enumerate(KEYS)]
    _, again = await api.ask("POST", "/v0/topics/t", {"records": records, "idempotency_key": "once"})
    assert again["deduped"]
    assert again["seqs"] == first["seqs"]
    assert len((await read_all(api))["records"]) == 12
    for _ in range(5):  # without tags, the key of the write chooses the partition
        await api.write("t", "x", idempotency_key="twice")
    assert len((await read_all(api))["records"]) == 13


async def test_a_diff_covers_all_partitions_and_goes_on_from_a_map(api: Api) -> None:
    await keyed(api)
    seen: list[tuple[int, int]] = []
    answer = await read_all(api, limit=5)
    while answer["records"]:
        assert len(answer["records"]) <= 5
        seen += [(r["$partition"], r["$seq"]) for r in answer["records"]]
        answer = await read_all(api, limit=5, **{"from": answer["next"]})
    assert len(seen) == len(set(seen)) == 12
    assert all(
        [s for p, s in seen if p == partition] == sorted(s for p, s in seen if p == partition)
        for partition in range(4)
    )
    assert answer["caught_up"]
    assert answer["lag"] == 0
    assert sum(answer["head"].values()) == 12


async def test_a_diff_waits_for_any_partition(api: Api) -> None:
    after = await keyed(api)
    positions = (await read_all(api))["next"]
    waiting = asyncio.create_task(read_all(api, wait_ms=20_000, **{"from": positions}))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await api.ask("POST", "/v0/topics/t?partition=3", {"records": [{"data": "new"}]})
    answer = await asyncio.wait_for(waiting, 5)
    assert [(r["data"], r["$partition"]) for r in answer["records"]] == [("new", 3)]
    assert after["count"] == 12


async def test_a_diff_of_some_partitions(api: Api) -> None:
    await keyed(api)
    answer = await read_all(api, partitions=[1, 3], **{"from": {"1": 0}})
    assert {r["$partition"] for r in answer["records"]} == {1, 3}
    assert answer["next"].keys() == {"1", "3"}


async def test_positions_of_one_partition_are_refused_for_several(api: Api) -> None:
    await keyed(api)
    for body in ({"from_seq": 3}, {"from": {"9": 1}}, {"from": {"x": 1}}, {"partitions": []}):
        status, answer = await api.ask("POST", "/v0/topics/t/diff", body)
        assert (status, answer["error"]["code"]) == (400, "invalid_request"), body
    status, _ = await api.ask("POST", "/v0/topics/t/delete", {"before_seq": 3})
    assert status == 400
    status, _ = await api.ask("POST", "/v0/watch", {"topics": {"t": {"from_seq": 3}}})
    assert status == 400


async def test_a_gap_names_its_partition(api: Api) -> None:
    await api.broker.create_topic("t", partitions=2)
    await api.ask("PUT", "/v0/topics/t", {"cap_records": 2})
    for number in range(5):
        await api.ask("POST", "/v0/topics/t?partition=1", {"records": [{"data": number}]})
    answer = await read_all(api)
    (gap,) = answer["tombstones"]
    assert (gap["$partition"], gap["gap_from"], gap["gap_to"]) == (1, 1, 3)
    assert [r["data"] for r in answer["records"]] == [3, 4]


async def test_state_and_list_count_all_partitions(api: Api) -> None:
    await keyed(api)
    _, state = await api.ask("GET", "/v0/topics/t")
    assert state["count"] == 12
    assert [one["partition"] for one in state["partitions"]] == [0, 1, 2, 3]
    assert sum(one["count"] for one in state["partitions"]) == 12
    _, listed = await api.ask("GET", "/v0/topics")
    assert [row["count"] for row in listed["topics"]] == [12]
    _, one = await api.ask("GET", "/v0/topics/t?partition=0")
    assert one["count"] == state["partitions"][0]["count"]
    assert "partitions" not in one


async def test_delete_by_tag_covers_all_partitions(api: Api) -> None:
    await keyed(api)
    _, answer = await api.ask("POST", "/v0/topics/t/delete", {"match": "key-*"})
    assert (answer["deleted"], answer["count"]) == (12, 0)


async def test_headers_are_shown_if_asked_for(api: Api) -> None:
    await api.put("t")
    batch = bytes(
        build_batch([b'"v"'], headers=[[("source", b"web"), ("none", None), ("node", b"n")]], timestamps_ms=1)
    )
    await api.client.post(
        "/v0/topics/t/raw", content=batch, headers={"content-type": "application/octet-stream"}
    )
    (record,) = (await read_all(api, include_headers=True))["records"]
    assert record["$headers"] == [["source", "d2Vi"], ["none", None]]
    assert record["$node"] == "n"
    (record,) = (await read_all(api))["records"]
    assert "$headers" not in record


async def test_a_batch_is_split_by_key(api: Api) -> None:
    await api.broker.create_topic("t", partitions=4)
    values = [str(number).encode() for number in range(12)]
    headers = [[("n", value)] for value in values]
    keys = [key.encode() for key in KEYS]
    batch = bytes(build_batch(values, keys=keys, headers=headers, timestamps_ms=list(range(100, 112))))
    answer = await api.client.post(
        "/v0/topics/t/raw", content=batch, headers={"content-type": "application/octet-stream"}
    )
    assert answer.json()["partitions"] == [partition_of(key, 4) for key in keys]
    page = await read_all(api)
    assert {(r["$tag"], r["$ts"]) for r in page["records"]} == {(k, 100 + n) for n, k in enumerate(KEYS)}


async def test_a_watch_covers_all_partitions_and_resumes_in_each(api: Api) -> None:
    await keyed(api)
    _, session = await api.ask("POST", "/v0/watch", {"topics": {"t": {}}, "include_tags": True})
    assert session["topics"]["t"]["partitions"].keys() == {"0", "1", "2", "3"}
    async with EventStream(api.context, session["stream_url"]) as events:
        seen: list[Any] = []
        caught_up = 0
        while caught_up < 4:
            event = (await events.events(1))[0]
            caught_up += event.name == "caught-up"
            if event.name == "record":
                seen += [(r["$partition"], r["$tag"]) for r in event.data["records"]]
                last = event
    assert sorted(seen) == sorted((partition_of(key.encode(), 4), key) for key in KEYS)
    assert last.cursors is not None
    assert isinstance(last.cursors["t"], dict)
    await api.ask("POST", "/v0/topics/t?partition=2", {"records": [{"data": "later"}]})
    resume: Any = last.cursors
    async with EventStream(api.context, session["stream_url"], last_event_id=event_id(resume)) as events:
        while (event := (await events.events(1))[0]).name != "record" or event.data["records"][0][
            "data"
        ] != "later":
            pass
        assert event.data["$partition"] == 2


async def test_a_watch_at_the_tail_sees_new_records_of_every_partition(api: Api) -> None:
    await keyed(api)
    _, session = await api.ask("POST", "/v0/watch", {"topics": {"t": {"tail": True}}})
    async with EventStream(api.context, session["stream_url"]) as events:
        for partition in range(4):
            await api.ask("POST", f"/v0/topics/t?partition={partition}", {"records": [{"data": "new"}]})
        seen: set[int] = set()
        while len(seen) < 4:
            event = (await events.events(1))[0]
            if event.name == "record":
                seen |= {r["$partition"] for r in event.data["records"]}

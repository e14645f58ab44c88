"""Diffs (section 4 of the contract)."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from mainstem.ledger.streams import MarkLost
from tests.support.waiting import settle

from .conftest import Api, code

BOTH = pytest.mark.parametrize("durability", ["disk", "ephemeral"])


async def test_an_empty_body_reads_from_the_start(api: Api) -> None:
    await api.write("t", "a", "b")
    status, body = await api.ask("POST", "/v0/topics/t/diff")
    assert status == 200
    assert list(body) == [
        "topic",
        "records",
        "next_from_seq",
        "head_seq",
        "earliest_seq",
        "caught_up",
        "tombstone",
        "lag",
        "performance",
    ]
    performance = body.pop("performance")
    assert performance["records_scanned"] == 2
    assert body == {
        "topic": "t",
        "records": [
            {"$seq": 1, "$ts": api.clock.now_ms(), "data": "a"},
            {"$seq": 2, "$ts": api.clock.now_ms(), "data": "b"},
        ],
        "next_from_seq": 2,
        "head_seq": 2,
        "earliest_seq": 1,
        "caught_up": True,
        "tombstone": None,
        "lag": 0,
    }


async def test_a_diff_never_creates_a_topic(api: Api) -> None:
    assert code(await api.ask("POST", "/v0/topics/t/diff", {})) == (404, "topic_not_found")
    assert (await api.ask("GET", "/v0/topics"))[1]["topics"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"from_seq": -1},
        {"from_seq": "0"},
        {"limit": "a"},
        {"node": 5},
        {"include_tags": 1},
        {"wait_ms": -1},
        [],
    ],
)
async def test_wrong_types_are_invalid(api: Api, wrong: object) -> None:
    await api.put("t")
    assert code(await api.ask("POST", "/v0/topics/t/diff", wrong)) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("limit", "read"), [(0, 256), (1, 1), (255, 255), (1000, 1000), (1001, 1000), (2**70, 1000)]
)
async def test_limits_are_clamped(api: Api, limit: int, read: int) -> None:
    await api.write("t", *range(1500))
    body = await api.diff("t", limit=limit)
    assert [record["data"] for record in body["records"]] == list(range(read))
    assert (body["next_from_seq"], body["caught_up"], body["lag"]) == (read, False, 1500 - read)


@BOTH
@pytest.mark.parametrize("batch", [1, 7, 100])
async def test_pages_follow_each_other_without_gap_or_overlap(api: Api, batch: int, durability: str) -> None:
    await api.put("t", durability=durability)
    for start in range(0, 300, batch):
        await api.write("t", *range(start, min(start + batch, 300)))
    for limit in (1, 13, 64, 1000):
        seen: list[int] = []
        at = 0
        while True:
            body = await api.diff("t", at, limit=limit)
            seen += [record["data"] for record in body["records"]]
            assert [record["$seq"] for record in body["records"]] == list(
                range(at + 1, body["next_from_seq"] + 1)
            )
            at = body["next_from_seq"]
            if body["caught_up"]:
                break
            if limit == 1 and at > 20:
                break
        assert seen == list(range(len(seen)))


async def test_tags_only_on_request_and_meta_unless_refused(api: Api) -> None:
    await api.records("t", {"data": 1, "tag": 'q"\\\n', "meta": {"m": 1}, "node": "né"}, {"data": None})
    assert (await api.diff("t"))["records"][0] == {
        "$seq": 1,
        "$ts": api.clock.now_ms(),
        "$node": "né",
        "data": 1,
        "meta": {"m": 1},
    }
    both = (await api.diff("t", include_tags=True, include_meta=False))["records"]
    assert both == [
        {"$seq": 1, "$ts": api.clock.now_ms(), "$node": "né", "$tag": 'q"\\\n', "data": 1},
        {"$seq": 2, "$ts": api.clock.now_ms(), "data": None},
    ]


@pytest.mark.parametrize("count", [3, 40])
async def test_records_of_own_nodes_are_skipped_and_the_cursor_moves(api: Api, count: int) -> None:
    await api.records(
        "t", *[{"data": n, "node": "abc"[n % 3]} if n % 4 else {"data": n} for n in range(count * 3)]
    )

    def left(*nodes: str) -> list[int]:
        return [n for n in range(count * 3) if n % 4 == 0 or "abc"[n % 3] not in nodes]

    body = await api.diff("t", node="a")
    assert [record["data"] for record in body["records"]] == left("a")
    assert (body["next_from_seq"], body["caught_up"]) == (count * 3, True)
    body = await api.diff("t", node=["a", "b"])
    assert [record["data"] for record in body["records"]] == left("a", "b")
    assert (await api.diff("t", node="A"))["records"] != body["records"]
    body = await api.diff("t", node="a", limit=2)
    assert [record["data"] for record in body["records"]] == left("a")[:2]
    assert body["next_from_seq"] == left("a")[1] + 1
    await api.put("t", dedupe_node=False)
    assert len((await api.diff("t", node=["a", "b", "c"]))["records"]) == count * 3


@pytest.mark.parametrize(
    "asked", [{"limit": 1}, {"max_batch_bytes": 9}, {"node": "a"}, {"node": "a", "limit": 1}]
)
async def test_records_written_one_by_one_give_the_pages_of_one_batch(
    api: Api, asked: dict[str, Any]
) -> None:
    records = [
        {"data": "x" * (n % 7), **({"node": "ab"[n % 2]} if n % 3 else {}), **({"meta": n} if n % 5 else {})}
        for n in range(30)
    ]
    await api.put("many", ttl_ms=60_000)
    await api.put("single", ttl_ms=60_000)
    await api.records("many", *records)
    for record in records:
        await api.records("single", record)
    at = 0
    while at < len(records):
        pages = [await api.diff(topic, at, **asked) for topic in ("many", "single")]
        for page in pages:
            del page["topic"], page["performance"]["server_total_ms"]
        assert pages[0] == pages[1]
        at = pages[0]["next_from_seq"]


async def test_only_own_records_leave_an_empty_page_at_the_head(api: Api) -> None:
    await api.write("t", 1, 2, 3, node="me")
    body = await api.diff("t", node="me", wait_ms=1)
    assert (body["records"], body["next_from_seq"], body["caught_up"], body["lag"]) == ([], 3, True, 0)


async def test_a_page_stops_before_the_record_that_exceeds_its_byte_budget(api: Api) -> None:
    await api.write("t", "a" * 98, "b" * 98, "c" * 98)
    assert [len(r["data"]) for r in (await api.diff("t", max_batch_bytes=200))["records"]] == [98, 98]
    body = await api.diff("t", max_batch_bytes=199)
    assert (len(body["records"]), body["next_from_seq"], body["lag"]) == (1, 1, 2)
    assert len((await api.diff("t", max_batch_bytes=1))["records"]) == 1
    assert len((await api.diff("t", max_batch_bytes=0))["records"]) == 3
    await api.records("m", {"data": 1, "meta": {"a": "x" * 50}}, {"data": 2})
    assert len((await api.diff("m", max_batch_bytes=50))["records"]) == 1


async def test_the_budget_defaults_to_a_mebibyte_and_ends_at_eight(api: Api) -> None:
    for _ in range(10):
        await api.write("t", "x" * ((1 << 20) - 2))
    assert len((await api.diff("t"))["records"]) == 1
    assert len((await api.diff("t", max_batch_bytes=2**62))["records"]) == 8


async def test_filtered_records_before_a_record_over_budget_are_examined(api: Api) -> None:
    await api.records("t", {"data": "a" * 98}, {"data": 1, "node": "n"}, {"data": "b" * 98})
    body = await api.diff("t", node="n", max_batch_bytes=150)
    assert (len(body["records"]), body["next_from_seq"]) == (1, 2)


@BOTH
async def test_evicted_records_leave_a_tombstone(api: Api, durability: str) -> None:
    await api.put("t", cap_records=3, durability=durability)
    await api.write("t", *range(10))
    body = await api.diff("t", 2)
    assert body["tombstone"] == {
        "gap_from": 3,
        "gap_to": 7,
        "reason": "cap",
        "missed_estimate": 5,
        "earliest_seq": 8,
        "head_seq": 10,
    }
    assert [record["$seq"] for record in body["records"]] == [8, 9, 10]
    assert (await api.diff("t", 7))["tombstone"] is None
    assert (await api.diff("t", 9))["records"][0]["$seq"] == 10


@BOTH
async def test_expired_records_leave_a_tombstone_to_the_millisecond(api: Api, durability: str) -> None:
    await api.put("t", ttl_ms=1000, durability=durability)
    await api.write("t", 1, 2)
    api.clock.advance(500)
    await api.write("t", 3)
    api.clock.advance(500)
    body = await api.diff("t")
    assert (len(body["records"]), body["tombstone"]) == (3, None)
    api.clock.advance(1)
    body = await api.diff("t")
    assert [record["data"] for record in body["records"]] == [3]
    assert (body["tombstone"]["reason"], body["tombstone"]["gap_to"], body["earliest_seq"]) == ("ttl", 2, 3)
    assert (await api.diff("t", 2))["tombstone"] is None
    api.clock.advance(500)
    body = await api.diff("t")
    assert (body["records"], body["earliest_seq"], body["next_from_seq"], body["caught_up"]) == (
        [],
        4,
        3,
        True,
    )


async def test_caps_and_ttl_together_are_mixed(api: Api) -> None:
    await api.put("t", cap_records=5, ttl_ms=100)
    await api.write("t", *range(6))
    api.clock.advance(101)
    await api.write("t", 7)
    assert (await api.diff("t", 0))["tombstone"]["reason"] == "mixed"
    # The cap evicted only the first; from then on the ttl did.
    assert (await api.diff("t", 2))["tombstone"]["reason"] == "ttl"


async def test_an_expired_record_among_live_ones_is_skipped(api: Api) -> None:
    await api.put("t", ttl_ms=1000)
    now = api.clock.now_ms()
    await api.broker.append_values("t", [b"1", b"2", b"3"], timestamps_ms=[now, now - 5000, now])
    body = await api.diff("t")
    assert [record["data"] for record in body["records"]] == [1, 3]
    assert (body["next_from_seq"], body["tombstone"]) == (3, None)


async def test_a_cursor_past_the_head_means_the_topic_was_recreated(api: Api) -> None:
    await api.write("t", *range(9))
    await api.ask("DELETE", "/v0/topics/t")
    await api.write("t", "new")
    body = await api.diff("t", 9)
    assert body["tombstone"] == {
        "gap_from": 1,
        "gap_to": 1,
        "reason": "recreated",
        "missed_estimate": 1,
        "earliest_seq": 1,
        "head_seq": 1,
    }
    assert [record["data"] for record in body["records"]] == ["new"]
    assert (await api.diff("t", 2**63))["tombstone"]["reason"] == "recreated"


async def test_lost_records_show_once_reached(api: Api) -> None:
    for batch in (range(3), range(3, 5), range(5, 8), range(8, 10)):
        await api.write("t", *batch)
    stream = api.broker.streams.of("t", 0)
    await api.broker.log.propose(MarkLost(stream, 3, 5))
    body = await api.diff("t")
    assert ([r["$seq"] for r in body["records"]], body["next_from_seq"], body["tombstone"]) == (
        [1, 2, 3],
        3,
        None,
    )
    body = await api.diff("t", 3, limit=5)
    assert (body["tombstone"]["reason"], body["tombstone"]["gap_from"], body["tombstone"]["gap_to"]) == (
        "lost",
        4,
        5,
    )
    assert [record["$seq"] for record in body["records"]] == [6, 7, 8, 9, 10]
    body = await api.diff("t", 4)
    assert (body["tombstone"]["gap_from"], body["tombstone"]["gap_to"]) == (5, 5)
    await api.broker.log.propose(MarkLost(stream, 8, 10))
    body = await api.diff("t", 8)
    assert (body["records"], body["next_from_seq"], body["caught_up"]) == ([], 10, True)
    assert body["tombstone"]["gap_to"] == 10


async def test_a_router_gap_says_source_trim(api: Api) -> None:
    await api.write("t", 1)
    await api.write("t", 2)
    await api.broker.log.propose(MarkLost(api.broker.streams.of("t", 0), 0, 1, "source_trim"))
    assert (await api.diff("t"))["tombstone"]["reason"] == "source_trim"


async def test_a_deleted_gap_is_silent(api: Api) -> None:
    await api.write("t", *range(10))
    await api.ask("POST", "/v0/topics/t/delete", {"before_seq": 6})
    body = await api.diff("t", 1)
    assert (body["tombstone"], body["earliest_seq"]) == (None, 6)
    assert [record["$seq"] for record in body["records"]] == [6, 7, 8, 9, 10]


async def test_deleted_records_above_evicted_ones(api: Api) -> None:
    await api.put("t", cap_records=8)
    await api.write("t", *range(10))
    await api.ask("POST", "/v0/topics/t/delete", {"before_seq": 6})
    body = await api.diff("t", 0)
    assert (body["tombstone"]["gap_to"], body["tombstone"]["earliest_seq"]) == (2, 6)
    assert (await api.diff("t", 2))["tombstone"] is None
    assert body["records"][0]["$seq"] == 6


@BOTH
async def test_a_long_poll_is_woken_by_an_append(api: Api, durability: str) -> None:
    await api.put("t", durability=durability)
    reading = asyncio.ensure_future(api.diff("t", wait_ms=30_000))
    await settle()
    assert not reading.done()
    await api.write("t", "now")
    body = await reading
    assert [record["data"] for record in body["records"]] == ["now"]


async def test_a_long_poll_ends_with_the_first_answer(api: Api) -> None:
    await api.write("t", 1)
    body = await api.diff("t", 1, wait_ms=20)
    assert (body["records"], body["caught_up"], body["next_from_seq"]) == ([], True, 1)


async def test_a_long_poll_does_not_wait_where_there_is_a_result(api: Api) -> None:
    await api.put("t", cap_records=1)
    await api.write("t", 1, 2)
    assert (await api.diff("t", 0, wait_ms=30_000))["records"]
    await api.ask("POST", "/v0/topics/t/delete", {"before_seq": 3})
    assert (await api.diff("t", 0, wait_ms=30_000))["tombstone"] is not None


async def test_a_long_poll_ends_when_its_topic_is_deleted(api: Api) -> None:
    await api.put("t")
    reading = asyncio.ensure_future(api.ask("POST", "/v0/topics/t/diff", {"wait_ms": 30_000}))
    await settle()
    await api.ask("DELETE", "/v0/topics/t")
    assert code(await reading) == (404, "topic_not_found")


@pytest.mark.alone("ends what waits at one broker")
async def test_a_stop_lets_long_polls_answer(api: Api) -> None:
    await api.put("t")
    reading = asyncio.ensure_future(api.diff("t", wait_ms=30_000))
    await settle()
    api.broker.diffs.stop_waiting()
    assert (await reading)["caught_up"] is True


@pytest.mark.parametrize("count", [1, 60])
async def test_values_of_other_doors_read_as_data_or_raw(api: Api, count: int) -> None:
    await api.put("t")
    values: list[bytes | None] = [
        b'{"a":1}',
        b"no json",
        None,
        b"",
        b"\xff\xfe",
        b" [1,\n2] ",
        b'"\xc3\x28"',
        b"1 2",
    ]
    await api.broker.append_values(
        "t",
        values * count,
        keys=[b"\xff", None] * (4 * count),
        headers=[[("meta", b"not json")]] * (8 * count),
    )
    records = (await api.diff("t", include_tags=True, limit=1000))["records"]

    def raw(value: bytes) -> dict[str, Any]:
        return {"data": None, "$raw": base64.b64encode(value).decode()}

    expected = [
        {"data": {"a": 1}},
        raw(b"no json"),
        {"data": None},
        raw(b""),
        raw(b"\xff\xfe"),
        {"data": [1, 2]},
    ]
    expected += [raw(b'"\xc3\x28"'), raw(b"1 2")]
    for number, record in enumerate(records):
        assert record["$seq"] == number + 1
        assert {key: record[key] for key in ("data", "$raw") if key in record} == expected[number % 8]
        assert ("$tag" in record) == (number % 2 == 0)
        assert record["meta"] == "not json"

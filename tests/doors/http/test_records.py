"""Writes (section 3 of the contract)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mainstem import limits
from mainstem.doors.http.transport.context import HttpLimits

from .conftest import JSON, Api, code


async def test_a_first_write_creates_the_topic(api: Api) -> None:
    body = {"records": [{"data": 1}, {"data": None}]}
    status, answer = await api.ask("POST", "/v0/topics/t", body)
    assert status == 201
    assert list(answer) == [
        "topic",
        "first_seq",
        "last_seq",
        "seqs",
        "head_seq",
        "count",
        "created",
        "deduped",
        "performance",
    ]
    performance = answer.pop("performance")
    assert set(performance) == {"server_total_ms", "wal_append_ms", "fsync_ms"}
    assert performance["fsync_ms"] == 0.0
    assert answer == {
        "topic": "t",
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    status, answer = await api.ask("POST", "/v0/topics/t", body)
    assert (status, answer["created"], answer["seqs"]) == (200, False, [3, 4])


async def test_fsync_time_is_real_for_class_fsync(api: Api) -> None:
    await api.put("t", durability="fsync")
    assert (await api.write("t", 1))["performance"]["fsync_ms"] > 0


@pytest.mark.parametrize(
    ("query", "present"), [("false", False), ("0", False), ("true", True), ("no", True), ("", True)]
)
async def test_seqs_can_be_left_out(api: Api, query: str, present: bool) -> None:
    _status, answer = await api.ask(
        "POST", f"/v0/topics/t?return_seqs={query}", {"records": [{"data": 1}, {"data": 2}]}
    )
    assert ("seqs" in answer) == present
    assert (answer["first_seq"], answer["last_seq"]) == (1, 2)


@pytest.mark.parametrize(
    ("create", "config", "status"),
    [
        (False, None, 404),
        (True, None, 201),
        (None, None, 201),
        (None, {"auto_create": False}, 404),
        (True, {"auto_create": False}, 201),
        (None, {"ttl_ms": 5}, 201),
    ],
)
async def test_when_a_write_creates_its_topic(
    api: Api, create: bool | None, config: dict[str, object] | None, status: int
) -> None:
    body: dict[str, object] = {"records": [{"data": 1}]}
    if create is not None:
        body["create"] = create
    if config is not None:
        body["config"] = config
    got, answer = await api.ask("POST", "/v0/topics/t", body)
    assert got == status
    if status == 404:
        assert answer["error"]["code"] == "topic_not_found"
        assert answer["error"]["detail"] == {"topic": "t"}
    elif config:
        echoed = (await api.state("t"))["config"]
        assert {key: echoed[key] for key in config} == config


async def test_a_config_is_ignored_where_the_topic_exists(api: Api) -> None:
    await api.put("t", cap_records=9)
    await api.write("t", 1, config={"cap_records": 1})
    assert (await api.state("t"))["config"]["cap_records"] == 9


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({}, "invalid_request"),
        ({"records": []}, "invalid_request"),
        ({"records": None}, "invalid_request"),
        ({"records": [{}]}, "invalid_request"),
        ({"records": [{"tag": "x"}]}, "invalid_request"),
        ({"records": [1]}, "invalid_request"),
        ({"records": [{"data": 1, "tag": 5}]}, "invalid_request"),
        ({"records": [{"data": 1, "tag": "x" * 257}]}, "invalid_request"),
        ({"records": [{"data": 1, "tag": "é" * 129}]}, "invalid_request"),
        ({"records": [{"data": 1, "node": "x" * 129}]}, "invalid_request"),
        ({"records": [{"data": 1}], "node": "x" * 129}, "invalid_request"),
        ({"records": [{"data": 1, "meta": {"k": "x" * 16384}}]}, "invalid_request"),
        ({"records": [{"data": 1, "meta": {str(n): n for n in range(65)}}]}, "invalid_request"),
        ({"records": [{"data": 1}], "idempotency_key": "k" * 257}, "invalid_request"),
        ({"records": [{"data": 1}], "create": "yes"}, "invalid_request"),
        ({"records": [{"data": 1}] * 10_001}, "batch_too_large"),
        ({"records": [{"data": "x" * (1 << 20)}]}, "record_too_large"),
        ({"records": [{"data": "x" * ((1 << 20) - 10), "meta": {"a": "12345"}}]}, "record_too_large"),
        ([], "invalid_request"),
    ],
)
async def test_invalid_writes_are_refused(api: Api, body: object, refusal: str) -> None:
    assert code(await api.ask("POST", "/v0/topics/t", body)) == (400, refusal)
    assert code(await api.ask("GET", "/v0/topics/t"))[0] == 404


async def test_the_largest_of_everything(api: Api) -> None:
    record = {
        "data": "x" * ((1 << 20) - 2 - 16_384),
        "tag": "t" * 256,
        "node": "n" * 128,
        "meta": {str(n): "" for n in range(63)} | {"pad": ""},
    }
    import json

    record["meta"]["pad"] = "p" * (16_384 - len(json.dumps(record["meta"], separators=(",", ":"))))
    await api.records("t", record, idempotency_key="k" * 256)
    read = (await api.diff("t", include_tags=True, max_batch_bytes=8 << 20))["records"][0]
    assert (read["data"], read["$tag"], read["$node"], read["meta"]) == (
        record["data"],
        record["tag"],
        record["node"],
        record["meta"],
    )
    assert (await api.write("many", *range(10_000)))["last_seq"] == 10_000


async def test_a_record_reads_back_as_it_was_written_byte_for_byte(api: Api) -> None:
    raw = b'{"records":[{"data": { "a" : 1.50, "b":[ 1e3 ,"\\u00e9\xc3\xa9"] } ,"meta":{ "x" : 1 } }]}'
    answer = await api.client.post("/v0/topics/t", content=raw, headers=JSON)
    assert answer.status_code == 201
    read = await api.client.post("/v0/topics/t/diff")
    assert b'"data":{ "a" : 1.50, "b":[ 1e3 ,"\\u00e9\xc3\xa9"] }' in read.content
    assert b'"meta":{ "x" : 1 }' in read.content
    assert (await api.broker.read("t", 0))[0].value == b'{ "a" : 1.50, "b":[ 1e3 ,"\\u00e9\xc3\xa9"] }'


async def test_a_batch_has_one_time_and_rising_seqs(api: Api) -> None:
    await api.write("t", *range(100))
    api.clock.advance(5)
    await api.write("t", *range(100))
    records = (await api.diff("t"))["records"]
    assert [record["$seq"] for record in records] == list(range(1, 201))
    assert {record["$ts"] for record in records[:100]} == {api.clock.now_ms() - 5}
    assert {record["$ts"] for record in records[100:]} == {api.clock.now_ms()}


async def test_concurrent_batches_are_contiguous(api: Api) -> None:
    answers = await asyncio.gather(*(api.write("t", *([number] * 7)) for number in range(20)))
    assert sorted(seq for answer in answers for seq in answer["seqs"]) == list(range(1, 141))
    for answer in answers:
        assert answer["seqs"] == list(range(answer["first_seq"], answer["first_seq"] + 7))
    assert sum(answer["created"] for answer in answers) == 1


async def test_tag_node_and_meta_are_key_and_headers(api: Api) -> None:
    await api.records(
        "t",
        {"data": 1, "tag": "k", "node": "n", "meta": {"a": 1}},
        {"data": 2},
        {"data": 3, "meta": None},
        node="d",
    )
    records = await api.broker.read("t", 0)
    assert [(record.key, record.value, record.headers) for record in records] == [
        (b"k", b"1", (("node", b"n"), ("meta", b'{"a":1}'))),
        (None, b"2", (("node", b"d"),)),
        (None, b"3", (("node", b"d"),)),
    ]


@pytest.mark.parametrize("durability", ["disk", "fsync", "ephemeral"])
async def test_discard_old_keeps_exactly_the_cap(api: Api, durability: str) -> None:
    await api.put("t", cap_records=3, durability=durability)
    for number in range(6):
        await api.write("t", number)
    state = await api.state("t")
    assert (state["head_seq"], state["count"], state["earliest_seq"]) == (6, 3, 4)
    await api.put("b", cap_bytes=10, durability=durability)
    await api.write("b", "12345678", "1")
    assert (await api.state("b"))["count"] == 1
    await api.write("b", *"abc")
    assert [record["data"] for record in (await api.diff("b"))["records"]] == ["a", "b", "c"]


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
async def test_discard_reject_takes_all_or_nothing(api: Api, durability: str) -> None:
    await api.put("t", cap_records=3, discard="reject", durability=durability)
    await api.write("t", 1, 2)
    status, body = await api.ask("POST", "/v0/topics/t", {"records": [{"data": 3}, {"data": 4}]})
    assert code((status, body)) == (422, "topic_full")
    assert body["error"]["detail"] == {
        "topic": "t",
        "cap_records": 3,
        "cap_bytes": 0,
        "head_seq": 2,
        "earliest_seq": 1,
    }
    assert (await api.state("t"))["count"] == 2
    too_many = {"records": [{"data": 3}] * 4}
    assert code(await api.ask("POST", "/v0/topics/t", too_many)) == (400, "record_too_large")
    assert (await api.write("t", 3))["seqs"] == [3]
    await api.put("b", cap_bytes=4, discard="reject", durability=durability)
    assert (
        code(await api.ask("POST", "/v0/topics/b", {"records": [{"data": "abc"}]}))[1] == "record_too_large"
    )
    await api.write("b", "ab")
    assert code(await api.ask("POST", "/v0/topics/b", {"records": [{"data": 1}]})) == (422, "topic_full")


async def test_expired_records_free_space_in_a_full_topic(api: Api) -> None:
    await api.put("t", cap_records=2, discard="reject", ttl_ms=100)
    await api.write("t", 1, 2)
    api.clock.advance(101)
    assert (await api.write("t", 3))["seqs"] == [3]


@pytest.mark.parametrize("durability", ["disk", "fsync", "ephemeral"])
@pytest.mark.parametrize("where", ["body", "header"])
async def test_a_retry_with_the_same_key_gets_the_first_answer(api: Api, where: str, durability: str) -> None:
    await api.put("t", durability=durability)

    async def post(*data: object, key: str) -> Any:
        body: dict[str, object] = {"records": [{"data": value} for value in data]}
        headers = {}
        if where == "body":
            body["idempotency_key"] = key
            headers = {"idempotency-key": "another"}
        else:
            headers = {"idempotency-key": key}
        answer = await api.client.post("/v0/topics/t", json=body, headers=headers)
        return answer.status_code, answer.json()

    await api.write("t", 0)
    assert (await post(1, 2, key="k"))[1]["seqs"] == [2, 3]
    await api.write("t", 9)
    status, again = await post("other", key="k")
    assert (status, again["seqs"], again["deduped"], again["created"], again["head_seq"]) == (
        200,
        [2, 3],
        True,
        False,
        3,
    )
    assert (again["first_seq"], again["last_seq"], again["count"]) == (2, 3, 2)
    assert (await post(5, key="l"))[1]["seqs"] == [5]
    assert (await api.state("t"))["count"] == 5


async def test_keys_are_per_topic_and_for_their_window_only(api: Api) -> None:
    await api.put("t", idempotency_window_ms=1000)
    assert (await api.write("u", 1, idempotency_key="k"))["deduped"] is False
    assert (await api.write("t", 1, idempotency_key="k"))["deduped"] is False
    api.clock.advance(1000)
    assert (await api.write("t", 1, idempotency_key="k"))["deduped"] is True
    api.clock.advance(1)
    again = await api.write("t", 1, idempotency_key="k")
    assert (again["deduped"], again["seqs"]) == (False, [2])
    assert (await api.write("t", 1, idempotency_key="k"))["seqs"] == [2]
    await api.put("off", idempotency_window_ms=0)
    await api.write("off", 1, idempotency_key="k")
    assert (await api.write("off", 1, idempotency_key="k"))["deduped"] is False


async def test_concurrent_retries_append_once(api: Api) -> None:
    answers = await asyncio.gather(*(api.write("t", 1, 2, idempotency_key="k") for _ in range(20)))
    assert {tuple(answer["seqs"]) for answer in answers} == {(1, 2)}
    assert sum(not answer["deduped"] for answer in answers) == 1
    assert (await api.state("t"))["head_seq"] == 2


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_idempotency_survives_a_restart(serve: Callable[..., Any], how: str) -> None:
    body = {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"}
    with serve() as server:
        server.ask("POST", "/v0/topics/t", {"records": [{"data": 0}]})
        assert server.ask("POST", "/v0/topics/t", body)[1]["seqs"] == [2, 3]
        getattr(server.process, how)()
    with serve() as server:
        status, again = server.ask("POST", "/v0/topics/t", body)
        assert (status, again["seqs"], again["deduped"]) == (200, [2, 3], True)
        assert server.ask("GET", "/v0/topics/t")[1]["head_seq"] == 3


async def test_total_bytes_are_bounded(open_api: Callable[..., Any]) -> None:
    async with open_api(total_bytes_max=10) as api:
        await api.write("t", "12345678")
        answer = await api.ask("POST", "/v0/topics/u", {"records": [{"data": 1}]})
        assert code(answer) == (429, "throttled")
        assert answer[1]["error"]["detail"] == {"limit": "max_total_bytes", "max": 10}


async def test_too_much_at_once_is_throttled(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HTTP_INGEST_BYTES_MAX", 10)
    answer = await api.ask("POST", "/v0/topics/u", {"records": [{"data": 1}]})
    assert code(answer) == (429, "throttled")
    assert answer[1]["error"]["detail"]["limit"] == "ingest_queue"


async def test_a_body_over_the_limit_is_refused_before_it_is_parsed(open_api: Callable[..., Any]) -> None:
    async with open_api(bounds=HttpLimits(body_bytes=100)) as api:
        answer = await api.client.post("/v0/topics/t", content=b"x" * 101, headers=JSON)
        assert code((answer.status_code, answer.json())) == (413, "payload_too_large")

        async def chunks() -> Any:
            for _ in range(20):
                yield b"y" * 10

        answer = await api.client.post("/v0/topics/t", content=chunks(), headers=JSON)
        assert code((answer.status_code, answer.json())) == (413, "payload_too_large")
        assert api.context.body_bytes == 0


async def test_partitions_are_written_and_read_apart(api: Api) -> None:
    await api.broker.create_topic("t", partitions=2)
    await api.ask("POST", "/v0/topics/t?partition=0", {"records": [{"data": "zero"}]})
    _, answer = await api.ask("POST", "/v0/topics/t?partition=1", {"records": [{"data": "one"}]})
    assert answer["seqs"] == [1]
    _status, answer = await api.ask("POST", "/v0/topics/t/diff?partition=1")
    assert [record["data"] for record in answer["records"]] == ["one"]
    assert (await api.ask("GET", "/v0/topics/t?partition=1"))[1]["count"] == 1
    assert (await api.ask("GET", "/v0/topics/t?partition=2"))[0] == 404
    assert (await api.ask("POST", "/v0/topics/t?partition=2", {"records": [{"data": 1}]}))[0] == 404

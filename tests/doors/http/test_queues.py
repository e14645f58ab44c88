"""Section 8 of the contract, sentence by sentence. Event streams of jobs have their own file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from .conftest import Api, code


async def queue(api: Api, jobs: int = 0, **config: object) -> None:
    await api.put("q", type="queue", **config)
    if jobs:
        await api.write("q", *[{"n": n} for n in range(1, jobs + 1)])


async def claim(api: Api, node: str = "w1", max: int = 1, topic: str = "q", **more: object) -> Any:
    status, body = await api.ask("POST", f"/v0/topics/{topic}/claim", {"node": node, "max": max, **more})
    assert status == 200, body
    return body


async def settle(api: Api, how: str, node: str, seqs: list[int], **more: object) -> Any:
    status, body = await api.ask("POST", f"/v0/topics/q/{how}", {"node": node, "seqs": seqs, **more})
    assert status == 200, body
    return body


async def counts(api: Api) -> tuple[int, int, int]:
    found = (await api.state("q"))["queue"]
    assert list(found) == ["ready", "in_flight", "dead_lettered"]
    return found["ready"], found["in_flight"], found["dead_lettered"]


def seqs(claimed: Any) -> list[int]:
    return [job["$seq"] for job in claimed["claimed"]]


CALLS: dict[str, dict[str, Any]] = {
    "claim": {"node": "w1"},
    "ack": {"node": "w1", "seqs": [1]},
    "nack": {"node": "w1", "seqs": [1]},
    "extend": {"node": "w1", "seqs": [1], "lease_ms": 1000},
}


@pytest.mark.parametrize("call", CALLS)
async def test_an_absent_queue_is_404_and_a_log_409(api: Api, call: str) -> None:
    missing = await api.ask("POST", f"/v0/topics/none/{call}", CALLS[call])
    assert code(missing) == (404, "topic_not_found")
    assert missing[1]["error"]["detail"] == {"topic": "none"}
    await api.put("log")
    wrong = await api.ask("POST", f"/v0/topics/log/{call}", CALLS[call])
    assert code(wrong) == (409, "not_a_queue")
    assert wrong[1]["error"]["detail"] == {"topic": "log"}


@pytest.mark.parametrize("call", CALLS)
async def test_only_post_is_allowed(api: Api, call: str) -> None:
    assert code(await api.ask("GET", f"/v0/topics/q/{call}")) == (405, "method_not_allowed")


async def test_a_claim_has_the_fields_of_the_contract(api: Api) -> None:
    await queue(api)
    await api.records(
        "q", {"data": {"a": 1}, "tag": "t", "node": "maker", "meta": {"m": [1]}}, {"data": None}
    )
    body = await claim(api, max=5, lease_ms=5_000)
    assert list(body) == ["topic", "claimed", "count", "ready", "performance"]
    assert body["topic"] == "q"
    assert (body["count"], body["ready"]) == (2, 0)
    assert body["performance"]["server_total_ms"] >= 0
    first, second = body["claimed"]
    assert list(first) == ["$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"]
    assert list(second) == ["$seq", "lease_id", "deadline", "$ts", "deliveries", "data"]
    now = api.clock.now_ms()
    assert (first["$seq"], first["$ts"], first["deadline"]) == (1, now, now + 5_000)
    assert (first["$tag"], first["deliveries"], first["data"], first["meta"]) == (
        "t",
        1,
        {"a": 1},
        {"m": [1]},
    )
    assert second["data"] is None
    assert first["lease_id"] != second["lease_id"]
    for job in body["claimed"]:
        assert job["lease_id"].startswith("lease_")
        int(job["lease_id"].removeprefix("lease_"), 16)


async def test_a_value_that_is_not_json_comes_as_raw(api: Api) -> None:
    await queue(api)
    await api.broker.append_values("q", [b"\xff\x00", None])
    first, second = (await claim(api, max=2))["claimed"]
    assert (first["data"], first["$raw"]) == (None, "/wA=")
    assert second["data"] is None
    assert "$raw" not in second


async def test_data_keeps_its_bytes(api: Api) -> None:
    await queue(api)
    written = b'{"records":[{"data":{"b" : 1.50,\n"a":[ ]}}]}'
    await api.client.post("/v0/topics/q", content=written, headers={"content-type": "application/json"})
    answer = await api.client.post("/v0/topics/q/claim", json={"node": "w"})
    assert b'{"b" : 1.50,\n"a":[ ]}' in answer.content


async def test_the_default_is_one_job_under_the_topics_lease(api: Api) -> None:
    await queue(api, 3, lease_ms=7_000)
    status, body = await api.ask("POST", "/v0/topics/q/claim", {"node": "w1"})
    assert status == 200
    assert body["count"] == 1
    assert body["claimed"][0]["deadline"] == api.clock.now_ms() + 7_000
    assert body["ready"] == 2


@pytest.mark.parametrize(
    ("given", "count"), [(0, 1), (-3, 1), (2, 2), (1_000, 1_000), (5_000, 1_000), (2**63, 1_000)]
)
async def test_max_is_clamped_from_one_to_a_thousand(api: Api, given: int, count: int) -> None:
    await queue(api, 1_001)
    assert (await claim(api, max=given))["count"] == count


@pytest.mark.parametrize(("given", "lease"), [(0, 100), (99, 100), (2_500, 2_500), (10**12, 86_400_000)])
async def test_a_lease_is_clamped_from_100_ms_to_a_day(api: Api, given: int, lease: int) -> None:
    await queue(api, 1)
    job = (await claim(api, lease_ms=given))["claimed"][0]
    assert job["deadline"] == api.clock.now_ms() + lease
    extended = await settle(api, "extend", "w1", [1], lease_ms=given)
    assert extended["deadlines"] == {"1": api.clock.now_ms() + lease}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"max": 1},
        {"node": 5},
        {"node": None},
        {"node": ""},
        {"node": "x" * 129},
        {"node": "é" * 65},
        {"node": "w", "max": "3"},
        {"node": "w", "lease_ms": "long"},
        [],
    ],
)
async def test_an_invalid_claim_is_400(api: Api, body: object) -> None:
    await queue(api, 1)
    assert code(await api.ask("POST", "/v0/topics/q/claim", body)) == (400, "invalid_request")
    assert await counts(api) == (1, 0, 0)


async def test_an_empty_claim_is_400_and_other_empty_calls_415(api: Api) -> None:
    await queue(api, 1)
    assert code(await api.ask("POST", "/v0/topics/q/claim")) == (400, "invalid_request")
    assert code(await api.ask("POST", "/v0/topics/q/ack")) == (415, "unsupported_media_type")
    plain = {"content-type": "text/plain"}
    wrong = await api.client.post("/v0/topics/q/claim", content=b'{"node":"w"}', headers=plain)
    assert wrong.status_code == 415


async def test_a_node_of_128_bytes_is_fine_and_unknown_fields_are_ignored(api: Api) -> None:
    await queue(api, 1)
    assert (await claim(api, "é" * 64, colour="red"))["count"] == 1


async def test_returned_jobs_come_before_new_ones(api: Api) -> None:
    await queue(api, 6)
    await claim(api, max=4)
    await settle(api, "nack", "w1", [4, 2])
    again = await claim(api, "w2", max=3)
    assert seqs(again) == [2, 4, 5]
    assert [job["deliveries"] for job in again["claimed"]] == [2, 2, 1]


async def test_an_ack_deletes_for_good(api: Api) -> None:
    await queue(api, 4)
    await claim(api, max=3)
    body = await settle(api, "ack", "w1", [2, 9, 1, 4, 2])
    assert list(body) == ["topic", "acked", "skipped", "ready", "in_flight", "performance"]
    assert (body["topic"], body["acked"], body["skipped"]) == ("q", 2, [9, 4, 2])
    assert (body["ready"], body["in_flight"]) == (1, 1)
    state = await api.state("q")
    assert (state["count"], state["earliest_seq"], state["head_seq"]) == (2, 3, 4)
    assert state["bytes"] == 2 * len('{"n":3}')
    page = await api.diff("q")
    assert [record["$seq"] for record in page["records"]] == [3, 4]
    assert page["tombstone"] is None
    api.clock.advance(100_000)
    assert seqs(await claim(api, max=9)) == [3, 4]


async def test_only_the_holder_settles_and_only_under_its_lease_id(api: Api) -> None:
    await queue(api, 2)
    ids = [job["lease_id"] for job in (await claim(api, max=2))["claimed"]]
    for how, more in (("ack", {}), ("nack", {}), ("extend", {"lease_ms": 500})):
        assert (await settle(api, how, "other", [1], **more))["skipped"] == [1]
        assert (await settle(api, how, "w1", [1], lease_ids=["lease_00ff"], **more))["skipped"] == [1]
        assert (await settle(api, how, "w1", [1, 2], lease_ids=ids[::-1], **more))["skipped"] == [1, 2]
    assert (await settle(api, "ack", "w1", [1, 2], lease_ids=ids))["acked"] == 2


async def test_a_lease_id_of_an_earlier_lease_is_refused(api: Api) -> None:
    await queue(api, 1)
    old = (await claim(api))["claimed"][0]["lease_id"]
    await settle(api, "nack", "w1", [1])
    new = (await claim(api))["claimed"][0]["lease_id"]
    assert new != old
    assert (await settle(api, "ack", "w1", [1], lease_ids=[old]))["skipped"] == [1]
    assert (await settle(api, "ack", "w1", [1], lease_ids=[new]))["acked"] == 1


@pytest.mark.parametrize("call", ["ack", "nack", "extend"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"lease_ids": ["nonsense"]},
        {"lease_ids": ["lease_"]},
        {"lease_ids": ["lease_xyz"]},
        {"lease_ids": ["LEASE_00"]},
        {"lease_ids": [7]},
        {"lease_ids": []},
        {"lease_ids": ["lease_00", "lease_01"]},
        {"seqs": "1"},
        {"seqs": [-1]},
        {"seqs": [1.5]},
        {"seqs": None},
        {"node": ""},
        {"node": "x" * 129},
        {"node": None},
    ],
)
async def test_an_invalid_settlement_is_400(api: Api, call: str, wrong: dict[str, object]) -> None:
    await queue(api, 1)
    await claim(api)
    refused = await api.ask("POST", f"/v0/topics/q/{call}", CALLS[call] | wrong)
    assert code(refused) == (400, "invalid_request")
    assert await counts(api) == (0, 1, 0)


@pytest.mark.parametrize("call", ["ack", "nack", "extend"])
async def test_what_a_settlement_must_name(api: Api, call: str) -> None:
    await queue(api, 1)
    for field in CALLS[call]:
        body = {name: value for name, value in CALLS[call].items() if name != field}
        assert code(await api.ask("POST", f"/v0/topics/q/{call}", body)) == (400, "invalid_request")


@pytest.mark.parametrize("call", ["ack", "nack", "extend"])
async def test_a_thousand_are_settled_at_once_and_no_more(api: Api, call: str) -> None:
    await queue(api, 1_000)
    await claim(api, max=1_000)
    many = CALLS[call] | {"seqs": list(range(1, 1_002))}
    assert code(await api.ask("POST", f"/v0/topics/q/{call}", many)) == (400, "batch_too_large")
    assert await counts(api) == (0, 1_000, 0)
    status, body = await api.ask("POST", f"/v0/topics/q/{call}", many | {"seqs": list(range(1, 1_001))})
    assert status == 200
    assert body["skipped"] == []


async def test_empty_and_impossible_settlements_settle_nothing(api: Api) -> None:
    await queue(api, 1)
    assert (await settle(api, "ack", "w1", []))["acked"] == 0
    assert (await settle(api, "ack", "w1", [0, 2**64 - 1]))["skipped"] == [0, 2**64 - 1]


async def test_a_nack_gives_back_at_once_or_after_a_delay(api: Api) -> None:
    await queue(api, 2)
    await claim(api, max=2)
    body = await settle(api, "nack", "w1", [1, 7])
    assert list(body) == ["topic", "nacked", "skipped", "ready", "in_flight", "performance"]
    assert (body["nacked"], body["skipped"], body["ready"], body["in_flight"]) == (1, [7], 1, 1)
    delayed = await settle(api, "nack", "w1", [2], delay_ms=500)
    assert (delayed["ready"], delayed["in_flight"]) == (1, 0)
    assert await counts(api) == (1, 0, 0)
    api.clock.advance(499)
    assert await counts(api) == (1, 0, 0)
    api.clock.advance(1)
    assert await counts(api) == (2, 0, 0)
    assert seqs(await claim(api, max=9)) == [1, 2]


async def test_an_extension_counts_from_now(api: Api) -> None:
    await queue(api, 2)
    await claim(api, max=2, lease_ms=1_000)
    api.clock.advance(900)
    body = await settle(api, "extend", "w1", [1, 5], lease_ms=4_000)
    assert list(body) == ["topic", "extended", "skipped", "deadlines", "performance"]
    assert (body["extended"], body["skipped"]) == (1, [5])
    assert body["deadlines"] == {"1": api.clock.now_ms() + 4_000}
    api.clock.advance(101)
    assert seqs(await claim(api, "w2", max=9)) == [2]


async def test_a_lease_expires_strictly_after_its_deadline_and_keeps_the_count(api: Api) -> None:
    await queue(api, 1)
    await claim(api, lease_ms=1_000)
    api.clock.advance(1_000)
    assert await counts(api) == (0, 1, 0)
    assert (await claim(api, "w2"))["count"] == 0
    api.clock.advance(1)
    assert await counts(api) == (1, 0, 0)
    assert (await settle(api, "ack", "w1", [1]))["skipped"] == [1]
    assert (await claim(api, "w2"))["claimed"][0]["deliveries"] == 2


async def test_a_dead_letter_moves_at_the_claim_that_would_be_one_too_many(api: Api) -> None:
    await queue(api, max_deliveries=2, dead_letter="dlq")
    await api.records("q", {"data": [1], "tag": "t", "node": "maker", "meta": {"k": "v"}}, {"data": 2})
    for _ in range(2):
        assert seqs(await claim(api)) == [1]
        await settle(api, "nack", "w1", [1])
    assert await counts(api) == (2, 0, 0)
    assert (await api.ask("GET", "/v0/topics/dlq"))[0] == 404
    last = await claim(api, max=5)
    assert seqs(last) == [2]
    assert last["ready"] == 0
    assert await counts(api) == (0, 1, 1)
    assert (await api.state("q"))["count"] == 1
    record = (await api.diff("dlq", include_tags=True))["records"][0]
    assert (record["data"], record["$tag"], record["$node"]) == ([1], "t", "maker")
    assert record["meta"] == {
        "k": "v",
        "$dead_letter_from": "q",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
    }
    config = (await api.state("dlq"))["config"]
    assert (config["type"], config["durability"]) == ("log", "disk")


async def test_a_dead_letter_without_meta_gets_one_and_odd_meta_is_kept(api: Api) -> None:
    await queue(api, max_deliveries=1, dead_letter="dlq")
    await api.records("q", {"data": 1}, {"data": 2, "meta": [1, 2]})
    await claim(api, max=2)
    await settle(api, "nack", "w1", [1, 2])
    assert (await claim(api, max=2))["count"] == 0
    metas = [record["meta"] for record in (await api.diff("dlq"))["records"]]
    assert [meta["$dead_letter_src_seq"] for meta in metas] == ["1", "2"]
    assert set(metas[0]) == {"$dead_letter_from", "$dead_letter_deliveries", "$dead_letter_src_seq"}
    assert metas[1]["_topics_original_meta"] == [1, 2]
    assert await counts(api) == (0, 0, 2)


async def test_an_expired_lease_counts_as_a_delivery_too(api: Api) -> None:
    await queue(api, 1, max_deliveries=1, dead_letter="dlq", lease_ms=100)
    await claim(api)
    api.clock.advance(101)
    assert (await claim(api))["count"] == 0
    assert await counts(api) == (0, 0, 1)


async def test_without_a_dead_letter_topic_deliveries_are_unbounded(api: Api) -> None:
    await queue(api, 1, max_deliveries=1)
    for deliveries in (1, 2, 3):
        assert (await claim(api))["claimed"][0]["deliveries"] == deliveries
        await settle(api, "nack", "w1", [1])


async def test_a_full_dead_letter_topic_keeps_the_job_for_later(api: Api) -> None:
    await api.put("dlq", cap_records=1, discard="reject")
    await api.write("dlq", "in the way")
    await queue(api, 1, max_deliveries=1, dead_letter="dlq")
    await claim(api)
    await settle(api, "nack", "w1", [1])
    assert (await claim(api))["count"] == 0
    assert await counts(api) == (0, 0, 0)
    assert (await api.state("q"))["count"] == 1
    await api.ask("POST", "/v0/topics/dlq/delete", {"before_seq": 2})
    assert (await claim(api))["count"] == 0
    assert await counts(api) == (0, 0, 1)
    assert (await api.state("dlq"))["count"] == 1


async def test_a_dead_letter_topic_may_be_a_queue(api: Api) -> None:
    await api.put("dlq", type="queue")
    await queue(api, 1, max_deliveries=1, dead_letter="dlq")
    await claim(api)
    await settle(api, "nack", "w1", [1])
    await claim(api)
    job = (await claim(api, topic="dlq"))["claimed"][0]
    assert (job["data"], job["meta"]["$dead_letter_from"]) == ({"n": 1}, "q")


@pytest.mark.alone("the window is that of one broker")
async def test_claimers_in_the_jitter_window_share_one_job_at_a_time(api: Api) -> None:
    await queue(api, 7, claim_jitter_ms=20)
    taken = await asyncio.gather(*[claim(api, f"w{n}", max=n + 1) for n in range(3)])
    got = sorted((seqs(body) for body in taken), key=len)
    assert got == [[1], [2, 4], [3, 5, 6]]
    assert await counts(api) == (1, 6, 0)


async def test_a_queue_stays_readable(api: Api) -> None:
    await queue(api, 3)
    await claim(api, max=3)
    page = await api.diff("q")
    assert [record["data"] for record in page["records"]] == [{"n": 1}, {"n": 2}, {"n": 3}]


async def test_the_state_of_a_log_has_no_queue(api: Api) -> None:
    await api.put("log")
    assert "queue" not in await api.state("log")
    await queue(api)
    assert await counts(api) == (0, 0, 0)


async def test_a_job_past_its_ttl_is_not_leased(api: Api) -> None:
    await queue(api, 2, ttl_ms=1_000)
    api.clock.advance(1_001)
    await api.write("q", "late")
    assert seqs(await claim(api, max=9)) == [3]


async def test_a_deleted_queue_starts_over(api: Api) -> None:
    await queue(api, 3)
    await claim(api, max=2)
    await api.ask("DELETE", "/v0/topics/q")
    assert code(await api.ask("POST", "/v0/topics/q/claim", {"node": "w1"})) == (404, "topic_not_found")
    await queue(api, 1)
    assert (await claim(api, max=9))["claimed"][0]["deliveries"] == 1


async def test_scopes(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="root,reader:r,writer:w,both:rw,other:rw:x") as api:
        await api.ask("PUT", "/v0/topics/q", {"type": "queue"}, key="root")
        for key, wanted in (("reader", 403), ("writer", 403), ("other", 403), ("both", 200)):
            assert (await api.ask("POST", "/v0/topics/q/claim", {"node": "w"}, key=key))[0] == wanted, key
        for call in ("ack", "nack", "extend"):
            for key, wanted in (("reader", 403), ("other", 403), ("writer", 200)):
                assert (await api.ask("POST", f"/v0/topics/q/{call}", CALLS[call], key=key))[0] == wanted
        assert (await api.ask("POST", "/v0/topics/q/claim", {"node": "w"}))[0] == 401


async def test_fifty_workers_get_every_job_exactly_once(api: Api) -> None:
    await queue(api)
    for start in range(0, 2_000, 500):
        await api.write("q", *range(start, start + 500))
    seen: list[int] = []

    async def work(number: int) -> None:
        while True:
            body = await claim(api, f"w{number}", max=1 + number % 7)
            if not body["count"]:
                return
            seen.extend(job["data"] for job in body["claimed"])
            ids = [job["lease_id"] for job in body["claimed"]]
            done = await settle(api, "ack", f"w{number}", seqs(body), lease_ids=ids)
            assert done["skipped"] == []

    await asyncio.gather(*[work(number) for number in range(50)])
    assert sorted(seen) == list(range(2_000))
    assert await counts(api) == (0, 0, 0)
    assert (await api.state("q"))["count"] == 0


def test_leases_vanish_with_a_restart_unless_durable(serve: Callable[..., Any]) -> None:
    with serve() as server:
        for name, durable in (("weak", False), ("strong", True)):
            server.ask("PUT", f"/v0/topics/{name}", {"type": "queue", "leases_durable": durable})
            server.ask("POST", f"/v0/topics/{name}", {"records": [{"data": 1}, {"data": 2}]})
            taken = server.ask("POST", f"/v0/topics/{name}/claim", {"node": "w", "lease_ms": 600_000})[1]
            assert taken["count"] == 1
        lease_id = taken["claimed"][0]["lease_id"]
        server.process.kill()
    with serve() as server:
        weak = server.ask("POST", "/v0/topics/weak/claim", {"node": "v", "max": 5})[1]
        assert [(job["$seq"], job["deliveries"]) for job in weak["claimed"]] == [(1, 2), (2, 1)]
        strong = server.ask("POST", "/v0/topics/strong/claim", {"node": "v", "max": 5})[1]
        assert [job["$seq"] for job in strong["claimed"]] == [2]
        held = {"node": "w", "seqs": [1], "lease_ids": [lease_id]}
        assert server.ask("POST", "/v0/topics/strong/ack", held)[1]["acked"] == 1


def test_a_kill_during_the_work_loses_nothing(serve: Callable[..., Any]) -> None:
    jobs = 3_000
    done: set[int] = set()
    with serve() as server:
        server.ask("PUT", "/v0/topics/q", {"type": "queue", "max_deliveries": 50, "dead_letter": "dlq"})
        for start in range(0, jobs, 1_000):
            records = [{"data": n} for n in range(start, start + 1_000)]
            server.ask("POST", "/v0/topics/q", {"records": records})
        asyncio.run(_work_until_killed(server.url, done, lambda: server.process.kill(), jobs // 3))
        assert jobs // 3 <= len(done) < jobs
    with serve() as server:
        state = server.ask("GET", "/v0/topics/q")[1]
        assert state["queue"]["in_flight"] == 0
        # Acknowledged jobs are gone; a job whose ack got no response may be gone or not.
        left: set[int] = set()
        while True:
            claimed = server.ask("POST", "/v0/topics/q/claim", {"node": "z", "max": 1_000})[1]["claimed"]
            if not claimed:
                break
            left |= {job["data"] for job in claimed}
        assert not left & done
        assert state["count"] == len(left)
        assert jobs - len(done) - len(left) <= 50 * 10  # acks in flight when it was killed


async def _work_until_killed(url: str, done: set[int], kill: Callable[[], object], enough: int) -> None:
    async def work(client: httpx.AsyncClient, number: int) -> None:
        try:
            while True:
                asked = {"node": f"w{number}", "max": 10}
                claimed = (await client.post("/v0/topics/q/claim", json=asked)).json()["claimed"]
                named = {"node": f"w{number}", "seqs": [job["$seq"] for job in claimed]}
                acked = (await client.post("/v0/topics/q/ack", json=named)).json()
                assert acked["acked"] == len(claimed)
                done.update(job["data"] for job in claimed)
                if len(done) >= enough:
                    kill()
                    return
        except httpx.TransportError:
            return

    async with httpx.AsyncClient(base_url=url, timeout=30, limits=httpx.Limits(max_connections=60)) as client:
        await asyncio.gather(*[work(client, number) for number in range(50)])

"""Jobs under way, and dead letters that go back to their queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainstem import limits

from .conftest import Api, code


async def queue(api: Api, count: int = 4, **config: object) -> None:
    await api.put("q", type="queue", **config)
    await api.records("q", *({"data": {"n": n}, "tag": f"k{n}", "meta": {"m": n}} for n in range(count)))


async def claim(api: Api, node: str, count: int = 1) -> list[Any]:
    status, body = await api.ask("POST", "/v0/topics/q/claim", {"node": node, "max": count})
    assert status == 200, body
    claimed: list[Any] = body["claimed"]
    return claimed


async def exhausted(api: Api, count: int = 2) -> None:
    """Dead-letter the first jobs of a queue that hands each out once."""
    await queue(api, max_deliveries=1, dead_letter="dead")
    taken = await claim(api, "w", count)
    await api.ask("POST", "/v0/topics/q/nack", {"node": "w", "seqs": [job["$seq"] for job in taken]})
    await claim(api, "other", 1)
    assert (await api.state("dead"))["count"] == count


async def test_leases_name_holder_deadline_and_a_lease_id_that_settles_them(api: Api) -> None:
    await queue(api)
    first, _ = await claim(api, "w1", 2)
    await claim(api, "w2", 1)
    _, body = await api.ask("GET", "/v0/topics/q/leases")
    assert [(row["$seq"], row["node"], row["deliveries"]) for row in body["leases"]] == [
        (1, "w1", 1),
        (2, "w1", 1),
        (3, "w2", 1),
    ]
    assert (body["ready"], body["in_flight"]) == (1, 3)
    assert body["leases"][0]["lease_id"] == first["lease_id"]
    assert body["leases"][0]["deadline"] == first["deadline"]
    settle = {"node": "w1", "seqs": [1], "lease_ids": [body["leases"][0]["lease_id"]]}
    assert (await api.ask("POST", "/v0/topics/q/nack", settle))[1]["nacked"] == 1


async def test_delayed_jobs_are_listed_until_they_are_due_and_ended_leases_are_not(api: Api) -> None:
    await queue(api)
    await claim(api, "w", 2)
    await api.ask("POST", "/v0/topics/q/nack", {"node": "w", "seqs": [2], "delay_ms": 60_000})
    _, body = await api.ask("GET", "/v0/topics/q/leases")
    assert [row["$seq"] for row in body["leases"]] == [1]
    assert [row["$seq"] for row in body["delayed"]] == [2]
    assert body["delayed"][0]["due"] == body["now_ms"] + 60_000
    api.clock.advance(61_000)
    _, body = await api.ask("GET", "/v0/topics/q/leases")
    assert (body["leases"], body["delayed"], body["ready"]) == ([], [], 4)


async def test_a_dead_letter_goes_back_as_it_was_and_is_gone_where_it_lay(api: Api) -> None:
    await exhausted(api)
    status, body = await api.ask("POST", "/v0/topics/dead/requeue", {"seqs": [1]})
    assert status == 200
    assert [(one["$seq"], one["queue"]) for one in body["requeued"]] == [(1, "q")]
    assert (await api.state("dead"))["count"] == 1
    back = next(job for job in await claim(api, "w3", 10) if job["data"] == {"n": 0})
    assert (back["$tag"], back["meta"], back["deliveries"]) == ("k0", {"m": 0}, 1)


async def test_repeating_a_requeue_changes_nothing(api: Api) -> None:
    await exhausted(api)
    await api.ask("POST", "/v0/topics/dead/requeue", {"seqs": [1, 2]})
    before = (await api.state("q"))["count"]
    _, body = await api.ask("POST", "/v0/topics/dead/requeue", {"seqs": [2, 1, 99]})
    assert (body["requeued"], body["skipped"]) == ([], [1, 2, 99])
    assert (await api.state("q"))["count"] == before


async def test_records_that_are_no_dead_letters_are_skipped_unless_a_queue_is_named(api: Api) -> None:
    await queue(api)
    await api.write("plain", {"job": 1})
    _, body = await api.ask("POST", "/v0/topics/plain/requeue", {"seqs": [1]})
    assert (body["requeued"], body["skipped"]) == ([], [1])
    assert (await api.state("plain"))["count"] == 1
    _, body = await api.ask("POST", "/v0/topics/plain/requeue", {"seqs": [1], "queue": "q"})
    assert [one["queue_seq"] for one in body["requeued"]] == [5]


async def test_a_requeue_to_what_is_no_queue_moves_nothing(api: Api) -> None:
    await api.write("plain", 1)
    await api.write("log", 1)
    named = {"seqs": [1], "queue": "log"}
    assert code(await api.ask("POST", "/v0/topics/plain/requeue", named)) == (409, "not_a_queue")
    named["queue"] = "absent"
    assert code(await api.ask("POST", "/v0/topics/plain/requeue", named)) == (404, "topic_not_found")
    assert (await api.state("plain"))["count"] == 1
    too_many = {"seqs": [1] * (limits.CLAIM_JOBS_MAX + 1)}
    assert code(await api.ask("POST", "/v0/topics/plain/requeue", too_many))[0] == 400


async def test_rights_to_write_and_to_delete_are_needed_and_the_queue_must_be_covered(
    open_api: Callable[..., Any],
) -> None:
    async with open_api(api_keys="boss,w:w,dead:rw+d:dead") as api:
        api.client.headers["authorization"] = "Bearer boss"
        await exhausted(api)
        del api.client.headers["authorization"]
        assert code(await api.ask("POST", "/v0/topics/dead/requeue", {"seqs": [1]}, key="w")) == (
            403,
            "forbidden",
        )
        _, body = await api.ask("POST", "/v0/topics/dead/requeue", {"seqs": [1]}, key="dead")
        assert (body["requeued"], body["skipped"]) == ([], [1])
        assert code(await api.ask("GET", "/v0/topics/q/leases", key="dead")) == (403, "forbidden")


async def test_leases_of_a_log_are_refused(api: Api) -> None:
    await api.write("t", 1)
    assert code(await api.ask("GET", "/v0/topics/t/leases")) == (409, "not_a_queue")

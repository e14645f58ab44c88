"""Raw batches and sink batches over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainstem.broker.transactions.sinks import SINK_IDLE_MS, SINK_ONCE_IDLE_MS
from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import TRANSACTIONAL, seal, walk

from .conftest import Api, Server, code

BYTES = {"content-type": "application/octet-stream"}
TIME_MS = 1_700_000_000_000


def transactional(begun: dict[str, Any], sequence: int, *values: bytes) -> bytes:
    batch = build_batch(values, timestamps_ms=TIME_MS)
    header = next(walk(batch))
    return bytes(
        seal(
            batch,
            attributes=TRANSACTIONAL,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=TIME_MS,
            max_timestamp=TIME_MS,
            producer=begun["producer"],
            producer_epoch=begun["epoch"],
            base_sequence=sequence,
            count=header.count,
        )
    )


async def begin(api: Api, attempt: str = "0.0", **more: Any) -> dict[str, Any]:
    body = {"query": "q", "run": "r", "batch": 0, "attempt": attempt, **more}
    status, begun = await api.ask("POST", "/v0/sinks/tasks", body)
    assert status == 200, begun
    return dict(begun)


async def send(api: Api, batch: bytes, topic: str = "t", partition: int = 0) -> tuple[int, Any]:
    path = f"/v0/topics/{topic}/batches?partition={partition}"
    answer = await api.client.post(path, content=batch, headers=BYTES)
    return answer.status_code, answer.json()


async def commit(api: Api, *attempts: dict[str, Any], batch: int = 0, run: str = "r") -> tuple[int, Any]:
    named = [{"attempt": f"{i}.0", **_stamp(one)} for i, one in enumerate(attempts)]
    return await api.ask(
        "POST", "/v0/sinks/commit", {"query": "q", "run": run, "batch": batch, "attempts": named}
    )


def _stamp(begun: dict[str, Any]) -> dict[str, Any]:
    return {"producer": begun["producer"], "epoch": begun["epoch"]}


async def values(api: Api, topic: str = "t") -> list[bytes | None]:
    fetched = await api.broker.fetch(topic, 0)
    return [record.value for slice in fetched.batches for record in decode_records(slice)]


async def test_plain_batches_are_appended_as_they_are(api: Api) -> None:
    await api.put("t")
    batch = build_batch([b"a", b"b"], keys=[b"k", None], timestamps_ms=TIME_MS)
    status, body = await send(api, bytes(batch))
    assert (status, body["offset"], body["count"]) == (200, 0, 2)
    assert await values(api) == [b"a", b"b"]


async def test_a_sink_batch_is_visible_as_a_whole_once_committed(api: Api) -> None:
    await api.put("t")
    first, second = await begin(api, "0.0"), await begin(api, "1.0")
    assert (await send(api, transactional(first, 0, b"a", b"b")))[0] == 200
    assert (await send(api, transactional(second, 0, b"c")))[0] == 200
    assert (await send(api, transactional(first, 2, b"d")))[0] == 200
    assert await values(api) == []
    assert await commit(api, first, second) == (200, {"committed": True, "repeated": False})
    assert await values(api) == [b"a", b"b", b"c", b"d"]
    assert await commit(api, first, second) == (200, {"committed": True, "repeated": True})
    assert (await begin(api, run="later"))["committed"]
    assert await values(api) == [b"a", b"b", b"c", b"d"]


async def test_a_repeated_batch_is_stored_once(api: Api) -> None:
    await api.put("t")
    begun = await begin(api)
    batch = transactional(begun, 0, b"a")
    assert (await send(api, batch))[1]["offset"] == (await send(api, batch))[1]["offset"]
    await commit(api, begun)
    assert await values(api) == [b"a"]


async def test_a_new_run_fences_the_previous_one(api: Api) -> None:
    await api.put("t")
    old = await begin(api)
    await send(api, transactional(old, 0, b"old"))
    new = await begin(api, run="r2")
    await send(api, transactional(new, 0, b"new"))
    assert code(await commit(api, old)) == (409, "producer_fenced")
    assert code(await send(api, transactional(old, 1, b"old"))) == (409, "invalid_transaction")
    assert (await commit(api, new, run="r2"))[0] == 200
    assert await values(api) == [b"new"]


async def test_an_aborted_run_leaves_nothing(api: Api) -> None:
    await api.put("t")
    begun = await begin(api)
    await send(api, transactional(begun, 0, b"a"))
    assert await api.ask("POST", "/v0/sinks/abort", {"query": "q", "run": "r"}) == (200, {"aborted": True})
    assert code(await commit(api, begun)) == (409, "producer_fenced")
    late = {"query": "q", "run": "r", "batch": 0, "attempt": "1.1", "timeout_ms": 60_000}
    assert code(await api.ask("POST", "/v0/sinks/tasks", late)) == (409, "producer_fenced")
    await api.write("t", "after")
    assert await values(api) == [b'"after"']


async def test_a_transaction_that_takes_too_long_fails_the_whole_batch(api: Api) -> None:
    await api.put("t")
    slow, quick = await begin(api, "0.0", timeout_ms=1_000), await begin(api, "1.0")
    await send(api, transactional(slow, 0, b"a"))
    await send(api, transactional(quick, 0, b"b"))
    api.clock.advance(2_000)
    await api.broker.transactions.enforce()
    assert code(await commit(api, slow, quick)) == (409, "invalid_transaction")
    assert await values(api) == []


async def test_silent_queries_are_forgotten(api: Api) -> None:
    await begin(api, query="once", lasting=False)
    await begin(api, query="lasting")
    api.clock.advance(SINK_ONCE_IDLE_MS + 1)
    assert await api.broker.sinks.enforce() == 1
    assert [sink.query for sink in api.broker.log.ledger.sinks] == ["lasting"]
    api.clock.advance(SINK_IDLE_MS + 1)
    assert await api.broker.sinks.enforce() == 1


async def test_hostile_bodies_are_refused(api: Api) -> None:
    await api.put("t")
    whole = bytes(build_batch([b"a"], timestamps_ms=TIME_MS))
    begun = await begin(api)
    for body in (b"", b"x", whole[:-1], whole[:40], b"\0" * 61, whole[:-1] + b"z"):
        assert code(await send(api, body)) == (400, "invalid_request")
    assert code(await send(api, whole, "none")) == (404, "topic_not_found")
    assert code(await send(api, whole, partition=9)) == (404, "topic_not_found")
    unknown = {"producer": 999, "epoch": 0}
    assert code(await send(api, transactional(unknown, 0, b"a"))) == (409, "invalid_transaction")
    assert code(await send(api, transactional(begun, 5, b"a"))) == (409, "out_of_order_sequence")
    stale = {**begun, "epoch": begun["epoch"] + 1}
    assert code(await send(api, transactional(stale, 0, b"a"))) == (409, "producer_fenced")
    answer = await api.client.post("/v0/topics/t/batches", json={})
    assert answer.status_code == 415
    for body in ({}, {"query": "q"}, {"query": "a/b", "run": "r", "batch": 0, "attempt": "0"}):
        assert code(await api.ask("POST", "/v0/sinks/tasks", body)) == (400, "invalid_request")
    bad = {"query": "q", "run": "r", "batch": -1, "attempts": []}
    assert code(await api.ask("POST", "/v0/sinks/commit", bad)) == (400, "invalid_request")


def test_committed_batches_survive_a_kill_and_open_ones_are_taken_over(
    serve: Callable[..., Any],
) -> None:
    def begin_on(server: Server, run: str, batch: int) -> dict[str, Any]:
        body = {"query": "q", "run": run, "batch": batch, "attempt": "0.0"}
        return dict(server.ask("POST", "/v0/sinks/tasks", body)[1])

    def write_on(server: Server, begun: dict[str, Any], value: bytes) -> None:
        answer = server.client.post(
            "/v0/topics/t/batches", content=transactional(begun, 0, value), headers=BYTES
        )
        assert answer.status_code == 200, answer.text

    def commit_on(server: Server, begun: dict[str, Any], run: str, batch: int) -> tuple[int, Any]:
        named = [{"attempt": "0.0", **_stamp(begun)}]
        body = {"query": "q", "run": run, "batch": batch, "attempts": named}
        return server.ask("POST", "/v0/sinks/commit", body)

    with serve() as server:
        server.ask("PUT", "/v0/topics/t", {"durable": True})
        begun = begin_on(server, "r", 0)
        write_on(server, begun, b'"kept"')
        assert commit_on(server, begun, "r", 0)[0] == 200
        write_on(server, begin_on(server, "r", 1), b'"left"')
        server.process.kill()
    with serve() as server:
        assert commit_on(server, begun, "r", 0) == (200, {"committed": True, "repeated": True})
        again = begin_on(server, "r2", 1)
        write_on(server, again, b'"again"')
        assert commit_on(server, again, "r2", 1)[0] == 200
        found = server.ask("POST", "/v0/topics/t/diff", {"from_seq": 0})[1]["records"]
        assert [record["data"] for record in found] == ["kept", "again"]

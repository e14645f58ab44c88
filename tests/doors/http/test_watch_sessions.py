"""Watch sessions: who may create one, what the response holds, and who may open its stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from mainstem.doors.http.transport.context import HttpLimits
from tests.support.clock import ManualClock

from .conftest import Api, code
from .watching import EventStream, numbers, session, watch

Open = Callable[..., Any]


# Making a session


async def test_a_session_names_its_topics_and_cursors(api: Api) -> None:
    await api.write("a", 1, 2, 3)
    await api.put("b")
    body = await session(api, topics={"a": {"from_seq": 1}, "b": {}})
    assert re.fullmatch(r"wid_[A-Za-z0-9_-]{22}", body["wid"])
    assert body["stream_url"] == f"/v0/watch/{body['wid']}"
    assert body["session_ttl_ms"] == 300_000
    assert body["topics"] == {
        "a": {"from_seq": 1, "head_seq": 3, "earliest_seq": 1},
        "b": {"from_seq": 0, "head_seq": 0, "earliest_seq": 1},
    }
    assert body["performance"]["server_total_ms"] >= 0
    assert set(body) == {"wid", "stream_url", "session_ttl_ms", "topics", "performance"}


async def test_tail_starts_at_the_end_whatever_from_seq_is(api: Api) -> None:
    await api.write("a", 1, 2, 3)
    body = await session(api, topics={"a": {"from_seq": 1, "tail": True}})
    assert body["topics"]["a"]["from_seq"] == 3
    async with EventStream(api.context, body["stream_url"]) as stream:
        assert [event.name for event in await stream.events(1)] == ["caught-up"]
        await api.write("a", "new")
        (event,) = await stream.events(1)
        assert numbers(event) == [4]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"topics": {}},
        {"topics": []},
        {"topics": {f"t{number}": {} for number in range(257)}},
        {"topics": {"a": {"from_seq": -1}}},
        {"topics": {"a": {"from_seq": "1"}}},
        {"topics": {"a": {}}, "limit": "many"},
        {"topics": {"a": {}}, "include_data": 1},
    ],
)
async def test_an_invalid_session_is_refused(api: Api, body: dict[str, object]) -> None:
    await api.put("a")
    assert code(await api.ask("POST", "/v0/watch", body)) == (400, "invalid_request")


async def test_a_session_takes_256_topics(api: Api) -> None:
    for number in range(256):
        await api.write(f"t{number}", number)
    async with await watch(api, *(f"t{number}" for number in range(256))) as stream:
        events = await stream.events(512)
    assert {event.data["topic"] for event in events} == {f"t{number}" for number in range(256)}
    assert events[-1].cursors == {f"t{number}": 1 for number in range(256)}


async def test_an_unknown_topic_is_refused_unless_the_client_is_lenient(api: Api) -> None:
    await api.put("a")
    answer = await api.ask("POST", "/v0/watch", {"topics": {"a": {}, "b": {}}})
    assert code(answer) == (404, "topic_not_found")
    assert answer[1]["error"]["detail"]["topic"] == "b"
    status, body = await api.ask("POST", "/v0/watch?lenient=true", {"topics": {"a": {}, "b": {}}})
    assert (status, list(body["topics"])) == (200, ["a"])


async def test_a_lenient_session_of_nothing_ends_at_once(api: Api) -> None:
    status, body = await api.ask("POST", "/v0/watch?lenient=1", {"topics": {"nowhere": {}}})
    assert (status, body["topics"]) == (200, {})
    async with EventStream(api.context, body["stream_url"]) as stream:
        await stream.ended()
        assert stream.complete


async def test_bodies_need_a_json_content_type(api: Api) -> None:
    answer = await api.client.post("/v0/watch", content=b"{}")
    assert answer.status_code == 415


@pytest.mark.alone("workers go by the age of the files that sessions are in")
async def test_the_number_of_sessions_is_bounded_and_idle_ones_are_evicted(
    open_api: Open, clock: ManualClock
) -> None:
    async with open_api(bounds=HttpLimits(watch_sessions=2)) as api:
        await api.put("a")
        first, second = await session(api, "a"), await session(api, "a")
        answer = await api.ask("POST", "/v0/watch", {"topics": {"a": {}}})
        assert code(answer) == (429, "throttled")
        assert answer[1]["error"]["detail"] == {"limit": "max_watch_sessions", "max": 2}
        async with EventStream(api.context, first["stream_url"]) as stream:
            await stream.events(1)
            clock.advance(299_999)
            assert code(await api.ask("POST", "/v0/watch", {"topics": {"a": {}}})) == (429, "throttled")
            clock.advance(1)
            await session(api, "a")
            assert code(await api.ask("GET", second["stream_url"])) == (404, "not_found")
        # The connected one stayed, and is idle from the moment its connection closed.
        clock.advance(299_999)
        async with EventStream(api.context, first["stream_url"]) as stream:
            assert stream.status == 200
        clock.advance(300_000)
        assert code(await api.ask("GET", first["stream_url"])) == (404, "not_found")


# Opening a stream


async def test_a_stream_has_its_headers_and_starts_with_retry(api: Api) -> None:
    async with await watch(api, *[(await api.write("a", 1))["topic"]]) as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        assert stream.messages[1]["body"] == b"retry: 2000\n\n"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("", 200),
        ("text/event-stream", 200),
        ("*/*", 200),
        ("text/html, */*;q=0.1", 200),
        ("application/json", 406),
        ("text/html", 406),
        ("text/event-stream;q=0", 406),
    ],
)
async def test_the_client_must_accept_event_streams(api: Api, accept: str, status: int) -> None:
    await api.put("a")
    url = (await session(api, "a"))["stream_url"]
    async with EventStream(api.context, url, accept=accept) as stream:
        assert stream.status == status
        if status == 406:
            assert json.loads(stream.messages[1]["body"])["error"]["code"] == "not_acceptable"


@pytest.mark.parametrize("wid", ["wid_" + 22 * "A", "wid_", "nothing", "wid_%00", "%F0%9F"])
async def test_an_unknown_session_is_not_found(api: Api, wid: str) -> None:
    assert code(await api.ask("GET", f"/v0/watch/{wid}")) == (404, "not_found")


async def test_only_the_key_that_created_a_session_may_read_it(open_api: Open) -> None:
    async with open_api(api_keys="maker,other,reader:r") as api:
        await api.ask("PUT", "/v0/topics/a", {}, key="maker")
        url = (await session(api, "a", key="maker"))["stream_url"]
        for key in ("other", "reader", "nobody", None):
            assert code(await api.ask("GET", url, key=key)) == (401, "unauthorized")
        assert code(await api.ask("GET", f"{url}?token=other")) == (401, "unauthorized")
        async with EventStream(api.context, url, authorization="Bearer maker") as stream:
            assert stream.status == 200
        async with EventStream(api.context, f"{url}?token=maker") as stream:
            assert stream.status == 200


async def test_a_token_in_the_query_opens_streams_and_nothing_else(open_api: Open) -> None:
    async with open_api(api_keys="k") as api:
        answer = await api.ask("POST", "/v0/watch?token=k", {"topics": {"a": {}}})
        assert code(answer) == (401, "unauthorized")


async def test_watching_needs_read_and_every_topic_within_the_prefixes(open_api: Open) -> None:
    async with open_api(api_keys="root,writer:w,mine:r:mine.") as api:
        await api.ask("PUT", "/v0/topics/mine.a", {}, key="root")
        await api.ask("PUT", "/v0/topics/yours.a", {}, key="root")
        assert code(await api.ask("POST", "/v0/watch", {"topics": {"mine.a": {}}}, key="writer")) == (
            403,
            "forbidden",
        )
        answer = await api.ask("POST", "/v0/watch", {"topics": {"mine.a": {}, "yours.a": {}}}, key="mine")
        assert code(answer) == (403, "forbidden")
        assert answer[1]["error"]["detail"]["topic"] == "yours.a"
        await session(api, "mine.a", key="mine")


async def test_streams_are_bounded_in_all_and_for_each_key(open_api: Open) -> None:
    bounds = HttpLimits(streams=3, streams_per_key=2)
    async with open_api(api_keys="one,two", bounds=bounds) as api:
        await api.ask("PUT", "/v0/topics/a", {}, key="one")
        one = (await session(api, "a", key="one"))["stream_url"] + "?token=one"
        two = (await session(api, "a", key="two"))["stream_url"] + "?token=two"
        async with EventStream(api.context, one), EventStream(api.context, one):
            answer = await api.ask("GET", one)
            assert code(answer) == (429, "throttled")
            assert answer[1]["error"]["detail"] == {"limit": "max_sse_connections_per_key", "max": 2}
            async with EventStream(api.context, two) as third:
                assert third.status == 200
                answer = await api.ask("GET", two)
                assert code(answer) == (429, "throttled")
                assert answer[1]["error"]["detail"] == {"limit": "max_sse_connections", "max": 3}
        async with EventStream(api.context, one) as again:
            assert again.status == 200


async def test_an_open_stream_does_not_count_as_a_request_in_flight(open_api: Open) -> None:
    async with open_api(bounds=HttpLimits(inflight_per_key=1)) as api:
        await api.put("a")
        async with await watch(api, "a"):
            assert (await api.write("a", 1))["last_seq"] == 1


async def test_only_get_is_allowed(api: Api) -> None:
    assert code(await api.ask("POST", "/v0/watch/wid_x", {})) == (405, "method_not_allowed")
    assert code(await api.ask("GET", "/v0/watch")) == (405, "method_not_allowed")

"""Watch sessions and their event streams, as section 7 of the contract has them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.doors.http.context import HttpLimits
from mainstem.doors.http.watch import _resume_at
from mainstem.ports.clock import ManualClock

from .conftest import Api, code
from .watching import EventStream, event_id

Open = Callable[..., Any]


async def session(api: Api, *names: str, key: str | None = None, **more: Any) -> Any:
    topics = more.pop("topics", {name: {} for name in names})
    status, body = await api.ask("POST", "/v0/watch", {"topics": topics, **more}, key=key)
    assert status == 200, body
    return body


async def watch(api: Api, *names: str, **more: Any) -> EventStream:
    return EventStream(api.context, (await session(api, *names, **more))["stream_url"])


def numbers(event: Any) -> list[int]:
    return [record["$seq"] for record in event.data["records"]]


# Making a session


async def test_a_session_names_its_topics_and_where_it_stands(api: Api) -> None:
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


async def test_tail_begins_at_the_head_whatever_from_seq_says(api: Api) -> None:
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
async def test_what_is_no_session_is_refused(api: Api, body: dict[str, object]) -> None:
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


async def test_sessions_are_bounded_and_those_that_idle_make_room(open_api: Open, clock: ManualClock) -> None:
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
        # The connected one stayed, and idles from the moment its connection went.
        clock.advance(299_999)
        async with EventStream(api.context, first["stream_url"]) as stream:
            assert stream.status == 200
        clock.advance(300_000)
        assert code(await api.ask("GET", first["stream_url"])) == (404, "not_found")


# Opening a stream


async def test_a_stream_has_its_headers_and_says_first_when_to_come_back(api: Api) -> None:
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
async def test_the_client_must_take_event_streams(api: Api, accept: str, status: int) -> None:
    await api.put("a")
    url = (await session(api, "a"))["stream_url"]
    async with EventStream(api.context, url, accept=accept) as stream:
        assert stream.status == status
        if status == 406:
            assert json.loads(stream.messages[1]["body"])["error"]["code"] == "not_acceptable"


@pytest.mark.parametrize("wid", ["wid_" + 22 * "A", "wid_", "nothing", "wid_%00", "%F0%9F"])
async def test_an_unknown_session_is_not_found(api: Api, wid: str) -> None:
    assert code(await api.ask("GET", f"/v0/watch/{wid}")) == (404, "not_found")


async def test_only_the_key_that_made_a_session_may_read_it(open_api: Open) -> None:
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


async def test_an_open_stream_is_no_request_in_flight(open_api: Open) -> None:
    async with open_api(bounds=HttpLimits(inflight_per_key=1)) as api:
        await api.put("a")
        async with await watch(api, "a"):
            assert (await api.write("a", 1))["last_seq"] == 1


async def test_only_get_is_known_there(api: Api) -> None:
    assert code(await api.ask("POST", "/v0/watch/wid_x", {})) == (405, "method_not_allowed")
    assert code(await api.ask("GET", "/v0/watch")) == (405, "method_not_allowed")


# Records


async def test_the_backlog_comes_first_then_caught_up_once_then_what_is_new(api: Api) -> None:
    await api.write("a", {"n": 1}, [2])
    async with await watch(api, "a") as stream:
        record, caught_up = await stream.events(2)
        assert record.name == "record"
        assert list(record.data) == ["topic", "from_seq", "head_seq", "records", "to_seq"]
        assert (record.data["topic"], record.data["from_seq"], record.data["to_seq"]) == ("a", 0, 2)
        assert record.data["head_seq"] == 2
        assert [entry["data"] for entry in record.data["records"]] == [{"n": 1}, [2]]
        assert record.cursors == caught_up.cursors == {"a": 2}
        assert (caught_up.name, caught_up.data) == ("caught-up", {"topic": "a", "head_seq": 2})
        for number in (3, 4):
            await api.write("a", number)
            (event,) = await stream.events(1)
            assert (event.name, numbers(event), event.cursors) == ("record", [number], {"a": number})
            assert event.data["from_seq"] == number - 1


async def test_an_empty_topic_is_caught_up_with_at_once(api: Api) -> None:
    await api.put("a")
    async with await watch(api, "a") as stream:
        (event,) = await stream.events(1)
        assert (event.name, event.data, event.cursors) == (
            "caught-up",
            {"topic": "a", "head_seq": 0},
            {"a": 0},
        )


async def test_a_frame_holds_up_to_limit_records(api: Api) -> None:
    await api.write("a", *range(7))
    async with await watch(api, "a", limit=3) as stream:
        *frames, last = await stream.until("caught-up")
        assert [numbers(event) for event in frames] == [[1, 2, 3], [4, 5, 6], [7]]
        assert [event.data["head_seq"] for event in frames] == [7, 7, 7]
        assert last.data["head_seq"] == 7
        # A backlog that is more than one frame is one to catch up with again.
        await api.write("a", *range(4))
        again = await stream.events(3)
        assert [event.name for event in again] == ["record", "record", "caught-up"]


async def test_a_frame_ends_before_its_byte_budget_but_never_before_its_first_record(api: Api) -> None:
    await api.write("a", *["x" * 98] * 4)
    async with await watch(api, "a", max_batch_bytes=250) as stream:
        frames = await stream.events(3)
        assert [numbers(event) for event in frames[:2]] == [[1, 2], [3, 4]]
    async with await watch(api, "a", max_batch_bytes=1) as stream:
        frames = await stream.events(5)
        assert [numbers(event) for event in frames[:4]] == [[1], [2], [3], [4]]


async def test_limits_of_zero_are_the_defaults_and_large_ones_are_clamped(api: Api) -> None:
    await api.write("a", *range(1200))
    async with await watch(api, "a", limit=0, max_batch_bytes=0) as stream:
        frames = await stream.until("caught-up")
        assert [len(numbers(event)) for event in frames[:-1]] == [256, 256, 256, 256, 176]
    async with await watch(api, "a", limit=10**9, max_batch_bytes=10**12) as stream:
        frames = await stream.until("caught-up")
        assert [len(numbers(event)) for event in frames[:-1]] == [1000, 200]


async def test_records_show_what_was_asked_for(api: Api) -> None:
    await api.records("a", {"data": 1, "tag": "t", "node": "n", "meta": {"m": 1}}, {"data": None})
    seen = {}
    for name, options in {
        "default": {},
        "tags": {"include_tags": True},
        "no meta": {"include_meta": False},
        "no data": {"include_data": False},
    }.items():
        async with await watch(api, "a", **options) as stream:
            seen[name] = [set(record) for record in (await stream.events(2))[0].data["records"]]
    assert seen["default"] == [{"$seq", "$ts", "$node", "data", "meta"}, {"$seq", "$ts", "data"}]
    assert seen["tags"] == [{"$seq", "$ts", "$node", "$tag", "data", "meta"}, {"$seq", "$ts", "data"}]
    assert seen["no meta"] == [{"$seq", "$ts", "$node", "data"}, {"$seq", "$ts", "data"}]
    assert seen["no data"] == [{"$seq", "$ts", "$node", "meta"}, {"$seq", "$ts"}]


async def test_a_watcher_does_not_get_the_records_of_its_own_node(api: Api) -> None:
    await api.put("a")
    async with await watch(api, "a", node="me") as mine, await watch(api, "a", node=["me", "you"]) as ours:
        await mine.events(1), await ours.events(1)
        await api.write("a", 1, node="me")
        await api.write("a", 2, node="you")
        await api.write("a", 3)
        got = []
        while 3 not in got:
            got += numbers((await mine.events(1))[0])
        assert got == [2, 3]
        (event,) = await ours.events(1)
        assert (numbers(event), event.data["to_seq"]) == ([3], 3)


async def test_line_breaks_inside_json_do_not_break_frames(api: Api) -> None:
    body = b'{"records":[{"data":{\n"a":\r\n[1,\r2]}, "meta":{\n"x":"\\n"}}]}'
    answer = await api.client.post("/v0/topics/a", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 201
    async with await watch(api, "a") as stream:
        record = (await stream.events(2))[0].data["records"][0]
        assert (record["data"], record["meta"]) == ({"a": [1, 2]}, {"x": "\n"})


async def test_one_stream_carries_many_topics_and_every_id_all_cursors(api: Api) -> None:
    await api.write("a", 1)
    await api.write("b", 1, 2)
    async with await watch(api, "a", "b") as stream:
        events = await stream.events(4)
        assert events[-1].cursors == {"a": 1, "b": 2}
        await api.write("b", 3)
        (event,) = await stream.events(1)
        assert (event.data["topic"], event.cursors) == ("b", {"a": 1, "b": 3})


async def test_partitions_are_watched_one_at_a_time_and_named(api: Api) -> None:
    await api.broker.create_topic("p", partitions=2)
    await api.broker.append_values("p", [b"0"], partition=0)
    await api.broker.append_values("p", [b"1", b"2"], partition=1)
    async with await watch(api, topics={"p": {"partition": 1}}) as stream:
        event = (await stream.events(2))[0]
        assert (event.data["$partition"], numbers(event)) == (1, [1, 2])
    assert code(await api.ask("POST", "/v0/watch", {"topics": {"p": {"partition": 2}}}))[0] == 404


async def test_deleted_records_are_passed_over_in_silence(api: Api) -> None:
    await api.write("a", 1, 2, 3)
    await api.broker.trim("a", 2)
    async with await watch(api, "a") as stream:
        record, caught_up = await stream.events(2)
        assert (record.name, numbers(record), caught_up.name) == ("record", [3], "caught-up")


async def test_watching_counts_as_reading(api: Api, clock: ManualClock) -> None:
    await api.put("a")
    assert (await api.state("a"))["last_read_ts"] is None
    async with await watch(api, "a") as stream:
        await stream.events(1)
    assert (await api.state("a"))["last_read_ts"] == clock.now_ms()


# Tombstones


async def test_a_gap_met_on_connecting_is_too_old_and_a_later_one_has_its_reason(api: Api) -> None:
    await api.put("a", cap_records=2)
    await api.write("a", *range(5))
    async with await watch(api, "a") as stream:
        tombstone, record, _ = await stream.events(3)
        assert (tombstone.name, tombstone.cursors) == ("tombstone", {"a": 3})
        assert tombstone.data == {
            "topic": "a",
            "reason": "from_seq_too_old",
            "gap_from": 1,
            "gap_to": 3,
            "earliest_seq": 4,
            "head_seq": 5,
        }
        assert (numbers(record), record.data["from_seq"]) == ([4, 5], 3)
        stream.reading.clear()  # it falls behind, further than the topic keeps
        await api.write("a", "first")
        for number in range(5):
            await api.write("a", number)
        stream.reading.set()
        events = []
        while not events or events[-1].data["head_seq"] != 11 or events[-1].name != "record":
            events += await stream.events(1)
        tombstone = next(event for event in events if event.name == "tombstone")
        assert (tombstone.data["reason"], tombstone.data["gap_to"]) == ("cap", 9)
        assert numbers(events[-1]) == [10, 11]


async def test_every_connection_has_a_first_read_of_its_own(api: Api) -> None:
    await api.put("a", cap_records=1)
    await api.write("a", 1, 2)
    url = (await session(api, "a"))["stream_url"]
    for _ in range(2):
        async with EventStream(api.context, url, last_event_id=event_id({"a": 0})) as stream:
            assert (await stream.events(3))[0].data["reason"] == "from_seq_too_old"


async def test_a_cursor_past_the_head_of_a_topic_made_anew_is_a_gap(api: Api) -> None:
    await api.write("a", *range(9))
    url = (await session(api, topics={"a": {"from_seq": 9}}))["stream_url"]
    await api.ask("DELETE", "/v0/topics/a")
    await api.write("a", "new")
    async with EventStream(api.context, url) as stream:
        tombstone, record, _ = await stream.events(3)
        assert (tombstone.name, tombstone.cursors) == ("tombstone", {"a": 0})
        assert (tombstone.data["gap_from"], tombstone.data["gap_to"]) == (1, 1)
        assert (record.data["from_seq"], numbers(record)) == (0, [1])


# Topics that go


async def test_a_deleted_topic_is_told_of_and_the_rest_goes_on(api: Api) -> None:
    await api.write("a", 1)
    await api.put("b")
    async with await watch(api, "a", "b") as stream:
        await stream.events(3)
        await api.ask("DELETE", "/v0/topics/a")
        (event,) = await stream.events(1)
        assert event.name == "topic-deleted"
        assert event.data == {"topic": "a", "head_seq": 0, "reason": "deleted"}
        assert event.cursors == {"b": 0}
        await api.write("b", 1)
        assert (await stream.events(1))[0].cursors == {"b": 1}
        await api.ask("DELETE", "/v0/topics/b")
        assert (await stream.events(1))[0].data["topic"] == "b"
        await stream.ended()
        assert stream.complete


async def test_a_session_whose_topics_are_all_gone_is_gone(api: Api) -> None:
    await api.put("a")
    url = (await session(api, "a"))["stream_url"]
    await api.ask("DELETE", "/v0/topics/a")
    async with EventStream(api.context, url) as stream:
        assert (await stream.events(1))[0].name == "topic-deleted"
        await stream.ended()
    assert code(await api.ask("GET", url)) == (404, "not_found")


# Heartbeats


async def test_a_quiet_stream_beats_and_one_that_spoke_waits(api: Api, clock: ManualClock) -> None:
    await api.put("a")
    heartbeats = api.context.live.heartbeats
    async with await watch(api, "a", heartbeat_ms=5_000) as stream:
        await stream.events(1)
        clock.advance(4_900)
        heartbeats.look()
        assert stream.waiting() == []
        await api.write("a", 1)
        await stream.events(1)
        clock.advance(4_900)
        heartbeats.look()
        assert stream.waiting() == []
        clock.advance(400)
        heartbeats.look()
        (beat,) = await stream.events(1)
        assert beat.data == f": hb {clock.now_ms()}"
        clock.advance(5_300)
        heartbeats.look()
        assert len(await stream.events(1)) == 1


@pytest.mark.parametrize(("asked", "given_ms"), [(0, 1_000), (1, 1_000), (10**9, 60_000), (-5, 1_000)])
async def test_heartbeats_are_clamped(api: Api, clock: ManualClock, asked: int, given_ms: int) -> None:
    await api.put("a")
    async with await watch(api, "a", heartbeat_ms=asked) as stream:
        await stream.events(1)
        clock.advance(given_ms - 300)
        api.context.live.heartbeats.look()
        assert stream.waiting() == []
        clock.advance(600)
        api.context.live.heartbeats.look()
        assert len(await stream.events(1)) == 1


# Resuming


async def test_a_session_goes_on_where_it_stopped(api: Api) -> None:
    await api.write("a", 1, 2)
    url = (await session(api, "a"))["stream_url"]
    async with EventStream(api.context, url) as stream:
        await stream.events(2)
    await api.write("a", 3)
    async with EventStream(api.context, url) as stream:
        record, caught_up = await stream.events(2)
        assert (numbers(record), caught_up.name) == ([3], "caught-up")


async def test_an_event_id_rewinds_and_never_goes_ahead(api: Api) -> None:
    await api.write("a", 1, 2, 3)
    await api.write("b", 1, 2, 3)
    url = (await session(api, "a", "b"))["stream_url"]
    async with EventStream(api.context, url) as stream:
        await stream.events(4)
    resumed = event_id({"a": 1, "b": 99, "unknown": 0})
    async with EventStream(api.context, url, last_event_id=resumed) as stream:
        events = await stream.events(3)
        records = [event for event in events if event.name == "record"]
        assert [(event.data["topic"], numbers(event)) for event in records] == [("a", [2, 3])]


@pytest.mark.parametrize(
    "event_id",
    [
        "",
        "!!!",
        "bm90IGpzb24",
        base64.urlsafe_b64encode(b'{"a":-1}').decode(),
        base64.urlsafe_b64encode(b'{"a":"0"}').decode(),
        base64.urlsafe_b64encode(b'["a"]').decode(),
        base64.urlsafe_b64encode(b'{"a":0.5}').decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
        base64.urlsafe_b64encode(b"[" * 5000).decode(),
        "A" * 60_000,
    ],
)
async def test_an_event_id_that_cannot_be_read_is_ignored(api: Api, event_id: str) -> None:
    await api.write("a", 1, 2)
    url = (await session(api, topics={"a": {"from_seq": 1}}))["stream_url"]
    async with EventStream(api.context, url, last_event_id=event_id) as stream:
        assert numbers((await stream.events(2))[0]) == [2]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda text: text.encode())))
def test_no_event_id_does_harm(raw: bytes) -> None:
    for given_id in (raw, base64.urlsafe_b64encode(raw), base64.urlsafe_b64encode(raw).rstrip(b"=")):
        cursors = _resume_at(given_id)
        assert all(isinstance(name, str) and cursor >= 0 for name, cursor in cursors.items())


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=20), st.integers(0, 2**63), max_size=5))
def test_every_map_of_cursors_survives_the_way_out_and_back(cursors: dict[str, int]) -> None:
    assert _resume_at(event_id(cursors).encode()) == cursors


async def test_two_connections_of_a_session_each_get_everything(api: Api) -> None:
    await api.put("a")
    url = (await session(api, "a"))["stream_url"]
    async with EventStream(api.context, url) as one, EventStream(api.context, url) as two:
        await one.events(1), await two.events(1)
        await api.write("a", 1)
        assert numbers((await one.events(1))[0]) == numbers((await two.events(1))[0]) == [1]


# Slow readers, and the end


async def test_a_reader_that_stops_holds_up_nobody_and_costs_one_frame(api: Api) -> None:
    await api.put("a")
    async with await watch(api, "a", limit=10) as slow, await watch(api, "a", limit=10) as fast:
        await slow.events(1), await fast.events(1)
        slow.reading.clear()
        got: list[int] = []
        for number in range(50):
            await api.write("a", number)
            while len(got) <= number:
                got += numbers((await fast.events(1))[0])
        assert got == list(range(1, 51))
        assert slow.blocked == 1
        slow.reading.set()
        late: list[int] = []
        while len(late) < 50:
            late += [
                seq for event in await slow.events(1) if event.name == "record" for seq in numbers(event)
            ]
        assert late == list(range(1, 51))


async def test_shutting_down_is_said_before_the_stream_ends(api: Api) -> None:
    await api.put("a")
    async with await watch(api, "a") as stream:
        await stream.events(1)
        api.context.stopping.set()
        await api.context.live.shut_down()
        (event,) = await stream.events(1)
        assert (event.name, event.data["code"]) == ("error", "server_shutting_down")
        await stream.ended()
        assert stream.complete
    url = (await session(api, "a"))["stream_url"]
    assert code(await api.ask("GET", url)) == (503, "shutting_down")


async def test_nothing_is_left_of_streams_that_ended(api: Api) -> None:
    await api.put("a")
    for _ in range(3):
        async with await watch(api, "a") as stream:
            await stream.events(1)
    assert api.context.streams == 0
    assert api.broker.watching.places == 0
    assert not api.context.live.open

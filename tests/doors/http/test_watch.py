"""Event streams: their frames, the order of the frames, and how streams end."""

from __future__ import annotations

import pytest

from tests.support.clock import ManualClock

from .conftest import Api, code
from .watching import EventStream, event_id, numbers, session, watch

# Records


async def test_the_backlog_comes_first_then_caught_up_once_then_new_records(api: Api) -> None:
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
        # A backlog of more than one frame is caught up with again.
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


async def test_deleted_records_are_skipped_silently(api: Api) -> None:
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
        stream.reading.clear()  # it falls behind, further than the topic's retention
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


async def test_every_connection_has_its_own_first_read(api: Api) -> None:
    await api.put("a", cap_records=1)
    await api.write("a", 1, 2)
    url = (await session(api, "a"))["stream_url"]
    for _ in range(2):
        async with EventStream(api.context, url, last_event_id=event_id({"a": 0})) as stream:
            assert (await stream.events(3))[0].data["reason"] == "from_seq_too_old"


async def test_a_cursor_past_the_end_of_a_recreated_topic_is_a_gap(api: Api) -> None:
    await api.write("a", *range(9))
    url = (await session(api, topics={"a": {"from_seq": 9}}))["stream_url"]
    await api.ask("DELETE", "/v0/topics/a")
    await api.write("a", "new")
    async with EventStream(api.context, url) as stream:
        tombstone, record, _ = await stream.events(3)
        assert (tombstone.name, tombstone.cursors) == ("tombstone", {"a": 0})
        assert (tombstone.data["gap_from"], tombstone.data["gap_to"]) == (1, 1)
        assert (record.data["from_seq"], numbers(record)) == (0, [1])


# Deleted topics


async def test_a_deleted_topic_is_reported_and_the_others_continue(api: Api) -> None:
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


async def test_a_quiet_stream_sends_heartbeats_and_a_busy_one_does_not(api: Api, clock: ManualClock) -> None:
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

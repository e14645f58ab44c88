"""The web socket: commands in, records out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem.api.records import Publish, Subscribe, Unsubscribe
from mainstem.doors.http.live.websocket import decode_head, decoder_of
from mainstem.doors.http.transport.context import HttpLimits
from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.http.transport.requests import decoded

from .conftest import Api, code
from .watching import EventStream, WebSocket

Open = Callable[..., Any]


def numbers(message: Any) -> list[int]:
    return [record["$seq"] for record in message["records"]]


# The handshake


async def test_a_socket_needs_a_key_where_keys_are_used(open_api: Open) -> None:
    async with open_api(api_keys="k") as api:
        for headers in ({}, {"authorization": "Bearer other"}):
            async with WebSocket(api.context, **headers) as socket:
                assert not socket.accepted
                start, body = socket.messages
                assert start["status"] == 401
                assert json.loads(body["body"])["error"]["code"] == "unauthorized"
        async with WebSocket(api.context, authorization="Bearer k") as socket:
            assert socket.accepted


async def test_there_is_no_socket_elsewhere(api: Api) -> None:
    async with WebSocket(api.context, "/v0/elsewhere") as socket:
        assert socket.messages[0]["status"] == 404


async def test_a_plain_request_is_told_to_upgrade(api: Api) -> None:
    assert code(await api.ask("GET", "/v0/ws")) == (400, "invalid_request")


async def test_a_socket_counts_as_an_event_stream(open_api: Open) -> None:
    async with open_api(bounds=HttpLimits(streams=1)) as api:
        await api.put("a")
        url = (await api.ask("POST", "/v0/watch", {"topics": {"a": {}}}))[1]["stream_url"]
        async with WebSocket(api.context) as socket:
            assert socket.accepted
            assert code(await api.ask("GET", url)) == (429, "throttled")
            async with WebSocket(api.context) as second:
                assert second.messages[0]["status"] == 429
        async with EventStream(api.context, url) as stream:
            assert stream.status == 200


# Commands


async def test_ping_is_answered(api: Api) -> None:
    async with WebSocket(api.context) as socket:
        assert await socket.ask(op="ping") == {"op": "pong", "ts": api.clock.now_ms()}


@pytest.mark.parametrize(
    "request_id",
    ['"one"', "1.50", "1e3", "123456789012345678901234567890", '{"a" : [null]}', "null", '"\\u00e9é"'],
)
async def test_request_ids_come_back_byte_for_byte(api: Api, request_id: str) -> None:
    async with WebSocket(api.context) as socket:
        for op in ("ping", "unsubscribe", "no such", "subscribe", "publish"):
            socket.send(f'{{"op":"{op}","request_id":{request_id}}}')
            assert f'"request_id":{request_id},' in await socket.text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "invalid_json"),
        ("{", "invalid_json"),
        ("nonsense", "invalid_json"),
        ("[" * 5000, "invalid_json"),
        ("[]", "unsupported_message"),
        ("1", "unsupported_message"),
        ("{}", "unsupported_message"),
        ('{"op":1}', "unsupported_message"),
        ('{"op":"no such"}', "unsupported_message"),
        (b'{"op":"ping"}', "unsupported_message"),
        ('{"op":"subscribe"}', "invalid_request"),
        ('{"op":"subscribe","topics":[]}', "invalid_request"),
        ('{"op":"subscribe","topic":1}', "invalid_request"),
        ('{"op":"subscribe","topic":"a","from_seq":-1}', "invalid_request"),
        ('{"op":"subscribe","topic":"nowhere"}', "topic_not_found"),
        ('{"op":"publish"}', "invalid_request"),
        ('{"op":"publish","topic":"a"}', "invalid_request"),
        ('{"op":"publish","topic":"a","records":[]}', "invalid_request"),
        ('{"op":"publish","topic":"not a name","records":[{"data":1}]}', "invalid_request"),
        ('{"op":"publish","topic":"b","create":false,"records":[{"data":1}]}', "topic_not_found"),
    ],
)
async def test_an_invalid_command_is_an_error_and_the_socket_stays_open(
    api: Api, text: str | bytes, expected: str
) -> None:
    await api.put("a")
    async with WebSocket(api.context) as socket:
        socket.send(text)
        answer = await socket.next()
        assert (answer["op"], answer["code"]) == ("error", expected)
        assert answer["message"]
        assert (await socket.ask(op="ping"))["op"] == "pong"


async def test_every_command_needs_its_scope(open_api: Open) -> None:
    async with open_api(api_keys="root,reader:r,writer:w,mine:rw:mine.") as api:
        await api.ask("PUT", "/v0/topics/a", {}, key="root")

        async def refused(key: str, **command: Any) -> bool:
            async with WebSocket(api.context, authorization=f"Bearer {key}") as socket:
                answer = await socket.ask(**command)
                return bool(answer["op"] == "error" and answer["code"] == "forbidden")

        records = [{"data": 1}]
        assert await refused("writer", op="subscribe", topic="a")
        assert not await refused("reader", op="subscribe", topic="a")
        assert await refused("reader", op="publish", topic="a", records=records)
        assert not await refused("writer", op="publish", topic="a", records=records)
        assert await refused("writer", op="publish", topic="a", records=records, config={})
        assert not await refused("root", op="publish", topic="a", records=records, config={})
        assert await refused("mine", op="subscribe", topic="a")
        assert await refused("mine", op="publish", topic="a", records=records)
        assert not await refused("mine", op="publish", topic="mine.a", records=records)


# Publishing


async def test_a_publish_is_acknowledged_as_a_post_is_answered(api: Api) -> None:
    async with WebSocket(api.context) as socket:
        ack = await socket.ask(
            op="publish",
            request_id=1,
            topic="a",
            records=[{"data": {"n": 1}, "tag": "t", "meta": {"m": 1}}, {"data": None}],
            node="me",
        )
        assert (ack["op"], ack["request_id"], ack["topic"]) == ("ack", 1, "a")
        assert (ack["first_seq"], ack["last_seq"], ack["seqs"], ack["head_seq"]) == (1, 2, [1, 2], 2)
        assert (ack["created"], ack["deduped"], ack["count"]) == (True, False, 2)
        assert ack["performance"]["server_total_ms"] >= 0
        assert "seqs" not in await socket.ask(
            op="publish", topic="a", records=[{"data": 1}], return_seqs=False
        )
    records = (await api.diff("a", include_tags=True))["records"]
    assert [record["data"] for record in records] == [{"n": 1}, None, 1]
    assert (records[0]["$node"], records[0]["$tag"], records[0]["meta"]) == ("me", "t", {"m": 1})


async def test_published_records_have_their_own_delay_and_time_to_live(api: Api) -> None:
    await api.put("q", type="queue")
    async with WebSocket(api.context) as socket:
        for records in ([{"data": 1, "delay_ms": 500}, {"data": 2, "ttl_ms": 100}], [{"data": 3}]):
            assert (await socket.ask(op="publish", topic="q", records=records))["op"] == "ack"
        refused = await socket.ask(op="publish", topic="new", records=[{"data": 1, "delay_ms": 1}])
        assert (refused["op"], refused["code"]) == ("error", "invalid_record")
    api.clock.advance(101)
    assert [record["data"] for record in (await api.diff("q"))["records"]] == [1, 3]
    claim = {"node": "w", "max": 10}
    assert [job["data"] for job in (await api.ask("POST", "/v0/topics/q/claim", claim))[1]["claimed"]] == [3]
    api.clock.advance(400)
    assert [job["data"] for job in (await api.ask("POST", "/v0/topics/q/claim", claim))[1]["claimed"]] == [1]


async def test_publishes_are_deduplicated_and_may_configure_the_topics_they_create(api: Api) -> None:
    async with WebSocket(api.context) as socket:
        command = {"op": "publish", "topic": "a", "records": [{"data": 1}], "idempotency_key": "k"}
        first = await socket.ask(**command, config={"cap_records": 7})
        again = await socket.ask(**command)
        assert (first["deduped"], again["deduped"], again["seqs"]) == (False, True, first["seqs"])
    assert (await api.state("a"))["config"]["cap_records"] == 7


async def test_publishes_sent_without_waiting_keep_their_order(api: Api) -> None:
    async with WebSocket(api.context) as socket:
        for number in range(200):
            socket.send(
                json.dumps(
                    {"op": "publish", "request_id": number, "topic": "a", "records": [{"data": number}]}
                )
            )
        acks = [await socket.next() for _ in range(200)]
        assert sorted(ack["request_id"] for ack in acks) == list(range(200))
        assert all(ack["seqs"] == [ack["request_id"] + 1] for ack in acks)
    assert [record["data"] for record in (await api.diff("a"))["records"]] == list(range(200))


# Subscribing


async def test_a_subscription_returns_its_cursor_then_sends_old_and_new_records(api: Api) -> None:
    await api.write("a", 1, 2)
    async with WebSocket(api.context) as socket:
        subscribed = await socket.ask(op="subscribe", request_id="s", topic="a", from_seq=1)
        assert subscribed == {
            "op": "subscribed",
            "request_id": "s",
            "topics": {"a": {"from_seq": 1, "head_seq": 2, "earliest_seq": 1}},
        }
        record = await socket.next()
        assert (record["op"], record["topic"], record["from_seq"], record["to_seq"]) == ("record", "a", 1, 2)
        assert record["head_seq"] == 2
        assert numbers(record) == [2]
        assert await socket.next() == {"op": "caught_up", "topic": "a", "head_seq": 2}
        await api.write("a", 3)
        assert numbers(await socket.next()) == [3]


async def test_many_topics_are_subscribed_to_by_list_or_by_map(api: Api) -> None:
    await api.write("a", 1)
    await api.write("b", 1)
    async with WebSocket(api.context) as socket:
        answer = await socket.ask(op="subscribe", topics=["a", "b"], tail=True)
        assert {name: entry["from_seq"] for name, entry in answer["topics"].items()} == {"a": 1, "b": 1}
        assert [(await socket.next())["op"] for _ in range(2)] == ["caught_up", "caught_up"]
    async with WebSocket(api.context) as socket:
        answer = await socket.ask(op="subscribe", topics={"a": {"from_seq": 0}, "b": {"tail": True}})
        assert {name: entry["from_seq"] for name, entry in answer["topics"].items()} == {"a": 0, "b": 1}


async def test_unknown_topics_are_left_out_for_the_lenient(api: Api) -> None:
    await api.put("a")
    async with WebSocket(api.context) as socket:
        answer = await socket.ask(op="subscribe", topics=["a", "nowhere"], lenient=True)
        assert list(answer["topics"]) == ["a"]


async def test_records_show_what_the_subscription_asked_for(api: Api) -> None:
    await api.records("a", {"data": 1, "tag": "t", "node": "n", "meta": 1}, {"data": 2, "node": "me"})
    async with WebSocket(api.context) as socket:
        await socket.ask(
            op="subscribe", topic="a", include_tags=True, include_data=False, include_meta=False, node="me"
        )
        record = await socket.next()
        assert [set(entry) for entry in record["records"]] == [{"$seq", "$ts", "$tag", "$node"}]
        assert record["to_seq"] == 2


async def test_subscribers_see_the_context_of_a_trace_only_if_they_ask(api: Api) -> None:
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    write = {"records": [{"data": 1}]}
    await api.client.post("/v0/topics/a", json=write, headers={"traceparent": given})
    async with WebSocket(api.context) as asking, WebSocket(api.context) as other:
        await asking.ask(op="subscribe", topic="a", include_trace=True)
        await other.ask(op="subscribe", topic="a")
        assert (await asking.next())["records"][0]["$trace"] == given
        assert "$trace" not in (await other.next())["records"][0]


async def test_frames_are_bounded_by_limit_and_bytes(api: Api) -> None:
    await api.write("a", *range(5))
    async with WebSocket(api.context) as socket:
        await socket.ask(op="subscribe", topic="a", limit=2)
        assert [numbers(await socket.next()) for _ in range(3)] == [[1, 2], [3, 4], [5]]
        assert (await socket.next())["op"] == "caught_up"
        await socket.ask(op="subscribe", topic="a", max_batch_bytes=1)
        assert [numbers(await socket.next()) for _ in range(2)] == [[1], [2]]


async def test_subscribing_again_replaces_the_subscription(api: Api) -> None:
    await api.write("a", 1)
    async with WebSocket(api.context) as socket:
        for _ in range(2):
            assert (await socket.ask(op="subscribe", topic="a"))["op"] == "subscribed"
            assert numbers(await socket.next()) == [1]
            assert (await socket.next())["op"] == "caught_up"
        await api.write("a", 2)
        assert numbers(await socket.next()) == [2]
        assert (await socket.ask(op="ping"))["op"] == "pong"  # it came once


async def test_unsubscribing_ends_it(api: Api) -> None:
    await api.put("a")
    await api.put("b")
    async with WebSocket(api.context) as socket:
        await socket.ask(op="subscribe", topics=["a", "b"])
        assert [(await socket.next())["op"] for _ in range(2)] == ["caught_up", "caught_up"]
        gone = await socket.ask(op="unsubscribe", request_id=7, topic="a")
        assert gone == {"op": "unsubscribed", "request_id": 7, "topics": ["a"]}
        await api.write("a", 1)
        await api.write("b", 1)
        assert (await socket.next())["topic"] == "b"
        assert await socket.ask(op="unsubscribe", topic="never") == {"op": "unsubscribed", "topics": []}
        assert await socket.ask(op="unsubscribe") == {"op": "unsubscribed", "topics": ["b"]}
        assert api.broker.watching.places == 0


async def test_gaps_and_deleted_topics_are_reported(api: Api) -> None:
    await api.put("a", cap_records=1)
    await api.write("a", 1, 2)
    async with WebSocket(api.context) as socket:
        await socket.ask(op="subscribe", topic="a")
        tombstone = await socket.next()
        assert (tombstone["op"], tombstone["reason"]) == ("tombstone", "from_seq_too_old")
        assert (tombstone["gap_from"], tombstone["gap_to"]) == (1, 1)
        assert [(await socket.next())["op"] for _ in range(2)] == ["record", "caught_up"]
        await api.ask("DELETE", "/v0/topics/a")
        told = {"op": "topic_deleted", "topic": "a", "head_seq": 0, "reason": "deleted"}
        assert await socket.next() == told
        assert (await socket.ask(op="ping"))["op"] == "pong"


# Slow readers, the end, and noise


async def test_a_client_that_does_not_read_is_bounded_and_catches_up_later(api: Api) -> None:
    await api.put("a")
    async with WebSocket(api.context) as socket:
        await socket.ask(op="subscribe", topic="a")
        await socket.next()
        socket.reading.clear()
        for number in range(30):
            await api.write("a", number)
        while not socket.blocked:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        assert socket.blocked == 1
        socket.reading.set()
        got: list[int] = []
        while len(got) < 30:
            message = await socket.next()
            got += numbers(message) if message["op"] == "record" else []
        assert got == list(range(1, 31))


async def test_shutdown_is_announced_before_the_socket_closes(api: Api) -> None:
    async with WebSocket(api.context) as socket:
        await socket.ask(op="ping")
        await api.context.live.shut_down()
        told = await socket.next()
        assert (told["op"], told["code"]) == ("error", "server_shutting_down")
        await socket.ended()
        assert socket.messages[-1]["type"] == "websocket.close"
        assert socket.messages[-1]["code"] == 1001


async def test_a_closed_socket_leaves_nothing_behind(api: Api) -> None:
    await api.put("a")
    async with WebSocket(api.context) as socket:
        await socket.ask(op="subscribe", topic="a")
    assert (api.context.streams, api.broker.watching.places) == (0, 0)
    assert api.context.body_bytes == 0


_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=9),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
_fields = st.sampled_from(
    [
        "op",
        "request_id",
        "topic",
        "topics",
        "from_seq",
        "tail",
        "records",
        "config",
        "node",
        "limit",
        "partition",
    ]
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(_fields, _values, max_size=6),
    st.sampled_from([Subscribe, Unsubscribe, Publish]),
)
def test_commands_of_any_shape_are_read_or_refused(command: dict[str, Any], kind: type) -> None:
    body = json.dumps({**command, "op": "x"}).encode()
    assert decode_head(body).op == "x"
    with contextlib.suppress(Refusal):
        decoded(decoder_of(kind), body)


async def test_a_socket_survives_noise(api: Api) -> None:
    await api.put("a")
    noise = [
        json.dumps({"op": op, field: value})
        for op in ("subscribe", "unsubscribe", "publish", "ping", "", "\x00")
        for field in ("topic", "topics", "records", "from_seq", "request_id", "config", "node", "limit")
        for value in (
            None,
            -1,
            10**30,
            "",
            "a",
            "\ud800",
            [],
            [None],
            ["a"],
            {},
            {"a": {}},
            {"a": 1},
            [{"data": 1}],
        )
    ]
    async with WebSocket(api.context) as socket:
        for text in noise:
            socket.send(text)
        socket.send('{"op":"ping","request_id":"last"}')
        for _ in range(len(noise) * 3):
            if (await socket.next()).get("request_id") == "last":
                break
        else:
            pytest.fail("no answer after the noise")

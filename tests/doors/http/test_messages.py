"""The messages API: forwards, backwards, and by content."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from mainstem.doors.http.routes.messages import MESSAGE_VALUE_BYTES_DEFAULT
from mainstem.schemas.avro import AvroSchema
from mainstem.schemas.protobuf import ProtobufSchema

from .conftest import Api, code


async def messages(api: Api, query: str = "") -> Any:
    status, body = await api.ask("GET", f"/v0/topics/t/messages{query}")
    assert status == 200, body
    return body


def offsets(page: Any) -> list[int]:
    return [message["offset"] for message in page["messages"]]


async def filled(api: Api, count: int, size: int = 1) -> None:
    await api.broker.create_topic("t")
    for first in range(0, count, 50):
        values = [f"v{n:05}".encode() * size for n in range(first, min(first + 50, count))]
        await api.broker.append_values("t", values, keys=[b"k%d" % (n % 3) for n in range(len(values))])


async def test_the_newest_messages_come_first_unless_an_offset_is_given(api: Api) -> None:
    await filled(api, 130)
    newest = await messages(api, "?limit=30")
    assert offsets(newest) == list(range(100, 130))
    assert (newest["start"], newest["end"], newest["next_before"]) == (0, 130, 100)
    older = await messages(api, f"?limit=60&before={newest['next_before']}")
    assert offsets(older) == list(range(40, 100))
    oldest = await messages(api, f"?limit=60&before={older['next_before']}")
    assert offsets(oldest) == list(range(40))
    assert oldest["next_before"] == 0


async def test_forwards_from_an_offset_every_record_comes_once(api: Api) -> None:
    await filled(api, 130)
    seen: list[int] = []
    at = 0
    while at < 130:
        page = await messages(api, f"?limit=41&from={at}")
        seen += offsets(page)
        at = page["next_from"]
    assert seen == list(range(130))


async def test_a_page_from_below_the_start_begins_at_the_start_and_one_past_the_end_is_empty(
    api: Api,
) -> None:
    await filled(api, 100)
    await api.broker.trim("t", 60)
    assert offsets(await messages(api, "?from=3&limit=2")) == [60, 61]
    past = await messages(api, "?from=5000")
    assert (past["messages"], past["next_from"]) == ([], 100)
    assert offsets(await messages(api, "?before=70")) == list(range(60, 70))


async def test_key_value_and_headers_are_searched_case_insensitively(api: Api) -> None:
    await api.records(
        "t",
        {"data": {"name": "Ada"}, "tag": "eu:1", "meta": {"trace": "abc"}},
        {"data": {"name": "Bob"}, "tag": "us:1", "node": "n1"},
        {"data": "ada again", "tag": "us:2"},
    )
    assert offsets(await messages(api, "?key=EU")) == [0]
    assert offsets(await messages(api, "?value=ada")) == [0, 2]
    assert offsets(await messages(api, "?value=ada&key=us")) == [2]
    assert offsets(await messages(api, "?header=trace")) == [0]
    assert offsets(await messages(api, "?header=node%3Dn1")) == [1]
    assert offsets(await messages(api, "?value=nobody")) == []


async def test_values_are_searched_by_json_path_and_time(api: Api) -> None:
    values = (
        {"city": "Rome", "total": 5, "items": [{"price": 3}]},
        {"city": "Oslo", "total": 12, "error": None},
    )
    await api.write("orders", *values, "plain")
    await api.broker.append_values("orders", [b"no json", None], timestamps_ms=[1_000, 2_000])

    async def found(query: str) -> list[int]:
        status, body = await api.ask("GET", f"/v0/topics/orders/messages?{query}")
        assert status == 200, body
        return [message["offset"] for message in body["messages"]]

    assert await found("json=$.city%20=%20Rome") == [0]
    assert await found('json=$["city"]!="Rome"') == [1]
    assert await found("json=$.total>=12") == [1]
    assert await found("json=$.total<12") == [0]
    assert await found("json=$.city>12") == [], "a text and a number have no order"
    assert await found("json=$.items[0].price=3") == [0]
    assert await found("json=$.items[1]") == []
    assert await found("json=$.error") == [1]
    assert await found("json=$=plain") == [2]
    assert await found("since=1000&until=2000") == [3]
    for wrong in ("city=Rome", "$.", "$..city", "$[x]"):
        assert code(await api.ask("GET", f"/v0/topics/orders/messages?json={wrong}")) == (
            400,
            "invalid_request",
        )


async def test_binary_values_come_as_base64_and_null_stays_null(api: Api) -> None:
    await api.broker.create_topic("t")
    await api.broker.append_values("t", [b"\xff\x00", None, b""], keys=[b"\xfe", None, b""])
    first, second, third = (await messages(api))["messages"]
    assert first["value"] == {"base64": base64.b64encode(b"\xff\x00").decode()}
    assert first["key"] == {"base64": base64.b64encode(b"\xfe").decode()}
    assert (second["value"], second["key"], second["value_bytes"]) == (None, None, -1)
    assert (third["value"], third["key"], third["value_bytes"]) == ({"text": ""}, {"text": ""}, 0)


async def test_long_values_are_truncated_between_characters_unless_requested_in_full(api: Api) -> None:
    await api.broker.create_topic("t")
    await api.broker.append_values("t", ["ä".encode() * 20_000])
    (cut,) = (await messages(api, "?value_bytes=5"))["messages"]
    assert (cut["value"], cut["value_bytes"]) == ({"text": "ää"}, 40_000)
    (short,) = (await messages(api))["messages"]
    assert len(short["value"]["text"]) == MESSAGE_VALUE_BYTES_DEFAULT // 2
    (whole,) = (await messages(api, "?value_bytes=1000000"))["messages"]
    assert whole["value"]["text"] == "ä" * 20_000


async def test_deleted_and_expired_records_are_not_shown(api: Api) -> None:
    await api.put("t", ttl_ms=1000)
    await api.write("t", "old")
    api.clock.advance(900)
    await api.write("t", "young")
    api.clock.advance(200)
    assert offsets(await messages(api)) == [1]
    assert offsets(await messages(api, "?from=0")) == [1]


async def test_a_search_without_a_match_stops_and_returns_where_to_continue(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(api, 500)
    monkeypatch.setattr("mainstem.broker.messages.MESSAGES_SCANNED_MAX", 100)
    monkeypatch.setattr("mainstem.broker.messages.MESSAGES_CHUNK_BYTES", 2_000)
    forwards = await messages(api, "?from=0&value=nothing")
    assert not forwards["messages"]
    assert 100 <= forwards["next_from"] < 500
    backwards = await messages(api, "?value=nothing&limit=10")
    assert not backwards["messages"]
    assert 0 < backwards["next_before"] < 500
    found, before = [], 500
    while before > 0 and not found:
        page = await messages(api, f"?value=v00003&limit=10&before={before}")
        assert page["next_before"] < before, "every call gets further"
        found, before = offsets(page), page["next_before"]
    assert found == [3]


async def test_each_partition_is_searched_by_itself(api: Api) -> None:
    await api.broker.create_topic("t", partitions=2)
    await api.broker.append_values("t", [b"a"], partition=1)
    assert offsets(await messages(api, "?partition=1")) == [0]
    assert offsets(await messages(api, "?partition=0")) == []


@pytest.mark.parametrize("query", ["?from=-1", "?from=x", "?before=1e3", "?from=" + "9" * 30])
async def test_an_invalid_offset_is_refused(api: Api, query: str) -> None:
    await api.broker.create_topic("t")
    assert code(await api.ask("GET", f"/v0/topics/t/messages{query}")) == (400, "invalid_request")


async def test_absent_topics_and_partitions_are_not_found(api: Api) -> None:
    assert code(await api.ask("GET", "/v0/topics/t/messages")) == (404, "topic_not_found")
    await api.broker.create_topic("t")
    assert code(await api.ask("GET", "/v0/topics/t/messages?partition=1")) == (404, "topic_not_found")


# By schemas of the registry

_AVRO = {
    "type": "record",
    "name": "Sale",
    "fields": [
        {"name": "city", "type": "string"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
_PROTO = 'syntax = "proto3"; message Sale { string city = 1; int64 total = 2; }'
_JSON = {"type": "object", "properties": {"total": {"type": "number"}}}


async def _registered(api: Api, subject: str, kind: str, text: str) -> int:
    body = {"schema": text, "schemaType": kind}
    status, answer = await api.ask("POST", f"/subjects/{subject}/versions", body)
    assert status == 200, answer
    return int(answer["id"])


async def test_messages_are_shown_by_their_schemas(api: Api) -> None:
    await api.broker.create_topic("t")
    texts = (("AVRO", json.dumps(_AVRO)), ("PROTOBUF", _PROTO), ("JSON", json.dumps(_JSON)))
    ids = [await _registered(api, f"t-{kind}", kind, text) for kind, text in texts]
    sale = {"city": "Rome", "total": Decimal("12.50"), "at": datetime(2026, 5, 1, tzinfo=UTC)}
    avro, proto, plain = (b"\0" + id.to_bytes(4, "big") for id in ids)
    values = [
        avro + AvroSchema(texts[0][1]).encode(sale),
        proto + ProtobufSchema(_PROTO).encode({"city": "Oslo", "total": 3}),
        plain + b'{"total": 7}',
        b"\0\0\0\0\x63none",  # no such schema
        avro + b"\xff",  # does not fit
        b'{"total": 9}',
    ]
    await api.broker.append_values("t", values, keys=[values[0], *[b"k"] * 5])
    shown = (await messages(api))["messages"]
    decoded = [one["value_decoded"] for one in shown]
    assert [one and (one["schema_id"], one["schema_type"]) for one in decoded] == [
        (ids[0], "AVRO"),
        (ids[1], "PROTOBUF"),
        (ids[2], "JSON"),
        *[None] * 3,
    ]
    assert [json.loads(one["json"]) for one in decoded[:3]] == [
        {"city": "Rome", "total": "12.50", "at": "2026-05-01T00:00:00Z"},
        {"city": "Oslo", "total": "3"},
        {"total": 7},
    ]
    assert [one["key_decoded"] is None for one in shown] == [False, *[True] * 5]
    cut = (await messages(api, "?value_bytes=10&limit=1&from=0"))["messages"][0]["value_decoded"]
    assert (cut["json"], cut["json_bytes"]) == (decoded[0]["json"][:10], len(decoded[0]["json"]))
    found = await messages(api, "?json=$.city")
    assert offsets(found) == [0, 1]
    assert offsets(await messages(api, "?json=$.total%20%3E=%207")) == [2, 5]


async def test_a_payload_without_end_is_shown_as_bytes(api: Api) -> None:
    await api.broker.create_topic("t")
    node = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    id = await _registered(api, "t-value", "AVRO", json.dumps(node))
    await api.broker.append_values("t", [b"\0" + id.to_bytes(4, "big") + b"\x02" * 50_000 + b"\0"])
    [shown] = (await messages(api))["messages"]
    assert (shown["value_decoded"], shown["value_bytes"]) == (None, 50_006)


async def test_a_payload_that_json_cannot_hold_is_shown_as_bytes(api: Api) -> None:
    """Half of a surrogate pair, and a time that no calendar has."""
    await api.broker.create_topic("t")
    proto = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
        message Sale { google.protobuf.Timestamp at = 1; }"""
    plain = b"\0" + (await _registered(api, "t-JSON", "JSON", "{}")).to_bytes(4, "big")
    timed = b"\0" + (await _registered(api, "t-PROTO", "PROTOBUF", proto)).to_bytes(4, "big")
    never = b"\x0a\x0a\x08" + b"\x80" * 8 + b"\x10"  # 2**60 seconds
    values = [plain + b'"\\ud800"', timed + b"\0" + never, plain + b"1"]
    await api.broker.append_values("t", values)
    shown = (await messages(api))["messages"]
    assert [one["value_decoded"] and one["value_decoded"]["json"] for one in shown] == [None, None, "1"]
    assert offsets(await messages(api, "?json=$%20%3E=%201")) == [2]

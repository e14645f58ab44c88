"""Raw batches as clients make them, and a topic's settings by their Kafka names."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c

from mainstem.records.building import build_batch
from mainstem.records.decoding import decode_records
from mainstem.records.header import CRC_AT, CRC_COVERS_FROM, HEADER_BYTES

from .conftest import Api, code

OCTETS = {"content-type": "application/octet-stream"}


def _batch(*values: bytes | None, time_ms: int = 5, **more: Any) -> bytes:
    return bytes(build_batch(values, timestamps_ms=time_ms, **more))


async def _post(api: Api, topic: str, body: bytes, query: str = "", **headers: str) -> tuple[int, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await api.client.post(
        f"/v0/topics/{topic}/raw{query}", content=body, headers={**OCTETS, **named}
    )
    return answer.status_code, answer.json()


async def test_a_batch_is_stored_byte_for_byte(api: Api) -> None:
    batch = _batch(b"\xff", None, keys=[b"k", None], headers=[(("h", b"1"),), ()])
    status, body = await _post(api, "t", batch)
    assert (status, body["first_seq"], body["last_seq"], body["created"]) == (201, 1, 2, True)
    fetched = await api.broker.fetch("t", 0)
    [first, second] = decode_records(fetched.batches[0])
    assert (first.key, first.value, first.headers, first.timestamp_ms) == (b"k", b"\xff", (("h", b"1"),), 5)
    assert second.value is None
    assert (await api.state("t"))["bytes"] == 1


async def test_a_retry_with_the_same_key_finds_the_first(api: Api) -> None:
    first = await _post(api, "t", _batch(b"1", b"2"), idempotency_key="k")
    again = await _post(api, "t", _batch(b"3"), idempotency_key="k")
    assert (again[0], again[1]["deduped"], again[1]["created"]) == (200, True, False)
    assert (again[1]["first_seq"], again[1]["last_seq"]) == (first[1]["first_seq"], first[1]["last_seq"])
    assert (await api.state("t"))["count"] == 2
    # A key belongs to the stream, however a write comes in.
    assert (await api.write("t", 4, idempotency_key="k"))["deduped"]


async def test_caps_and_ttls_count_records_of_batches(api: Api) -> None:
    await api.put("t", cap_records=2, ttl_ms=1000)
    now = api.clock.now_ms()
    await _post(api, "t", _batch(b"1", b"2", b"3", time_ms=now))
    state = await api.state("t")
    assert (state["count"], state["earliest_seq"]) == (2, 2)
    api.clock.advance(2000)
    assert (await api.state("t"))["count"] == 0


@pytest.mark.parametrize(
    "batch",
    [
        b"",
        b"\0" * 61,
        _batch(b"1")[:-1],
        _batch(b"1") + _batch(b"2"),
        _batch(b"1", producer=7, producer_epoch=0, base_sequence=0),
        _batch(b"1", producer=7, producer_epoch=0, base_sequence=0, transactional=True),
    ],
)
async def test_anything_but_one_plain_batch_is_refused(api: Api, batch: bytes) -> None:
    await api.put("t")
    status, _ = code(await _post(api, "t", batch))
    assert status == 400
    assert (await api.state("t"))["count"] == 0


async def test_too_large_for_the_topic(api: Api) -> None:
    await api.put("t")
    await api.ask("PATCH", "/v0/topics/t/settings", {"settings": {"max.message.bytes": "100"}})
    assert code(await _post(api, "t", _batch(b"x" * 200))) == (400, "record_too_large")


async def test_other_bodies_and_topics(api: Api) -> None:
    answer = await api.client.post("/v0/topics/t/raw", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    assert code(await _post(api, "t", _batch(b"1"), "?create=false")) == (404, "topic_not_found")
    assert code(await _post(api, "-bad-", _batch(b"1"))) == (400, "invalid_request")
    assert code(await _post(api, "t", _batch(b"1"), "?partition=3"))[0] == 404


async def test_mutated_records_are_refused_or_readable(api: Api) -> None:
    """A batch with a valid checksum and any content is refused as the client's fault, or reads back."""
    await api.put("t")
    plain = _batch(b"one", b"two", None, keys=[b"k", None, b""], headers=[(("h", None),), (), ()])
    stored = 0
    for seed in range(300):
        draw = random.Random(seed)
        batch = bytearray(plain)
        for _ in range(draw.randint(1, 3)):
            batch[draw.randrange(HEADER_BYTES, len(batch))] = draw.randrange(256)
        struct.pack_into(">I", batch, CRC_AT, crc32c(batch[CRC_COVERS_FROM:]))
        status, body = await _post(api, "t", bytes(batch))
        assert status in (200, 400), (seed, body)
        stored += status == 200
    found = (await api.diff("t", limit=1000))["records"]
    assert len(found) == 3 * stored
    assert 0 < stored < 300


async def test_settings_are_shown_changed_and_made(api: Api) -> None:
    status, body = await api.ask(
        "PATCH",
        "/v0/topics/t/settings",
        {"create": True, "partitions": 3, "config": {"ttl_ms": 7}, "settings": {"retention.ms": "9"}},
    )
    assert (status, len(body["partitions"]), body["settings"]["retention.ms"]) == (201, 3, "9")
    assert body["settings"]["mainstem.ttl.ms"] == "7"
    again = await api.ask("PATCH", "/v0/topics/t/settings", {"create": True})
    assert code(again) == (409, "topic_exists_incompatible")
    status, body = await api.ask("PATCH", "/v0/topics/t/settings", {"partitions": 4})
    assert (status, len(body["partitions"])) == (200, 4)
    assert (await api.ask("GET", "/v0/topics/t/settings"))[1]["id"] == body["id"]
    assert (await api.state("t"))["config"]["ttl_ms"] == 7


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"settings": {"no.such": "1"}}, 400),
        ({"settings": {"retention.ms": "soon"}}, 400),
        ({"settings": {"retention.ms": 5}}, 400),
        ({"partitions": 0}, 400),
        ({"partitions": 10**9}, 400),
        ({"config": {}}, 400),
        ({"partitions": 2, "settings": {"no.such": "1"}}, 400),
        ({"create": True, "config": {"dead_letter": "u", "type": "queue"}}, 409),
    ],
)
async def test_an_invalid_change_changes_nothing(api: Api, body: dict[str, Any], expected: int) -> None:
    await api.put("t")
    before = (await api.ask("GET", "/v0/topics/t/settings"))[1]
    assert code(await api.ask("PATCH", "/v0/topics/t/settings", body))[0] == expected
    after = (await api.ask("GET", "/v0/topics/t/settings"))[1]
    del before["performance"], after["performance"]
    assert before == after


async def test_settings_of_missing_topics_and_limits(open_api: Callable[..., Any]) -> None:
    async with open_api(topics_max=1) as api:
        for method, body in (("GET", None), ("PATCH", {"partitions": 2})):
            assert code(await api.ask(method, "/v0/topics/t/settings", body)) == (404, "topic_not_found")
        made = await api.ask("PATCH", "/v0/topics/t/settings", {"create": True})
        assert made[0] == 201
        assert code(await api.ask("PATCH", "/v0/topics/u/settings", {"create": True})) == (429, "throttled")
        assert code(await api.ask("PATCH", "/v0/topics/_u/settings", {"create": True}))[0] == 400
        own = {"create": True, "config": {"type": "queue", "dead_letter": "q"}}
        assert code(await api.ask("PATCH", "/v0/topics/q/settings", own))[0] in (400, 429)

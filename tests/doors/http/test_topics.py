"""Topics: config, state, list, delete (sections 2 and 0 of the contract)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Api, code

DEFAULTS: dict[str, object] = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_priority": True,
    "auto_create": True,
    "idempotency_window_ms": 120000,
    "dedupe_node": True,
    "lease_ms": 30000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


async def test_an_empty_put_creates_a_topic_with_defaults(api: Api) -> None:
    status, body = await api.ask("PUT", "/v0/topics/t")
    assert (status, list(body)) == (201, ["topic", "created", "config", "performance"])
    assert body["topic"] == "t"
    assert body["created"] is True
    assert body["config"] == DEFAULTS
    status, body = await api.ask("PUT", "/v0/topics/t", {})
    assert (status, body["created"], body["config"]) == (200, False, DEFAULTS)
    assert isinstance(body["performance"]["server_total_ms"], float)


@pytest.mark.parametrize(
    ("given", "echoed"),
    [
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": False}, {"durable": False, "durability": "disk"}),
        ({"durable": True, "durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durability": "fsync"}, {"durable": True, "durability": "fsync"}),
        ({"durability": "ephemeral"}, {"durable": False, "durability": "ephemeral"}),
        ({"priority": 5000}, {"priority": 5000}),
        ({"priority": -7}, {"priority": -7}),
        ({"lease_ms": 1}, {"lease_ms": 100}),
        ({"lease_ms": 2**40}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 9_999}, {"claim_jitter_ms": 5_000}),
        ({"type": "queue", "dead_letter": "dlq"}, {"type": "queue", "dead_letter": "dlq"}),
        ({"ttl_ms": 5, "cap_records": 6, "cap_bytes": 7}, {"ttl_ms": 5, "cap_records": 6, "cap_bytes": 7}),
        ({"unknown": 1, "discard": "reject"}, {"discard": "reject"}),
        ({"dead_letter": "t"}, {"dead_letter": "t"}),
        ({"cap_records": 2**64 - 1}, {"cap_records": 2**62}),
    ],
)
async def test_the_echo_has_what_was_given_and_17_keys(
    api: Api, given: dict[str, object], echoed: dict[str, object]
) -> None:
    config = (await api.put("t", **given))["config"]
    assert config == DEFAULTS | echoed
    assert list(config) == list(DEFAULTS)
    assert (await api.state("t"))["config"] == config


@pytest.mark.parametrize(
    "wrong",
    [
        {"ttl_ms": -1},
        {"ttl_ms": 2**64},
        {"lease_ms": 2**64},
        {"ttl_ms": "5"},
        {"type": "stack"},
        {"discard": "new"},
        {"durability": "eternal"},
        {"durable": 1},
        {"priority": 2**31},
        {"dead_letter": "no name"},
        {"type": "queue", "dead_letter": "t"},
        {"cap_records": 1.5},
        {"auto_create": None},
    ],
)
async def test_an_invalid_config_is_refused(api: Api, wrong: dict[str, object]) -> None:
    assert code(await api.ask("PUT", "/v0/topics/t", wrong)) == (400, "invalid_request")
    assert code(await api.ask("GET", "/v0/topics/t")) == (404, "topic_not_found")


async def test_a_put_replaces_the_whole_config(api: Api) -> None:
    await api.put("t", ttl_ms=5, priority=3, durable=True)
    assert (await api.put("t", cap_records=9))["config"] == DEFAULTS | {"cap_records": 9}


async def test_settings_of_other_doors_survive_a_put(api: Api) -> None:
    await api.put("t")
    await api.broker.change_topic("t", lambda config: _with(config, retention_ms=5, max_message_bytes=77))
    await api.put("t", ttl_ms=1000)
    config = api.broker.topic("t").config
    assert (config.retention_ms, config.max_message_bytes, config.ttl_ms) == (5, 77, 1000)


def _with(config: Any, **changes: object) -> Any:
    import msgspec

    return msgspec.structs.replace(config, **changes)


async def test_a_topic_keeps_its_type(api: Api) -> None:
    await api.put("q", type="queue")
    status, body = await api.ask("PUT", "/v0/topics/q")
    assert code((status, body)) == (409, "topic_exists_incompatible")
    assert body["error"]["detail"] == {"topic": "q", "existing_type": "queue", "requested_type": "log"}
    await api.put("t")
    assert code(await api.ask("PUT", "/v0/topics/t", {"durability": "ephemeral"}))[0] == 409
    assert (await api.put("t", durability="fsync"))["config"]["durability"] == "fsync"


@pytest.mark.parametrize("name", ["a", "A9", "a" * 255, "a.b_c:d-e", "0"])
async def test_good_names(api: Api, name: str) -> None:
    assert (await api.ask("PUT", f"/v0/topics/{name}"))[0] == 201
    assert (await api.state(name))["topic"] == name


@pytest.mark.parametrize(
    "name", ["-a", ".a", ":a", "_a", "a%20b", "a%2F%2Fb", "a" * 256, "%C3%A9", "%FF", "a%3E"]
)
async def test_bad_names_are_refused_on_create_and_unknown_on_read(api: Api, name: str) -> None:
    assert code(await api.ask("PUT", f"/v0/topics/{name}")) == (400, "invalid_request")
    write = {"records": [{"data": 1}]}
    assert code(await api.ask("POST", f"/v0/topics/{name}", write)) == (400, "invalid_request")
    assert code(await api.ask("GET", f"/v0/topics/{name}")) == (404, "topic_not_found")
    assert code(await api.ask("POST", f"/v0/topics/{name}/diff")) == (404, "topic_not_found")


async def test_names_are_byte_exact(api: Api) -> None:
    await api.put("Abc")
    assert code(await api.ask("GET", "/v0/topics/abc")) == (404, "topic_not_found")


async def test_the_state_of_a_fresh_topic(api: Api) -> None:
    await api.put("t")
    state = await api.state("t")
    assert list(state) == [
        "topic",
        "type",
        "head_seq",
        "earliest_seq",
        "next_seq",
        "count",
        "bytes",
        "config",
        "effective_priority",
        "last_write_ts",
        "last_read_ts",
        "performance",
    ]
    assert [state[key] for key in ("head_seq", "earliest_seq", "next_seq", "count", "bytes")] == [
        0,
        1,
        1,
        0,
        0,
    ]
    assert (state["last_write_ts"], state["last_read_ts"], state["effective_priority"]) == (None, None, 0)


async def test_the_state_counts_records_and_bytes_of_data_and_meta(api: Api) -> None:
    await api.records("t", {"data": {"a": 1}, "meta": {"m": 2}}, {"data": "xyz"})
    state = await api.state("t")
    assert (state["count"], state["bytes"]) == (2, len('{"a":1}') + len('{"m":2}') + len('"xyz"'))
    assert state["last_write_ts"] == api.clock.now_ms()


@pytest.mark.alone("every broker remembers who read through it")
@pytest.mark.parametrize(
    ("reads", "consumed"),
    [
        (("GET", "/v0/topics/t"), True),
        (("GET", "/v0/topics/t?touch=0"), False),
        (("GET", "/v0/topics/t?touch=maybe"), True),
        (("POST", "/v0/topics/t/diff"), True),
        (("GET", "/v0/topics"), False),
        (("GET", "/v0/topics?touch=1"), True),
    ],
)
async def test_priority_follows_the_last_read(api: Api, reads: tuple[str, str], consumed: bool) -> None:
    await api.put("t")
    assert (await api.ask(*reads))[0] == 200
    assert ((await api.state("t"))["last_read_ts"] is not None) == consumed
    assert (await api.state("t"))["effective_priority"] == (500 if consumed else 0)
    api.clock.advance(30_000)
    assert (await api.state("t"))["effective_priority"] == (250 if consumed else 0)
    api.clock.advance(269_999)
    assert (await api.state("t"))["effective_priority"] == (
        round(500 * 2 ** (-299_999 / 30_000)) if consumed else 0
    )
    api.clock.advance(1)
    assert (await api.state("t"))["effective_priority"] == 0


@pytest.mark.parametrize(("given", "effective"), [(5000, 1000), (-5000, -1000), (12, 12), (0, 0)])
async def test_a_priority_by_hand_is_clamped_where_it_is_used(api: Api, given: int, effective: int) -> None:
    await api.put("t", priority=given)
    await api.ask("GET", "/v0/topics/t")
    assert (await api.state("t"))["effective_priority"] == effective
    assert (await api.put("t", auto_priority=False))["config"]["auto_priority"] is False
    assert (await api.state("t"))["effective_priority"] == 0


async def test_lists_come_by_name_in_pages(api: Api) -> None:
    for name in ("b", "a", "C", "a.1", "z"):
        await api.put(name)
    _, body = await api.ask("GET", "/v0/topics")
    assert [topic["topic"] for topic in body["topics"]] == ["C", "a", "a.1", "b", "z"]
    assert "next_cursor" not in body
    assert list(body["topics"][0]) == [
        "topic",
        "head_seq",
        "earliest_seq",
        "count",
        "bytes",
        "durable",
        "effective_priority",
    ]
    _, body = await api.ask("GET", "/v0/topics?page_size=2")
    assert [topic["topic"] for topic in body["topics"]] == ["C", "a"]
    assert json.loads(base64.b64decode(body["next_cursor"])) == {"after": "a"}
    seen = []
    cursor = ""
    while True:
        _, body = await api.ask("GET", "/v0/topics", params={"page_size": 2, "cursor": cursor})
        seen += [topic["topic"] for topic in body["topics"]]
        if "next_cursor" not in body:
            break
        cursor = body["next_cursor"]
    assert seen == ["C", "a", "a.1", "b", "z"]
    _, body = await api.ask("GET", "/v0/topics?prefix=a&page_size=0")
    assert [topic["topic"] for topic in body["topics"]] == ["a"]
    _status, body = await api.ask("GET", "/v0/topics?prefix=a&page_size=x")
    assert [topic["topic"] for topic in body["topics"]] == ["a", "a.1"]


@pytest.mark.parametrize("cursor", ["!", "eyJhZnRlciI6MX0=", "e30=", "bm8ganNvbg==", "%ff"])
async def test_a_corrupt_cursor_is_invalid(api: Api, cursor: str) -> None:
    assert code(await api.ask("GET", f"/v0/topics?cursor={cursor}")) == (400, "invalid_request")


async def test_delete_is_idempotent_and_a_new_topic_starts_at_1(api: Api) -> None:
    assert (await api.ask("DELETE", "/v0/topics/t")) == (
        200,
        {"topic": "t", "deleted": False, "routers_removed": [], "performance": _any(api)},
    )
    await api.write("t", 1, 2)
    status, body = await api.ask("DELETE", "/v0/topics/t?if_empty=true")
    assert code((status, body)) == (409, "topic_not_empty")
    assert body["error"]["detail"] == {"topic": "t", "count": 2}
    status, body = await api.ask("DELETE", "/v0/topics/t")
    assert (status, body["deleted"], body["routers_removed"]) == (200, True, [])
    assert (await api.write("t", 3))["first_seq"] == 1
    await api.put("e")
    assert (await api.ask("DELETE", "/v0/topics/e?if_empty=1"))[1]["deleted"] is True


class _any:
    def __init__(self, _: object) -> None: ...

    def __eq__(self, other: object) -> bool:
        return True


async def test_deleting_a_topic_forgets_its_idempotency_keys(api: Api) -> None:
    await api.write("t", 1, idempotency_key="k")
    await api.ask("DELETE", "/v0/topics/t")
    assert (await api.write("t", 2, idempotency_key="k"))["deduped"] is False


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
async def test_a_tighter_cap_evicts_at_once(api: Api, durability: str) -> None:
    await api.put("t", durability=durability)
    await api.write("t", *range(10))
    await api.put("t", cap_records=3, durability=durability)
    state = await api.state("t")
    assert (state["head_seq"], state["earliest_seq"], state["count"], state["bytes"]) == (10, 8, 3, 3)
    await api.put("t", cap_bytes=2, durability=durability)
    assert (await api.state("t"))["earliest_seq"] == 9


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
async def test_a_ttl_applies_to_earlier_records(api: Api, durability: str) -> None:
    await api.put("t", durability=durability)
    await api.write("t", 1, 2)
    api.clock.advance(500)
    await api.write("t", 3)
    api.clock.advance(600)
    await api.put("t", ttl_ms=1000, durability=durability)
    state = await api.state("t")
    assert (state["earliest_seq"], state["count"]) == (3, 1)
    assert (await api.diff("t"))["tombstone"]["reason"] == "ttl"
    api.clock.advance(400)
    assert (await api.state("t"))["count"] == 1
    api.clock.advance(1)
    state = await api.state("t")
    assert (state["earliest_seq"], state["count"], state["bytes"]) == (4, 0, 0)


async def test_the_number_of_topics_is_bounded(open_api: Callable[..., Any]) -> None:
    async with open_api(topics_max=2) as api:
        await api.put("a")
        await api.write("b", 1)
        for answer in (
            await api.ask("PUT", "/v0/topics/c"),
            await api.ask("POST", "/v0/topics/c", {"records": [{"data": 1}]}),
        ):
            assert code(answer) == (429, "throttled")
            assert answer[1]["error"]["detail"] == {"limit": "max_topics", "max": 2}
        assert (await api.client.put("/v0/topics/c")).headers["retry-after"] == "1"
        await api.put("a", ttl_ms=1)
        await api.write("b", 2)

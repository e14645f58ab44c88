"""Routers, sentence by sentence of the contract."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Api, code
from .watching import EventStream

KEYS = {
    "router",
    "source",
    "dest",
    "preserve_node",
    "preserve_tag",
    "filter",
    "allow_cycle",
    "guarantee",
    "performance",
}


async def put(api: Api, name: str, source: str, dest: str, **more: object) -> Any:
    status, body = await api.ask("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest, **more})
    assert status in (200, 201), body
    return body


async def refused(api: Api, name: str, **body: object) -> tuple[int, str, Any]:
    answer = await api.ask("PUT", f"/v0/routers/{name}", {"source": "a", "dest": "b", **body})
    return *code(answer), answer[1]["error"].get("detail")


def data(page: Any) -> list[Any]:
    return [record["data"] for record in page["records"]]


# PUT


async def test_a_router_is_created_and_echoes_its_settings(api: Api) -> None:
    status, body = await api.ask("PUT", "/v0/routers/a>b", {"source": "a", "dest": "b"})
    assert status == 201
    assert set(body) == KEYS | {"created"}
    assert body["performance"]["server_total_ms"] >= 0
    assert {key: body[key] for key in KEYS - {"performance"}} == {
        "router": "a>b",
        "source": "a",
        "dest": "b",
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }
    settings = {
        "source": "a",
        "dest": "b",
        "preserve_node": False,
        "preserve_tag": False,
        "filter": "x*",
        "allow_cycle": True,
        "guarantee": "exactly_once",
    }
    status, body = await api.ask("PUT", "/v0/routers/a>b", settings)
    assert (status, body["created"]) == (200, False)
    assert {key: body[key] for key in settings} == {**settings, "filter": ["tag", "Glob", "x*"]}
    for given, shown in (("x", ["tag", "Eq", "x"]), (["tag", "Eq", "y*"], ["tag", "Eq", "y*"])):
        assert (await put(api, "a>b", "a", "b", filter=given))["filter"] == shown


async def test_source_and_dest_are_created_if_they_are_missing(api: Api) -> None:
    await put(api, "r", "a", "b")
    assert (await api.state("a"))["config"]["durability"] == "disk"
    assert (await api.state("b"))["head_seq"] == 0


@pytest.mark.parametrize("name", ["-x", "a b", "%C3%A9", "a%2Fb", "x" * 256, ">a"])
async def test_a_bad_name_is_refused(api: Api, name: str) -> None:
    assert (await refused(api, name))[:2] == (400, "invalid_request")


@pytest.mark.parametrize(
    "body",
    [
        {"source": "-"},
        {"dest": ">"},
        {"dest": "a"},
        {"dest": "a>b"},
        {"source": None},
        {"filter": 3},
        {"filter": ["tag", "Glob", "x"]},
        {"filter": ["node", "Eq", "x"]},
        {"filter": "x" * 4097},
        {"guarantee": "twice"},
        {"preserve_node": "yes"},
    ],
)
async def test_bad_settings_are_refused(api: Api, body: dict[str, object]) -> None:
    assert (await refused(api, "r", **body))[:2] == (400, "invalid_request")
    assert (await api.ask("GET", "/v0/topics"))[1]["topics"] == []


async def test_a_json_body_is_required(api: Api) -> None:
    assert code(await api.ask("PUT", "/v0/routers/r", content=b"{}"))[0] == 415
    headers = {"content-type": "application/json"}
    answer = await api.client.put("/v0/routers/r", content=b"{", headers=headers)
    assert answer.status_code == 400
    assert code(await api.ask("POST", "/v0/routers/r", {})) == (405, "method_not_allowed")
    assert code(await api.ask("GET", "/v0/routers/r/x")) == (404, "not_found")


async def test_a_missing_dest_is_not_created_where_that_is_forbidden(api: Api) -> None:
    assert await refused(api, "r", create_dest=False) == (404, "topic_not_found", {"topic": "b"})
    assert code(await api.ask("GET", "/v0/topics/a"))[0] == 404
    await api.put("b")
    await put(api, "r", "a", "b", create_dest=False)


async def test_one_dest_has_one_source(api: Api) -> None:
    await put(api, "r", "a", "b")
    status, name, detail = await refused(api, "s", source="c")
    assert (status, name) == (409, "topic_exists_incompatible")
    assert detail == {"topic": "b", "reason": "router_dest_fan_in"}
    assert code(await api.ask("GET", "/v0/topics/c"))[0] == 404, "nothing is made by a refused PUT"
    await put(api, "s", "a", "b", filter="x")  # the same source may have two routers to it


async def test_source_and_dest_of_a_router_cannot_change(api: Api) -> None:
    await put(api, "r", "a", "b")
    for other in ({"dest": "c"}, {"source": "c", "dest": "d"}):
        status, name, detail = await refused(api, "r", **other)
        assert (status, name) == (409, "topic_exists_incompatible")
        assert detail["reason"] == "router_repoint_forbidden"
        assert (detail["router"], detail["existing_source"], detail["existing_dest"]) == ("r", "a", "b")


async def test_cycles_are_refused_unless_allowed(api: Api) -> None:
    await put(api, "r", "A", "B")
    assert await refused(api, "s", source="B", dest="A") == (409, "router_cycle", {"cycle": ["B", "A", "B"]})
    await put(api, "s", "B", "C")
    status, name, detail = await refused(api, "t", source="C", dest="A")
    assert (status, name, detail) == (409, "router_cycle", {"cycle": ["C", "A", "B", "C"]})
    await put(api, "t", "C", "A", allow_cycle=True)
    await put(api, "r", "A", "B")  # unchanged: that is not a cycle
    assert (await refused(api, "t", source="C", dest="A"))[1] == "router_cycle"


async def test_the_number_of_routers_is_bounded_but_existing_ones_may_change(
    open_api: Callable[..., Any],
) -> None:
    async with open_api(routers_max=1) as api:
        await put(api, "r", "a", "b")
        status, name, detail = await refused(api, "s", dest="c")
        assert (status, name, detail) == (429, "throttled", {"limit": "max_routers", "max": 1})
        await put(api, "r", "a", "b", filter="x")
        assert (await refused(api, "s", source="c"))[2]["reason"] == "router_dest_fan_in", "checked before"


async def test_the_limit_of_topics_applies_to_those_a_router_creates(open_api: Callable[..., Any]) -> None:
    async with open_api(topics_max=1) as api:
        assert (await refused(api, "r"))[2] == {"limit": "max_topics", "max": 1}


# Copying


async def test_a_router_starts_at_the_head_of_its_source(api: Api) -> None:
    await api.write("a", 1, 2)
    await put(api, "r", "a", "b")
    await api.write("a", 3)
    assert data(await api.diff("b")) == [3]


async def test_a_copy_is_seen_by_the_very_next_read_of_any_kind(api: Api) -> None:
    await api.put("q", type="queue")
    await put(api, "b", "a", "b")
    await put(api, "q", "a", "q")
    await api.write("a", 1)
    assert (await api.state("b"))["head_seq"] == 1
    await api.write("a", 2)
    assert data(await api.diff("b", 1)) == [2]
    await api.write("a", 3)
    claim = {"node": "w", "max": 10}
    status, claimed = await api.ask("POST", "/v0/topics/q/claim", claim)
    assert status == 200
    assert [job["data"] for job in claimed["claimed"]] == [1, 2, 3]
    status, session = await api.ask("POST", "/v0/watch", {"topics": {"b": {"tail": True}}})
    assert session["topics"]["b"]["head_seq"] == 3


async def test_watchers_of_a_dest_get_copies_as_they_are_made(api: Api) -> None:
    await api.put("a", cap_records=2)
    await put(api, "r", "a", "b")
    status, session = await api.ask("POST", "/v0/watch", {"topics": {"b": {}}})
    assert status == 200
    async with EventStream(api.context, session["stream_url"]) as stream:
        await stream.until("caught-up")
        await api.write("a", 1)
        event = (await stream.until("record"))[-1]
        assert [record["data"] for record in event.data["records"]] == [1]
        await api.write("a", 2, 3, 4, 5)
        event = (await stream.until("tombstone"))[-1]
        assert (event.data["reason"], event.data["gap_from"], event.data["gap_to"]) == ("source_trim", 2, 3)


async def test_copies_get_their_own_seqs_and_time(api: Api) -> None:
    await put(api, "r", "a", "b")
    await api.write("b", "own")
    await api.records("a", {"data": 1}, {"data": 2})
    written = api.clock.now_ms()
    api.clock.advance(50)
    records = (await api.diff("b", 1))["records"]
    assert [record["$seq"] for record in records] == [2, 3]
    assert {record["$ts"] for record in records} <= {written, written + 50}


async def test_node_and_tag_are_kept_unless_told_otherwise(api: Api) -> None:
    await put(api, "b", "a", "b")
    await put(api, "c", "a", "c", preserve_node=False, preserve_tag=False)
    await api.records("a", {"data": 1, "node": "n", "tag": "t", "meta": {"m": [1]}})
    (kept,) = (await api.diff("b", include_tags=True))["records"]
    assert (kept["$node"], kept["$tag"], kept["meta"]) == ("n", "t", {"m": [1]})
    (bare,) = (await api.diff("c", include_tags=True))["records"]
    assert set(bare) == {"$seq", "$ts", "data", "meta"}
    assert bare["meta"] == {"m": [1]}
    assert data(await api.diff("b", node="n")) == [], "a reader does not see its own, copied or not"
    assert data(await api.diff("c", node="n")) == [1]


async def test_a_filter_matches_tags_and_never_untagged_records(api: Api) -> None:
    await put(api, "b", "a", "b", filter=["tag", "Glob", "x:*"])
    await put(api, "c", "a", "c", filter="x:1")
    await put(api, "d", "a", "d", filter="*")
    for tag in ("x:1", "x:2", "y", None):
        await api.records("a", {"data": tag} | ({"tag": tag} if tag else {}))
    assert data(await api.diff("b")) == ["x:1", "x:2"]
    assert data(await api.diff("c")) == ["x:1"]
    assert data(await api.diff("d")) == ["x:1", "x:2", "y"]


async def test_deleted_records_are_not_forwarded(open_api: Callable[..., Any]) -> None:
    async with open_api() as api:
        await put(api, "r", "a", "b")
        await api.broker.routers.close()  # only reads forward records
        await api.records("a", *({"data": n, "tag": str(n % 2)} for n in range(6)))
        await api.ask("POST", "/v0/topics/a/delete", {"match": "1"})
        page = await api.diff("b")
        assert data(page) == [0, 2, 4]
        assert (page["tombstone"], page["head_seq"]) == (None, 3)
        await api.ask("POST", "/v0/topics/a/delete", {"before_seq": 100})
        assert data(await api.diff("b")) == [0, 2, 4]


async def test_a_source_that_evicts_first_leaves_a_gap_of_source_trim(open_api: Callable[..., Any]) -> None:
    async with open_api() as api:
        await api.put("a", cap_records=2)
        await put(api, "r", "a", "b")
        await api.broker.routers.close()
        await api.write("a", 0, 1, 2, 3, 4)
        page = await api.diff("b")
        assert data(page) == [3, 4]
        tombstone = page["tombstone"]
        assert (tombstone["reason"], tombstone["gap_from"], tombstone["gap_to"]) == ("source_trim", 1, 3)
        assert (tombstone["missed_estimate"], tombstone["earliest_seq"], page["head_seq"]) == (3, 4, 5)
        assert (await api.state("b"))["earliest_seq"] == 4
        await api.write("a", 5, 6, 7, 8)
        page = await api.diff("b", 5)
        assert (page["tombstone"]["reason"], page["tombstone"]["gap_from"]) == ("source_trim", 6)
        assert data(page) == [7, 8]


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
async def test_a_delete_does_not_hide_a_gap_that_was_not_reported(
    open_api: Callable[..., Any], durability: str
) -> None:
    async with open_api() as api:
        await api.put("a", cap_records=2)
        await api.put("b", durability=durability)
        await put(api, "r", "a", "b")
        await put(api, "s", "b", "c")
        await api.broker.routers.close()
        await api.write("b", "own")
        await api.write("a", 0, 1, 2, 3, 4)
        _, answer = await api.ask("POST", "/v0/topics/b/delete", {"before_seq": 6})
        assert (answer["deleted"], answer["earliest_seq"], answer["head_seq"]) == (2, 6, 6)
        for reader, gap in ((0, (1, 4)), (2, (3, 4)), (3, (4, 4)), (4, None), (5, None)):
            page = await api.diff("b", reader)
            told = page["tombstone"]
            assert gap == (told and (told["gap_from"], told["gap_to"]))
            assert told is None or (told["reason"], told["earliest_seq"]) == ("source_trim", 6)
            assert data(page) == [4]
        # Records deleted before the second copy are not copied, lost ones are still missing.
        page = await api.diff("c")
        assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 3)
        assert (data(page), page["head_seq"]) == ([4], 4)


async def test_a_dest_that_is_full_and_rejects_keeps_the_router_waiting(api: Api) -> None:
    await api.put("b", cap_records=2, discard="reject")
    await put(api, "r", "a", "b")
    await api.write("a", 1, 2, 3)
    assert data(await api.diff("b")) == [1, 2]
    assert (await api.ask("GET", "/v0/routers/r"))[1]["forwarded_total"] == 2
    await api.ask("POST", "/v0/topics/b/delete", {"before_seq": 2})
    assert data(await api.diff("b")) == [2, 3]


async def test_a_dest_that_discards_the_old_evicts_them_exactly(api: Api) -> None:
    await api.put("b", cap_records=3)
    await put(api, "r", "a", "b")
    await api.write("a", *range(6))
    state = await api.state("b")
    assert (state["head_seq"], state["count"], state["earliest_seq"]) == (6, 3, 4)
    page = await api.diff("b")
    assert page["tombstone"]["reason"] == "cap"
    assert data(page) == [3, 4, 5]


async def test_a_ttl_of_the_dest_counts_from_the_copy(api: Api) -> None:
    await api.put("b", ttl_ms=1_000)
    await put(api, "r", "a", "b")
    await api.write("a", 1)
    assert (await api.state("b"))["count"] == 1
    api.clock.advance(1_001)
    page = await api.diff("b")
    assert (data(page), page["tombstone"]["reason"]) == ([], "ttl")


async def test_bytes_and_counts_of_copies_are_those_of_the_originals(api: Api) -> None:
    await put(api, "r", "a", "b")
    for size in (3, 500, 70):
        await api.records("a", {"data": "x" * size, "meta": {"k": size}})
        source, dest = await api.state("a"), await api.state("b")
        assert (dest["bytes"], dest["count"]) == (source["bytes"], source["count"])


async def test_a_copy_is_dropped_at_its_eighth_hop(api: Api) -> None:
    names = [f"t{n}" for n in range(10)]
    for source, dest in itertools.pairwise(names):
        await put(api, f"{source}>{dest}", source, dest)
    await api.write("t0", 1)
    assert data(await api.diff("t7")) == [1]
    assert data(await api.diff("t8")) == []
    assert (await api.ask("GET", "/v0/routers/t7>t8"))[1]["forwarded_total"] == 0


async def test_exactly_once_names_the_origin_of_a_copy(api: Api) -> None:
    await put(api, "r", "a", "b", guarantee="exactly_once")
    await api.records("a", {"data": 1}, {"data": 2, "meta": {"m": 1}}, {"data": 3, "meta": [1, "x"]})
    records = (await api.diff("b"))["records"]
    stamps = [record["meta"].pop("_topics_router") for record in records]
    assert [record["meta"] for record in records] == [{}, {"m": 1}, {"_topics_original_meta": [1, "x"]}]
    for seq, stamp in enumerate(stamps, 1):
        assert set(stamp) == {
            "idempotency_key",
            "router",
            "source_topic",
            "source_topic_id",
            "source_epoch",
            "source_seq",
        }
        assert (stamp["router"], stamp["source_topic"], stamp["source_seq"]) == ("r", "a", seq)
    assert len({stamp["idempotency_key"] for stamp in stamps}) == 3
    assert len({stamp["source_topic_id"] for stamp in stamps}) == 1


async def test_putting_again_keeps_cursor_and_total(api: Api) -> None:
    await put(api, "r", "a", "b")
    await api.write("a", 1)
    assert (await api.ask("GET", "/v0/routers/r"))[1]["forwarded_total"] == 1
    await api.write("a", 2)
    await put(api, "r", "a", "b", filter="x")
    await put(api, "r", "a", "b")
    await api.write("a", 3)
    assert data(await api.diff("b"))[-1] == 3
    assert (await api.ask("GET", "/v0/routers/r"))[1]["forwarded_total"] >= 2


# GET, list, DELETE


async def test_a_get_drains_first_and_shows_the_total(api: Api) -> None:
    await put(api, "r", "a", "b")
    await api.write("a", 1, 2)
    status, body = await api.ask("GET", "/v0/routers/r")
    assert status == 200
    assert set(body) == KEYS | {"forwarded_total"}
    assert body["forwarded_total"] == 2
    answer = await api.ask("GET", "/v0/routers/none")
    assert code(answer) == (404, "router_not_found")
    assert answer[1]["error"]["detail"] == {"router": "none"}


async def test_routers_are_listed_by_name_in_pages(api: Api) -> None:
    for name in ("c", "a>1", "b", "B"):
        await put(api, name, "src", f"to-{name.replace('>', '-')}")
    _, body = await api.ask("GET", "/v0/routers")
    assert [row["router"] for row in body["routers"]] == ["B", "a>1", "b", "c"]
    assert set(body["routers"][0]) == {"router", "source", "dest", "guarantee", "forwarded_total"}
    assert "next_cursor" not in body
    _, body = await api.ask("GET", "/v0/routers?page_size=2")
    assert [row["router"] for row in body["routers"]] == ["B", "a>1"]
    assert json.loads(base64.b64decode(body["next_cursor"])) == {"after": "a>1"}
    _, body = await api.ask("GET", f"/v0/routers?page_size=2&cursor={body['next_cursor']}")
    assert ([row["router"] for row in body["routers"]], "next_cursor" in body) == (["b", "c"], False)
    assert code(await api.ask("GET", "/v0/routers?cursor=%21"))[0] == 400
    for query, found in (
        ("prefix=a", ["a>1"]),
        ("dest=to-b", ["b"]),
        ("source=none", []),
        ("page_size=0", ["B"]),
    ):
        _, body = await api.ask("GET", f"/v0/routers?{query}")
        assert [row["router"] for row in body["routers"]] == found


async def test_a_delete_is_idempotent_and_leaves_the_copies(api: Api) -> None:
    await put(api, "r", "a", "b")
    await api.write("a", 1)
    assert data(await api.diff("b")) == [1]
    for deleted in (True, False):
        status, body = await api.ask("DELETE", "/v0/routers/r")
        assert (status, set(body), body["deleted"]) == (200, {"router", "deleted", "performance"}, deleted)
    await api.write("a", 2)
    assert data(await api.diff("b")) == [1]


async def test_deleting_a_topic_deletes_its_routers(api: Api) -> None:
    await put(api, "z", "a", "b")
    await put(api, "y", "b", "c")
    await put(api, "x", "a", "c2")
    _, body = await api.ask("DELETE", "/v0/topics/b")
    assert body["routers_removed"] == ["y", "z"]
    assert (await api.ask("DELETE", "/v0/topics/b"))[1]["routers_removed"] == []
    _, body = await api.ask("GET", "/v0/routers")
    assert [row["router"] for row in body["routers"]] == ["x"]
    await api.put("b")
    await api.write("a", 1)
    assert data(await api.diff("b")) == []


# Keys


async def test_scopes_and_prefixes_apply_to_name_source_and_dest(open_api: Callable[..., Any]) -> None:
    keys = "root,reader:r,writer:rw,remover:d,mine::p-"
    async with open_api(api_keys=keys) as api:
        body = {"source": "p-a", "dest": "p-b"}
        for key, status in (("reader", 403), ("writer", 403), ("remover", 403), ("root", 201)):
            assert (await api.ask("PUT", "/v0/routers/p-r", body, key=key))[0] == status
        assert (await api.ask("PUT", "/v0/routers/p-r", body, key="mine"))[0] == 200
        for name, other in (("q", {}), ("p-s", {"source": "q"}), ("p-s", {"dest": "q"})):
            answer = await api.ask("PUT", f"/v0/routers/{name}", body | other, key="mine")
            assert code(answer) == (403, "forbidden")
        elsewhere = {"source": "q-a", "dest": "p-c"}
        assert (await api.ask("PUT", "/v0/routers/p-x", elsewhere, key="root"))[0] == 201
        _, listed = await api.ask("GET", "/v0/routers", key="mine")
        assert [row["router"] for row in listed["routers"]] == ["p-r"]
        for method in ("GET", "DELETE"):
            assert code(await api.ask(method, "/v0/routers/p-x", key="mine")) == (403, "forbidden")
            assert code(await api.ask(method, "/v0/routers/q", key="mine")) == (403, "forbidden")
        assert (await api.ask("GET", "/v0/routers/p-x", key="reader"))[0] == 200
        assert (await api.ask("DELETE", "/v0/routers/p-x", key="reader"))[0] == 403
        assert (await api.ask("DELETE", "/v0/routers/p-x", key="remover"))[1]["deleted"] is True
        assert (await api.ask("GET", "/v0/routers/p-x"))[0] == 401


async def test_the_description_has_the_routers(api: Api) -> None:
    _, document = await api.ask("GET", "/openapi.json")
    assert set(document["paths"]["/v0/routers/{router}"]) == {"get", "put", "delete"}
    assert "RouterBody" in document["components"]["schemas"]


# Real servers


def test_numbers_of_copies_are_the_same_after_any_restart(serve: Callable[..., Any]) -> None:
    before: dict[str, Any] = {}
    for life in range(3):
        with serve() as server:
            if not life:
                for dest, more in (("b", {}), ("c", {"filter": "k"}), ("d", {"guarantee": "exactly_once"})):
                    assert (
                        server.ask("PUT", f"/v0/routers/{dest}", {"source": "a", "dest": dest, **more})[0]
                        == 201
                    )
                server.ask("PUT", "/v0/routers/e", {"source": "b", "dest": "e"})
            for dest, records in before.items():
                page = server.ask("POST", f"/v0/topics/{dest}/diff", {"limit": 1000})[1]
                assert page["records"][: len(records)] == records, dest
                assert page["tombstone"] is None
            for n in range(20):
                body = {"records": [{"data": [life, n], "tag": "k" if n % 2 else "l"}]}
                assert server.ask("POST", "/v0/topics/a", body)[0] in (200, 201)
            for dest in "bcde":
                page = server.ask("POST", f"/v0/topics/{dest}/diff", {"limit": 1000})[1]
                before[dest] = page["records"]
                assert len(page["records"]) == (10 if dest == "c" else 20) * (life + 1)
            (server.process.kill if life == 0 else server.process.terminate)()


def test_a_copy_reads_the_same_through_every_door(serve: Callable[..., Any]) -> None:
    from confluent_kafka import Consumer, TopicPartition

    with serve("--kafka", "127.0.0.1:0", "--text", "127.0.0.1:0") as server:
        server.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b"})
        records = [{"data": {"n": n}, "tag": f"t{n}", "node": "x", "meta": {"m": n}} for n in range(80)]
        server.ask("POST", "/v0/topics/a", {"records": records[:40]})
        for record in records[40:]:
            server.ask("POST", "/v0/topics/a", {"records": [record]})
        page = server.ask("POST", "/v0/topics/b/diff", {"limit": 1000, "include_tags": True})[1]
        assert [record["data"] for record in page["records"]] == [record["data"] for record in records]
        consumer = Consumer(
            {
                "bootstrap.servers": str(server.process.address("kafka")),
                "group.id": "g",
                "enable.auto.commit": False,
                "check.crcs": True,
                "isolation.level": "read_committed",
            }
        )
        try:
            consumer.assign([TopicPartition("b", 0, 0)])
            found: list[Any] = []
            while len(found) < len(records):
                message = consumer.poll(10)
                assert message is not None
                assert message.error() is None
                found.append(message)
            for message, shown in zip(found, page["records"], strict=True):
                assert message.offset() + 1 == shown["$seq"]
                assert message.timestamp()[1] == shown["$ts"]
                assert json.loads(message.value()) == shown["data"]
                assert message.key().decode() == shown["$tag"]
                assert dict(message.headers())["node"] == b"x"
            third = page["records"][50]["$ts"]
            first = next(record["$seq"] for record in page["records"] if record["$ts"] >= third)
            (found_at,) = consumer.offsets_for_times([TopicPartition("b", 0, third)], timeout=60)
            assert found_at.offset == first - 1
        finally:
            consumer.close()

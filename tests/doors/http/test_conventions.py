"""What applies to every request (sections 0 and 9 of the contract)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mainstem import __version__

from .conftest import JSON, Api, code


@pytest.mark.parametrize(
    ("method", "path", "refusal"),
    [
        ("GET", "/nothing", (404, "not_found")),
        ("POST", "/", (405, "method_not_allowed")),
        ("GET", "/v0", (404, "not_found")),
        ("GET", "/v0/", (404, "not_found")),
        ("GET", "/v1/topics", (404, "not_found")),
        ("POST", "/v0/topics/t/what", (404, "not_found")),
        ("POST", "/v0/topics/t/diff/x", (404, "not_found")),
        ("GET", "/v0/topics/", (404, "not_found")),
        ("PUT", "/v0/topics/", (404, "not_found")),
        ("POST", "/v0/topics//diff", (404, "not_found")),
        ("DELETE", "/v0/routers/", (404, "not_found")),
        ("PUT", "/v0/topics/a%2Fb", (400, "invalid_request")),
        ("GET", "/v0/topics/a%2Fb", (404, "topic_not_found")),
        ("GET", "/v0/topics/t/diff", (405, "method_not_allowed")),
        ("PATCH", "/v0/topics/t", (405, "method_not_allowed")),
        ("POST", "/v0/topics", (405, "method_not_allowed")),
        ("DELETE", "/v0/health", (405, "method_not_allowed")),
    ],
)
async def test_unknown_paths_and_wrong_methods(
    api: Api, method: str, path: str, refusal: tuple[int, str]
) -> None:
    assert code(await api.ask(method, path)) == refusal


async def test_a_wrong_method_names_the_right_ones(api: Api) -> None:
    assert (await api.client.patch("/v0/topics/t")).headers["allow"] == "DELETE, GET, HEAD, POST, PUT"


@pytest.mark.parametrize("kind", [None, "", "text/plain", "text/json", "application/x-www-form-urlencoded"])
async def test_bodies_need_a_json_content_type(api: Api, kind: str | None) -> None:
    await api.put("t")
    headers = {} if kind is None else {"content-type": kind}
    for method, path in (
        ("PUT", "/v0/topics/t"),
        ("POST", "/v0/topics/t"),
        ("POST", "/v0/topics/t/diff"),
        ("POST", "/v0/topics/t/delete"),
    ):
        for content in (b"{}", b"no json"):
            answer = await api.client.request(method, path, content=content, headers=headers)
            assert code((answer.status_code, answer.json())) == (415, "unsupported_media_type")
    answer = await api.client.post("/v0/topics/t", headers=headers)
    assert answer.status_code == 415
    assert (await api.client.put("/v0/topics/t", headers=headers)).status_code == 200
    assert (await api.client.post("/v0/topics/t/diff", headers=headers)).status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
async def test_json_content_types(api: Api, kind: str) -> None:
    answer = await api.client.post(
        "/v0/topics/t", content=b'{"records":[{"data":1}]}', headers={"content-type": kind}
    )
    assert answer.status_code == 201
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"",
        b"null",
        b"[]",
        b'{"records":[{"data":01}]}',
        b'{"records":[{"data":"\xff"}]}',
        b'{"records":[{"data":1}]}x',
        b'{"records":[{"data":' + b"[" * 100_000 + b"]}",
        b'{"records":[{"data":NaN}]}',
        b'{"records":[{"data":"\x01"}]}',
        b'{"records":[{"data":"\\ud800"}]}x',
    ],
)
async def test_invalid_json_is_refused(api: Api, content: bytes) -> None:
    answer = await api.client.post("/v0/topics/t", content=content, headers=JSON)
    assert code((answer.status_code, answer.json())) == (400, "invalid_request")


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_FIELDS = [
    "records",
    "node",
    "idempotency_key",
    "create",
    "config",
    "from_seq",
    "limit",
    "match",
    "before_seq",
    "ttl_ms",
]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.dictionaries(
        st.sampled_from(_FIELDS), _json | st.lists(st.fixed_dictionaries({"data": _json}), max_size=3)
    ),
    path=st.sampled_from(["", "/diff", "/delete"]),
    method=st.sampled_from(["POST", "PUT"]),
)
async def test_any_json_gets_an_answer_of_the_right_shape(
    api: Api, body: Any, path: str, method: str
) -> None:
    answer = await api.ask(method, f"/v0/topics/t{path}", body)
    if answer[0] >= 400:
        assert answer[0] < 500, answer
        code(answer)
    else:
        assert isinstance(answer[1]["performance"]["server_total_ms"], float)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=_json, meta=_json)
async def test_any_value_reads_back(api: Api, data: Any, meta: Any) -> None:
    text = json.dumps({"records": [{"data": data, "meta": meta}]})
    if isinstance(meta, dict) and len(meta) > 64:
        return
    written = await api.client.post("/v0/topics/t", content=text.encode(), headers=JSON)
    assert written.status_code in (200, 201), written.content
    read = (await api.diff("t", written.json()["first_seq"] - 1))["records"][0]
    assert json.loads(json.dumps(data)) == read["data"]
    assert read.get("meta") == meta


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
async def test_any_bytes_get_an_answer(api: Api, content: bytes) -> None:
    for path in ("", "/diff", "/delete"):
        answer = await api.client.post(f"/v0/topics/t{path}", content=content, headers=JSON)
        assert answer.status_code in (400, 404) or not content


@pytest.mark.parametrize(
    "body",
    [
        b'{"records":[{"data":1,"tag":"\\ud800"}]}',
        b'{"records":[{"data":1,"node":"\\udfff"}]}',
        b'{"records":[{"data":1}],"idempotency_key":"\\ud800"}',
        b'{"records":[{"data":1}],"config":{"type":"queue","dead_letter":"\\ud800"}}',
    ],
)
async def test_half_a_character_is_invalid(api: Api, body: bytes) -> None:
    answer = await api.client.post("/v0/topics/t", content=body, headers=JSON)
    assert code((answer.status_code, answer.json())) == (400, "invalid_request")
    for path, wrong in (("diff", b'{"node":"\\ud800"}'), ("delete", b'{"match":"\\ud800*"}')):
        await api.put("t")
        answer = await api.client.post(f"/v0/topics/t/{path}", content=wrong, headers=JSON)
        assert code((answer.status_code, answer.json())) == (400, "invalid_request")


async def test_health_and_readiness(api: Api) -> None:
    for path in ("/v0/health", "/healthz"):
        status, body = await api.ask("GET", path)
        assert (status, list(body)) == (200, ["status", "version", "uptime_ms"])
        assert (body["status"], body["version"]) == ("ok", __version__)
    await api.put("t")
    for path in ("/v0/ready", "/readyz"):
        assert await api.ask("GET", path) == (
            200,
            {"status": "ready", "wal_replay_complete": True, "topics": 1},
        )
    api.context.stopping.set()
    assert code(await api.ask("GET", "/readyz")) == (503, "shutting_down")


@pytest.mark.alone("every broker counts its own requests")
async def test_metrics_as_text_and_json(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="all,r:r,w:w") as api:
        await api.ask("POST", "/v0/topics/t", {"records": [{"data": 1}]}, key="all")
        asked = {"authorization": "Bearer r"}
        text = await api.client.get("/v0/metrics", headers=asked)
        assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = text.text.splitlines()
        assert "# TYPE mainstem_topics gauge" in lines
        assert "mainstem_topics 1.0" in lines
        assert 'mainstem_http_requests_total{route="POST /v0/topics/{topic}",status="201"} 1.0' in lines
        for line in lines:
            assert line.startswith(("# HELP mainstem_", "# TYPE mainstem_", "mainstem_"))
        as_json = await api.client.get("/v0/metrics", headers={**asked, "accept": "application/json"})
        assert as_json.json()["mainstem_records"] == 1.0
        assert {"route": "POST /v0/topics/{topic}", "status": "201", "value": 1.0} in as_json.json()[
            "mainstem_http_requests_total"
        ]
        assert (await api.client.get("/v0/metrics", headers={"authorization": "Bearer w"})).status_code == 403


async def test_head_is_answered_where_get_is(api: Api) -> None:
    await api.put("t")
    for path in ("/v0/topics/t", "/v0/topics", "/v0/health", "/v0/metrics", "/v0/routers"):
        asked = await api.client.get(path)
        answer = await api.client.head(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, asked.headers["content-type"]), (
            path
        )
    assert (await api.client.head("/v0/topics/none")).status_code == 404
    refused = await api.client.head("/v0/topics/t/diff")
    assert (refused.status_code, refused.headers["allow"]) == (405, "POST")


async def test_fields_that_occur_twice_are_refused(api: Api) -> None:
    await api.put("t")
    for path, body in (
        ("/v0/topics/t", '{"records":[{"data":1}],"records":[{"data":2}]}'),
        ("/v0/topics/t", '{"records":[{"data":1,"data":2}]}'),
        ("/v0/topics/t/diff", '{"from_seq":0,"from_seq":1}'),
        ("/v0/topics/t/claim", '{"node":"a","node":"b"}'),
    ):
        answer = await api.client.post(path, content=body, headers=JSON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request"), body
    twice_inside = (
        '{"records":[{"data":{"data":1,"data":2,"records":[],"tag":1},"tag":"t","node":"n"},{"data":1}]}'
    )
    answer = await api.client.post("/v0/topics/t", content=twice_inside, headers=JSON)
    assert answer.status_code == 200


async def test_numbers_beyond_64_bits_and_very_deep_data_are_refused(api: Api) -> None:
    await api.put("t")
    for seq, status in ((2**64 - 1, 200), (2**64, 400), (-1, 400)):
        assert (await api.ask("POST", "/v0/topics/t/diff", {"from_seq": seq}))[0] == status, seq
    for text, status in (
        ("[" * 128 + "]" * 128, 200),
        ("[" * 129 + "]" * 129, 400),
        ('{"a":' * 129 + "1" + "}" * 129, 400),
        ('"' + "[" * 500 + '"', 200),
        ("[" + ",".join(["[]"] * 500) + "]", 200),
    ):
        body = '{"records":[{"data":' + text + "}]}"
        answer = await api.client.post("/v0/topics/t", content=body, headers=JSON)
        assert answer.status_code == status, text[:20]

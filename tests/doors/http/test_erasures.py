"""Erasures over HTTP: what a request may say, who may send it, and what its audit record leaves out."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Api


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"key": "a", "match": "b"},
        {"key_base64": "?"},
        {"match": ["node", "Eq", "x"]},
        {"where": ["a", "Gt", 1]},
        {"where": ["a..b", "Eq", 1]},
        {"where": ["a", "Eq", {"b": 1}]},
    ],
)
async def test_a_request_names_exactly_one_condition(api: Api, body: object) -> None:
    await api.ask("PUT", "/v0/topics/t", {})
    assert (await api.ask("POST", "/v0/topics/t/erase", body))[0] == 400


@pytest.mark.alone("an erasure works on the log of a single server")
async def test_erased_records_disappear_from_readers_at_once(api: Api) -> None:
    records = [{"data": {"user": {"id": n}}, "tag": f"u:{n}"} for n in range(4)]
    await api.ask("POST", "/v0/topics/t", {"records": records})
    asked = (
        {"key": "u:0"},
        {"key_base64": base64.b64encode(b"u:1").decode()},
        {"match": "u:2*"},
        {"where": ["user.id", "Eq", 3]},
    )
    for left, body in zip((3, 2, 1, 0), asked, strict=True):
        status, accepted = await api.ask("POST", "/v0/topics/t/erase", body)
        assert (status, accepted["phase"]) == (202, "accepted")
        await api.broker.erasures.round()
        _, found = await api.ask("GET", f"/v0/erasures/{accepted['id']}")
        assert found["phase"] != "accepted"
        assert found["topics"][0]["records_deleted"] == 1
        _, topic = await api.ask("GET", "/v0/topics/t")
        assert topic["count"] == left
    _, listed = await api.ask("GET", "/v0/erasures")
    assert len(listed["erasures"]) == 4
    assert (await api.ask("GET", "/v0/erasures/unknown"))[0] == 404
    assert (await api.ask("POST", "/v0/topics/absent/erase", {"key": "x"}))[0] == 404


@pytest.mark.alone("an erasure works on the log of a single server")
async def test_an_erasure_needs_the_right_to_delete_in_every_topic_it_covers(
    open_api: Callable[..., Any],
) -> None:
    async with open_api(api_keys="boss,team:rw+d:a,reader:r") as api:
        for topic in ("a", "b"):
            await api.ask("PUT", f"/v0/topics/{topic}", {}, key="boss")
        body = {"key": "customer:ann"}
        assert (await api.ask("POST", "/v0/topics/a/erase", body, key="reader"))[0] == 403
        status, accepted = await api.ask("POST", "/v0/topics/a/erase", body, key="team")
        assert status == 202
        assert (await api.ask("GET", f"/v0/erasures/{accepted['id']}", key="team"))[0] == 200
        assert (await api.ask("GET", f"/v0/erasures/{accepted['id']}", key="reader"))[0] == 403
        assert (await api.ask("GET", "/v0/erasures", key="team"))[0] == 403
        assert (await api.ask("GET", "/v0/erasures", key="boss"))[0] == 200
        await api.ask("PUT", "/v0/routers/r", {"source": "a", "dest": "b"}, key="boss")
        assert (await api.ask("POST", "/v0/topics/a/erase", body, key="team"))[0] == 403
        assert (await api.ask("POST", "/v0/topics/a/erase", body, key="boss"))[0] == 202


@pytest.mark.alone("an erasure works on the log of a single server")
async def test_the_audit_log_has_the_request_and_not_what_it_erases(open_api: Callable[..., Any]) -> None:
    async with open_api(audit="on") as api:
        await api.ask("PUT", "/v0/topics/t", {})
        await api.ask("POST", "/v0/topics/t/erase", {"key": "customer:ann"})
        await api.broker.audit.close()
        records = await api.broker.read("__audit", 0)
        erasing = [record.value or b"" for record in records if b"/erase" in (record.value or b"")]
        assert len(erasing) == 1
        assert b"customer:ann" not in erasing[0]

"""The part of Apicurio Registry's API that its serializers call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mainstem.doors.http.routes.apicurio import ApicurioApi
from mainstem.doors.http.transport.app import App

from .test_all_doors import house, keys

ROOT = "/apis/registry/v3"
ONE = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
BROKEN = json.dumps({"type": "record", "name": "R", "fields": [{"name": "b", "type": "int"}]})
OWNER, READER, STRANGER = ({"authorization": f"Bearer {name}"} for name in ("owner", "reader", "stranger"))


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with house(tmp_path, keys("owner,reader:r,stranger:rw:other")) as doors:
        context = doors.api.context
        context.mounted["apis"] = ApicurioApi()
        transport = httpx.ASGITransport(App(context))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as opened:
            yield opened


async def register(
    client: httpx.AsyncClient,
    artifact: str,
    schema: str,
    query: str = "",
    group: str = "default",
    **more: Any,
) -> httpx.Response:
    content = {"content": schema, "contentType": "application/json", **more}
    body = {"artifactId": artifact, "artifactType": "AVRO", "firstVersion": {"content": content}}
    path = f"{ROOT}/groups/{group}/artifacts{query}"
    return await client.post(path, json=body, headers=OWNER)


async def get(client: httpx.AsyncClient, path: str, headers: dict[str, str] = OWNER) -> httpx.Response:
    return await client.get(ROOT + path, headers=headers)


async def test_an_artifact_is_a_subject(client: httpx.AsyncClient) -> None:
    made = await register(client, "orders-value", ONE)
    assert made.status_code == 200, made.text
    assert made.json()["artifact"] == {
        "groupId": "default",
        "artifactId": "orders-value",
        "artifactType": "AVRO",
    }
    id = made.json()["version"]["globalId"]
    assert id == made.json()["version"]["contentId"]
    confluent = await client.get("/subjects/orders-value/versions/1", headers=OWNER)
    assert (confluent.json()["id"], json.loads(confluent.json()["schema"])) == (id, json.loads(ONE))
    for version in ("latest", "branch=latest", "1"):
        path = f"/groups/default/artifacts/orders-value/versions/{version}"
        assert (await get(client, path)).json() == made.json()["version"]
        content = await get(client, f"{path}/content")
        assert content.json() == json.loads(ONE)
        assert content.headers["x-registry-globalid"] == content.headers["x-registry-contentid"] == str(id)
    for kind in ("globalIds", "contentIds"):
        assert (await get(client, f"/ids/{kind}/{id}")).json() == json.loads(ONE)


async def test_groups_have_artifacts_of_their_own(client: httpx.AsyncClient) -> None:
    ids = [
        (await register(client, "v", schema, group=group)).json()["version"]["globalId"]
        for group, schema in (("default", ONE), ("com.example", BROKEN))
    ]
    assert len({*ids}) == 2
    listed = await client.get("/subjects", headers=OWNER)
    assert set(listed.json()) == {"v", "com.example:v"}
    found = await get(client, "/groups/com.example/artifacts/v/versions/latest/content")
    assert found.json() == json.loads(BROKEN)
    assert (await register(client, "v", ONE, group=":.eu")).status_code == 400


async def test_if_exists_decides_about_an_artifact_that_is_there(client: httpx.AsyncClient) -> None:
    assert (await register(client, "v", ONE)).status_code == 200
    for query in ("", "?ifExists=FAIL"):
        assert (await register(client, "v", ONE, query)).status_code == 409
    for query in ("?ifExists=FIND_OR_CREATE_VERSION", "?ifExists=CREATE_VERSION"):
        assert (await register(client, "v", ONE, query)).json()["version"]["version"] == "1"
    refused = await register(client, "v", BROKEN, query)
    assert (refused.status_code, refused.json()["name"]) == (409, "IncompatibleSchema")


async def test_references_name_artifacts(client: httpx.AsyncClient) -> None:
    fixed = '{"type": "fixed", "name": "r", "size": 1}'
    assert (await register(client, "r", fixed, group="shared")).status_code == 200
    reference = {"name": "r", "groupId": "shared", "artifactId": "r", "version": "1"}
    made = await register(client, "s", '{"type": "array", "items": "r"}', references=[reference])
    assert made.status_code == 200, made.text
    version = (await client.get("/subjects/s/versions/1", headers=OWNER)).json()
    assert version["references"] == [{"name": "r", "subject": "shared:r", "version": 1}]


async def test_errors_have_the_status_that_clients_look_at(client: httpx.AsyncClient) -> None:
    await register(client, "v", ONE)
    for path, status in (
        ("/ids/globalIds/99", 404),
        ("/ids/globalIds/x", 404),
        ("/groups/default/artifacts/none/versions/latest/content", 404),
        ("/groups/default/artifacts/v/versions/2", 404),
        ("/groups/default/artifacts/v/versions/zero", 422),
        ("/groups", 404),
    ):
        found = await get(client, path)
        assert (found.status_code, found.json()["status"]) == (status, status), path
    wrong = await client.post(f"{ROOT}/groups/g/artifacts", content=b"{", headers=OWNER)
    assert wrong.status_code == 400
    assert (await register(client, "w", "no schema")).status_code == 422


async def test_the_rules_of_subjects_hold(client: httpx.AsyncClient) -> None:
    id = (await register(client, "v", ONE)).json()["version"]["globalId"]
    paths = (f"/ids/globalIds/{id}", "/groups/default/artifacts/v/versions/latest/content")
    for headers, statuses in ((READER, (200, 200)), (STRANGER, (404, 403)), ({}, (401, 401))):
        assert tuple([(await get(client, path, headers)).status_code for path in paths]) == statuses
    body = {"artifactId": "w", "firstVersion": {"content": {"content": ONE}}}
    for headers, status in ((READER, 403), (STRANGER, 403), ({}, 401), (OWNER, 200)):
        made = await client.post(f"{ROOT}/groups/default/artifacts", json=body, headers=headers)
        assert made.status_code == status, headers


async def test_a_namespace_has_artifacts_of_its_own(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v0/namespaces/acme", json={}, headers=OWNER)).status_code == 201
    await register(client, "v", ONE)
    made = await register(client, "v", BROKEN, "?namespace=acme")
    assert made.json()["version"]["artifactId"] == "v"
    found = await get(client, "/groups/default/artifacts/v/versions/latest/content?namespace=acme")
    assert found.json() == json.loads(BROKEN)
    assert (await get(client, "/ids/globalIds/1?namespace=acme")).json() == json.loads(BROKEN)
    assert (await get(client, "/ids/globalIds/1")).json() == json.loads(ONE)


async def test_errors_name_what_a_client_of_a_namespace_calls_it(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v0/namespaces/acme", json={}, headers=OWNER)).status_code == 201
    path = "/groups/default/artifacts/v/versions/latest?namespace=acme"
    for headers in (OWNER, STRANGER):
        problem = (await get(client, path, headers)).json()
        assert "v'" in problem["title"], problem
        assert "acme" not in problem["title"] + problem["detail"]

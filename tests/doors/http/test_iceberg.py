from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mainstem.errors import NoSpace
from mainstem.ports.objectstore.local import LocalObjectStore

from .conftest import Api

SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}
TABLES = "/iceberg/v1/namespaces/default/tables"


def fault(answer: tuple[int, Any]) -> tuple[int, str]:
    """Status and type of an error, whose shape is checked too."""
    status, body = answer
    assert list(body) == ["error"]
    assert set(body["error"]) == {"message", "type", "code"}
    assert body["error"]["message"]
    assert body["error"]["code"] == status
    return status, body["error"]["type"]


async def create(api: Api, name: str = "t", **more: object) -> Any:
    status, body = await api.ask("POST", TABLES, {"name": name, "schema": SCHEMA, **more})
    assert status == 200, body
    return body


async def commit(
    api: Api, name: str, *updates: object, requirements: tuple[object, ...] = ()
) -> tuple[int, Any]:
    return await api.ask("POST", f"{TABLES}/{name}", {"updates": updates, "requirements": requirements})


def setting(**properties: str) -> dict[str, object]:
    return {"action": "set-properties", "updates": properties}


async def test_config_lists_what_is_served(api: Api) -> None:
    status, body = await api.ask("GET", "/iceberg/v1/config?warehouse=x")
    assert status == 200
    assert body["defaults"] == body["overrides"] == {}
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}" in body["endpoints"]


async def test_namespaces_have_levels_and_properties(api: Api) -> None:
    path = "/iceberg/v1/namespaces"
    assert await api.ask("GET", path) == (200, {"namespaces": [["default"]]})
    made = await api.ask("POST", path, {"namespace": ["a", "b c"], "properties": {"x": "1"}})
    assert made == (200, {"namespace": ["a", "b c"], "properties": {"x": "1"}})
    assert (await api.ask("GET", path))[1] == {"namespaces": [["a"], ["default"]]}
    await api.ask("POST", path, {"namespace": ["a"]})
    assert (await api.ask("GET", f"{path}?parent=a"))[1] == {"namespaces": [["a", "b c"]]}
    nested = f"{path}/a%1Fb%20c"
    status, found = await api.ask("GET", nested)
    assert found["properties"].pop("location").endswith("/objects/tables/a_b_c")
    assert (status, found) == made
    changed = await api.ask("POST", f"{nested}/properties", {"updates": {"y": "2"}, "removals": ["x", "z"]})
    assert changed == (200, {"updated": ["y"], "removed": ["x"], "missing": ["z"]})
    assert fault(await api.ask("POST", path, {"namespace": ["a"]})) == (409, "AlreadyExistsException")
    assert fault(await api.ask("GET", f"{path}/zz")) == (404, "NoSuchNamespaceException")
    assert (await api.client.head(nested)).status_code == 204
    assert (await api.client.delete(nested)).status_code == 204
    assert (await api.client.head(nested)).status_code == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"namespace": []},
        {"namespace": "a"},
        {"namespace": [""]},
        {"namespace": ["a\x1fb"]},
        {"namespace": ["a/b"]},
    ],
)
async def test_an_invalid_namespace_is_refused(api: Api, body: object) -> None:
    assert fault(await api.ask("POST", "/iceberg/v1/namespaces", body)) == (400, "BadRequestException")


async def test_a_table_is_created_loaded_changed_and_dropped(api: Api) -> None:
    made = await create(api, properties={"a": "1"})
    assert made["metadata"]["properties"] == {"a": "1"}
    assert (await api.ask("GET", f"{TABLES}/t"))[1] == made
    assert (await api.client.head(f"{TABLES}/t")).status_code == 204
    status, changed = await commit(api, "t", setting(b="2"))
    assert status == 200
    assert changed["metadata"]["properties"] == {"a": "1", "b": "2"}
    assert changed["metadata"]["metadata-log"][0]["metadata-file"] == made["metadata-location"]
    assert "/metadata/00001-" in changed["metadata-location"]
    assert (await api.ask("GET", TABLES))[1] == {"identifiers": [{"namespace": ["default"], "name": "t"}]}
    assert (await api.client.delete(f"{TABLES}/t")).status_code == 204
    assert fault(await api.ask("GET", f"{TABLES}/t")) == (404, "NoSuchTableException")
    assert (await api.client.head(f"{TABLES}/t")).status_code == 404


async def test_a_commit_without_changes_answers_with_the_table(api: Api) -> None:
    made = await create(api)
    assert await commit(api, "t") == (200, made)


async def test_requirements_decide_whether_a_commit_is_still_valid(api: Api) -> None:
    await create(api)
    wrong = {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}
    assert fault(await commit(api, "t", setting(a="1"), requirements=(wrong,))) == (
        409,
        "CommitFailedException",
    )
    no_snapshot = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
    assert (await commit(api, "t", setting(a="1"), requirements=(no_snapshot,)))[0] == 200


@pytest.mark.parametrize(
    "update",
    [
        {},
        {"action": "melt"},
        {"action": "set-properties"},
        {"action": "set-current-schema", "schema-id": 9},
        {"action": "remove-properties", "removals": ["none"]},
        {"action": "set-location", "location": "file:///etc"},
        {"action": "remove-snapshots", "snapshot-ids": [1]},
        {"action": "upgrade-format-version", "format-version": 9},
        {
            "action": "add-snapshot",
            "snapshot": {
                "snapshot-id": 1 << 70,
                "sequence-number": 1,
                "timestamp-ms": 1,
                "manifest-list": "x",
                "summary": {"operation": "append"},
            },
        },
    ],
)
async def test_invalid_updates_are_refused_and_change_nothing(api: Api, update: object) -> None:
    made = await create(api)
    assert fault(await commit(api, "t", update)) == (400, "BadRequestException")
    assert (await api.ask("GET", f"{TABLES}/t"))[1] == made


@pytest.mark.alone("expects the tables below the data directory")
async def test_tables_stay_where_the_server_keeps_tables(api: Api, tmp_path: Path) -> None:
    store = f"file://{tmp_path}/data/objects"
    for location in (
        "file:///etc",
        "/etc",
        f"{store}/parts/x",
        f"{store}/tables",
        f"{store}/tables/../parts",
        f"{store}/tables/a/../../x",
        "s3://other/tables/x",
        f"{store}/tables/{'x/' * 3000}y",
        f"{store}/tables/{'x' * 300}",
        7,
    ):
        body = {"name": "u", "schema": SCHEMA, "location": location}
        assert fault(await api.ask("POST", TABLES, body)) == (400, "BadRequestException"), location
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    path = "/iceberg/v1/namespaces/default/register"
    for location in (f"file://{secret}", f"{store}/tables/../../secret.json", f"{store}/tables/none.json"):
        assert fault(await api.ask("POST", path, {"name": "r", "metadata-location": location}))[0] == 400
    made = await create(api, location=f"{store}/tables/mine/u/")
    assert made["metadata"]["location"] == f"{store}/tables/mine/u"


async def test_a_purge_spares_the_files_of_another_table(api: Api) -> None:
    theirs, mine = await create(api, "theirs"), await create(api, "mine")
    file = _path(theirs["metadata"]["location"]) / "data" / "1.parquet"
    file.parent.mkdir()
    file.write_bytes(b"rows")
    forged = {**mine["metadata"], "location": f"{theirs['metadata']['location']}/data"}
    location = mine["metadata-location"].replace("/metadata/", "/metadata/forged-")
    _path(location).write_bytes(json.dumps(forged).encode())
    assert (await api.client.delete(f"{TABLES}/mine")).status_code == 204
    path = "/iceberg/v1/namespaces/default/register"
    await api.ask("POST", path, {"name": "mine", "metadata-location": location})
    await api.client.delete(f"{TABLES}/mine?purgeRequested=true")
    assert file.read_bytes() == b"rows"


async def test_a_table_owns_no_files_outside_of_its_location(api: Api) -> None:
    store = api.broker.catalog.store_url
    place = f"{store}/tables/metadata/deep"
    made = await create(api, location=place, properties={"write.metadata.path": f"{place}/er"})
    assert made["metadata-location"].startswith(f"{place}/er/")
    files = api.broker.table_files
    assert files.owner("tables/default/other/1") is None
    owner = files.owner("tables/metadata/deep/er/1")
    assert owner is not None
    assert owner.writable
    forged = f"{store}/tables/metadata/forged.json"
    _path(forged).write_bytes(json.dumps(made["metadata"]).encode())
    assert (await api.client.delete(f"{TABLES}/t")).status_code == 204
    path = "/iceberg/v1/namespaces/default/register"
    answer = await api.ask("POST", path, {"name": "t", "metadata-location": forged})
    assert fault(answer) == (400, "BadRequestException")


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


async def test_an_invalid_table_is_refused(api: Api) -> None:
    for body in (
        {},
        {"name": "t"},
        {"name": "", "schema": SCHEMA},
        {"name": "a/b", "schema": SCHEMA},
        {"name": "t", "schema": 7},
        {"name": "t", "schema": {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "lung"}]}},
        {"name": "t", "schema": SCHEMA, "partition-spec": {"spec-id": 0, "fields": [{"source-id": 9}]}},
    ):
        assert fault(await api.ask("POST", TABLES, body)) == (400, "BadRequestException"), body
    assert (await api.ask("GET", TABLES))[1] == {"identifiers": []}
    nowhere = "/iceberg/v1/namespaces/nowhere/tables"
    assert (
        fault(await api.ask("POST", nowhere, {"name": "t", "schema": SCHEMA}))[1]
        == "NoSuchNamespaceException"
    )
    assert fault(await api.ask("GET", nowhere)) == (404, "NoSuchNamespaceException")
    assert fault(await api.ask("GET", "/iceberg/v1/zz")) == (404, "NotFoundException")
    assert fault(await api.ask("PUT", TABLES, {})) == (405, "UnsupportedOperationException")


async def test_a_staged_table_exists_once_it_is_committed(api: Api) -> None:
    body = {"name": "t", "schema": SCHEMA, "stage-create": True}
    status, staged = await api.ask("POST", TABLES, body)
    assert status == 200
    assert "metadata-location" not in staged
    assert fault(await api.ask("GET", f"{TABLES}/t"))[0] == 404
    updates = [
        {"action": "assign-uuid", "uuid": staged["metadata"]["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": {**SCHEMA, "schema-id": 0}},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["metadata"]["location"]},
    ]
    requirement = {"type": "assert-create"}
    assert (await commit(api, "t", *updates, requirements=(requirement,)))[0] == 200
    assert (await api.ask("GET", f"{TABLES}/t"))[1]["metadata"]["schemas"][0]["fields"] == SCHEMA["fields"]
    assert fault(await commit(api, "t", *updates, requirements=(requirement,))) == (
        409,
        "AlreadyExistsException",
    )


async def test_a_transaction_changes_all_its_tables_or_none(api: Api) -> None:
    for name in ("a", "b"):
        await create(api, name)

    def change(name: str, *requirements: object) -> dict[str, object]:
        identifier = {"namespace": ["default"], "name": name}
        return {"identifier": identifier, "updates": [setting(x=name)], "requirements": requirements}

    path = "/iceberg/v1/transactions/commit"
    wrong = {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}
    failed = await api.ask("POST", path, {"table-changes": [change("a"), change("b", wrong)]})
    assert fault(failed) == (409, "CommitFailedException")
    assert fault(await api.ask("POST", path, {"table-changes": []}))[0] == 400
    assert fault(await api.ask("POST", path, {"table-changes": [change("a"), change("a")]}))[0] == 400
    assert (await api.ask("GET", f"{TABLES}/a"))[1]["metadata"]["properties"] == {}
    answer = await api.client.post(path, json={"table-changes": [change("a"), change("b")]})
    assert answer.status_code == 204
    for name in ("a", "b"):
        assert (await api.ask("GET", f"{TABLES}/{name}"))[1]["metadata"]["properties"] == {"x": name}


async def test_names_move_and_stay_taken(api: Api) -> None:
    await create(api, "a")
    await create(api, "b")
    path = "/iceberg/v1/tables/rename"

    def body(source: str, destination: str, namespace: str = "default") -> dict[str, object]:
        return {
            "source": {"namespace": ["default"], "name": source},
            "destination": {"namespace": [namespace], "name": destination},
        }

    assert fault(await api.ask("POST", path, body("a", "b"))) == (409, "AlreadyExistsException")
    assert fault(await api.ask("POST", path, body("z", "c"))) == (404, "NoSuchTableException")
    assert fault(await api.ask("POST", path, body("a", "c", "nowhere"))) == (404, "NoSuchNamespaceException")
    assert (await api.client.post(path, json=body("a", "c"))).status_code == 204
    assert [each["name"] for each in (await api.ask("GET", TABLES))[1]["identifiers"]] == ["b", "c"]


@pytest.mark.alone("fills the disk of a log of its own")
async def test_a_full_disk_fails_the_commit_and_leaves_the_table(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await create(api)

    async def full(*_: object, **__: object) -> bool:
        raise NoSpace("the disk is full")

    monkeypatch.setattr(LocalObjectStore, "put", full)
    assert fault(await commit(api, "t", setting(a="1"))) == (503, "ServiceUnavailableException")
    assert (await api.ask("GET", f"{TABLES}/t"))[1] == made


async def test_scopes_are_those_of_the_door(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="boss,reader:read,narrow:admin+read:mine") as api:
        assert fault(await api.ask("GET", "/iceberg/v1/config")) == (401, "NotAuthorizedException")
        body = {"name": "other", "schema": SCHEMA}
        assert fault(await api.ask("POST", TABLES, body, key="reader")) == (403, "ForbiddenException")
        assert fault(await api.ask("POST", TABLES, body, key="narrow")) == (403, "ForbiddenException")
        assert (await api.ask("POST", TABLES, body, key="boss"))[0] == 200
        assert (await api.ask("POST", TABLES, {**body, "name": "mine_1"}, key="narrow"))[0] == 200
        assert (await api.ask("GET", f"{TABLES}/other", key="reader"))[0] == 200
        assert fault(await api.ask("GET", f"{TABLES}/other", key="narrow")) == (403, "ForbiddenException")
        listed = (await api.ask("GET", TABLES, key="narrow"))[1]["identifiers"]
        assert [each["name"] for each in listed] == ["mine_1"]
        await api.ask("PUT", "/v0/topics/secret", {}, key="boss")
        await api.ask("PUT", "/v0/topics/mine-2", {}, key="boss")
        for topic in ("secret", "mine-2"):
            assert (await api.ask("PUT", f"/v0/topics/{topic}/table", {}, key="boss"))[0] == 200
        assert (await api.ask("GET", f"{TABLES}/mine_2", key="narrow"))[0] == 200
        assert fault(await api.ask("GET", f"{TABLES}/secret", key="narrow"))[0] == 403
        assert (await api.ask("GET", "/v0/lake/tables", key="reader"))[0] == 403


async def make_table(api: Api, space: str, name: str, **more: object) -> tuple[int, Any]:
    body = {"name": name, "schema": {"type": "struct", "fields": [COLUMN]}, **more}
    return await api.ask("POST", f"/iceberg/v1/namespaces/{space}/tables", body)


COLUMN = {"id": 1, "name": "n", "required": False, "type": "long"}
VERSION = {
    "version-id": 1,
    "schema-id": 0,
    "timestamp-ms": 1,
    "summary": {},
    "representations": [{"type": "sql", "sql": "SELECT 1", "dialect": "spark"}],
    "default-namespace": ["s"],
}


async def test_a_table_of_format_version_3_has_row_ids_and_default_values(api: Api) -> None:
    await api.ask("POST", "/iceberg/v1/namespaces", {"namespace": ["s"]})
    column = {**COLUMN, "required": True, "initial-default": 7, "write-default": 8}
    schema = {"type": "struct", "fields": [column]}
    status, made = await make_table(api, "s", "v3", schema=schema, properties={"format-version": "3"})
    assert status == 200, made
    assert (made["metadata"]["format-version"], made["metadata"]["next-row-id"]) == (3, 0)
    assert made["metadata"]["schemas"][0]["fields"] == [column]
    _, old = await make_table(api, "s", "v2")
    upgrade = {"updates": [{"action": "upgrade-format-version", "format-version": 3}]}
    status, after = await api.ask("POST", "/iceberg/v1/namespaces/s/tables/v2", upgrade)
    assert (status, after["metadata"]["format-version"]) == (200, 3), after
    assert after["metadata"]["metadata-log"][0]["metadata-file"] == old["metadata-location"]


async def test_a_sort_order_gets_a_number_of_its_own(api: Api) -> None:
    await api.ask("POST", "/iceberg/v1/namespaces", {"namespace": ["s"]})
    await make_table(api, "s", "t")
    path = "/iceberg/v1/namespaces/s/tables/t"
    for direction in ("asc", "desc", "asc"):
        field = {"source-id": 1, "transform": "identity", "direction": direction, "null-order": "nulls-first"}
        updates = [
            {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": [field]}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ]
        status, after = await api.ask("POST", path, {"updates": updates})
        assert status == 200, after
    orders = [order["order-id"] for order in after["metadata"]["sort-orders"]]
    assert (orders, after["metadata"]["default-sort-order-id"]) == ([0, 1, 2], 1)


async def test_a_transaction_creates_and_changes_tables_all_or_none(api: Api) -> None:
    await api.ask("POST", "/iceberg/v1/namespaces", {"namespace": ["s"]})
    await make_table(api, "s", "old")

    async def commit(*names: str) -> int:
        changes: list[object] = [
            {"identifier": {"namespace": ["s"], "name": "old"}, "updates": [setting(seen=",".join(names))]}
        ]
        for name in names:
            _, staged = await make_table(api, "s", name, **{"stage-create": True})
            metadata = staged["metadata"]
            updates = [
                {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
                {"action": "upgrade-format-version", "format-version": 2},
                {"action": "set-location", "location": metadata["location"]},
                {"action": "add-schema", "schema": metadata["schemas"][0]},
                {"action": "set-current-schema", "schema-id": -1},
                {"action": "add-spec", "spec": metadata["partition-specs"][0]},
                {"action": "set-default-spec", "spec-id": -1},
                {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
                {"action": "set-default-sort-order", "sort-order-id": -1},
            ]
            identifier = {"namespace": ["s"], "name": name}
            requirements = [{"type": "assert-create"}]
            changes.append({"identifier": identifier, "requirements": requirements, "updates": updates})
        body = {"table-changes": changes}
        return (await api.client.post("/iceberg/v1/transactions/commit", json=body)).status_code

    assert await commit("one", "two") == 204
    assert await commit("three", "three") == 400
    _, listed = await api.ask("GET", "/iceberg/v1/namespaces/s/tables")
    assert sorted(each["name"] for each in listed["identifiers"]) == ["old", "one", "two"]
    _, old = await api.ask("GET", "/iceberg/v1/namespaces/s/tables/old")
    assert old["metadata"]["properties"] == {"seen": "one,two"}


async def test_a_missing_table_is_missing_in_a_missing_namespace_too(api: Api) -> None:
    found = await api.ask("GET", "/iceberg/v1/namespaces/no%1Ftable/tables/snapshots")
    assert fault(found) == (404, "NoSuchTableException")
    assert found[1]["error"]["message"] == "Table does not exist: no.table.snapshots"


async def test_a_view_has_versions_and_shares_names_with_tables(api: Api) -> None:
    await api.ask("POST", "/iceberg/v1/namespaces", {"namespace": ["s"]})
    path = "/iceberg/v1/namespaces/s/views"
    body = {"name": "v", "schema": {"type": "struct", "fields": [COLUMN]}, "view-version": VERSION}
    status, made = await api.ask("POST", path, body)
    assert status == 200, made
    assert await api.ask("GET", f"{path}/v") == (200, made)
    assert fault(await make_table(api, "s", "v")) == (409, "AlreadyExistsException")
    assert fault(await api.ask("GET", "/iceberg/v1/namespaces/s/tables/v")) == (404, "NoSuchTableException")
    assert (await api.ask("GET", "/iceberg/v1/namespaces/s/tables"))[1] == {"identifiers": []}
    newer = {**VERSION, "representations": [{"type": "sql", "sql": "SELECT 2", "dialect": "spark"}]}
    updates = [
        {"action": "add-view-version", "view-version": newer},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    wrong = {"requirements": [{"type": "assert-view-uuid", "uuid": "x"}], "updates": updates}
    assert fault(await api.ask("POST", f"{path}/v", wrong)) == (409, "CommitFailedException")
    status, after = await api.ask("POST", f"{path}/v", {"updates": updates})
    assert (status, after["metadata"]["current-version-id"]) == (200, 2), after
    assert len(after["metadata"]["version-log"]) == 2
    other = {**newer, "representations": [{"type": "sql", "sql": "SELECT 2", "dialect": "trino"}]}
    updates[0]["view-version"] = other
    lost = await api.ask("POST", f"{path}/v", {"updates": updates})
    assert fault(lost) == (400, "IllegalArgumentException")
    assert fault(await api.ask("DELETE", "/iceberg/v1/namespaces/s")) == (409, "NamespaceNotEmptyException")
    assert (await api.client.delete(f"{path}/v")).status_code == 204
    assert fault(await api.ask("GET", f"{path}/v")) == (404, "NoSuchViewException")

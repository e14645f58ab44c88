from __future__ import annotations

from typing import Any

import pytest

from mainstem.errors import PackageMissing

from .conftest import Api, code


async def switch(api: Api, topic: str = "t", **body: object) -> tuple[int, Any]:
    return await api.ask("PUT", f"/v0/topics/{topic}/table", body)


async def test_a_table_is_enabled_and_disabled(api: Api) -> None:
    await api.put("t")
    status, body = await api.ask("GET", "/v0/topics/t/table")
    assert (status, body["enabled"], body["table"]) == (200, False, "")
    status, body = await switch(api)
    assert (status, body["enabled"], body["table"], body["snapshots"]) == (200, True, "default.t", 0)
    assert (await switch(api))[1]["location"] == body["location"]
    assert len((await api.state("t"))["config"]) == 17
    assert (await switch(api, enabled=False))[1]["table"] == ""
    assert (await api.ask("DELETE", "/v0/topics/t/table"))[0] == 200


async def test_a_topics_settings_by_http_leave_its_table_on(api: Api) -> None:
    await api.put("t")
    await switch(api)
    await api.put("t", ttl_ms=1000)
    assert (await api.ask("GET", "/v0/topics/t/table"))[1]["enabled"] is True


async def test_columns_are_kept_when_none_are_given(api: Api) -> None:
    await api.put("t")
    columns = [{"name": "a", "type": "long"}]
    declared = (await switch(api, schema=columns, delta="x"))[1]
    assert [column["name"] for column in declared["columns"]] == ["a"]
    assert (await switch(api, enabled=True))[1]["columns"] == declared["columns"]
    assert (await switch(api, delta=""))[1]["delta"] == ""
    assert (await switch(api, enabled=False))[1]["columns"] == declared["columns"]


async def test_refusals_change_nothing(api: Api) -> None:
    assert code(await switch(api)) == (404, "topic_not_found")
    await api.put("t")
    assert code(await switch(api, schema="x")) == (400, "invalid_request")
    assert code(await switch(api, schema=[{"name": "a", "type": "lung"}])) == (400, "invalid_request")
    assert code(await switch(api, enabled="yes")) == (400, "invalid_request")
    assert (await api.ask("GET", "/v0/topics/t/table"))[1]["enabled"] is False
    await switch(api, schema=[{"name": "a", "type": "long"}])
    for columns in ([], [{"name": "a", "type": "string"}], [{"name": "b", "type": "long"}]):
        assert code(await switch(api, schema=columns)) == (409, "table_incompatible")
    big = [{"name": f"{'x' * 250}{at}", "type": "long"} for at in range(900)]
    assert code(await switch(api, schema=[{"name": "a", "type": "long"}, *big])) == (400, "invalid_request")


async def test_a_table_without_its_packages_is_not_enabled(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise PackageMissing(
            "a table needs pyiceberg: run pip install 'mainstem[lake]' and restart the server"
        )

    await api.put("t")
    monkeypatch.setattr("mainstem.tables.table_metadata.check_available", missing)
    assert code(await switch(api)) == (501, "not_installed")
    assert (await api.ask("GET", "/v0/topics/t/table"))[1]["enabled"] is False


async def test_a_users_table_keeps_its_name(api: Api) -> None:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}
    await api.ask("POST", "/iceberg/v1/namespaces/default/tables", {"name": "t", "schema": schema})
    await api.put("t")
    assert code(await switch(api)) == (409, "table_exists")


async def test_a_table_that_cannot_be_settled_is_a_problem_of_its_topic_only(api: Api) -> None:
    await api.put("fine")
    await api.put("a-b")
    await api.put("a_b")
    for topic in ("fine", "a-b", "a_b"):
        await api.broker.change_topic(topic, lambda config: _with_table(config))
    assert await api.ask("GET", "/v0/lake/tables") == (200, {"tables": [], "problems": {}})
    status, settled = await api.ask("POST", "/v0/lake/tables/settle")
    assert status == 200
    status, works = await api.ask("GET", "/v0/lake/tables")
    assert status == 200
    assert works["problems"] == settled["problems"]
    assert [work["name"] for work in works["tables"]] == ["a_b", "fine"]
    assert list(works["problems"]) == ["a_b"]
    problem = (await api.ask("GET", "/v0/topics/a_b/table"))[1]["problem"]
    assert "a_b" in problem


def _with_table(config: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(config, table=True)


@pytest.mark.parametrize(
    "change",
    [
        {"expected": "file:///nowhere"},
        {"changes": [[99, [], [[0, 5, 1]]]]},
        {"changes": [[0, [], [[0, 5, 1]]]]},
        {"changes": [[0, [[0, 5, 1]], []]]},
        {"updates": [{"action": "melt"}]},
        {"name": "other"},
    ],
)
async def test_a_publisher_cannot_commit_parts_unknown_to_the_ledger(
    api: Api, change: dict[str, Any]
) -> None:
    await api.put("t")
    location = (await switch(api))[1]["location"]
    body = {"namespace": "default", "name": "t", "expected": location, **change}
    status, answer = await api.ask("POST", "/v0/lake/tables", {"commits": [body]})
    (result,) = answer["results"]
    assert status == 200
    assert result["error"]["code"] in ("invalid_request", "not_found", "stale_plan", "table_changed"), answer
    assert (await api.ask("GET", "/v0/topics/t/table"))[1]["location"] == location

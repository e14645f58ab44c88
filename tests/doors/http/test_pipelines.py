"""The reports of pipelines, and what is shown of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainstem import limits
from mainstem.broker.reports import PIPELINE_KEPT_MS, PIPELINE_SILENT_MS

from .conftest import Api, code


def report(name: str = "enrich", state: str = "running", **more: object) -> dict[str, Any]:
    return {"pipeline": name, "run": "host-1", "state": state, "started_ms": 1, **more}


def output(*positions: list[object], **more: object) -> dict[str, Any]:
    return {"output": "large", "target": "orders.large", "positions": list(positions), **more}


async def told(api: Api, **body: Any) -> None:
    status, answer = await api.ask("POST", "/v0/pipelines/report", report(**body))
    assert (status, answer["heard"]) == (200, True), answer


async def shown(api: Api, **more: Any) -> list[dict[str, Any]]:
    status, answer = await api.ask("GET", "/v0/pipelines", **more)
    assert status == 200, answer
    found: list[dict[str, Any]] = answer["pipelines"]
    return found


async def metrics(api: Api) -> dict[str, Any]:
    answer = await api.client.get("/v0/metrics", headers={"accept": "application/json"})
    found: dict[str, Any] = answer.json()
    return found


async def test_the_lag_is_computed_when_it_is_read(api: Api) -> None:
    await api.write("orders", *range(10))
    await told(api, topics=["orders"], outputs=[output(["orders", 0, 4], batch=2, rows_in=4, rows_out=1)])
    (one,) = await shown(api)
    assert (one["pipeline"], one["state"], one["heard_ms"]) == ("enrich", "running", api.clock.now_ms())
    assert one["outputs"] == [
        {
            "output": "large",
            "target": "orders.large",
            "batch": 2,
            "batch_ms": 0,
            "rows_in": 4,
            "rows_out": 1,
            "behind": 6,
        }
    ]
    await api.write("orders", *range(5))
    assert (await shown(api))[0]["outputs"][0]["behind"] == 11
    labels = {"pipeline": "enrich", "output": "large"}
    published = await metrics(api)
    assert published["mainstem_pipeline_behind_offsets"] == [{**labels, "value": 11.0}]
    assert published["mainstem_pipeline_rows_in_total"] == [{**labels, "value": 4.0}]
    assert {"state": "running", "value": 1.0} in published["mainstem_pipelines"]

    await api.ask("POST", "/v0/topics/orders/delete", {"before_seq": 13})
    assert (await shown(api))[0]["outputs"][0]["behind"] == 3, "what was deleted cannot be read any more"
    await api.ask("DELETE", "/v0/topics/orders")
    assert (await shown(api))[0]["outputs"][0]["behind"] == 0


async def test_the_lag_is_unknown_before_the_first_batch(api: Api) -> None:
    await told(api, state="starting", outputs=[output()])
    (one,) = await shown(api)
    assert (one["state"], one["outputs"][0]["behind"]) == ("starting", None)
    assert (await metrics(api))["mainstem_pipeline_behind_offsets"] == []


async def test_a_pipeline_that_stops_reporting_is_silent_and_a_failed_one_says_why(api: Api) -> None:
    await told(api, name="a")
    await told(api, name="b", state="failed", error="topic 'x' is gone")
    await told(api, name="c", state="done")
    api.clock.advance(PIPELINE_SILENT_MS + 1)
    assert [(one["state"], one["error"]) for one in await shown(api)] == [
        ("silent", ""),
        ("failed", "topic 'x' is gone"),
        ("done", ""),
    ]
    await told(api, name="a")
    assert [one["state"] for one in await shown(api)] == ["running", "failed", "done"]
    api.clock.advance(PIPELINE_KEPT_MS)
    assert [one["pipeline"] for one in await shown(api)] == ["a"]


async def test_the_number_of_pipelines_is_bounded(api: Api) -> None:
    for number in range(limits.REPORTS_OF_A_KIND_MAX + 3):
        await told(api, name=f"p{number:03}")
    names = [one["pipeline"] for one in await shown(api)]
    assert names == [f"p{number:03}" for number in range(3, limits.REPORTS_OF_A_KIND_MAX + 3)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "fine"},
        {"name": ""},
        {"name": "x" * 10_000},
        {"error": "x" * 10_000},
        {"outputs": [output()] * (limits.PIPELINE_OUTPUTS_MAX + 1)},
        {"outputs": [output(["orders", -1, 0])]},
        {"outputs": [output(["orders", 0])]},
        {"outputs": [output(rows_in=-1)]},
        {"outputs": [output(batch=2**63)]},
    ],
)
async def test_an_invalid_report_is_refused(api: Api, wrong: dict[str, Any]) -> None:
    assert code(await api.ask("POST", "/v0/pipelines/report", report(**wrong))) == (400, "invalid_request")
    assert await shown(api) == []


async def test_a_key_reports_and_sees_only_pipelines_of_its_topics(open_api: Callable[..., Any]) -> None:
    async with open_api(api_keys="reader:r,team:rw:a.,boss") as api:
        path = "/v0/pipelines/report"
        assert code(await api.ask("POST", path, report(), key="reader")) == (403, "forbidden")
        for hidden in ({"topics": ["b.x"]}, {"outputs": [output(["b.x", 0, 0])]}):
            assert code(await api.ask("POST", path, report(**hidden), key="team")) == (403, "forbidden")
        await api.ask("POST", path, report("mine", topics=["a.x"]), key="team")
        await api.ask("POST", path, report("theirs", topics=["a.x", "b.x"]), key="boss")
        assert [one["pipeline"] for one in await shown(api, key="team")] == ["mine"]
        assert [one["pipeline"] for one in await shown(api, key="reader")] == ["mine", "theirs"]

"""The dashboard and the alerts name metrics and labels that a server publishes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.reference.metrics import MetricDescription, described, scraped

ROOT = Path(__file__).parents[2]
_METRIC = re.compile(r"\b(mainstem_\w+)(?:\{([^}]*)\})?")
_GIVEN_BY_PROMETHEUS = {"job", "instance"}


@pytest.fixture(scope="module")
def published() -> dict[str, MetricDescription]:
    return described(scraped())


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "deploy/grafana/mainstem.json").read_text(encoding="utf-8"))
    return found


def rules() -> list[dict[str, Any]]:
    text = (ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8")
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def expressions() -> list[str]:
    panels = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    variables = [each["query"] for each in dashboard()["templating"]["list"]]
    return [*panels, *variables, *(rule["expr"] for rule in rules())]


@pytest.mark.parametrize("expression", expressions())
def test_what_is_asked_for_is_published(expression: str, published: dict[str, MetricDescription]) -> None:
    assert balanced(expression)
    for name, selectors in _METRIC.findall(expression):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        metric = published.get(name) or published.get(base)
        assert metric is not None, name
        assert (metric.kind == "histogram") == (name != metric.name), "of a histogram, one of its parts"
        known = metric.labels.keys() | _GIVEN_BY_PROMETHEUS
        assert set(re.findall(r"(\w+)\s*(?:=~|!=|!~|=)", selectors)) <= known
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        assert {label.strip() for group in grouped for label in group.split(",")} <= known
        if metric.kind == "counter" and "increase" not in expression:
            assert re.search(rf"(rate|resets)\({name}", expression), "a counter is looked at by its rate"


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = dashboard()["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_alerts_say_what_is_wrong_and_how_bad_it_is() -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert len(rule["annotations"]["summary"]) > 10


def balanced(expression: str) -> bool:
    depth = 0
    for letter in expression:
        depth += letter in "({["
        depth -= letter in ")}]"
        if depth < 0:
            return False
    return depth == 0

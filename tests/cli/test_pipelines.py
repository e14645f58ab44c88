"""`mainstem pipeline status`."""

from __future__ import annotations

import httpx

from mainstem.testing.broker import ThrowAwayBroker

from .conftest import Shell


def test_what_pipelines_report_is_a_line_an_output_and_json_for_programs(
    online: Shell, broker: ThrowAwayBroker
) -> None:
    assert "mainstem pipeline run FILE" in online("pipeline", "status").text
    assert online("pipeline", "status", "--json").json == []
    broker.client.produce_batch("clicks", [b"1", b"2", b"3"])
    output = {"output": "large", "target": "orders.large", "batch": 7, "rows_in": 40, "rows_out": 4}
    report = {
        "pipeline": "enrich",
        "run": "host-1",
        "state": "failed",
        "started_ms": 1,
        "outputs": [{**output, "positions": [["clicks", 0, 1]]}],
        "error": "topic 'orders.large' is full",
    }
    httpx.post(f"{broker.url}/v0/pipelines/report", json=report, timeout=60).raise_for_status()
    shown = online("pipeline", "status").text.splitlines()
    assert shown[1].split()[:8] == ["enrich", "failed", "large", "orders.large", "7", "40", "4", "2"]
    assert shown[-1] == "enrich: topic 'orders.large' is full"
    (found,) = online("pipeline", "status", "--json").json
    assert (found["pipeline"], found["outputs"][0]["behind"]) == ("enrich", 2)

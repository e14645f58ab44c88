"""Numbers beyond what the ledger holds: each is refused or clamped, and the server continues."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Api

_NUMBERS = (2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -1, -(2**63), -(10**30))

# Bodies in which N is the number.
_BODIES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/v0/topics/q/ack", {"node": "n", "seqs": ["N"]}),
    ("POST", "/v0/topics/q/nack", {"node": "n", "seqs": ["N"], "delay_ms": "N"}),
    ("POST", "/v0/topics/q/extend", {"node": "n", "seqs": ["N"], "lease_ms": "N"}),
    ("POST", "/v0/topics/q/claim", {"node": "n", "max": "N", "lease_ms": "N"}),
    ("POST", "/v0/topics/a/diff", {"from_seq": "N", "limit": "N", "max_batch_bytes": "N"}),
    ("POST", "/v0/topics/a/delete", {"before_seq": "N", "match": "x"}),
    ("PUT", "/v0/topics/z", {"ttl_ms": "N", "cap_records": "N", "cap_bytes": "N", "max_deliveries": "N"}),
    ("PUT", "/v0/topics/z", {"priority": "N", "idempotency_window_ms": "N", "lease_ms": "N"}),
    ("PATCH", "/v0/topics/a/settings", {"partitions": "N"}),
    ("POST", "/v0/watch", {"topics": {"a": {"from_seq": "N"}}, "limit": "N", "heartbeat_ms": "N"}),
    ("POST", "/v0/lake/plan", {"holder": "h", "tasks_max": "N", "lease_ms": "N", "wait_for_bytes": "N"}),
    ("POST", "/v0/lake/extend", {"stream": "N", "token": "N", "lease_ms": "N"}),
    ("POST", "/v0/lake/release", {"stream": "N", "token": "N"}),
    (
        "POST",
        "/v0/lake/publish",
        {"publications": [{"stream": "N", "token": "N", "sources": [["N", "N", "N"]], "parts": []}]},
    ),
    ("POST", "/v0/lake/sources", {"topic": "a", "from": "N", "to": "N"}),
    ("POST", "/v0/lake/report", {"holder": "h", "state": "s", "rounds": "N", "bytes": "N"}),
    (
        "POST",
        "/v0/pipelines/report",
        {
            "pipeline": "p",
            "run": "r",
            "state": "running",
            "started_ms": "N",
            "outputs": [{"output": "o", "target": "t", "rows_in": "N", "positions": [["a", "N", "N"]]}],
        },
    ),
    (
        "POST",
        "/v0/lake/tables",
        {"commits": [{"namespace": "n", "name": "x", "expected": "e", "changes": [["N", [], []]]}]},
    ),
    ("POST", "/v0/sinks/tasks", {"query": "q", "run": "r", "batch": 1, "attempt": "a", "timeout_ms": "N"}),
    (
        "POST",
        "/v0/sinks/commit",
        {
            "query": "q",
            "run": "r",
            "batch": "N",
            "attempts": [{"attempt": "a", "producer": "N", "epoch": "N"}],
        },
    ),
    ("POST", "/v0/groups/g/reset", {"topic": "a", "to": "time", "timestamp_ms": "N"}),
    ("POST", "/v0/groups/g/reset", {"topic": "a", "to": "offset", "offset": "N"}),
    ("POST", "/v0/groups/g/offsets", {"offsets": [{"topic": "a", "offset": "N", "partition": "N"}]}),
)


def _with(body: Any, number: int) -> Any:
    if isinstance(body, dict):
        return {name: _with(value, number) for name, value in body.items()}
    if isinstance(body, list):
        return [_with(value, number) for value in body]
    return number if body == "N" else body


@pytest.mark.parametrize("number", _NUMBERS)
async def test_no_number_causes_a_server_error(api: Api, number: int) -> None:
    await api.put("q", type="queue")
    await api.write("q", 1)
    await api.write("a", 1)
    for method, path, body in _BODIES:
        status, answer = await api.ask(method, path, _with(body, number))
        assert status < 500, (method, path, answer)
        assert "'internal'" not in str(answer), (method, path, answer)  # of one item of several
    for query in ("from", "partition", "max_bytes"):
        answer = await api.client.get(f"/v0/topics/a/batches?{query}={number}")
        assert answer.status_code < 500
    assert (await api.ask("GET", "/v0/lake/status"))[0] == 200
    assert (await api.client.get("/v0/metrics")).status_code == 200
    assert (await api.ask("GET", "/v0/ready"))[0] == 200
    assert (await api.write("a", 2))["last_seq"] == 2


@pytest.mark.parametrize("path", ["tasks", "commit", "extend", "abort"])
async def test_a_sink_without_a_name_is_invalid(api: Api, path: str) -> None:
    body = {"query": "", "run": "r", "batch": 0, "attempt": "a", "attempts": []}
    status, answer = await api.ask("POST", f"/v0/sinks/{path}", body)
    assert (status, answer["error"]["code"]) == (400, "invalid_request")

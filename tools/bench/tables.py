"""A topic's table under many commits, and typed columns.

Every commit publishes one small part: its duration must not grow with the history. Values are decoded to typed columns
as the lake's workers do it.
"""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pyarrow as pa

from mainstem.api.lake import PlanRequest
from mainstem.client.broker import BrokerClient
from mainstem.tables.columns import declared
from mainstem.tables.parts.materialise import materialise
from mainstem.tables.payloads.json_values import json_columns
from mainstem.tables.publishing.publisher import Publisher
from mainstem.testing.server import ServerProcess
from tools.bench.report import Figure, Report, measured

COMMITS = 500
COMMIT_BAR_MS = 200.0
VALUES = 500_000
_LAST = 50


def run(scratch: Path, report: Report) -> None:
    _columns(report)
    with ServerProcess((scratch / "tables").resolve(), "--text", "off", "--kafka", "off") as server:
        url = f"http://{server.address('http')}"
        with httpx.Client(base_url=url, timeout=60) as http, BrokerClient(url) as broker:
            took = _commits(http, broker)
        server.terminate()
    last = sorted(took[-_LAST:])
    note = f"slowest of {_LAST} {last[-1]:.0f} ms, of all {max(took):.0f} ms"
    what = f"table: one commit, after {COMMITS - _LAST} others"
    report.add(Figure(what, last[len(last) // 2], "ms", COMMIT_BAR_MS, lower_is_better=True, note=note))


def _commits(http: httpx.Client, broker: BrokerClient) -> list[float]:
    """Milliseconds that each took."""
    http.put("/v0/topics/orders", json={"durability": "disk"}).raise_for_status()
    http.put("/v0/topics/orders/table", json={"enabled": True}).raise_for_status()
    took = []
    for number in range(COMMITS):
        http.post("/v0/topics/orders", json={"records": [{"data": number}]}).raise_for_status()
        for task in broker.plan(PlanRequest("bench", kinds=("materialise",))).tasks:
            broker.publish(materialise(task))
        started = time.perf_counter()
        Publisher(broker).run()
        took.append((time.perf_counter() - started) * 1000)
    return took


def _columns(report: Report) -> None:
    names = [("id", "long"), ("name", "string"), ("price", "double"), ("at", "timestamp")]
    columns = declared([{"name": name, "type": kind} for name, kind in names], [])
    value = b'{"id":%d,"name":"customer-%d","price":9.75,"at":"2024-05-06T07:08:09Z","rest":[1,{"x":null}]}'
    values = pa.array([value % (at, at) for at in range(VALUES)], pa.binary())
    with measured() as span:
        errors = json_columns(values, columns)[0]
    if errors.null_count != VALUES:
        raise RuntimeError("a value did not fit its columns")
    what = f"table: JSON values to {len(columns)} typed columns"
    report.add(Figure(what, VALUES / span.wall_s, "values/s", cpu_s=span.cpu_s))

"""The metrics that a server publishes, asked of one that has done a little of everything that is counted."""

from __future__ import annotations

import re
import socket
import struct
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mainstem.address import Address
from mainstem.broker.lake_reports import DriverReport, TopicFailure
from mainstem.broker.pipeline_reports import OutputReport, PipelineReport, Position
from mainstem.testing.broker import throw_away_broker
from tools.reference.markdown import MADE, code, table

_TEXT = """# Metrics

`GET /v0/metrics` gives them in Prometheus' text format, or as JSON with `Accept: application/json`. With keys it takes
the scope `read`. A dashboard for Grafana is in `deploy/grafana/mainstem.json`, rules for alerts are in
`deploy/prometheus/alerts.yml`; [observability](observability.md) says how to use them.

"""

_HELP = re.compile(r"# HELP (\w+) (.*)")
_TYPE = re.compile(r"# TYPE (\w+) (\w+)")
_SAMPLE = re.compile(r"(\w+?)(?:_bucket|_sum|_count)?\{(.*)\} ")
_LABEL = re.compile(r'(\w+)="')
_DRIVER = DriverReport("reference", "idle", failing=(TopicFailure("orders", "no more", 1, 0),))
_PIPELINE = PipelineReport(
    "reference",
    "here",
    "running",
    0,
    ("orders",),
    (OutputReport("out", "orders.out", positions=(Position("orders", 0, 0),)),),
)
_API_VERSIONS = struct.pack(">hhih", 18, 0, 1, -1)  # api, version, correlation id, no client id


@dataclass
class MetricDescription:
    """A metric as its documentation tells of it."""

    name: str
    help: str
    kind: str = ""
    labels: dict[str, None] = field(default_factory=dict)  # in order


def metrics_page(exposition: str) -> str:
    rows = [
        (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), metric.help)
        for metric in sorted(described(exposition).values(), key=lambda metric: metric.name)
    ]
    return MADE + _TEXT + table(("metric", "kind", "labels", ""), rows)


def described(exposition: str) -> dict[str, MetricDescription]:
    """What there is in a text that Prometheus would read."""
    found: dict[str, MetricDescription] = {}
    for line in exposition.splitlines():
        if match := _HELP.match(line):
            found[match[1]] = MetricDescription(match[1], match[2])
        elif match := _TYPE.match(line):
            found[match[1]].kind = match[2]
        elif match := _SAMPLE.match(line):
            name = match[1] if match[1] in found else line.partition("{")[0]
            found[name].labels |= dict.fromkeys(_LABEL.findall(match[2]))
    return found


def scraped() -> str:
    """The metrics of a server through each of whose doors something went, so that every label shows."""
    with TemporaryDirectory() as store, throw_away_broker("--objects", Path(store).as_uri()) as broker:
        broker.client.produce("orders", {"id": 1})
        broker.client.commit_offsets("billing", "orders", {0: 1})
        broker.client.put_table("orders")
        _ask_kafka(Address.parse(broker.bootstrap_servers))
        _report(f"{broker.url}/v0/lake/report", _DRIVER)
        _report(f"{broker.url}/v0/pipelines/report", _PIPELINE)
        with urllib.request.urlopen(f"{broker.url}/v0/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
            return text


def _ask_kafka(address: Address) -> None:
    with socket.create_connection((address.host, address.port), 30) as connection:
        connection.sendall(struct.pack(">i", len(_API_VERSIONS)) + _API_VERSIONS)
        connection.recv(4, socket.MSG_WAITALL)


def _report(url: str, report: object) -> None:
    """As a driver of the lake or a pipeline does it."""
    import msgspec

    request = urllib.request.Request(
        url, msgspec.json.encode(report), {"content-type": "application/json"}, method="POST"
    )
    urllib.request.urlopen(request, timeout=30).close()

"""GET metrics: what the server holds and did, in Prometheus' text format or as JSON."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator

from mainstem.api.access import EVERYTHING, Operation, ResourceType
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.metrics import Metric, one
from mainstem.version import VERSION

_NAMES = frozenset({"topic", "group", "pipeline"})  # labels
_TEXT = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")


async def get_metrics(request: HttpRequest) -> Response:
    """Get the metrics, in Prometheus text format or as JSON."""
    found = [*_traffic(request), *_process(request)]
    for others in request.context.published:
        found += others()
    if request.view is not None or not request.may(Operation.DESCRIBE, ResourceType.TOPIC, EVERYTHING):
        found = [metric for metric in found if not _names_resources(metric)]
    if b"application/json" in (request.header(b"accept") or b""):
        return reply({metric.name + metric.suffix: _as_json(metric) for metric in found})
    return Response(200, "".join(map(as_text, found)).encode(), (_TEXT,))


def _names_resources(metric: Metric) -> bool:
    """Whether a label names a topic or group: keys with prefixes do not get such a metric."""
    return any(label in _NAMES for labels, _ in metric.samples for label, _ in labels)


def _traffic(request: HttpRequest) -> Iterator[Metric]:
    context = request.context
    traffic = context.traffic
    requests = tuple(
        ((("route", route), ("status", str(status))), float(count))
        for (route, status), count in sorted(traffic.requests.items())
    )
    yield Metric("mainstem_http_requests_total", "counter", "Requests served.", requests)
    seconds = tuple(((("route", route),), spent) for route, spent in sorted(traffic.seconds.items()))
    yield Metric("mainstem_http_request_seconds_total", "counter", "Time from request to response.", seconds)
    yield one(
        "mainstem_http_received_bytes_total",
        "counter",
        "Bytes of request bodies received.",
        traffic.received_bytes,
    )
    yield one(
        "mainstem_http_sent_bytes_total", "counter", "Bytes of response bodies sent.", traffic.sent_bytes
    )
    yield one("mainstem_http_body_bytes", "gauge", "Bytes of request bodies in progress.", context.body_bytes)
    yield one("mainstem_http_streams", "gauge", "Open event streams and WebSockets.", context.streams)
    yield one("mainstem_watch_sessions", "gauge", "Watch sessions.", len(context.live.sessions))


def _process(request: HttpRequest) -> Iterator[Metric]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield Metric(
        "mainstem_build_info", "gauge", "1, labelled with the version.", (((("version", VERSION),), 1.0),)
    )
    yield one(
        "mainstem_uptime_seconds",
        "gauge",
        "Time since the door opened.",
        time.monotonic() - request.context.started,
    )
    yield one(
        "mainstem_cpu_seconds_total", "counter", "CPU time of the process.", used.ru_utime + used.ru_stime
    )
    yield one("mainstem_peak_memory_bytes", "gauge", "Peak memory of the process.", used.ru_maxrss * 1024)


def as_text(metric: Metric) -> str:
    """As Prometheus reads it."""
    lines = []
    if metric.suffix in ("", "_bucket"):  # the other parts of a histogram follow its buckets
        lines.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n")
    for labels, value in metric.samples:
        named = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
        lines.append(f"{metric.name}{metric.suffix}{f'{{{named}}}' if named else ''} {value!r}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _as_json(metric: Metric) -> object:
    if len(metric.samples) == 1 and not metric.samples[0][0]:
        return metric.samples[0][1]
    return [{**dict(labels), "value": value} for labels, value in metric.samples]

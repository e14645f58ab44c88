"""History of the server, its topics and its groups, and how its samples are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mainstem import events
from mainstem.api.history import Alert, GroupHistory, ServerHistory, TopicHistory
from mainstem.broker.alerts import ALERTS_MAX, alerts
from mainstem.broker.history import HISTORY_EVERY_S, RequestCounters
from mainstem.doors.http.routes.groups import allowed, groups_of
from mainstem.doors.http.transport.context import Context
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import GroupNotFound, described
from mainstem.metrics import Labels, Metric

_log = events.named("history")

_EVERY_MS = round(HISTORY_EVERY_S * 1000)
_WRITE = "POST /v0/topics/{topic}"
_OWN = ("overview", "metrics", "/v0/key", "console", "history")  # routes that the console polls
_KAFKA = "mainstem_kafka_request_seconds"


async def get_server(request: HttpRequest) -> Response:
    """Get rates and write latencies of the last hour."""
    samples = request.context.history.server(request.number("after", 0))
    return reply(ServerHistory(_EVERY_MS, samples, request.performance()))


async def get_topic(request: HttpRequest) -> Response:
    """Get the rates of writes to a topic in the last hour."""
    topic = request.broker.streams.topic(request.topic)
    samples = request.context.history.topic(topic.topic_id)
    return reply(TopicHistory(topic.name, _EVERY_MS, samples, request.performance()))


async def get_group(request: HttpRequest) -> Response:
    """Get the lag of a group in the last hour."""
    name = request.parameters["group"]
    if not groups_of(request).exists(name) or not allowed(request, name):
        raise GroupNotFound(name)
    samples = request.context.history.group(name)
    return reply(GroupHistory(name, _EVERY_MS, samples, request.performance()))


def alerts_for(request: HttpRequest) -> list[Alert]:
    """Those that the client may know of."""
    context = request.context
    found = [alert for alert in alerts(request.broker, context.history) if _concerns(request, alert)]
    for topic, problem in context.broker.lake_reports.problems().items():
        if request.sees(topic):
            found.append(Alert("table_behind", False, f"the table lags: {problem}", topic=topic))
    return found[:ALERTS_MAX]


def _concerns(request: HttpRequest, alert: Alert) -> bool:
    if alert.topic is not None:
        return request.sees(alert.topic)
    if alert.group is not None:
        return allowed(request, alert.group)
    return alert.transaction is None or request.sees_id(alert.transaction)


# Sampling


async def sample_forever(context: Context) -> None:
    """Take a sample now and then, until cancelled."""
    while True:
        try:
            take_sample(context)
        except Exception as error:  # noqa: BLE001 - the next sample may succeed
            _log.warning("history sample failed", error=described(error))
        await asyncio.sleep(HISTORY_EVERY_S)


def take_sample(context: Context) -> None:
    context.history.take(context.broker.group_lags.measured(), _requests(context))


def _requests(context: Context) -> RequestCounters:
    traffic = context.traffic
    kafka = [metric for source in context.sampled for metric in source() if metric.name == _KAFKA]
    return RequestCounters(
        http_requests=sum(
            number for (route, _), number in traffic.requests.items() if not any(own in route for own in _OWN)
        ),
        http_writes=sum(number for (route, _), number in traffic.requests.items() if route == _WRITE),
        http_write_s=traffic.seconds[_WRITE],
        kafka_requests=sum(value for _, value in _samples(kafka, "_count")),
        kafka_writes=_produced(kafka, "_count"),
        kafka_write_s=_produced(kafka, "_sum"),
        kafka_write_buckets=tuple(
            (float(dict(labels)["le"]), value)
            for labels, value in _samples(kafka, "_bucket")
            if _writes(labels)
        ),
    )


def _samples(metrics: Iterable[Metric], suffix: str) -> list[tuple[Labels, float]]:
    return [sample for metric in metrics if metric.suffix == suffix for sample in metric.samples]


def _produced(metrics: Iterable[Metric], suffix: str) -> float:
    return sum(value for labels, value in _samples(metrics, suffix) if _writes(labels))


def _writes(labels: Labels) -> bool:
    return ("api", "produce") in labels

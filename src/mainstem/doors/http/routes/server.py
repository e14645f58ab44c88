"""The server itself: health, overview, storage, cluster, backups, and the pipelines that report to it."""

from __future__ import annotations

import shutil
import time
from email.utils import formatdate
from functools import partial
from typing import cast, get_args

import msgspec
from msgspec.structs import asdict, replace

from mainstem import limits
from mainstem.api.access import PREFIXED, Operation, ResourceType
from mainstem.api.history import Alert
from mainstem.api.server import (
    BackupBody,
    BrokerView,
    ClientList,
    ClusterView,
    DiskSpace,
    Health,
    KeyRights,
    PipelineList,
    PipelineReport,
    PipelineReportAccepted,
    Readiness,
    ServerOverview,
)
from mainstem.broker.overview import Overview, SortBy
from mainstem.doors.http.routes.history import alerts_for
from mainstem.doors.http.transport.errors import RETRY_SOON, Refusal, invalid
from mainstem.doors.http.transport.paths import check_place
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.version import VERSION

_ORDERS = get_args(SortBy)
_RIGHTS = {
    "read": Operation.READ,
    "write": Operation.WRITE,
    "delete": Operation.DELETE,
    "admin": Operation.ALTER_CONFIGS,
}

_DISK_FREE_MIN = 0.1  # of the disk
_CLIENTS_MAX = 200  # in one list

_backup_body = msgspec.json.Decoder(BackupBody)
_pipeline_report = msgspec.json.Decoder(PipelineReport)


# Health


async def get_health(request: HttpRequest) -> Response:
    """Check liveness; get the version and the uptime."""
    healthy = reply(Health("ok", VERSION, _uptime_ms(request)))
    # The only response with a date: it lets a client find out how far off its clock is.
    return healthy._replace(headers=(*healthy.headers, (b"date", formatdate(usegmt=True).encode())))


async def get_ready(request: HttpRequest) -> Response:
    """Check readiness: 503 while the server replays its log, cannot write or is stopping."""
    if request.context.stopping.is_set():
        raise Refusal(503, "shutting_down", "the server is stopping", headers=(RETRY_SOON,))
    refusal = request.broker.unwritable
    if refusal is not None:
        # doors/http/startup.py answers while the log is replayed, so here the progress is complete.
        raise Refusal(503, "not_ready", str(refusal), {"replay_progress": 1.0}, (RETRY_SOON,))
    return reply(Readiness("ready", True, request.broker.streams.topic_count))


def _uptime_ms(request: HttpRequest) -> int:
    return int((time.monotonic() - request.context.started) * 1000)


# Overview


async def get_overview(request: HttpRequest) -> Response:
    """Get storage by tier, the doors, and the brokers of the same log."""
    context, disk = request.context, _disk(request)
    return reply(
        ServerOverview(
            **asdict(Overview(request.broker).glance()),
            version=VERSION,
            uptime_ms=_uptime_ms(request),
            doors=dict(request.broker.cluster.here.addresses),
            lake_drivers=len(context.broker.lake_reports.drivers()),
            disk=disk,
            alerts=_alerts(request, disk),
            performance=request.performance(),
        )
    )


async def get_clients(request: HttpRequest) -> Response:
    """List the connected Kafka clients of this broker with the bytes that they sent and received."""
    found = [client for source in request.context.connected for client in source()]
    found.sort(key=lambda one: one.received_bytes + one.sent_bytes, reverse=True)
    return reply(ClientList(found[:_CLIENTS_MAX], request.performance()))


def _alerts(request: HttpRequest, disk: DiskSpace | None) -> list[Alert]:
    found = alerts_for(request)
    free = 1.0 if disk is None else disk.free_bytes / max(1, disk.total_bytes)
    if free < _DISK_FREE_MIN:
        found.insert(0, Alert("disk", free < _DISK_FREE_MIN / 2, f"{free:.0%} of the disk is free"))
    return found


def _disk(request: HttpRequest) -> DiskSpace | None:
    """Space where the data directory is; None without one, because everything is in a bucket."""
    try:
        space = shutil.disk_usage(request.broker.options.data_dir)
    except FileNotFoundError:
        return None
    return DiskSpace(space.free, space.total)


async def get_topics(request: HttpRequest) -> Response:
    """List topics whose names contain `search`, sorted, from the row `skip` on."""
    by = request.text("sort") or "name"
    if by not in _ORDERS:
        raise invalid(f"sort={by[:64]} is none of {', '.join(_ORDERS)}")
    found = Overview(request.broker).topics(
        request.sees,
        search=request.text("search") or "",
        kind=request.text("type") or "",
        by=cast(SortBy, by),
        descending=request.flag("descending", False),
        skip=request.number("skip", 0),
        limit=max(1, min(request.number("limit", limits.TOPIC_PAGE_DEFAULT), limits.TOPIC_PAGE_MAX)),
        recent=request.context.history.recent,
    )
    return reply(replace(found, performance=request.performance()))


async def get_key(request: HttpRequest) -> Response:
    """Who sends the request, and what it may do."""
    allows_some = partial(request.broker.access.allows_some, request.principal, request.host)
    scopes = [name for name, operation in _RIGHTS.items() if allows_some(operation, ResourceType.TOPIC)]
    granted = request.principal.grants
    prefixes = sorted(
        {
            rule.resource_name
            for rule in granted
            if rule.pattern_type == PREFIXED and rule.resource_type == ResourceType.TOPIC
        }
    )
    required = request.context.clients.required
    return reply(KeyRights(required, scopes, prefixes))


# Storage and backups


async def get_storage(request: HttpRequest) -> Response:
    """Log objects and repacked files with the ranges in each, and parts by generation."""
    found = await request.broker.storage_maps.map(request.sees)
    return reply(replace(found, performance=request.performance()))


async def get_topic_storage(request: HttpRequest) -> Response:
    """The storage of one topic."""
    topic = request.broker.streams.topic(request.topic)
    found = await request.broker.storage_maps.map(request.sees, topic)
    return reply(replace(found, performance=request.performance()))


async def post_backup(request: HttpRequest) -> Response:
    """Make a consistent copy of everything as of now, and answer when it is complete."""
    body = request.json(_backup_body)
    check_place(request, body.to)
    return reply(await request.broker.backups.run(body.to))


# Cluster


async def get_cluster(request: HttpRequest) -> Response:
    """List the brokers that share the log, as this one sees them."""
    broker, cluster = request.broker, request.broker.cluster
    brokers = [
        BrokerView(
            member.broker,
            member.epoch,
            member.node,
            member.zone,
            dict(member.addresses),
            round(cluster.silent_s(member.broker), 3),
        )
        for member in cluster.members()
    ]
    return reply(
        ClusterView(
            cluster=broker.identity.hex(),
            shared=cluster.shared,
            broker=cluster.broker,
            epoch=cluster.here.epoch,
            position=broker.position,
            refusal=None if cluster.refusal is None else str(cluster.refusal),
            upkeep=cluster.broker_for("upkeep"),
            clock_off_ms=cluster.clock_off_ms,
            brokers=brokers,
        )
    )


# Pipelines


async def post_pipeline_report(request: HttpRequest) -> Response:
    """Store a pipeline's report, for the list and the metrics."""
    report = request.json(_pipeline_report)
    for topic in report.named():
        request.require_topic(topic, Operation.WRITE)
    await request.broker.pipeline_reports.hear(report)
    return reply(PipelineReportAccepted(True, request.performance()))


async def list_pipelines(request: HttpRequest) -> Response:
    """Pipelines that reported lately: state, rows read and written, and lag."""
    shown = [
        pipeline
        for pipeline in request.broker.pipeline_reports.pipelines()
        if all(map(request.sees, pipeline.topics))
    ]
    return reply(PipelineList(shown, request.performance()))

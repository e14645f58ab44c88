"""The server at a glance, its topics by size, and what the key that asks may do."""

from __future__ import annotations

import shutil
import time
from typing import cast, get_args

import msgspec

from mainstem import limits
from mainstem.broker.overview import Overview, SortBy
from mainstem.doors.http.errors import invalid
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply
from mainstem.version import VERSION

_ORDERS = get_args(SortBy)


async def get_overview(request: HttpRequest) -> Response:
    """What the server holds in which tier, its doors, and the brokers that serve the same log."""
    context = request.context
    glance: dict[str, object] = msgspec.to_builtins(Overview(request.broker).glance())
    return reply(
        {
            "version": VERSION,
            "uptime_ms": int((time.monotonic() - context.started) * 1000),
            "doors": dict(request.broker.cluster.here.addresses),
            "lake_drivers": len(context.lake_reports.drivers()),
            **glance,
            "disk": _disk(request),
            "performance": request.performance(),
        }
    )


def _disk(request: HttpRequest) -> dict[str, int] | None:
    """Room where the data directory is; None where there is none, because everything is in a bucket."""
    try:
        room = shutil.disk_usage(request.broker.options.data_dir)
    except FileNotFoundError:
        return None
    return {"free_bytes": room.free, "total_bytes": room.total}


async def get_topics(request: HttpRequest) -> Response:
    """Topics whose names contain `search`, sorted, from the row `skip` on."""
    by = request.text("sort") or "name"
    if by not in _ORDERS:
        raise invalid(f"sort={by[:64]} is none of {', '.join(_ORDERS)}")
    rows = Overview(request.broker).topics(
        request.key.allows,
        search=request.text("search") or "",
        kind=request.text("type") or "",
        by=cast(SortBy, by),
        descending=request.flag("descending", False),
        skip=request.number("skip", 0),
        limit=max(1, min(request.number("limit", limits.TOPIC_PAGE_DEFAULT), limits.TOPIC_PAGE_MAX)),
    )
    return reply({"topics": rows.topics, "total": rows.total, "performance": request.performance()})


async def get_key(request: HttpRequest) -> Response:
    """What the key that asks may do."""
    return reply(
        {
            "authentication": request.context.keys.required,
            "scopes": [scope.name.lower() for scope in request.key.scopes if scope.name],
            "prefixes": [prefix.decode() for prefix in request.key.prefixes],
        }
    )

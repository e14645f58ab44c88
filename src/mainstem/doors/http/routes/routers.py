"""Routers: make, look at, list, delete."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.routers import (
    RouterBody,
    RouterConfigured,
    RouterDeletion,
    RouterDescription,
    RouterList,
    RouterListing,
)
from mainstem.broker.routers.service import RouterInfo, RouterSettings
from mainstem.broker.routers.tag_matching import Match
from mainstem.doors.http.routes.matching import match_tuple, parse_match
from mainstem.doors.http.routes.topics import after_cursor, cursor_after
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.errors import RouterNotFound

ROUTER_FILTER_BYTES_MAX = 4 * limits.KIB  # keys of Kafka clients may be longer than tags

_router_body = msgspec.json.Decoder(RouterBody)


async def put_router(request: HttpRequest) -> Response:
    """Create a router, which copies the records of one topic to another."""
    body = request.json(_router_body)
    _require_end(request, body.source, Operation.READ)
    _require_end(request, body.dest, Operation.WRITE)
    settings = RouterSettings(
        body.source,
        body.dest,
        body.preserve_node,
        body.preserve_tag,
        body.create_dest,
        None if body.filter is None else _filter(body.filter),
        body.allow_cycle,
        body.guarantee,
    )
    name = request.parameters["router"]
    created = await request.broker.routers.put(name, settings)
    fields = _settings(request.broker.routers.info(name))
    configured = RouterConfigured(router=name, created=created, **fields, performance=request.performance())
    return reply(configured, 201 if created else 200)


def _settings(info: RouterInfo) -> dict[str, Any]:
    return {
        "source": info.source,
        "dest": info.dest,
        "preserve_node": info.preserve_node,
        "preserve_tag": info.preserve_tag,
        "filter": None if info.match is None else match_tuple(info.match),
        "allow_cycle": info.allow_cycle,
        "guarantee": info.guarantee,
    }


async def get_router(request: HttpRequest) -> Response:
    """Get the settings of a router, and the number of records it copied."""
    name = request.parameters["router"]
    _require_all(request, request.broker.routers.info(name))
    info = await request.broker.routers.get(name)
    return reply(
        RouterDescription(
            router=name,
            **_settings(info),
            forwarded_total=info.forwarded_total,
            performance=request.performance(),
        )
    )


def _filter(given: object) -> Match:
    """The ledger keeps it, so it has a limit. Raises Refusal 400."""
    match = parse_match(given)
    if len(match.text) > ROUTER_FILTER_BYTES_MAX:
        raise invalid(f"the text of a filter has at most {ROUTER_FILTER_BYTES_MAX} bytes")
    return match


def _require_all(request: HttpRequest, info: RouterInfo) -> None:
    for topic in (info.source, info.dest):
        request.require_topic(topic, Operation.DESCRIBE)


def _require_end(request: HttpRequest, topic: str, operation: Operation) -> None:
    """Who configures a topic may set up what flows into it and out of it."""
    if not request.may(Operation.ALTER_CONFIGS, ResourceType.TOPIC, topic):
        request.require_topic(topic, operation)
    if request.broker.streams.get(topic) is None:
        request.require_create(topic)


async def list_routers(request: HttpRequest) -> Response:
    """List routers by name."""
    prefix, source, dest = request.text("prefix") or "", request.text("source"), request.text("dest")
    if request.view is not None:
        prefix = request.view.id_prefix(prefix)
        source, dest = (end and request.view.own_topic(end) for end in (source, dest))
    after = after_cursor(request.text("cursor"))
    size = max(1, min(request.number("page_size", limits.TOPIC_PAGE_DEFAULT), limits.TOPIC_PAGE_MAX))
    found = [
        info
        for info in request.broker.routers.all()
        if request.sees_id(info.name)
        and info.name.startswith(prefix)
        and info.name > after
        and source in (None, info.source)
        and dest in (None, info.dest)
        and request.may(Operation.DESCRIBE, ResourceType.ROUTER, info.name)
        and request.sees(info.source)
        and request.sees(info.dest)
    ]
    page = found[:size]
    rows = [
        RouterListing(info.name, info.source, info.dest, info.guarantee, info.forwarded_total)
        for info in page
    ]
    cursor = cursor_after(page[-1].name) if len(found) > size else None
    return reply(RouterList(rows, request.performance(), cursor))


async def delete_router(request: HttpRequest) -> Response:
    """Delete a router. Existing copies stay."""
    name = request.parameters["router"]
    deleted = False
    try:
        _require_all(request, request.broker.routers.info(name))
        deleted = await request.broker.routers.delete(name)
    except RouterNotFound:
        deleted = False  # nothing to do is not an error
    return reply(RouterDeletion(name, deleted, request.performance()))

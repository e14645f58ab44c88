"""POST /v0/sql: a query over topics, answered as JSON or as an Arrow stream."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.route import ARROW
from mainstem.api.sql import SqlBody
from mainstem.broker.rates import RateLimiter
from mainstem.broker.sql import QueryDone, QueryTimeout, Topic
from mainstem.doors.http.transport.errors import Refusal
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response
from mainstem.doors.http.transport.throttle import read_allowed
from mainstem.errors import TopicNotFound
from mainstem.tables.catalog import DEFAULT_NAMESPACE

_sql_body = msgspec.json.Decoder(SqlBody)
_ARROW = (b"content-type", ARROW.encode())


async def post_sql(request: HttpRequest) -> Response:
    """Run one SELECT over topics, with DuckDB. Ask for an Arrow stream with the header Accept."""
    body = request.json(_sql_body)
    arrow = ARROW.encode() in (request.header(b"accept") or b"")
    limiters: dict[str, RateLimiter | None] = {}

    async def check(topic: Topic | None, name: str) -> None:
        if topic is None or not request.may(Operation.READ, ResourceType.TOPIC, topic.name):
            # The same answer whether there is such a topic or not, and by the client's name for it.
            request.require_topic(
                name if request.view is None else request.view.own_topic(name), Operation.READ
            )
            raise TopicNotFound(name)
        if request.view is not None and request.view.plain_topic(topic.name) is None:
            raise TopicNotFound(name)
        await request.broker.routers.drain(topic.name)
        limiters[topic.name] = await read_allowed(request, topic.name)

    await request.reserve(limits.LARGE_READ_BYTES)
    try:
        done = await _unless_left(
            request,
            request.broker.sql.run(
                body.query,
                namespace=DEFAULT_NAMESPACE if request.view is None else request.view.namespace,
                check=check,
                rows_max=body.limit,
                timeout_s=body.timeout_ms / 1000,
                format="arrow" if arrow else "json",
            ),
        )
    except QueryTimeout:
        raise Refusal(
            408,
            "query_timeout",
            f"the query ran for more than {body.timeout_ms} ms and was stopped: read less, or set a longer timeout_ms",
        ) from None
    for limiter in limiters.values():
        if limiter is not None:
            limiter.take(len(done.body), done.rows)
    request.reserved_is(len(done.body))
    headers = (_ARROW, (b"mainstem-truncated", b"true" if done.truncated else b"false")) if arrow else (JSON,)
    return Response(200, done.body, headers)


async def _unless_left(request: HttpRequest, work: Coroutine[Any, Any, QueryDone]) -> QueryDone:
    """The result; the query is stopped if the client leaves first."""
    if request.left is None:
        return await work
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.left())
    try:
        await asyncio.wait((running, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise Refusal(408, "query_cancelled", "the client left before the query was done")
        return running.result()
    finally:
        leaving.cancel()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

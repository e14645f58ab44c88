"""A topic as a table: switched on and off, its columns, how far it is; and what its publisher asks and commits."""

from __future__ import annotations

from typing import Any

import msgspec

from mainstem.broker.table_work import TableCommitRequest, TableCommitted
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply


class TableBody(msgspec.Struct, frozen=True):
    """`schema`: a list of columns, or a JSON Schema of an object; none leaves the columns as they are."""

    enabled: bool = True
    schema: Any = None
    delta: str | None = None  # URL of a Delta table that gets the records as well; "" for none


_table = msgspec.json.Decoder(TableBody)
_commit = msgspec.json.Decoder(TableCommitRequest)


async def put_table(request: HttpRequest) -> Response:
    """Show a topic as a table, or stop doing so; declare its columns."""
    body = request.json(_table)
    status = await request.broker.topic_tables.put(
        request.topic, enabled=body.enabled, schema=body.schema, delta=body.delta
    )
    return reply(_with_performance(request, status))


async def get_table(request: HttpRequest) -> Response:
    """Whether a topic is a table, and how far the table is."""
    topic = request.broker.streams.topic(request.topic)
    status = await request.broker.topic_tables.status(topic)
    if status.enabled and not status.problem:
        problem = request.context.lake_reports.problems().get(topic.name, "")
        status = msgspec.structs.replace(status, problem=problem)
    return reply(_with_performance(request, status))


async def delete_table(request: HttpRequest) -> Response:
    """Stop showing a topic as a table. Its records stay."""
    status = await request.broker.topic_tables.put(request.topic, enabled=False, schema=None, delta=None)
    return reply(_with_performance(request, status))


async def get_works(request: HttpRequest) -> Response:
    """Every topic's tables, and what is left to publish of each. Tables that are due are made first."""
    return reply(await request.broker.topic_tables.works())


async def post_commit(request: HttpRequest) -> Response:
    """Publish: a table's next metadata, and which parts of its topic it shows from then on."""
    return reply(TableCommitted(await request.broker.topic_tables.commit(request.json(_commit))))


def _with_performance(request: HttpRequest, content: object) -> dict[str, object]:
    answer: dict[str, object] = msgspec.to_builtins(content)
    return {**answer, "performance": request.performance()}

"""Sinks: raw batches in, by tasks side by side, and one call that makes all of them count."""

from __future__ import annotations

import msgspec

from mainstem import limits
from mainstem.api.access import Operation, ResourceType
from mainstem.api.sinks import (
    BatchAppended,
    SinkAborted,
    SinkCommit,
    SinkCommitBody,
    SinkExtended,
    SinkRunBody,
    SinkTask,
    SinkTaskBody,
)
from mainstem.broker.namespaces import ID_SEPARATOR
from mainstem.doors.http.transport.errors import throttled
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply
from mainstem.doors.http.transport.throttle import write_allowed
from mainstem.records.header import record_count

_task = msgspec.json.Decoder(SinkTaskBody)
_commit = msgspec.json.Decoder(SinkCommitBody)
_run = msgspec.json.Decoder(SinkRunBody)


def _query(request: HttpRequest, name: str) -> str:
    """The name under which a query is stored. A client that may not write its transactional id has names of its own."""
    if request.view is not None:
        name = request.view.id(name).replace("/", ID_SEPARATOR)
    if request.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        return name
    return f"{request.principal.name}/{name}"


async def post_task(request: HttpRequest) -> Response:
    """Begin one attempt at a task of a batch. Returns the producer and epoch for its record batches."""
    body = request.json(_task)
    begun = await request.broker.sinks.begin(
        _query(request, body.query),
        body.run,
        body.batch,
        body.attempt,
        timeout_ms=body.timeout_ms,
        lasting=body.lasting,
    )
    return reply(SinkTask(begun.committed, begun.producer, begun.epoch))


async def post_commit(request: HttpRequest) -> Response:
    """Commit a batch: exactly the records of these attempts, atomically."""
    body = request.json(_commit)
    attempts = [(one.attempt, one.producer, one.epoch) for one in body.attempts]
    first = await request.broker.sinks.commit(
        _query(request, body.query), body.run, body.batch, attempts, lasting=body.lasting
    )
    return reply(SinkCommit(True, not first))


async def post_abort(request: HttpRequest) -> Response:
    """Abort the open transactions of a run, and reject its new tasks."""
    body = request.json(_run)
    await request.broker.sinks.abort(_query(request, body.query), body.run)
    return reply(SinkAborted(True))


async def post_extend(request: HttpRequest) -> Response:
    """Extend a run: restarts the timeout of its transactions."""
    body = request.json(_run)
    await request.broker.sinks.extend(_query(request, body.query), body.run)
    return reply(SinkExtended(True))


async def post_batches(request: HttpRequest) -> Response:
    """Append record batches (RecordBatch v2) unchanged. Transactional batches join their transaction."""
    bound = limits.HTTP_INGEST_BYTES_MAX
    if request.context.body_bytes > bound:
        raise throttled("ingest_queue", bound, "too many bytes are being written at once: retry")
    topic = request.broker.streams.topic(request.topic)
    batches = bytearray(request.body)
    if request.broker.rates.stored.active:
        await write_allowed(request, topic.name, len(batches), record_count(batches))
    rights = request.broker.producer_rights(request.principal, request.host)
    base, facts = await request.broker.sinks.append(topic, request.partition, batches, rights)
    return reply(BatchAppended(topic.name, request.partition, base, facts.count))

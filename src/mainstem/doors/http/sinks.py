"""Sinks: raw batches in, by tasks side by side, and one call that makes all of them count."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.doors.http.errors import throttled
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply

TRANSACTION_TIMEOUT_MS = 300_000  # of a task's transaction, unless the request says otherwise

_Name = Annotated[str, Meta(min_length=1)]
_Batch = Annotated[int, Meta(ge=0, le=limits.OFFSET_MAX)]


class SinkTaskBody(msgspec.Struct, frozen=True):
    """One attempt at one task of a batch."""

    query: _Name
    run: _Name
    batch: _Batch
    attempt: _Name
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    lasting: bool = True


class SinkAttempt(msgspec.Struct, frozen=True):
    attempt: _Name
    producer: int
    epoch: int


class SinkCommitBody(msgspec.Struct, frozen=True):
    """A batch, and the attempts whose records it is made of."""

    query: _Name
    run: _Name
    batch: _Batch
    attempts: list[SinkAttempt]
    lasting: bool = True


class SinkRunBody(msgspec.Struct, frozen=True):
    query: _Name
    run: _Name


_task = msgspec.json.Decoder(SinkTaskBody)
_commit = msgspec.json.Decoder(SinkCommitBody)
_run = msgspec.json.Decoder(SinkRunBody)


async def post_task(request: HttpRequest) -> Response:
    """Begin one attempt at one task of a batch: the producer and epoch to write its record batches with."""
    body = request.json(_task)
    begun = await request.broker.sinks.begin(
        body.query, body.run, body.batch, body.attempt, timeout_ms=body.timeout_ms, lasting=body.lasting
    )
    return reply({"committed": begun.committed, "producer": begun.producer, "epoch": begun.epoch})


async def post_commit(request: HttpRequest) -> Response:
    """Commit a batch: what these attempts wrote counts, all at once, and nothing else of the run."""
    body = request.json(_commit)
    attempts = [(one.attempt, one.producer, one.epoch) for one in body.attempts]
    first = await request.broker.sinks.commit(
        body.query, body.run, body.batch, attempts, lasting=body.lasting
    )
    return reply({"committed": True, "repeated": not first})


async def post_abort(request: HttpRequest) -> Response:
    """Abort all that a run has open, and let no task of it begin any more."""
    body = request.json(_run)
    await request.broker.sinks.abort(body.query, body.run)
    return reply({"aborted": True})


async def post_extend(request: HttpRequest) -> Response:
    """Say that a run is still at work: the time its transactions may take begins anew."""
    body = request.json(_run)
    await request.broker.sinks.extend(body.query, body.run)
    return reply({"extended": True})


async def post_batches(request: HttpRequest) -> Response:
    """Append record batches (RecordBatch v2) as they are; one that is transactional joins its transaction."""
    bound = limits.HTTP_INGEST_BYTES_MAX
    if request.context.body_bytes > bound:
        raise throttled("ingest_queue", bound, "too many bytes are being written at once: retry")
    topic = request.broker.streams.topic(request.topic)
    base, facts = await request.broker.sinks.append(topic, request.partition, bytearray(request.body))
    return reply({"topic": topic.name, "partition": request.partition, "offset": base, "count": facts.count})

"""POST diff: what came after a sequence number."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import msgspec

from mainstem import limits
from mainstem.api.records import DiffBody, ReadGap
from mainstem.broker.diff import DiffPage, DiffQuery, Tombstone
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.routes.rendering import render
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response
from mainstem.doors.http.transport.throttle import read_allowed

_diff_body = msgspec.json.Decoder(DiffBody)


async def post_diff(request: HttpRequest) -> Response:
    """Read the records after `from_seq`, in order. Waits up to `wait_ms` for new ones."""
    body = request.json(_diff_body)
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    await broker.routing.drain(topic.name)
    broker.activity.read(topic.topic_id)
    limiter = await read_allowed(request, request.topic)
    wanted = DiffQuery(
        from_seq=body.from_seq,
        limit=min(body.limit or limits.DIFF_RECORDS_DEFAULT, limits.DIFF_RECORDS_MAX),
        max_bytes=min(body.max_batch_bytes or limits.DIFF_BYTES_DEFAULT, limits.DIFF_BYTES_MAX),
        nodes=node_set(body.node),
        before_large=request.before_large,
    )
    if limiter is not None:
        wanted = replace(wanted, max_bytes=min(wanted.max_bytes, limiter.burst_bytes))
    page = await _read(request, topic, wanted, min(body.wait_ms, limits.DIFF_WAIT_MS_MAX))
    if limiter is not None:
        limiter.take(page.bytes, page.count)
    shown = partial(
        render, page.chosen, tags=body.include_tags, meta=body.include_meta, trace=body.include_trace
    )
    if page.bytes <= limits.RENDERED_ON_LOOP_BYTES_MAX:
        answer = _answer(request, page, shown())
    elif page.bytes <= limits.DIFF_BYTES_MAX:
        answer = _answer(request, page, await asyncio.to_thread(shown))
    else:
        answer = await broker.decoding.run(request.holder, lambda: _answer(request, page, shown()))
    return Response(200, answer, (JSON,))


async def _read(request: HttpRequest, topic: Topic, wanted: DiffQuery, wait_ms: int) -> DiffPage:
    """A page, whose memory counts for the client. While it waits for records there is nothing to count."""
    diffs = request.broker.diffs
    await request.reserve(2 * wanted.max_bytes)  # as stored, and as JSON
    page = await diffs.read(topic, wanted, request.partition)
    if wait_ms and page.empty:
        request.release()
        page = await diffs.read(topic, replace(wanted, wait_ms=wait_ms), request.partition)
    if page.bytes <= wanted.max_bytes:
        request.reserved_is(2 * page.bytes)
    return page


def node_set(node: str | list[str] | None) -> tuple[bytes, ...]:
    """The nodes whose records a reader does not want."""
    if node is None:
        return ()
    return (node.encode(),) if isinstance(node, str) else tuple({name.encode() for name in node})


def _answer(request: HttpRequest, page: DiffPage, records: bytes) -> bytes:
    """A DiffResult, assembled as bytes."""
    tombstone = "null" if page.tombstone is None else msgspec.json.encode(_gap(page.tombstone)).decode()
    head = f'{{"topic":"{request.topic}","records":['.encode()
    tail = (
        f'],"next_from_seq":{page.next_from_seq},"head_seq":{page.head_seq},'
        f'"earliest_seq":{page.earliest_seq},"caught_up":{"true" if page.caught_up else "false"},'
        f'"tombstone":{tombstone},"lag":{page.lag},"performance":{{"server_total_ms":{request.elapsed_ms()},'
        f'"records_scanned":{page.scanned}{request.throttle_field}}}}}'
    )
    return b"".join((head, records, tail.encode()))


def _gap(tombstone: Tombstone) -> ReadGap:
    return ReadGap(
        tombstone.gap_from,
        tombstone.gap_to,
        tombstone.reason,
        tombstone.missed_estimate,
        tombstone.earliest_seq,
        tombstone.head_seq,
    )

"""POST diff: what came after a sequence number."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial

import msgspec
from msgspec.structs import asdict

from mainstem import limits
from mainstem.api.records import DiffBody, PartitionGap, ReadGap
from mainstem.broker.diff import DiffPage, DiffQuery, Tombstone
from mainstem.broker.topics.service import Topic
from mainstem.doors.http.routes.rendering import render
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import JSON, Response
from mainstem.doors.http.transport.throttle import read_allowed

_SEQ_MAX = 2**64 - 1

_diff_body = msgspec.json.Decoder(DiffBody)


async def post_diff(request: HttpRequest) -> Response:
    """Read the records after `from_seq`, in order. Waits up to `wait_ms` for new ones.

    Of a topic with several partitions it reads all, after the positions in `from`, unless `partition` names one."""
    body = request.json(_diff_body)
    if body.from_seq > _SEQ_MAX:
        raise invalid("from_seq is a whole number of up to 64 bits")
    broker = request.broker
    topic = broker.streams.topic(request.topic)
    await broker.routers.drain(topic.name)
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
        wanted = wanted._replace(max_bytes=min(wanted.max_bytes, limiter.burst_bytes))
    wait_ms = min(body.wait_ms, limits.DIFF_WAIT_MS_MAX)
    if len(request.partitions_of(topic)) > 1 or (len(topic.streams) > 1 and body.from_ is not None):
        pages = await _read_all(request, topic, wanted, _positions(request, topic, body), wait_ms)
        answer = partial(_partitioned_answer, request, pages, body)
    else:
        page = await _read(request, topic, wanted, wait_ms)
        pages = {request.partition: page}
        answer = partial(_answer, request, page, body)
    size = sum(page.bytes for page in pages.values())
    if limiter is not None:
        limiter.take(size, sum(page.count for page in pages.values()))
    if size <= limits.RENDERED_ON_LOOP_BYTES_MAX:
        content = answer()
    elif size <= limits.DIFF_BYTES_MAX:
        content = await asyncio.to_thread(answer)
    else:
        content = await broker.decoding.run(request.holder, answer)
    return Response(200, content, (JSON,))


def _positions(request: HttpRequest, topic: Topic, body: DiffBody) -> dict[int, int]:
    """Where to begin in each partition. Raises Refusal 400."""
    count = len(topic.streams)
    given: dict[int, int] = {}
    for name, seq in (body.from_ or {}).items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < count):
            raise invalid(f"from names partition {name[:20]!r}: the topic has partitions 0 to {count - 1}")
        given[int(name)] = seq
    if body.from_seq and body.from_ is None:
        raise invalid(
            f"topic {request.shown_topic!r} has {count} partitions, each with its own sequence numbers: "
            'give from, such as {"0": 17, "1": 4}, or ?partition= with from_seq'
        )
    chosen = request.partitions_of(topic) if body.partitions is None else sorted(set(body.partitions))
    if not chosen:
        raise invalid("partitions must name at least one partition")
    return {partition: given.get(partition, 0) for partition in chosen}


async def _read_all(
    request: HttpRequest, topic: Topic, wanted: DiffQuery, positions: dict[int, int], wait_ms: int
) -> dict[int, DiffPage]:
    diffs = request.broker.diffs
    await request.reserve(2 * wanted.max_bytes)  # as stored, and as JSON
    pages = await diffs.read_all(topic, positions, wanted)
    if await _learned_more(request, topic, pages.values()):
        pages = await diffs.read_all(topic, positions, wanted)
    if wait_ms and all(page.empty for page in pages.values()):
        request.release()
        with request.broker.streams.client_activity.waiting():
            pages = await diffs.read_all(topic, positions, wanted._replace(wait_ms=wait_ms))
    return pages


async def _read(request: HttpRequest, topic: Topic, wanted: DiffQuery, wait_ms: int) -> DiffPage:
    """A page, whose memory counts for the client. While it waits for records there is nothing to count."""
    diffs = request.broker.diffs
    await request.reserve(2 * wanted.max_bytes)  # as stored, and as JSON
    page = await diffs.read(topic, wanted, request.partition)
    if await _learned_more(request, topic, (page,)):
        page = await diffs.read(topic, wanted, request.partition)
    if wait_ms and page.empty:
        request.release()
        with request.broker.streams.client_activity.waiting():
            page = await diffs.read(topic, wanted._replace(wait_ms=wait_ms), request.partition)
    if page.bytes <= wanted.max_bytes:
        request.reserved_is(2 * page.bytes)
    return page


async def _learned_more(request: HttpRequest, topic: Topic, pages: Collection[DiffPage]) -> bool:
    """Whether another broker had committed more, before this one says that there is nothing else, or that the topic is
    another one. Raises Unavailable for the latter if the store is not there: a gap must not be made up."""
    broker = request.broker
    known = broker.position
    if any(page.recreated for page in pages):
        await broker.barrier()
    elif all(page.caught_up for page in pages):
        await broker.refresh()
    if broker.position == known:
        return False
    await broker.routers.drain(topic.name)  # a router may be among it
    return True


def _records(page: DiffPage, body: DiffBody, partition: int = -1) -> bytes:
    return render(
        page.chosen,
        tags=body.include_tags,
        meta=body.include_meta,
        trace=body.include_trace,
        headers=body.include_headers,
        partition=partition,
    )


def _partitioned_answer(request: HttpRequest, pages: dict[int, DiffPage], body: DiffBody) -> bytes:
    """A PartitionedDiffResult, assembled as bytes."""
    records = b",".join(_records(page, body, partition) for partition, page in pages.items() if page.count)
    gaps = [
        PartitionGap(**asdict(_gap(page.tombstone)), partition=partition)
        for partition, page in pages.items()
        if page.tombstone is not None
    ]
    tail = {
        "next": {str(partition): page.next_from_seq for partition, page in pages.items()},
        "head": {str(partition): page.head_seq for partition, page in pages.items()},
        "earliest": {str(partition): page.earliest_seq for partition, page in pages.items()},
        "caught_up": all(page.caught_up for page in pages.values()),
        "tombstones": gaps,
        "lag": sum(page.lag for page in pages.values()),
        "performance": request.performance(records_scanned=sum(page.scanned for page in pages.values())),
    }
    return b'{"topic":"%b","records":[%b],%b' % (
        request.shown_topic.encode(),
        records,
        msgspec.json.encode(tail)[1:],
    )


def node_set(node: str | list[str] | None) -> tuple[bytes, ...]:
    """The nodes whose records a reader does not want."""
    if node is None:
        return ()
    return (node.encode(),) if isinstance(node, str) else tuple({name.encode() for name in node})


def _answer(request: HttpRequest, page: DiffPage, body: DiffBody) -> bytes:
    """A DiffResult, assembled as bytes."""
    records = _records(page, body)
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

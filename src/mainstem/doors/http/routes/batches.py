"""GET batches: committed records as the batches they are stored in, for readers that decode them by themselves."""

from __future__ import annotations

import asyncio

from mainstem import limits
from mainstem.broker.read import Fetched
from mainstem.doors.http.transport.errors import invalid
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response
from mainstem.doors.http.transport.throttle import read_allowed
from mainstem.errors import Closed
from mainstem.records.header import record_count

_OCTETS = (b"content-type", b"application/octet-stream")


async def get_batches(request: HttpRequest) -> Response:
    """Read whole RecordBatch v2 batches from an offset on. The first may begin before it."""
    await request.broker.routers.drain(request.topic)
    isolation = request.text("isolation") or "read_committed"
    if isolation not in ("read_committed", "read_uncommitted"):
        raise invalid("isolation is read_committed or read_uncommitted")
    limiter = await read_allowed(request, request.topic)
    fetched = await (_fetched(request) if isolation == "read_committed" else _uncommitted(request))
    if limiter is not None:
        records = sum(map(record_count, fetched.batches)) if limiter.counts_records else 0
        limiter.take(sum(map(len, fetched.batches)), records)
    headers = (
        _OCTETS,
        (b"mainstem-next-offset", b"%d" % fetched.next_offset),
        (b"mainstem-start-offset", b"%d" % fetched.start),
        (b"mainstem-end-offset", b"%d" % fetched.end),
    )
    request.reserved_is(sum(map(len, fetched.batches)))
    return Response(200, b"".join(fetched.batches), headers)


async def _uncommitted(request: HttpRequest) -> Fetched:
    """What is stored, whatever becomes of its transaction. Control batches are among it."""
    streams = request.broker.streams
    stream = streams.of(request.topic, request.partition)
    offset = min(request.number("from", 0), limits.OFFSET_MAX)
    max_bytes = _max_bytes(request)
    await request.reserve(max_bytes)
    chunk = await streams.read(stream, offset, max_bytes)
    return Fetched(chunk.batches, chunk.next_offset, *streams.bounds(stream))


def _max_bytes(request: HttpRequest) -> int:
    return min(request.number("max_bytes", 0) or limits.READ_BYTES_DEFAULT, limits.READ_BYTES_MAX)


async def _fetched(request: HttpRequest) -> Fetched:
    """What the broker has, or nothing new in time. Raises Closed once the server stops."""
    await request.reserve(_max_bytes(request))
    fetched = await _fetched_within(request, 0)
    wait_ms = min(request.number("wait_ms", 0), limits.DIFF_WAIT_MS_MAX)
    if wait_ms and not fetched.batches:
        request.release()  # a client that waits holds nothing
        fetched = await _fetched_within(request, wait_ms)
    return fetched


async def _fetched_within(request: HttpRequest, wait_ms: int) -> Fetched:
    reading = asyncio.ensure_future(
        request.broker.fetch(
            request.topic,
            min(request.number("from", 0), limits.OFFSET_MAX),
            partition=request.partition,
            max_bytes=_max_bytes(request),
            max_wait_ms=wait_ms,
        )
    )
    stopping = asyncio.ensure_future(request.context.stopping.wait())
    try:
        await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            raise Closed("the server is stopping")
        return reading.result()
    finally:
        reading.cancel()
        stopping.cancel()

"""The lake's jobs: plans out, parts in, and how far all of it is."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mainstem import limits
from mainstem.broker.plans import PlanRequest, Publication
from mainstem.doors.http.requests import HttpRequest
from mainstem.doors.http.responses import Response, reply

_Offset = Annotated[int, Meta(ge=0, le=limits.OFFSET_MAX)]
_Partition = Annotated[int, Meta(ge=0, lt=limits.PARTITIONS_PER_TOPIC_MAX)]


class ExtendLeaseBody(msgspec.Struct, frozen=True):
    stream: int
    token: int
    lease_ms: int


class ReleaseBody(msgspec.Struct, frozen=True):
    stream: int
    token: int


class SourcesBody(msgspec.Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """A range of offsets of one partition."""

    topic: str
    start: _Offset
    partition: _Partition = 0
    end: _Offset = limits.OFFSET_MAX


_plan = msgspec.json.Decoder(PlanRequest)
_publication = msgspec.json.Decoder(Publication)
_extend = msgspec.json.Decoder(ExtendLeaseBody)
_release = msgspec.json.Decoder(ReleaseBody)
_sources = msgspec.json.Decoder(SourcesBody)


async def post_plan(request: HttpRequest) -> Response:
    """Take what is due, each stream's tasks under a lease. Tasks of one stream are published in this order."""
    return reply(await request.broker.lake.plan(request.json(_plan)))


async def post_publish(request: HttpRequest) -> Response:
    """Serve a range from the parts that a task made. To repeat it changes nothing."""
    return reply({"frontier": await request.broker.lake.publish(request.json(_publication))})


async def post_extend(request: HttpRequest) -> Response:
    """Keep the tasks of a stream for longer."""
    body = request.json(_extend)
    return reply({"deadline_ms": await request.broker.lake.extend(body.stream, body.token, body.lease_ms)})


async def post_release(request: HttpRequest) -> Response:
    """Give the tasks of a stream back."""
    body = request.json(_release)
    await request.broker.lake.release(body.stream, body.token)
    return reply({"released": True})


async def post_collect(request: HttpRequest) -> Response:
    """Delete what nothing needs any more, now."""
    collected = await request.broker.lake.collect()
    return reply({"wal_objects": collected.wal_objects, "files": collected.files})


async def get_status(request: HttpRequest) -> Response:
    """How far every topic's records are made into parts, and who works on what."""
    status = request.broker.lake.status()
    problems = request.context.lake_reports.problems()
    allowed = [
        msgspec.structs.replace(topic, problem=problems.get(topic.topic, ""))
        for topic in status.topics
        if request.key.allows(topic.topic)
    ]
    drivers = request.context.lake_reports.drivers()
    return reply(msgspec.structs.replace(status, topics=allowed, drivers=drivers))


async def post_sources(request: HttpRequest) -> Response:
    """Where the records of a range are, for readers that fetch them by themselves. No lease protects it."""
    body = request.json(_sources)
    request.require_name(body.topic)
    topic = request.broker.streams.topic(body.topic)
    return reply(await request.broker.lake.sources(topic, body.partition, body.start, body.end))

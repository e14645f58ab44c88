"""The lake: plans for its jobs, the parts that they publish, and the tables that show topics."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from mainstem.api.access import Operation, ResourceType
from mainstem.api.lake import (
    DriverReport,
    DriverReportAccepted,
    ExtendLeaseBody,
    LeaseExtended,
    LeaseReleased,
    PlanRequest,
    PublicationsBody,
    PublishResult,
    PublishResults,
    ReleaseBody,
    SourcesBody,
    TableBody,
    TableCommitResults,
    TableCommitsBody,
    TableCommitted,
    TablesSettled,
    TableStatus,
)
from mainstem.doors.http.transport.errors import error_body
from mainstem.doors.http.transport.paths import check_place
from mainstem.doors.http.transport.requests import HttpRequest
from mainstem.doors.http.transport.responses import Response, reply

_plan = msgspec.json.Decoder(PlanRequest)
_publications = msgspec.json.Decoder(PublicationsBody)
_extend = msgspec.json.Decoder(ExtendLeaseBody)
_release = msgspec.json.Decoder(ReleaseBody)
_sources = msgspec.json.Decoder(SourcesBody)
_report = msgspec.json.Decoder(DriverReport)
_table = msgspec.json.Decoder(TableBody)
_commits = msgspec.json.Decoder(TableCommitsBody)


async def post_plan(request: HttpRequest) -> Response:
    """Lease the tasks that are due. Publish the tasks of one stream in this order."""
    return reply(await request.broker.lake.plan(request.json(_plan)))


async def post_publish(request: HttpRequest) -> Response:
    """Serve ranges from the parts that tasks made. Repeating it changes nothing."""
    results = await request.broker.lake.publish_all(request.json(_publications).publications)
    return reply(
        PublishResults(
            tuple(
                PublishResult(error=error_body(result))
                if isinstance(result, Exception)
                else PublishResult(result)
                for result in results
            )
        )
    )


async def post_extend(request: HttpRequest) -> Response:
    """Extend the lease on the tasks of a stream."""
    body = request.json(_extend)
    return reply(LeaseExtended(await request.broker.lake.extend(body.stream, body.token, body.lease_ms)))


async def post_release(request: HttpRequest) -> Response:
    """Return the tasks of a stream."""
    body = request.json(_release)
    await request.broker.lake.release(body.stream, body.token)
    return reply(LeaseReleased(True))


async def post_collect(request: HttpRequest) -> Response:
    """Delete unneeded files now."""
    return reply(await request.broker.lake.collect())


async def post_report(request: HttpRequest) -> Response:
    """Store a driver's report, for the status and the metrics."""
    await request.broker.lake_reports.hear(request.json(_report))
    return reply(DriverReportAccepted(True))


async def get_status(request: HttpRequest) -> Response:
    """Get the conversion progress of every topic, and the leases of drivers."""
    status = request.broker.lake.status()
    problems = request.broker.lake_reports.problems()
    allowed = [
        replace(topic, problem=problems.get(topic.topic, ""))
        for topic in status.topics
        if request.sees(topic.topic)
    ]
    drivers = request.broker.lake_reports.drivers()
    return reply(replace(status, topics=allowed, drivers=drivers))


async def post_sources(request: HttpRequest) -> Response:
    """Get the locations of the records of a range, for direct readers. No lease protects them."""
    body = request.json(_sources)
    request.require_topic(body.topic, Operation.READ)
    stream = request.broker.streams.of(body.topic, body.partition)
    return reply(await request.broker.lake.sources(stream, body.start, body.end))


# Tables


async def put_table(request: HttpRequest) -> Response:
    """Enable or disable the table of a topic; declare its columns."""
    body = request.json(_table)
    if body.delta:
        check_place(request, body.delta)
    if body.iceberg:
        check_place(request, f"iceberg:{body.iceberg}")
    subject = request.broker.topic_tables.subject_of(request.topic, body.schema)
    if subject is not None:
        request.require(Operation.READ, ResourceType.SUBJECT, subject)
    return _timed(
        request,
        await request.broker.topic_tables.put(
            request.topic,
            enabled=body.enabled,
            schema=body.schema,
            delta=body.delta,
            iceberg=body.iceberg,
        ),
    )


async def get_table(request: HttpRequest) -> Response:
    """Get the state of the table of a topic."""
    topic = request.broker.streams.topic(request.topic)
    status = await request.broker.topic_tables.status(topic)
    if status.enabled and not status.problem:
        status = replace(status, problem=request.broker.lake_reports.problems().get(topic.name, ""))
    return _timed(request, status)


async def delete_table(request: HttpRequest) -> Response:
    """Disable the table of a topic. Its records stay."""
    tables = request.broker.topic_tables
    return _timed(request, await tables.put(request.topic, enabled=False))


def _timed(request: HttpRequest, status: TableStatus) -> Response:
    return reply(replace(status, performance=request.performance()))


async def post_settle(request: HttpRequest) -> Response:
    """Create, widen and drop tables as the topics say, and delete files that no table needs."""
    return reply(TablesSettled(await request.broker.topic_tables.maintain()))


async def get_table_work(request: HttpRequest) -> Response:
    """Every topic's tables, and what is left to publish of each."""
    return reply(request.broker.topic_tables.works())


async def post_commits(request: HttpRequest) -> Response:
    """Publish: the next metadata of tables, and the parts of their topics that they show from then on."""
    results = await request.broker.topic_tables.commit_all(request.json(_commits).commits)
    return reply(
        TableCommitResults(
            tuple(
                TableCommitted(error=error_body(result))
                if isinstance(result, Exception)
                else TableCommitted(result)
                for result in results
            )
        )
    )

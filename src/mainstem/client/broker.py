"""A broker client over HTTP for threads: lake tasks, Spark sources and sinks use it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TypeVar

from mainstem import limits
from mainstem.api import routes
from mainstem.api.groups import GroupPosition, GroupPositionsBody
from mainstem.api.lake import (
    DriverReport,
    ExtendLeaseBody,
    LakeStatus,
    Plan,
    PlanRequest,
    Publication,
    PublicationsBody,
    ReleaseBody,
    Sources,
    SourcesBody,
    TableCommitRequest,
    TableCommitsBody,
    TableWorkPage,
)
from mainstem.api.route import Route
from mainstem.api.server import PipelineReport
from mainstem.api.sinks import SinkAttempt, SinkCommit, SinkCommitBody, SinkRunBody, SinkTask, SinkTaskBody
from mainstem.api.topics import TopicConfigBody, TopicPositions
from mainstem.client.batches import BatchPage, page_of
from mainstem.client.failures import item_failure
from mainstem.client.loop import LoopThread
from mainstem.client.transport import Query, ServerResponse, Transport
from mainstem.errors import MainstemError, RecordsLost, Unavailable

T = TypeVar("T")

TIMEOUT_S = 60.0  # one call, including retries while a broker restarts


class BrokerClient:
    """Raises the errors that the broker returns, and Unreachable if it does not respond. Thread-safe."""

    def __init__(
        self, url: str | None = None, api_key: str | None = None, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._transport = Transport(url, api_key=api_key, timeout_s=timeout_s)
        self._thread = LoopThread("the connection to the broker is closed")

    def __enter__(self) -> BrokerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._thread.close(self._transport.close())

    @property
    def url(self) -> str:
        return self._transport.url

    def _call(self, route: Route[T], *names: str, body: object = None, query: Query | None = None) -> T:
        return self._thread.call(self._transport.call(route, *names, body=body, query=query))

    # Lake tasks

    def plan(self, request: PlanRequest) -> Plan:
        """Lease the tasks that are due, by stream."""
        return self._call(routes.POST_PLAN, body=request)

    def publish(self, publication: Publication) -> int:
        """Returns the stream's frontier. Safe to retry. Raises StalePlan."""
        return _one(self.publish_all([publication]))

    def publish_all(self, publications: Sequence[Publication]) -> list[int | MainstemError]:
        """The frontier or the refusal of each. Safe to retry."""
        results = self._call(routes.POST_PUBLISH, body=PublicationsBody(tuple(publications))).results
        return [item_failure(each.error) if each.error else each.frontier for each in results]

    def extend(self, stream: int, token: int, lease_ms: int) -> int:
        """Returns the new deadline, on the broker's clock. Raises StalePlan."""
        return self._call(routes.EXTEND_TASK, body=ExtendLeaseBody(stream, token, lease_ms)).deadline_ms

    def release(self, stream: int, token: int) -> None:
        """Release a stream's tasks."""
        self._call(routes.RELEASE_TASK, body=ReleaseBody(stream, token))

    def collect(self) -> tuple[int, int]:
        """Delete garbage. Returns the number of WAL objects and of files were deleted."""
        collected = self._call(routes.POST_COLLECT)
        return collected.wal_objects, collected.files

    def report(self, report: DriverReport) -> None:
        """Report the state of a driver."""
        self._call(routes.REPORT_DRIVER, body=report)

    def status(self) -> LakeStatus:
        """The progress of every topic."""
        return self._call(routes.GET_LAKE_STATUS)

    # Tables

    def settle_tables(self) -> None:
        """Ask the broker to create, extend and drop tables to match the topics."""
        self._call(routes.SETTLE_TABLES)

    def tables(self) -> TableWorkPage:
        """Every topic's tables, and what each has left to publish."""
        return self._call(routes.GET_TABLE_WORK)

    def commit_tables(self, commits: Sequence[TableCommitRequest]) -> list[str | MainstemError]:
        """The new location of each table's metadata, or its refusal."""
        results = self._call(routes.COMMIT_TABLES, body=TableCommitsBody(tuple(commits))).results
        return [item_failure(each.error) if each.error else each.location for each in results]

    # Topics

    def topics(self) -> Iterator[str]:
        """The names of all topics."""
        cursor: str | None = None
        while True:
            query = {"page_size": limits.TOPIC_PAGE_MAX, "cursor": cursor}
            page = self._call(routes.LIST_TOPICS, query=query)
            yield from (row.topic for row in page.topics)
            cursor = page.next_cursor
            if cursor is None:
                return

    def positions(
        self, topic: str, at: str | int = "latest", *, committed_only: bool = True
    ) -> TopicPositions:
        """Where a topic's partitions begin and end, and their offsets at a position: earliest, latest, or ms."""
        isolation = "read_committed" if committed_only else "read_uncommitted"
        return self._call(routes.GET_OFFSETS, topic, query={"at": str(at), "isolation": isolation})

    def make_topic(self, topic: str) -> None:
        """Create a topic with the server's defaults, unless it exists."""
        self._call(routes.PUT_TOPIC, topic, body=TopicConfigBody())

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit a group's offsets, by topic and partition."""
        rows = [GroupPosition(topic, offset, partition) for (topic, partition), offset in offsets.items()]
        self._call(routes.COMMIT_OFFSETS, group, body=GroupPositionsBody(rows))

    def report_pipeline(self, report: PipelineReport) -> None:
        """Report the state of a pipeline."""
        self._call(routes.REPORT_PIPELINE, body=report)

    # Reading

    def sources(self, topic: str, partition: int, start: int, end: int) -> Sources:
        """The locations of the committed records of a range. No lease protects them."""
        return self._call(routes.POST_SOURCES, body=SourcesBody(topic, start, partition, end))

    def fetching(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, committed_only: bool = True
    ) -> Future[BatchPage]:
        """Fetch batches in the background."""
        query = {
            "partition": partition,
            "from": offset,
            "max_bytes": max_bytes,
            "isolation": None if committed_only else "read_uncommitted",
        }
        return self._thread.submit(self._fetch(topic, offset, query))

    async def _fetch(self, topic: str, offset: int, query: Query) -> BatchPage:
        return page_of(await self._transport.request(routes.GET_BATCHES, topic, query=query), offset)

    def probe_loss(self, topic: str, partition: int, offset: int) -> bool:
        """Ask the broker to read at an offset. True if records are lost there."""
        try:
            self.fetching(topic, partition, offset, 1).result()
        except RecordsLost:
            return True
        return False

    # Writing

    def begin_task(
        self, query: str, run: str, batch: int, attempt: str, *, timeout_ms: int, lasting: bool
    ) -> SinkTask:
        body = SinkTaskBody(query, run, batch, attempt, timeout_ms, lasting)
        return self._call(routes.BEGIN_SINK_TASK, body=body)

    def appending(self, topic: str, partition: int, batch: bytes | bytearray) -> Future[ServerResponse]:
        """Append one batch in the background."""
        return self._thread.submit(
            self._transport.request(
                routes.POST_BATCHES, topic, body=bytes(batch), query={"partition": partition}
            )
        )

    def commit_batch(
        self, query: str, run: str, batch: int, attempts: Sequence[tuple[str, int, int]], *, lasting: bool
    ) -> SinkCommit:
        named = [SinkAttempt(*attempt) for attempt in attempts]
        return self._call(routes.COMMIT_SINK, body=SinkCommitBody(query, run, batch, named, lasting))

    def extending(self, query: str, run: str, every_s: float) -> Future[None]:
        """Extend the run's transactions every `every_s`, until cancelled."""
        return self._thread.submit(self._extend(SinkRunBody(query, run), every_s))

    async def _extend(self, body: SinkRunBody, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._transport.call(routes.EXTEND_SINK, body=body)
            except Unavailable:
                continue  # the next attempt may be in time; otherwise the commit fails

    def abort_batch(self, query: str, run: str) -> None:
        self._call(routes.ABORT_SINK, body=SinkRunBody(query, run))


def _one(results: list[T | MainstemError]) -> T:
    """The only result. Raises it if it is an error."""
    (result,) = results
    if isinstance(result, MainstemError):
        raise result
    return result

"""The broker as the source and the sink call it, from drivers and workers: plain calls over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from mainstem import limits
from mainstem.broker.pipeline_reports import PipelineReport
from mainstem.broker.plans import Sources
from mainstem.client.loop import LoopThread
from mainstem.client.transport import BATCHES, Query, ServerResponse, Transport, decoded, quoted, topic_path
from mainstem.errors import ServerFault, Unavailable

T = TypeVar("T")

TIMEOUT_S = 60.0  # one call, retries while a broker restarts included


class PartitionPosition(msgspec.Struct, frozen=True):
    """One partition; `offset` is the place asked for, None where no record is so late."""

    partition: int
    start: int
    end: int
    offset: int | None


class TopicPositions(msgspec.Struct, frozen=True):
    """A topic as the source and the sink need to know it."""

    topic: str
    id: str
    type: str
    max_batch_bytes: int
    partitions_total: int
    partitions: tuple[PartitionPosition, ...]


class SinkTask(msgspec.Struct, frozen=True):
    """What a task writes with; `committed`: its batch is there already."""

    committed: bool
    producer: int
    epoch: int


class SinkCommit(msgspec.Struct, frozen=True):
    committed: bool
    repeated: bool


class _TopicName(msgspec.Struct):
    topic: str


class _TopicNames(msgspec.Struct):
    topics: list[_TopicName]
    next_cursor: str = ""


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    """Whole batches from an offset on; the first may begin before it."""

    data: bytes
    next_offset: int


class RemoteBroker:
    """Use it as a context: it has a thread of its own. Every call raises the broker's errors, or Unreachable."""

    def __init__(self, url: str, api_key: str = "", *, timeout_s: float = TIMEOUT_S) -> None:
        self._transport = Transport(url, api_key=api_key, timeout_s=timeout_s)
        self._loop = LoopThread("the connection to the broker is closed")

    def __enter__(self) -> RemoteBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._loop.close(self._transport.close())

    # Looking

    def topics(self) -> Iterator[str]:
        """The names of all topics."""
        cursor: str | None = None
        while True:
            query = {"page_size": limits.TOPIC_PAGE_MAX, "cursor": cursor}
            page = self._ask("GET", "/v0/topics", _TopicNames, query=query)
            yield from (row.topic for row in page.topics)
            if not page.next_cursor:
                return
            cursor = page.next_cursor

    def places(self, topic: str, at: str | int = "latest", *, committed_only: bool = True) -> TopicPositions:
        """Where a topic's partitions begin and end, and their offsets at a place: earliest, latest, or ms."""
        isolation = "read_committed" if committed_only else "read_uncommitted"
        query = {"at": str(at), "isolation": isolation}
        return self._ask("GET", topic_path(topic, "offsets"), TopicPositions, query=query)

    def make_topic(self, topic: str) -> None:
        """Make a topic with the server's defaults, unless it is there."""
        self._ask("PUT", topic_path(topic), dict[str, Any], {})

    # Reading

    def sources(self, topic: str, partition: int, start: int, end: int) -> Sources:
        """Where committed records are, to be read without the broker."""
        body = {"topic": topic, "partition": partition, "from": start, "to": end}
        return self._ask("POST", "/v0/lake/sources", Sources, body)

    def fetching(
        self, topic: str, partition: int, offset: int, max_bytes: int, *, committed_only: bool = True
    ) -> Future[FetchedBatches]:
        """Batches, on their way while the caller does something else."""
        query = {
            "partition": partition,
            "from": offset,
            "max_bytes": max_bytes,
            "isolation": None if committed_only else "read_uncommitted",
        }
        return self._loop.submit(self._fetch(topic_path(topic, "batches"), query))

    async def _fetch(self, path: str, query: Query) -> FetchedBatches:
        answer = await self._transport.send("GET", path, query=query)
        return FetchedBatches(answer.body, _number(answer, "mainstem-next-offset"))

    def commit_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Store how far a group has read, by topic and partition."""
        rows = [
            {"topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in offsets.items()
        ]
        self._ask("POST", f"/v0/groups/{quoted(group)}/offsets", dict[str, Any], {"offsets": rows})

    def report_pipeline(self, report: PipelineReport) -> None:
        """Say how a pipeline is doing."""
        self._ask("POST", "/v0/pipelines/report", dict[str, Any], report)

    # Writing

    def begin_task(
        self, query: str, run: str, batch: int, attempt: str, *, timeout_ms: int, lasting: bool
    ) -> SinkTask:
        body = {
            "query": query,
            "run": run,
            "batch": batch,
            "attempt": attempt,
            "timeout_ms": timeout_ms,
            "lasting": lasting,
        }
        return self._ask("POST", "/v0/sinks/tasks", SinkTask, body)

    def appending(self, topic: str, partition: int, batch: bytes | bytearray) -> Future[ServerResponse]:
        """Append one batch, on its way while the caller does something else."""
        return self._loop.submit(
            self._transport.send(
                "POST",
                topic_path(topic, "batches"),
                bytes(batch),
                query={"partition": partition},
                content_type=BATCHES,
            )
        )

    def commit_batch(
        self, query: str, run: str, batch: int, attempts: Sequence[tuple[str, int, int]], *, lasting: bool
    ) -> SinkCommit:
        named = [
            {"attempt": attempt, "producer": producer, "epoch": epoch}
            for attempt, producer, epoch in attempts
        ]
        body = {"query": query, "run": run, "batch": batch, "attempts": named, "lasting": lasting}
        return self._ask("POST", "/v0/sinks/commit", SinkCommit, body)

    def extending(self, query: str, run: str, every_s: float) -> Future[None]:
        """Say every so often that the run is at work, until cancelled."""
        return self._loop.submit(self._extend(msgspec.json.encode({"query": query, "run": run}), every_s))

    async def _extend(self, body: bytes, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self._transport.send("POST", "/v0/sinks/extend", body)
            except Unavailable:
                continue  # the next one may be in time; if none is, the commit will say so

    def abort_batch(self, query: str, run: str) -> None:
        self._ask("POST", "/v0/sinks/abort", dict[str, Any], {"query": query, "run": run})

    def _ask(
        self, method: str, path: str, kind: type[T], body: object = None, *, query: Query | None = None
    ) -> T:
        encoded = None if body is None else msgspec.json.encode(body)
        answer = self._loop.call(self._transport.send(method, path, encoded, query=query))
        return decoded(answer.body, kind)


def _number(answer: ServerResponse, name: str) -> int:
    try:
        return int(answer.headers[name])
    except (KeyError, ValueError):
        raise ServerFault(f"the broker's answer has no {name}") from None

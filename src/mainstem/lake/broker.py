"""The broker, as the lake's jobs talk to it: over HTTP, from threads."""

from __future__ import annotations

from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from mainstem.broker.lake import LakeStatus
from mainstem.broker.lake_reports import DriverReport
from mainstem.broker.plans import Plan, PlanRequest, Publication, Sources
from mainstem.broker.table_work import TableCommitRequest, TableCommitted, TableWorkPage
from mainstem.client.loop import LoopThread
from mainstem.client.transport import Transport, topic_path
from mainstem.errors import RecordsLost

T = TypeVar("T")


class _Frontier(msgspec.Struct):
    frontier: int


class _Deadline(msgspec.Struct):
    deadline_ms: int


class _Collected(msgspec.Struct):
    wal_objects: int
    files: int


class LakeBroker:
    """Calls raise what the broker answers, and Unreachable if it does not. Thread-safe."""

    def __init__(
        self, url: str | None = None, *, api_key: str | None = None, timeout_s: float = 30.0
    ) -> None:
        self._transport = Transport(url, api_key=api_key, timeout_s=timeout_s)
        self._thread = LoopThread("this connection to the broker is closed")

    def __enter__(self) -> LakeBroker:
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

    def plan(self, request: PlanRequest) -> Plan:
        """Take what is due, each stream's tasks under a lease."""
        return self._ask("POST", "/v0/lake/plan", Plan, request)

    def publish(self, publication: Publication) -> int:
        """Returns the stream's frontier. To repeat it changes nothing. Raises StalePlan."""
        return self._ask("POST", "/v0/lake/publish", _Frontier, publication).frontier

    def extend(self, stream: int, token: int, lease_ms: int) -> int:
        """Returns the new deadline, on the broker's clock. Raises StalePlan."""
        body = {"stream": stream, "token": token, "lease_ms": lease_ms}
        return self._ask("POST", "/v0/lake/extend", _Deadline, body).deadline_ms

    def release(self, stream: int, token: int) -> None:
        """Give a stream's tasks back."""
        self._ask("POST", "/v0/lake/release", Any, {"stream": stream, "token": token})

    def sources(self, topic: str, partition: int, start: int, end: int) -> Sources:
        """Where the records of a range are, without a lease."""
        body = {"topic": topic, "partition": partition, "from": start, "to": end}
        return self._ask("POST", "/v0/lake/sources", Sources, body)

    def collect(self) -> tuple[int, int]:
        """Delete what nothing needs. Returns how many objects of the log, and how many files."""
        collected = self._ask("POST", "/v0/lake/collect", _Collected, {})
        return collected.wal_objects, collected.files

    def report(self, report: DriverReport) -> None:
        """Say how the driver is doing."""
        self._ask("POST", "/v0/lake/report", Any, report)

    def status(self) -> LakeStatus:
        """How far every topic is."""
        return self._ask("GET", "/v0/lake/status", LakeStatus)

    def probe_loss(self, topic: str, partition: int, offset: int) -> bool:
        """Have the broker read at an offset. True if it finds there that records are lost."""
        query = {"partition": partition, "from": offset, "max_bytes": 1}
        try:
            self._thread.call(self._transport.send("GET", topic_path(topic, "batches"), query=query))
        except RecordsLost:
            return True
        return False

    def tables(self) -> TableWorkPage:
        """Every topic's tables, and what is left to publish of each."""
        return self._ask("GET", "/v0/lake/tables", TableWorkPage)

    def commit_table(self, commit: TableCommitRequest) -> str:
        """Returns where the table's metadata is now. Raises TableChanged."""
        return self._ask("POST", "/v0/lake/tables", TableCommitted, commit).location

    def _ask(self, method: str, path: str, kind: type[T], body: object = None) -> T:
        call: Coroutine[Any, Any, T] = self._transport.ask(method, path, kind, body)
        return self._thread.call(call)

"""A real server whose topics are made into parts and tables by this process, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from mainstem.api.lake import PlanRequest, TaskKind
from mainstem.client.broker import BrokerClient
from mainstem.tables.parts.materialise import materialise
from mainstem.tables.publishing.publisher import Publisher, PublishReport
from mainstem.testing.server import ServerProcess

DAY_MS = 86_400_000


class Tabling:
    """One server, as users and the lake's jobs see it."""

    def __init__(self, data_dir: Path, *flags: str) -> None:
        self.data_dir = data_dir
        self._flags = flags
        self._start()

    def _start(self) -> None:
        self.server = ServerProcess(self.data_dir, *self._flags).wait_ready()
        self.url = f"http://{self.server.address('http')}"
        self.http = httpx.Client(base_url=self.url, timeout=30)
        self.broker = BrokerClient(self.url)

    def restart_killed(self) -> None:
        """kill -9, and start again over what it left."""
        self._leave()
        self.server.kill()
        self._start()

    def close(self) -> None:
        self._leave()
        with self.server:
            pass

    def _leave(self) -> None:
        self.http.close()
        self.broker.close()

    # Users

    def ask(self, method: str, path: str, body: object = None) -> Any:
        answer = (
            self.http.request(method, path, json=body)
            if body is not None
            else self.http.request(method, path)
        )
        assert answer.status_code < 300, answer.text
        return answer.json() if answer.content else None

    def topic(self, name: str) -> None:
        self.ask("PUT", f"/v0/topics/{name}", {"durability": "disk"})

    def write(self, topic: str, *values: object) -> None:
        self.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": value} for value in values]})

    def enable(self, topic: str, **body: object) -> Any:
        return self.ask("PUT", f"/v0/topics/{topic}/table", {"enabled": True, **body})

    def status(self, topic: str) -> Any:
        return self.ask("GET", f"/v0/topics/{topic}/table")

    # Jobs

    def work(self, *kinds: TaskKind) -> int:
        """Do what the broker says is due; returns how many tasks that were."""
        request = PlanRequest("tests", kinds=kinds or ("materialise", "rewrite"), tasks_max=64)
        done = 0
        while tasks := self.broker.plan(request).tasks:
            for task in tasks:
                self.broker.publish(materialise(task))
                done += 1
        return done

    def publish(self, **options: Any) -> PublishReport:
        return Publisher(self.broker, **options).run()

    # Readers

    def catalog(self) -> Catalog:
        """The catalog for a reader of local files."""
        local = {"header.X-Iceberg-Access-Delegation": "none"}
        return load_catalog("m", type="rest", uri=f"{self.url}/iceberg", **local)

    def remote_catalog(self, **properties: str) -> Catalog:
        """The catalog for a reader on another machine: without any option of its own."""
        return load_catalog("m", type="rest", uri=f"{self.url}/iceberg", **properties)

    def table(self, name: str) -> Table:
        return self.catalog().load_table(f"default.{name}")

    def rows(self, name: str) -> list[dict[str, Any]]:
        found: pa.Table = self.table(name).scan().to_arrow()
        return sorted(found.to_pylist(), key=lambda row: (row.get("_partition_id", 0), row.get("_offset", 0)))

    def values(self, name: str) -> list[Any]:
        """What the records hold, in the order of offsets; no offset twice."""
        rows = self.rows(name)
        offsets = [(row["_partition_id"], row["_offset"]) for row in rows]
        assert len(set(offsets)) == len(offsets)
        return [json.loads(row["_value"]) for row in rows]

    def operations(self, name: str) -> list[str]:
        return [
            snapshot.summary.operation.value
            for snapshot in self.table(name).metadata.snapshots
            if snapshot.summary
        ]


@contextmanager
def tabling(data_dir: Path, *flags: str) -> Iterator[Tabling]:
    started = Tabling(data_dir, *flags)
    try:
        yield started
    finally:
        started.close()


def numbers(start: int, end: int) -> Sequence[dict[str, int]]:
    return [{"n": number} for number in range(start, end)]

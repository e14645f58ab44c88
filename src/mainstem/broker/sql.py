"""SQL over topics: finds the topics that a query names and where their records are, and lets a worker run it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from mainstem import limits
from mainstem.api.lake import Sources
from mainstem.broker.streams import StreamService
from mainstem.errors import InvalidInput, NotFound, TooLarge, TopicNotFound, Unavailable
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.log.read.extents import EXTENT
from mainstem.log.read.views import View
from mainstem.metrics import Metric, one
from mainstem.tables.catalog import DEFAULT_NAMESPACE, LEVELS
from mainstem.tables.lake import Lake
from mainstem.tables.registry import RegistryColumns
from mainstem.tables.sql.messages import (
    Answer,
    ParseQuery,
    QueryDone,
    QueryFailed,
    QueryParsed,
    RunQuery,
    SqlFormat,
    SqlPartition,
    SqlTable,
    SqlTableName,
)
from mainstem.tables.sql.workers import QueryTimeout, SqlWorkers
from mainstem.tables.topic_tables import table_name

SQL_TABLES_MAX = 64  # topics that one query reads
# of a topic's records that are in no Parquet file yet, which a query decodes
SQL_LOG_BYTES_MAX = 1 * limits.GIB

__all__ = ["QueryDone", "QueryTimeout", "SqlService", "Topic"]

_TRIES = 3  # files may be replaced between locating and reading them

# Raises unless the client may read the topic (None: there is none) that a query names so.
MayRead = Callable[[Topic | None, str], Awaitable[None]]


class SqlService:
    def __init__(
        self, log: Log, streams: StreamService, lake: Lake, columns: RegistryColumns, store_url: str
    ) -> None:
        self._log = log
        self._columns = columns
        self._streams = streams
        self._lake = lake
        self._workers = SqlWorkers(store_url)
        self.queries = 0
        self.failures = 0
        self.seconds = 0.0

    async def close(self) -> None:
        await self._workers.close()

    def prepare(self) -> None:
        """Get ready for a query that may come soon."""
        self._workers.prepare()

    def published(self) -> list[Metric]:
        return [
            one("mainstem_sql_queries_total", "counter", "SQL queries since the start.", self.queries),
            one(
                "mainstem_sql_failures_total",
                "counter",
                "SQL queries that failed, or were stopped.",
                self.failures,
            ),
            one("mainstem_sql_seconds_total", "counter", "Seconds that SQL queries took.", self.seconds),
        ]

    async def run(
        self,
        query: str,
        *,
        namespace: str,
        check: MayRead,
        rows_max: int,
        timeout_s: float,
        format: SqlFormat,
    ) -> QueryDone:
        """Run one SELECT. `namespace` is that of topics without one; `check` raises for a topic that may not be read.

        Raises InvalidInput, TopicNotFound, TooLarge, QueryTimeout, Unavailable."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        self.queries += 1
        try:
            async with self._workers.worker() as worker:
                deadline = started + timeout_s
                parsed = await worker.ask(ParseQuery(query), deadline)
                for _ in range(_TRIES):
                    topics = await self._topics(_checked(parsed), namespace, check)
                    tables = [await self._table(topic, names) for topic, names in topics.items()]
                    answer = await worker.ask(RunQuery(query, tables, rows_max, format), deadline)
                    if not (isinstance(answer, QueryFailed) and answer.kind == "missing"):
                        break
            return _done(answer)
        except BaseException:
            self.failures += 1
            raise
        finally:
            self.seconds += loop.time() - started

    # Topics

    async def _topics(
        self, parsed: QueryParsed, namespace: str, check: MayRead
    ) -> dict[Topic, list[SqlTableName]]:
        if len(parsed.tables) > SQL_TABLES_MAX:
            raise InvalidInput(f"a query may read up to {SQL_TABLES_MAX} topics")
        found: dict[Topic, list[SqlTableName]] = {}
        defined = {name.lower() for name in parsed.defined}
        for name in parsed.tables:
            if not name.schema and name.name.lower() in defined:
                continue
            topic = self._topic(name, namespace)
            if topic is None:
                if name.schema.lower() in _OWN_SCHEMAS or name.name.lower().startswith(_OWN_TABLES):
                    continue  # a table of DuckDB itself
                await check(None, _topic_name(name))
                raise TopicNotFound(_topic_name(name))
            await check(topic, _topic_name(name))
            found.setdefault(topic, []).append(name)
        return found

    def _topic(self, name: SqlTableName, bound: str) -> Topic | None:
        """The topic that a table name means: its own name, or that of its table in the catalog."""
        topics = self._log.ledger.topics
        if not name.schema:
            exact = self._streams.get(name.name if bound == DEFAULT_NAMESPACE else f"{bound}/{name.name}")
            if exact is not None or "/" in name.name:
                return exact or self._streams.get(name.name)
            namespace = bound
        else:
            levels = "/".join(filter(None, (name.catalog, name.schema.replace(".", "/"))))
            namespace = bound if levels == DEFAULT_NAMESPACE else levels
        table = self._log.ledger.tables.get(namespace.replace("/", LEVELS), name.name)
        if table is not None and table.topic_id and table.kind == "records":
            return topics.by_id(table.topic_id)
        same = (topic for topic in topics if topic.namespace == namespace)
        matching = [topic for topic in same if name.name in (topic.plain_name, table_name(topic.plain_name))]
        return min(matching, key=lambda topic: topic.plain_name != name.name, default=None)

    # Records

    async def _table(self, topic: Topic, names: list[SqlTableName]) -> SqlTable:
        columns = await self._columns.current(topic) if topic.config.table else ""
        budget = _LogBudget(topic.name)
        partitions = [
            await self._partition(number, stream, budget) for number, stream in enumerate(topic.streams)
        ]
        return SqlTable(names, topic.name, topic.topic_id, columns, partitions)

    async def _partition(self, number: int, stream: int, budget: _LogBudget) -> SqlPartition:
        store = self._log.streams.of(stream)
        at, end = store.bounds(stream)[0], store.stable_end(stream)
        found: list[Sources] = []
        batches: list[bytes] = []
        while at < end:
            try:
                sources = await self._lake.sources(stream, at, end)
            except NotFound:
                break  # deleted meanwhile
            budget.take(_log_bytes(sources))
            found.append(sources)
            for start, stop in sources.unreachable:
                batches += await self._batches(stream, start, stop, budget)
            if sources.end <= at:
                break
            at = sources.end
        return SqlPartition(number, found, batches)

    async def _batches(self, stream: int, start: int, stop: int, budget: _LogBudget) -> list[bytes]:
        """Records that only this broker has, such as those of an ephemeral topic."""
        found: list[bytes] = []
        while start < stop:
            chunk = await self._streams.read(stream, start, limits.READ_BYTES_MAX, view=View.COMMITTED)
            if chunk.next_offset <= start:
                break
            found += [bytes(batch) for batch in chunk.batches]
            budget.take(sum(map(len, chunk.batches)))
            start = chunk.next_offset
        return found


_OWN_SCHEMAS = ("information_schema", "pg_catalog")
_OWN_TABLES = ("duckdb_", "sqlite_", "pg_", "__rows_")


class _LogBudget:
    """Bytes of records without Parquet files that one topic may have in a query."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._taken = 0

    def take(self, amount: int) -> None:
        """Raises TooLarge."""
        self._taken += amount
        if self._taken > SQL_LOG_BYTES_MAX:
            raise TooLarge(
                f"topic {self._topic!r} has more than {SQL_LOG_BYTES_MAX // limits.MIB} MiB of records that are "
                "in no Parquet file yet: enable its table and let the lake run, or use --engine spark"
            )


def _log_bytes(sources: Sources) -> int:
    return sum(int(np.frombuffer(extents.rows, EXTENT)["length"].sum()) for extents in sources.wal)


def _topic_name(name: SqlTableName) -> str:
    """A table name, as the topic that it would be."""
    return "/".join(filter(None, (name.catalog, name.schema.replace(".", "/"), name.name)))


def _checked(answer: Answer) -> QueryParsed:
    if isinstance(answer, QueryParsed):
        return answer
    _done(answer)
    raise Unavailable("the SQL worker returned an unexpected response")


def _done(answer: Answer) -> QueryDone:
    match answer:
        case QueryDone():
            return answer
        case QueryFailed("invalid", message):
            raise InvalidInput(message)
        case QueryFailed("too_large", message):
            raise TooLarge(message)
        case QueryFailed(_, message):
            raise Unavailable(f"the query failed: {message}")
    raise Unavailable("the SQL worker returned an unexpected response")

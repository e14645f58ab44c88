"""Topics as tables: the table setting, the declared columns, and what is left to publish.

Whether a topic has a table is a setting of the topic, whichever door sets it. `settle` makes the catalog match: it
creates, widens and drops tables. It runs when a table is enabled or disabled through HTTP, and before every round of
publishing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from mainstem import events, limits
from mainstem.api.lake import (
    Column,
    PendingChange,
    TableColumns,
    TableCommitRequest,
    TableKind,
    TablePartition,
    TableStatus,
    TableWork,
    TableWorkPage,
)
from mainstem.errors import (
    InvalidConfig,
    MainstemError,
    NotFound,
    TableChanged,
    TableExists,
    TableIncompatible,
    TableNotFound,
    described,
)
from mainstem.ledger.config import TopicConfig
from mainstem.ledger.reports import TABLES, KeepReport, StoredReport
from mainstem.ledger.table import Table
from mainstem.ledger.tables import LEVELS, DeclareTable, table_namespace
from mainstem.ledger.topics import Topic
from mainstem.log.log import Log
from mainstem.ports.clock import Clock, Random
from mainstem.tables import table_metadata
from mainstem.tables.catalog import TOPIC_SUFFIX, Catalog, TableChange, sanitised
from mainstem.tables.columns import declared, decode_columns, encode_columns
from mainstem.tables.copies import changed_copy, delta_of, iceberg_of
from mainstem.tables.registry import RegistryColumns, column_source
from mainstem.tables.table_metadata import TableUpdates

TABLE_PARTS_PER_ROUND = 1_000  # new parts of one table that are published together
TABLE_EXPIRY_EVERY_MS = 3600 * 1000  # how often an unchanged table is checked for old snapshots

PROBLEMS_MAX = 100  # kept for other brokers
PROBLEM_CHARS_MAX = 400

_events = events.named("tables")

ERRORS_SUFFIX = "__errors"


class TopicConfigs(Protocol):
    """Topics and their settings."""

    def get(self, name: str) -> Topic:
        """Raises TopicNotFound."""
        ...

    async def change(self, name: str, change: Callable[[TopicConfig], TopicConfig]) -> Topic:
        """Raises TopicNotFound, InvalidConfig."""
        ...


class TopicTables:
    """`store_url` is the URL of the part files, without secrets: publishers have their own credentials."""

    def __init__(
        self,
        log: Log,
        topics: TopicConfigs,
        catalog: Catalog,
        store_url: str,
        columns: RegistryColumns,
        clock: Clock,
        random: Random,
    ) -> None:
        self._log = log
        self._columns = columns
        self._topics = topics
        self._catalog = catalog
        self._store_url = store_url
        self._clock = clock
        self._random = random
        self._settling = asyncio.Lock()
        # Digests of topics and declarations after the last full settle.
        self._settled: tuple[int, int] | None = None
        self._swept_ms = clock.now_ms()
        self._expiry_ms: dict[bytes, int] = {}  # table id → when to check it next for old snapshots
        self._expiring: set[bytes] = set()  # tables whose snapshots this round of publishing checks
        self._widened: dict[bytes, str] = {}  # table id → columns that the table has
        # The problems that the ledger has, decoded.
        self._read_problems: tuple[StoredReport, dict[bytes, str]] | None = None

    # Enable and disable

    async def put(
        self,
        name: str,
        *,
        enabled: bool,
        schema: object = None,
        delta: str | None = None,
        iceberg: str | None = None,
    ) -> TableStatus:
        """Raises TopicNotFound, InvalidConfig, TableIncompatible, TableExists."""
        topic = self._topics.get(name)
        if enabled:
            table_metadata.check_available()
            check_can_be_table(topic)
            self._check_name(topic)
        if schema is not None or delta is not None or iceberg is not None:
            await self._declare(topic, schema, delta, iceberg)
        await self._topics.change(name, lambda config: msgspec.structs.replace(config, table=enabled))
        topic = self._topics.get(name)
        async with self._settling:
            await self._settle(topic)
            await self._keep({id: text for id, text in self._problems.items() if id != topic.topic_id})
        return await self.status(topic)

    def subject_of(self, name: str, schema: object) -> str | None:
        """The subject of the registry that a declaration takes its columns from, as access rules name it.

        Raises TopicNotFound, InvalidConfig."""
        topic = self._topics.get(name)
        source = column_source(topic, schema)
        return None if source is None else self._columns.stored_subject(topic, source)

    async def _declare(self, topic: Topic, schema: object, delta: str | None, iceberg: str | None) -> None:
        present = self._log.ledger.tables.declaration(topic.topic_id)
        columns = present.columns
        if schema is not None:
            columns = encode_columns(_declared(topic, schema, decode_columns(present.columns)))
        copy = changed_copy(present.copy, delta, iceberg)
        if len(columns) > limits.TABLE_DECLARATION_CHARS_MAX:
            raise InvalidConfig(
                f"the declaration has {len(columns)} characters, over the limit of {limits.TABLE_DECLARATION_CHARS_MAX}"
            )
        wanted = (columns, copy)
        if wanted != (present.columns, present.copy):
            await self._log.propose(DeclareTable(topic.topic_id, present.revision, *wanted))
        await self._columns.include(topic)

    def _check_name(self, topic: Topic) -> None:
        """Raises TableExists if another table has the name."""
        for kind in ("records", "errors"):
            name = table_name(topic.plain_name, kind)
            taken = self._log.ledger.tables.get(table_namespace(topic.namespace), name)
            if taken is not None and taken.topic_id != topic.topic_id:
                error = TableExists(topic.namespace, name)
                error.add_note(f"the table of topic {topic.name!r} would have that name")
                raise error

    # Settle

    async def _settle_all(self) -> dict[bytes, str]:
        """Create, widen and drop tables to match the topics. Returns, by topic id, why a table could not be settled."""
        found: dict[bytes, str] = {}
        ledger = self._log.ledger
        async with self._settling:
            state = (ledger.topics.digest, ledger.tables.declarations_digest)
            if state == self._settled:
                return found
            for topic in list(ledger.topics):
                try:
                    await self._settle(topic)
                except Exception as error:  # noqa: BLE001 - only this topic fails: the others continue
                    if self._log.ledger.topics.by_id(topic.topic_id) is None:
                        continue  # deleted meanwhile
                    found[topic.topic_id] = described(error)[:PROBLEM_CHARS_MAX]
            self._settled = None if found else state
        return found

    async def _settle(self, topic: Topic) -> None:
        tables = self._log.ledger.tables
        if topic.config.table:
            await self._columns.include(topic)
        declared = decode_columns(tables.declaration(topic.topic_id).columns)
        kinds: tuple[TableKind, ...] = ("records", "errors")
        for kind in kinds:
            table = tables.of_topic(topic.topic_id, kind)
            wanted = topic.config.table and (kind == "records" or bool(declared.columns or declared.registry))
            if not wanted:
                if table is not None:
                    await self._catalog.drop_any(table, purge=True)
            elif table is None:
                check_can_be_table(topic)
                await self._create(topic, kind, declared.columns)
            elif kind == "records":
                await self._widen(table, declared.columns)

    async def _create(self, topic: Topic, kind: TableKind, columns: Sequence[Column]) -> None:
        namespace, name = table_namespace(topic.namespace), table_name(topic.plain_name, kind)
        table_id = self._random.token(16)
        folder = self._catalog.folder_of(namespace, name, table_id, TOPIC_SUFFIX)
        metadata = await asyncio.to_thread(
            table_metadata.of_topic, kind, columns, table_id, folder, topic.name
        )
        await self._catalog.create_with(namespace, name, table_id, topic.topic_id, kind, metadata)

    async def _widen(self, table: Table, columns: Sequence[Column]) -> None:
        """Add the columns to a table that were declared since it was created."""
        text = encode_columns(TableColumns(tuple(columns)))
        if self._widened.get(table.table_id) == text:
            return
        metadata = await self._catalog.metadata_at(table.location)
        updates = await asyncio.to_thread(table_metadata.widening, metadata, columns)
        if updates:
            change = TableChange((table.namespace, table.name), TableUpdates([], updates), owner=True)
            await self._catalog.commit(change)
        self._widened[table.table_id] = text

    # Publishing

    async def maintain(self) -> dict[str, str]:
        """Before a round of publishing: settle, delete orphans, and choose the tables that expire snapshots.

        Returns why a topic has no table although it should, by topic."""
        problems = await self._settle_all()
        now = self._clock.now_ms()
        if now - self._swept_ms >= limits.TABLE_ORPHAN_MS:
            self._swept_ms = now
            await self._sweep(now - limits.TABLE_ORPHAN_MS)
        unplannable = dict(self._unplannable())
        if unplannable:
            self._settled = None
        await self._keep({**problems, **unplannable})
        tables = [table for table in self._log.ledger.tables if table.topic_id]
        self._expiring = {table.table_id for table in tables if self._expiry_due(table, now)}
        return self._by_name(problems)

    @property
    def _problems(self) -> dict[bytes, str]:
        """By topic id: why its tables differ from the topic's settings. In the ledger: every broker is asked."""
        stored = next(self._log.ledger.reports.of(TABLES), None)
        if stored is None:
            return {}
        if self._read_problems is None or self._read_problems[0] is not stored:
            found = msgspec.json.decode(stored.body, type=dict[str, str])
            self._read_problems = stored, {bytes.fromhex(id): text for id, text in found.items()}
        return self._read_problems[1]

    async def _keep(self, problems: dict[bytes, str]) -> None:
        shown = {id: problems[id][:PROBLEM_CHARS_MAX] for id in sorted(problems)[:PROBLEMS_MAX]}
        if shown != self._problems:
            body = msgspec.json.encode({id.hex(): text for id, text in shown.items()})
            await self._log.propose(KeepReport(TABLES, "problems", body))

    def _by_name(self, problems: dict[bytes, str]) -> dict[str, str]:
        topics = {topic_id: self._log.ledger.topics.by_id(topic_id) for topic_id in problems}
        return {topic.name: problems[topic_id] for topic_id, topic in topics.items() if topic}

    def works(self) -> TableWorkPage:
        """Every topic's tables, and what is left to publish to each."""
        problems = self._by_name(self._problems)
        found = []
        for topic, table in self._topic_tables():
            try:
                found.append(self._work(topic, table))
            except Exception as error:  # noqa: BLE001 - only this topic fails: the others continue
                problems[topic.name] = described(error)
        return TableWorkPage(tuple(found), problems)

    def _unplannable(self) -> Iterator[tuple[bytes, str]]:
        """Topics whose pending changes cannot be determined, and why."""
        for topic, table in self._topic_tables():
            try:
                self._work(topic, table)
            except Exception as error:  # noqa: BLE001 - only this topic fails: the others continue
                yield topic.topic_id, described(error)

    def _topic_tables(self) -> Iterator[tuple[Topic, Table]]:
        for table in self._log.ledger.tables:
            topic = self._log.ledger.topics.by_id(table.topic_id) if table.topic_id else None
            if topic is not None:
                yield topic, table

    async def _sweep(self, before_ms: int) -> None:
        """Delete files of dropped tables from the store. A failure does not stop publishing."""
        try:
            await self._catalog.sweep_topics(before_ms)
        except Exception as error:  # noqa: BLE001 - the next sweep tries again
            _events.warning("table sweep failed", error=described(error))

    def _work(self, topic: Topic, table: Table) -> TableWork:
        declaration = self._log.ledger.tables.declaration(topic.topic_id)
        changes: list[PendingChange] = []
        room = TABLE_PARTS_PER_ROUND
        more = False
        for partition, stream in enumerate(topic.streams):
            for old, new in table.stream(stream).pending(self._log.ledger.generations.parts(stream)):
                # New parts may be published in several steps; parts that replace others are published together.
                taken = new if old else new[: max(0, room)]
                more = more or len(taken) < len(new)
                if taken or old:
                    changes.append(PendingChange(stream, partition, tuple(old), tuple(taken)))
                room -= len(taken)
        return TableWork(
            table.namespace,
            table.name,
            table.kind,
            topic.name,
            table.table_id,
            table.location,
            self._catalog.store_url,
            self._store_url,
            self._columns.resolved(topic) if declaration.copy else declaration.columns,
            {partition: table.stream(stream).to for partition, stream in enumerate(topic.streams)},
            tuple(changes),
            table.table_id in self._expiring,
            more,
            declaration.copy if table.kind == "records" else "",
            self._erased_snapshots(table),
        )

    def _erased_snapshots(self, table: Table) -> tuple[int, ...] | None:
        """The snapshots that may reach records which an erasure has removed from all parts; None without one."""
        before = self._log.ledger.erasures.parts_rewritten_at(table.topic_id)
        if before is None:
            return None
        return tuple(sorted(id for id, at in table.snapshots.items() if at <= before))

    def _expiry_due(self, table: Table, now: int) -> bool:
        """From time to time: the snapshots of a table without new records grow old too."""
        if len(table.snapshots) < 2 or now < self._expiry_ms.get(table.table_id, 0):
            return False
        self._expiry_ms[table.table_id] = now + TABLE_EXPIRY_EVERY_MS
        return True

    async def commit_all(self, requests: Sequence[TableCommitRequest]) -> list[str | Exception]:
        """Commit each by itself. Returns the locations of the new metadata, and errors."""
        return await asyncio.gather(*map(self._commit_or_error, requests))

    async def _commit_or_error(self, request: TableCommitRequest) -> str | Exception:
        try:
            return await self.commit(request)
        except Exception as error:  # noqa: BLE001 - only this commit fails
            return error

    async def commit(self, request: TableCommitRequest) -> str:
        """Returns the location of the new metadata. Raises TableChanged, TableNotFound, InvalidInput."""
        table = self._catalog.table((request.namespace, request.name))
        if not table.topic_id:
            raise TableNotFound(request.namespace, request.name)
        change = TableChange(
            (request.namespace, request.name),
            TableUpdates(request.requirements, request.updates),
            request.expected,
            request.changes,
            owner=True,
        )
        return (await self._catalog.commit(change)).location

    # Status

    async def status(self, topic: Topic) -> TableStatus:
        tables = self._log.ledger.tables
        declaration = tables.declaration(topic.topic_id)
        table = tables.of_topic(topic.topic_id)
        declared = decode_columns(declaration.columns)
        columns = list(declared.columns)
        subject = declared.registry.subject if declared.registry else ""
        if table is None:
            return TableStatus(
                topic.config.table,
                topic.name,
                columns=columns,
                delta=delta_of(declaration.copy),
                iceberg=iceberg_of(declaration.copy),
                problem=self._problem(topic) if topic.config.table else "",
                subject=subject,
            )
        partitions = [self._partition(table, at, stream) for at, stream in enumerate(topic.streams)]
        metadata = await self._current(table)
        snapshot = metadata.current_snapshot()
        totals = dict(snapshot.summary.additional_properties) if snapshot and snapshot.summary else {}
        errors = tables.of_topic(topic.topic_id, "errors")
        return TableStatus(
            topic.config.table,
            topic.name,
            f"{table.namespace.replace(LEVELS, '.')}.{table.name}",
            table.location,
            columns,
            delta_of(declaration.copy),
            iceberg_of(declaration.copy),
            partitions,
            sum(partition.lag_records for partition in partitions),
            len(metadata.snapshots),
            snapshot.snapshot_id if snapshot else None,
            int(totals.get("total-records", 0)),
            int(totals.get("total-data-files", 0)),
            int(totals.get("total-files-size", 0)),
            await self._errors(errors),
            f"{errors.namespace}.{errors.name}" if errors else "",
            self._problems.get(topic.topic_id, ""),
            subject,
        )

    def _problem(self, topic: Topic) -> str:
        try:
            check_can_be_table(topic)
            self._check_name(topic)
        except MainstemError as error:
            return str(error)
        return self._problems.get(topic.topic_id, "")

    def _partition(self, table: Table, partition: int, stream: int) -> TablePartition:
        store, shown = self._log.streams.of(stream), table.stream(stream).to
        end = store.stable_end(stream)
        lag = max(0, end - max(shown, store.bounds(stream)[0]))
        return TablePartition(partition, end, self._log.ledger.generations.frontier(stream), shown, lag)

    async def _errors(self, table: Table | None) -> int:
        if table is None:
            return 0
        snapshot = (await self._current(table)).current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return 0
        return int(snapshot.summary.additional_properties.get("total-records", 0))

    async def _current(self, table: Table) -> Any:
        """The table's current metadata at the time of the read."""
        for _ in range(limits.TABLE_COMMIT_TRIES):
            location = table.location
            try:
                return await self._catalog.metadata_at(location)
            except NotFound:
                if table.location == location:
                    raise
        raise TableChanged(f"table {table.name!r} changes faster than it can be read: try again")


def _declared(topic: Topic, schema: object, present: TableColumns) -> TableColumns:
    """The columns after a user's declaration. Raises InvalidConfig, TableIncompatible."""
    source = column_source(topic, schema)
    if source is None:
        if present.registry is not None:
            raise TableIncompatible(
                f"the columns of topic {topic.name!r} come from subject {present.registry.subject!r} and cannot be "
                "declared"
            )
        return TableColumns(tuple(declared(schema, present.columns)))
    known = present.registry
    if known is not None and (known.subject, known.message) == (source.subject, source.message):
        return present
    if known is not None or present.columns:
        raise TableIncompatible(
            f"topic {topic.name!r} has typed columns already, which cannot come from the registry now"
        )
    return TableColumns(registry=source)


def table_name(topic: str, kind: TableKind | str = "records") -> str:
    """The name of a topic's table."""
    return sanitised(topic) + (ERRORS_SUFFIX if kind == "errors" else "")


def check_can_be_table(topic: Topic) -> None:
    """Raises TableIncompatible."""
    if topic.config.type != "log":
        raise TableIncompatible(
            f"topic {topic.name!r} is a queue: queues cannot be tables, because jobs are deleted"
        )
    if topic.config.durability == "ephemeral":
        raise TableIncompatible(f"topic {topic.name!r} is ephemeral: its records are in memory only")

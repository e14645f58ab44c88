"""Topics as tables: the switch, the declared columns, and what is left to publish.

Whether a topic is a table is a setting of the topic, whichever door set it. `settle` makes the catalog follow: it
creates, widens and drops tables. It runs when a table is switched through HTTP, and before every round of publishing.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from mainstem import events, limits
from mainstem.broker import table_metadata
from mainstem.broker.catalog import TOPIC_SUFFIX, TableChange, sanitised
from mainstem.broker.table_columns import Column, declared, decode_columns, encode_columns
from mainstem.broker.table_metadata import TableUpdates
from mainstem.broker.table_work import PendingChange, TableCommitRequest, TableWork, TableWorkPage
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
from mainstem.ledger.table import Table
from mainstem.ledger.table_commands import DeclareTable, TableKind
from mainstem.ledger.topics import Topic

if TYPE_CHECKING:
    from mainstem.broker.broker import Broker

_events = events.named("tables")

ERRORS_SUFFIX = "__errors"


class TablePartition(msgspec.Struct, frozen=True):
    partition: int
    end: int  # the stable end of the topic's partition
    materialised_to: int
    published_to: int
    lag_records: int  # offsets between the end and what is published


class TableStatus(msgspec.Struct, frozen=True):
    enabled: bool
    topic: str
    table: str = ""  # namespace.name; none: there is no table yet
    location: str = ""
    columns: list[Column] = []
    delta: str = ""
    partitions: list[TablePartition] = []
    lag_records: int = 0
    snapshots: int = 0
    snapshot_id: int | None = None
    records: int = 0
    files: int = 0
    file_bytes: int = 0
    errors: int = 0  # records whose values do not fit the declared columns
    errors_table: str = ""
    problem: str = ""  # why there is no table though it is switched on, or why it is not what it should be


class TopicTables:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._settling = asyncio.Lock()
        self._settled: tuple[int, int] | None = None  # what topics and declarations were when all was well
        self._swept_ms = broker.clock.now_ms()
        self._expiry_ms: dict[bytes, int] = {}  # table id → when it is looked at next for old snapshots
        self._widened: dict[bytes, str] = {}  # table id → columns that it was seen to have
        self._problems: dict[bytes, str] = {}  # topic id → why its tables are not what the topic says

    # The switch

    async def put(self, name: str, *, enabled: bool, schema: object, delta: str | None) -> TableStatus:
        """Raises TopicNotFound, InvalidConfig, TableIncompatible, TableExists."""
        topic = self._broker.streams.topic(name)
        if enabled:
            check_can_be_table(topic)
            self._check_name(topic)
        if schema is not None or delta is not None:
            await self._declare(topic, schema, delta)
        await self._broker.change_topic(name, lambda config: msgspec.structs.replace(config, table=enabled))
        topic = self._broker.streams.topic(name)
        async with self._settling:
            await self._settle(topic)
            self._problems.pop(topic.topic_id, None)
        return await self.status(topic)

    async def _declare(self, topic: Topic, schema: object, delta: str | None) -> None:
        present = self._broker.log.ledger.tables.declaration(topic.topic_id)
        columns = present.columns
        if schema is not None:
            columns = encode_columns(declared(schema, decode_columns(present.columns)))
        if delta is not None and len(delta) > limits.TABLE_LOCATION_CHARS_MAX:
            raise InvalidConfig(
                f"the URL of a Delta table has up to {limits.TABLE_LOCATION_CHARS_MAX} characters"
            )
        if len(columns) > limits.TABLE_DECLARATION_CHARS_MAX:
            raise InvalidConfig(
                f"the declaration takes {len(columns)} characters, over {limits.TABLE_DECLARATION_CHARS_MAX}"
            )
        wanted = (columns, present.delta if delta is None else delta)
        if wanted != (present.columns, present.delta):
            await self._broker.log.propose(DeclareTable(topic.topic_id, present.revision, *wanted))

    def _check_name(self, topic: Topic) -> None:
        """Raises TableExists where another table has the name already."""
        for kind in ("records", "errors"):
            name = table_name(topic.name, kind)
            taken = self._broker.log.ledger.tables.get(topic.namespace, name)
            if taken is not None and taken.topic_id != topic.topic_id:
                error = TableExists(topic.namespace, name)
                error.add_note(f"topic {topic.name!r} would be shown under that name")
                raise error

    # Following the switch

    async def settle(self) -> dict[str, str]:
        """Make the tables what the topics say. Returns why a topic has no table though it should, by topic."""
        problems: dict[str, str] = {}
        found: dict[bytes, str] = {}
        ledger = self._broker.log.ledger
        async with self._settling:
            state = (ledger.topics.digest, ledger.tables.declarations_digest)
            if state == self._settled:
                return problems
            for topic in self._broker.streams.topics():
                try:
                    await self._settle(topic)
                except Exception as error:  # noqa: BLE001 - it is this topic's problem: the others go on
                    if self._broker.streams.get_by_id(topic.topic_id) is None:
                        continue  # it was deleted meanwhile
                    problems[topic.name] = found[topic.topic_id] = described(error)
            self._settled = None if problems else state
            self._problems = found
        return problems

    async def _settle(self, topic: Topic) -> None:
        tables = self._broker.log.ledger.tables
        columns = decode_columns(tables.declaration(topic.topic_id).columns)
        kinds: tuple[TableKind, ...] = ("records", "errors")
        for kind in kinds:
            table = tables.of_topic(topic.topic_id, kind)
            wanted = topic.config.table and (kind == "records" or bool(columns))
            if not wanted:
                if table is not None:
                    await self._broker.catalog.drop_any(table, purge=True)
            elif table is None:
                check_can_be_table(topic)
                await self._create(topic, kind, columns)
            elif kind == "records":
                await self._widen(table, columns)

    async def _create(self, topic: Topic, kind: TableKind, columns: list[Column]) -> None:
        catalog = self._broker.catalog
        name = table_name(topic.name, kind)
        table_id = self._broker.random.token(16)
        folder = catalog.folder_of(topic.namespace, name, table_id, TOPIC_SUFFIX)
        metadata = await asyncio.to_thread(
            table_metadata.of_topic, kind, columns, table_id, folder, topic.name
        )
        await catalog.create_with(topic.namespace, name, table_id, topic.topic_id, kind, metadata)

    async def _widen(self, table: Table, columns: list[Column]) -> None:
        """Give a table the columns that were declared since it was made."""
        text = encode_columns(columns)
        if self._widened.get(table.table_id) == text:
            return
        catalog = self._broker.catalog
        metadata = await catalog.metadata_at(table.location)
        updates = await asyncio.to_thread(table_metadata.widening, metadata, columns)
        if updates:
            change = TableChange((table.namespace, table.name), TableUpdates([], updates), owner=True)
            await catalog.commit(change)
        self._widened[table.table_id] = text

    # Publishing

    async def works(self) -> TableWorkPage:
        """Every topic's tables, and what is left to publish of each."""
        problems = await self.settle()
        now = self._broker.clock.now_ms()
        if now - self._swept_ms >= limits.TABLE_ORPHAN_MS:
            self._swept_ms = now
            await self._sweep(now - limits.TABLE_ORPHAN_MS)
        found = []
        for table in self._broker.log.ledger.tables:
            topic = self._broker.streams.get_by_id(table.topic_id) if table.topic_id else None
            if topic is None:
                continue
            try:
                found.append(self._work(topic, table))
            except Exception as error:  # noqa: BLE001 - it is this topic's problem: the others go on
                problems[topic.name] = self._problems[topic.topic_id] = described(error)
                self._settled = None
        return TableWorkPage(tuple(found), problems)

    async def _sweep(self, before_ms: int) -> None:
        """Delete what dropped tables left in the store. A failure does not stop publishing."""
        try:
            await self._broker.catalog.sweep_topics(before_ms)
        except Exception as error:  # noqa: BLE001 - it is done again later
            _events.warning("dropped tables are not swept", error=described(error))

    def _work(self, topic: Topic, table: Table) -> TableWork:
        declaration = self._broker.log.ledger.tables.declaration(topic.topic_id)
        changes: list[PendingChange] = []
        room = limits.TABLE_PARTS_PER_ROUND
        more = False
        for partition, stream in enumerate(topic.streams):
            for old, new in table.stream(stream).pending(self._broker.log.ledger.generations.parts(stream)):
                # Parts that are new may come in several steps; those that replace others come together.
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
            self._broker.catalog.store_url,
            self._broker.lake.store_url,
            declaration.columns,
            {partition: table.stream(stream).to for partition, stream in enumerate(topic.streams)},
            tuple(changes),
            self._expiry_due(table),
            more,
            declaration.delta if table.kind == "records" else "",
        )

    def _expiry_due(self, table: Table) -> bool:
        """Now and then: a table that stands still has snapshots that grow old, too."""
        now = self._broker.clock.now_ms()
        if len(table.snapshots) < 2 or now < self._expiry_ms.get(table.table_id, 0):
            return False
        self._expiry_ms[table.table_id] = now + limits.TABLE_EXPIRY_EVERY_MS
        return True

    async def commit(self, request: TableCommitRequest) -> str:
        """Returns where the metadata is now. Raises TableChanged, TableNotFound, InvalidInput."""
        table = self._broker.catalog.table((request.namespace, request.name))
        if not table.topic_id:
            raise TableNotFound(request.namespace, request.name)
        change = TableChange(
            (request.namespace, request.name),
            TableUpdates(request.requirements, request.updates),
            request.expected,
            request.changes,
            owner=True,
        )
        return (await self._broker.catalog.commit(change)).location

    # Status

    async def status(self, topic: Topic) -> TableStatus:
        tables = self._broker.log.ledger.tables
        declaration = tables.declaration(topic.topic_id)
        table = tables.of_topic(topic.topic_id)
        columns = decode_columns(declaration.columns)
        if table is None:
            return TableStatus(
                topic.config.table,
                topic.name,
                columns=columns,
                delta=declaration.delta,
                problem=self._problem(topic) if topic.config.table else "",
            )
        partitions = [self._partition(table, at, stream) for at, stream in enumerate(topic.streams)]
        metadata = await self._current(table)
        snapshot = metadata.current_snapshot()
        totals = dict(snapshot.summary.additional_properties) if snapshot and snapshot.summary else {}
        errors = tables.of_topic(topic.topic_id, "errors")
        return TableStatus(
            topic.config.table,
            topic.name,
            f"{table.namespace}.{table.name}",
            table.location,
            columns,
            declaration.delta,
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
        )

    def _problem(self, topic: Topic) -> str:
        try:
            check_can_be_table(topic)
            self._check_name(topic)
        except MainstemError as error:
            return str(error)
        return self._problems.get(topic.topic_id, "")

    def _partition(self, table: Table, partition: int, stream: int) -> TablePartition:
        log = self._broker.log
        end, shown = log.streams.of(stream).stable_end(stream), table.stream(stream).to
        lag = max(0, end - max(shown, log.streams.of(stream).bounds(stream)[0]))
        return TablePartition(partition, end, log.ledger.generations.frontier(stream), shown, lag)

    async def _errors(self, table: Table | None) -> int:
        if table is None:
            return 0
        snapshot = (await self._current(table)).current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return 0
        return int(snapshot.summary.additional_properties.get("total-records", 0))

    async def _current(self, table: Table) -> Any:
        """The metadata of the table, whichever is current when it is read."""
        for _ in range(limits.TABLE_COMMIT_TRIES):
            location = table.location
            try:
                return await self._broker.catalog.metadata_at(location)
            except NotFound:
                if table.location == location:
                    raise
        raise TableChanged(f"table {table.name!r} changes faster than it can be read: ask again")


def table_name(topic: str, kind: TableKind | str = "records") -> str:
    """What the table of a topic is called."""
    return sanitised(topic) + (ERRORS_SUFFIX if kind == "errors" else "")


def check_can_be_table(topic: Topic) -> None:
    """Raises TableIncompatible."""
    if topic.config.type != "log":
        raise TableIncompatible(f"topic {topic.name!r} is a queue: its jobs come and go, and make no table")
    if topic.config.durability == "ephemeral":
        raise TableIncompatible(f"topic {topic.name!r} is ephemeral: its records are in memory only")

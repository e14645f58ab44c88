"""Deliver a topic to an Iceberg table in another catalog: append its records in offset order, each exactly once.

PyIceberg's own configuration names the catalog, in the environment of the lake's driver (`PYICEBERG_CATALOG__NAME__URI`
…) or in `~/.pyiceberg.yaml`. A commit appends records and sets the property `mainstem.next.TOPIC_ID.PARTITION` to the
next offset, and the catalog accepts it only if no other commit came in between. Other programs may compact the table
and expire its snapshots. Records that are deleted from the topic later stay in the copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.types import IcebergType, ListType, MapType, StructType

from mainstem import limits
from mainstem.api.lake import PartitionProgress, Sources, TableColumns, TableWork
from mainstem.errors import TableChanged, Unavailable
from mainstem.tables.columns import decode_columns
from mainstem.tables.copies import iceberg_of
from mainstem.tables.parts.source_rows import source_rows
from mainstem.tables.parts.typed_columns import with_columns
from mainstem.tables.publishing.broker import CopyBroker
from mainstem.tables.table_metadata import schema_of

APPEND_BYTES = 64 * limits.MIB  # of rows in memory, about: then a commit
REQUEST_S = (10.0, 60.0)  # that a REST catalog has to connect, and to send each part of its answer


class TimedRestCatalog(RestCatalog):
    """PyIceberg's requests wait for ever: one catalog that hangs would stop the driver, and with it every topic."""

    def _config_headers(
        self, session: Any
    ) -> None:  # the first that sees a new session, which may then ask for a token
        super()._config_headers(session)
        session.request = partial(session.request, timeout=REQUEST_S)


AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: TimedRestCatalog(name, **properties)


class OneAttempt:
    """A catalog for one commit. PyIceberg would rebuild a commit that lost a race and append its rows again."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        try:
            return self._catalog.commit_table(table, requirements, updates)
        except CommitFailedException as error:
            raise TableChanged(f"another commit came first: {error}") from error


class IcebergDelivery:
    """Delivers one partition of a topic to its Iceberg table."""

    def __init__(
        self, broker: CopyBroker, work: TableWork, topic_id: str, partition: PartitionProgress
    ) -> None:
        self._broker = broker
        self._work = work
        self._partition = partition
        self._columns: TableColumns = decode_columns(work.columns)
        self._schema = schema_of("records", self._columns.columns)
        self._catalog_name, _, self._name = iceberg_of(work.copy).partition(".")
        # By topic id: a later topic of the same name is another topic, with offsets from 0.
        self._next = f"mainstem.next.{topic_id}.{partition.partition}"

    def run(self) -> int:
        """Deliver what there is. Returns the number of commits."""
        catalog = self._catalog()
        commits = 0
        while True:
            table = self._table(catalog)
            start = max(int(table.properties.get(self._next, "0")), self._partition.start)
            if start >= self._partition.end:
                return commits
            sources = self._broker.sources(
                self._work.topic, self._partition.partition, start, self._partition.end
            )
            end = sources.unreachable[0][0] if sources.unreachable else sources.end
            if end <= start or not self._append(catalog, table, sources, end):
                return commits
            commits += 1

    def _catalog(self) -> Catalog:
        try:
            return load_catalog(self._catalog_name)
        except Exception as error:
            raise Unavailable(
                f"cannot open the Iceberg catalog {self._catalog_name!r}: {error}; the lake's driver needs it in "
                f"PyIceberg's configuration, for example PYICEBERG_CATALOG__{self._catalog_name.upper()}__URI"
            ) from error

    def _table(self, catalog: Catalog) -> Table:
        """The current version of the table, created if it does not exist, with all columns."""
        try:
            if not catalog.table_exists(self._name):
                self._create(catalog)
            table = catalog.load_table(self._name)
            if _missing(table.schema(), self._schema):
                with table.update_schema() as update:
                    update.union_by_name(self._schema)
            return table
        except Exception as error:
            raise Unavailable(f"cannot open the Iceberg table {self._work.copy!r}: {error}") from error

    def _create(self, catalog: Catalog) -> None:
        with suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(self._name.rpartition(".")[0])
        with suppress(TableAlreadyExistsError):
            catalog.create_table(self._name, self._schema)

    def _append(self, catalog: Catalog, table: Table, sources: Sources, end: int) -> bool:
        """Append the first records of a range. False if another commit changed the table after it was loaded."""
        rows, next_offset = self._rows(table.schema(), sources, end)
        table.catalog = OneAttempt(catalog)  # type: ignore[assignment]
        commit = table.transaction()
        try:
            # An append without rows has a snapshot too: with it, the catalog compares what the commit is based on.
            commit.append(rows)
            commit.set_properties({self._next: str(next_offset)})
            commit.commit_transaction()
        except TableChanged:
            return False
        except Exception as error:
            raise Unavailable(f"cannot write the Iceberg table {self._work.copy!r}: {error}") from error
        return True

    def _rows(self, schema: Schema, sources: Sources, end: int) -> tuple[pa.Table, int]:
        """Rows of about APPEND_BYTES, and the offset after them."""
        wanted = [field.name for field in self._schema.fields]
        present = schema.select(*wanted).as_arrow()
        kinds = pa.schema([present.field(name) for name in wanted])
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in self._batches(sources, end, kinds):
            batches.append(batch)
            size += batch.nbytes
            if size >= APPEND_BYTES:
                return pa.Table.from_batches(batches, kinds), int(batch.column("_offset")[-1].as_py()) + 1
        return pa.Table.from_batches(batches, kinds), end

    def _batches(self, sources: Sources, end: int, kinds: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in source_rows(sources, self._work.topic, self._partition.partition):
            rows = batch.filter(pc.less(batch.column("_offset"), end))
            if rows.num_rows:
                typed = with_columns(rows, self._columns).select(kinds.names)
                columns = [column.cast(kind) for column, kind in zip(typed.columns, kinds.types, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=kinds)


def _missing(present: Schema, wanted: Schema) -> bool:
    """Whether the table lacks a column, or has a narrower one."""
    return _lacks(present.as_struct(), wanted.as_struct())


def _lacks(present: IcebergType, wanted: IcebergType) -> bool:
    """Whether a type lacks a field of another, at any depth, or has a narrower one. Their ids may differ."""
    if isinstance(present, StructType) and isinstance(wanted, StructType):
        kinds = {field.name: field.field_type for field in present.fields}
        return any(
            field.name not in kinds or _lacks(kinds[field.name], field.field_type) for field in wanted.fields
        )
    if isinstance(present, ListType) and isinstance(wanted, ListType):
        return _lacks(present.element_type, wanted.element_type)
    if isinstance(present, MapType) and isinstance(wanted, MapType):
        return _lacks(present.key_type, wanted.key_type) or _lacks(present.value_type, wanted.value_type)
    return present != wanted

"""Deliver a topic to a Delta table: append its records in offset order, each exactly once.

A commit carries a Delta application transaction: the stream's name, with the next offset as its version. Delivery reads
the next offset from the table itself, and of two concurrent deliveries Delta commits one. Records that are deleted from
the topic later stay in the Delta table.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from mainstem.api.lake import PartitionProgress, Sources, TableColumns, TableWork
from mainstem.errors import Unavailable
from mainstem.records.rows import table_schema
from mainstem.tables.columns import decode_columns
from mainstem.tables.parts.source_rows import source_rows
from mainstem.tables.parts.typed_columns import ERROR_COLUMN, typed_fields, with_columns
from mainstem.tables.publishing.broker import CopyBroker


class DeltaDelivery:
    """Delivers one partition of a topic to its Delta table."""

    def __init__(
        self, broker: CopyBroker, work: TableWork, topic_id: str, partition: PartitionProgress
    ) -> None:
        self._broker = broker
        self._work = work
        self._partition = partition
        self._columns = decode_columns(work.columns)
        # By topic id: a later topic of the same name is another topic, with offsets from 0.
        self._application = f"mainstem/{topic_id}/{partition.partition}"

    def run(self) -> int:
        commits = 0
        while True:
            table = self._table()
            start = max(table.transaction_version(self._application) or 0, self._partition.start)
            if start >= self._partition.end:
                return commits
            sources = self._broker.sources(
                self._work.topic, self._partition.partition, start, self._partition.end
            )
            end = sources.unreachable[0][0] if sources.unreachable else sources.end
            if end <= start or not self._append(table, sources, end):
                return commits
            commits += 1

    def _table(self) -> DeltaTable:
        """The current version of the table, created if it does not exist."""
        try:
            if not DeltaTable.is_deltatable(self._work.copy):
                DeltaTable.create(self._work.copy, _schema(self._columns), mode="ignore")
            return DeltaTable(self._work.copy)
        except (DeltaError, OSError) as error:
            raise Unavailable(f"cannot read the Delta table at {self._work.copy!r}: {error}") from error

    def _append(self, table: DeltaTable, sources: Sources, end: int) -> bool:
        """Append the records of a range. False if another commit changed the table after it was loaded."""
        schema = _schema(self._columns)
        rows = pa.RecordBatchReader.from_batches(schema, self._rows(sources, end, schema))
        properties = CommitProperties(
            app_transactions=[Transaction(self._application, end)], max_commit_retries=0
        )
        try:
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
        except CommitFailedError:
            return False
        except (DeltaError, OSError) as error:
            raise Unavailable(f"cannot write the Delta table at {self._work.copy!r}: {error}") from error
        return True

    def _rows(self, sources: Sources, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in source_rows(sources, self._work.topic, self._partition.partition):
            rows = batch.filter(pc.less(batch.column("_offset"), end))
            typed_rows = with_columns(rows, self._columns).select(schema.names)
            yield pa.RecordBatch.from_arrays(
                [column.cast(kind) for column, kind in zip(typed_rows.columns, schema.types, strict=True)],
                schema=schema,
            )


def _schema(table: TableColumns) -> pa.Schema:
    """Without field ids, which Delta does not use. All fields are nullable: a table may get columns later."""
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {field.name: field.type for field in table_schema()} | {"_headers": pa.list_(header)}
    typed = [field for field in typed_fields(table.columns) if field.name != ERROR_COLUMN]
    kinds |= {field.name: _delta_type(field.type) for field in typed}
    return pa.schema(list(kinds.items()))


def _delta_type(kind: pa.DataType) -> pa.DataType:
    """Delta has no UUIDs and no binaries of fixed length, which become binaries, and no times of day, which become
    microseconds."""
    if kind == pa.uuid() or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_time(kind):
        return pa.int64()
    if pa.types.is_map(kind):
        return pa.map_(_delta_type(kind.key_type), _delta_type(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_delta_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(each.name, _delta_type(each.type)) for each in kind.fields])
    return kind

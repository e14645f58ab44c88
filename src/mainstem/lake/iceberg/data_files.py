"""Parquet files as Iceberg names them in manifests: where they are, and what their columns hold, off their footers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import invariant
from mainstem.ledger.table import TableKind

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.types import PrimitiveType

BOUND_CHARS = 16  # of the bounds of texts

# Where the partition and the offset of a row stand, in either kind of table.
PARTITION_IDS: Mapping[TableKind, int] = {"records": 1, "errors": 2}
OFFSET_IDS: Mapping[TableKind, int] = {"records": 2, "errors": 4}


@dataclass
class _Facts:
    """Of one column, over all row groups."""

    size: int = 0
    values: int = 0
    nulls: int | None = 0
    bounds: Any = None  # pyiceberg's StatsAggregator
    bounded: bool = True  # every row group says its bounds

    def add(self, chunk: Any, kind: PrimitiveType) -> None:
        """Count a row group's chunk of the column."""
        self.size += chunk.total_compressed_size
        self.values += chunk.num_values
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            self.nulls, self.bounded = None, False
            return
        if self.nulls is not None:
            self.nulls += statistics.null_count
        if statistics.has_min_max:
            self._widen(statistics, kind)
        elif statistics.null_count < chunk.num_values:
            self.bounded = False

    def _widen(self, statistics: Any, kind: PrimitiveType) -> None:
        from pyiceberg.io.pyarrow import StatsAggregator
        from pyiceberg.types import BinaryType, StringType

        if self.bounds is None:
            texts = isinstance(kind, StringType | BinaryType)
            self.bounds = StatsAggregator(kind, statistics.physical_type, BOUND_CHARS if texts else None)
        self.bounds.update_min(statistics.min)
        self.bounds.update_max(statistics.max)


@dataclass
class _Footer:
    columns: dict[int, _Facts] = field(default_factory=dict)  # by field id
    splits: list[int] = field(default_factory=list)


def data_file(
    metadata: pq.FileMetaData, kind: TableKind, schema: Schema, location: str, size: int, day: int
) -> DataFile:
    """A file of a topic's table. Columns that the table does not show are left out."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    footer = _read(metadata, schema)
    columns = footer.columns
    bounded = {
        id: facts.bounds for id, facts in columns.items() if facts.bounded and facts.bounds is not None
    }
    lower = {id: bounds.min_as_bytes() for id, bounds in bounded.items()}
    upper = {id: bounds.max_as_bytes() for id, bounds in bounded.items()}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=metadata.num_rows,
        file_size_in_bytes=size,
        column_sizes={id: facts.size for id, facts in columns.items()},
        value_counts={id: facts.values for id, facts in columns.items()},
        null_value_counts={id: facts.nulls for id, facts in columns.items() if facts.nulls is not None},
        nan_value_counts={},
        lower_bounds={id: bound for id, bound in lower.items() if bound is not None},
        upper_bounds={id: bound for id, bound in upper.items() if bound is not None},
        split_offsets=footer.splits,
        equality_ids=None,
        sort_order_id=None,
        key_metadata=None,
    )
    file.spec_id = 0
    invariant(
        {PARTITION_IDS[kind], OFFSET_IDS[kind]} <= file.upper_bounds.keys(),
        "a file says whose records it holds: that is how it is found when they are replaced",
    )
    return file


def _read(metadata: pq.FileMetaData, schema: Schema) -> _Footer:
    """What the footer says about the columns of the schema, but for lists and structs."""
    from pyiceberg.types import PrimitiveType

    shown = {
        column.name: (column.field_id, column.field_type)
        for column in schema.fields
        if isinstance(column.field_type, PrimitiveType)
    }
    footer = _Footer()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        footer.splits.append(_start(group.column(0)))
        for at in range(group.num_columns):
            chunk = group.column(at)
            if chunk.path_in_schema in shown:
                field_id, kind = shown[chunk.path_in_schema]
                footer.columns.setdefault(field_id, _Facts()).add(chunk, kind)
    footer.splits.sort()
    return footer


def _start(chunk: Any) -> int:
    starts = [chunk.data_page_offset]
    if chunk.has_dictionary_page:
        starts.append(chunk.dictionary_page_offset)
    return int(min(starts))


def place(file: DataFile, kind: TableKind) -> tuple[int, int, int]:
    """The partition whose records a file holds, its first offset and its last."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import IntegerType, LongType

    partition = from_bytes(IntegerType(), file.lower_bounds[PARTITION_IDS[kind]])
    first = from_bytes(LongType(), file.lower_bounds[OFFSET_IDS[kind]])
    last = from_bytes(LongType(), file.upper_bounds[OFFSET_IDS[kind]])
    return int(partition), int(first), int(last)

"""Parquet files as Iceberg names them in manifests: where they are, and what their columns hold, off their footers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.errors import invariant
from mainstem.ledger.table_commands import TableKind

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.types import PrimitiveType

BOUND_CHARS = 16  # of the bounds of texts

_LAST_CHARACTER = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)  # UTF-8 cannot encode them
_AFTER_SURROGATES = 0xE000

# Where the partition and the offset of a row stand, in either kind of table.
PARTITION_IDS: Mapping[TableKind, int] = {"records": 1, "errors": 2}
OFFSET_IDS: Mapping[TableKind, int] = {"records": 2, "errors": 4}


@dataclass
class _Facts:
    """Of one column, over all row groups."""

    kind: PrimitiveType
    size: int = 0
    values: int = 0
    nulls: int | None = 0
    lower: Any = None  # in the file's physical type: Python's dates end with year 9999
    upper: Any = None
    bounded: bool = True  # every row group says its bounds

    def add(self, chunk: Any) -> None:
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
            low, high = statistics.min_raw, statistics.max_raw
            self.lower = low if self.lower is None else min(low, self.lower)
            self.upper = high if self.upper is None else max(high, self.upper)
        elif statistics.null_count < chunk.num_values:
            self.bounded = False

    def lower_bound(self) -> bytes | None:
        """As Iceberg writes a single value; None: the column has no bound."""
        if not self.bounded or self.lower is None:
            return None
        return _lower_bound(self.kind, self.lower)

    def upper_bound(self) -> bytes | None:
        if not self.bounded or self.upper is None:
            return None
        return _upper_bound(self.kind, self.upper)


def _lower_bound(kind: PrimitiveType, value: Any) -> bytes:
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import BinaryType, StringType

    if isinstance(kind, BinaryType):
        return bytes(value[:BOUND_CHARS])
    if isinstance(kind, StringType):
        return str(value, "utf-8")[:BOUND_CHARS].encode()
    return to_bytes(kind, value)


def _upper_bound(kind: PrimitiveType, value: Any) -> bytes | None:
    """As `_lower_bound`; None if no short value is greater."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import BinaryType, StringType

    if isinstance(kind, BinaryType):
        return value if len(value) <= BOUND_CHARS else _next_bytes(value[:BOUND_CHARS])
    if isinstance(kind, StringType):
        text = str(value, "utf-8")
        return value if len(text) <= BOUND_CHARS else _next_text(text[:BOUND_CHARS])
    return to_bytes(kind, value)


def _next_bytes(start: bytes) -> bytes | None:
    """The shortest value greater than every value with this prefix."""
    short = start.rstrip(b"\xff")
    return short[:-1] + bytes([short[-1] + 1]) if short else None


def _next_text(start: str) -> bytes | None:
    """The shortest value greater than every value with this prefix."""
    short = start.rstrip(_LAST_CHARACTER)
    if not short:
        return None
    code = ord(short[-1]) + 1
    return (short[:-1] + chr(_AFTER_SURROGATES if code in _SURROGATES else code)).encode()


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
    lower = {id: facts.lower_bound() for id, facts in columns.items()}
    upper = {id: facts.upper_bound() for id, facts in columns.items()}
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
                footer.columns.setdefault(field_id, _Facts(kind)).add(chunk)
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

"""Parquet files as Iceberg manifest entries: location, and column statistics from the footer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mainstem.api.lake import TableKind
from mainstem.errors import invariant
from mainstem.tables.columns import FIRST_COLUMN_ID

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.types import PrimitiveType

BOUND_CHARS = 16  # length of lower and upper bounds of strings and binaries

_LAST_CHARACTER = chr(0x10FFFF)
_SURROGATES = range(0xD800, 0xE000)  # UTF-8 cannot encode them
_AFTER_SURROGATES = 0xE000

# Field ids of a row's partition and offset, in both kinds of table.
PARTITION_IDS: Mapping[TableKind, int] = {"records": 1, "errors": 2}
OFFSET_IDS: Mapping[TableKind, int] = {"records": 2, "errors": 4}


@dataclass
class _ColumnStatistics:
    """Statistics of one column over all row groups."""

    kind: PrimitiveType
    size: int = 0
    values: int = 0
    nulls: int | None = 0
    lower: Any = None  # in the file's physical type: Python's dates end with year 9999
    upper: Any = None
    bounded: bool = True  # every row group has bounds

    def add(self, chunk: Any) -> None:
        """Add the column chunk of one row group."""
        self.size += chunk.total_compressed_size
        self.values += chunk.num_values
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            self.nulls, self.bounded = None, False
            return
        if self.nulls is not None:
            self.nulls += statistics.null_count
        if statistics.has_min_max and self.bounded:
            low, high = _comparable(statistics.min_raw, self.kind), _comparable(statistics.max_raw, self.kind)
            self.lower = low if self.lower is None else min(low, self.lower)
            self.upper = high if self.upper is None else max(high, self.upper)
        elif statistics.null_count < chunk.num_values:
            self.bounded = False

    def lower_bound(self) -> bytes | None:
        """The bound in Iceberg's single-value encoding, or None."""
        if not self.bounded or self.lower is None:
            return None
        return _lower_bound(self.kind, self.lower)

    def upper_bound(self) -> bytes | None:
        if not self.bounded or self.upper is None:
            return None
        return _upper_bound(self.kind, self.upper)


def _comparable(raw: Any, kind: PrimitiveType) -> Any:
    """A decimal as its unscaled number, whose bytes do not sort as it does; others as they are."""
    from pyiceberg.types import DecimalType

    return (
        int.from_bytes(raw, "big", signed=True)
        if isinstance(kind, DecimalType) and isinstance(raw, bytes)
        else raw
    )


def _unscaled(value: int) -> bytes:
    """Iceberg's form of a decimal: as few bytes as it needs."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _lower_bound(kind: PrimitiveType, value: Any) -> bytes | None:
    """None if the value has no short bound."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import BinaryType, DecimalType, FixedType, StringType

    if isinstance(kind, DecimalType):
        return _unscaled(value)
    if isinstance(kind, FixedType) and len(value) > BOUND_CHARS:
        return None  # a bound of a fixed type has all of its bytes
    if isinstance(kind, BinaryType):
        return bytes(value[:BOUND_CHARS])
    if isinstance(kind, StringType):
        return str(value, "utf-8")[:BOUND_CHARS].encode()
    return to_bytes(kind, value)


def _upper_bound(kind: PrimitiveType, value: Any) -> bytes | None:
    """Like `_lower_bound`; None if no value of BOUND_CHARS is greater."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.types import BinaryType, DecimalType, FixedType, StringType

    if isinstance(kind, DecimalType):
        return _unscaled(value)
    if isinstance(kind, FixedType) and len(value) > BOUND_CHARS:
        return None
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
    columns: dict[int, _ColumnStatistics] = field(default_factory=dict)  # by field id
    split_offsets: list[int] = field(default_factory=list)


def data_file(
    metadata: pq.FileMetaData, kind: TableKind, schema: Schema, location: str, size: int, day: int
) -> DataFile:
    """A data file of a topic's table. Columns that are not in the schema are left out."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    footer = _read_footer(metadata, schema)
    columns = footer.columns
    lower = {id: column.lower_bound() for id, column in columns.items()}
    upper = {id: column.upper_bound() for id, column in columns.items()}
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(day),
        record_count=metadata.num_rows,
        file_size_in_bytes=size,
        column_sizes={id: column.size for id, column in columns.items()},
        value_counts={id: column.values for id, column in columns.items()},
        null_value_counts={id: column.nulls for id, column in columns.items() if column.nulls is not None},
        nan_value_counts={},
        lower_bounds={id: bound for id, bound in lower.items() if bound is not None},
        upper_bounds={id: bound for id, bound in upper.items() if bound is not None},
        split_offsets=footer.split_offsets,
        equality_ids=None,
        sort_order_id=None,
        key_metadata=None,
    )
    file.spec_id = 0
    invariant(
        {PARTITION_IDS[kind], OFFSET_IDS[kind]} <= file.upper_bounds.keys(),
        "a data file needs bounds for its partition and offsets: they identify it when its records are replaced",
    )
    return file


def _read_footer(metadata: pq.FileMetaData, schema: Schema) -> _Footer:
    """The footer's statistics of the schema's columns; of nested ones, only how many values they hold.

    Columns are found by their ids: a column may have been renamed since the file was written."""
    from pyiceberg.types import PrimitiveType

    at_top = {column.field_id for column in schema.fields}
    wanted: dict[int, PrimitiveType] = {}
    for id in schema.field_ids:
        kind = schema.find_type(id)
        if isinstance(kind, PrimitiveType) and (id in at_top or id >= FIRST_COLUMN_ID):
            wanted[id] = kind
    ids = list(_leaf_ids(metadata.schema.to_arrow_schema()))
    footer = _Footer()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        footer.split_offsets.append(_chunk_start(group.column(0)))
        for at in range(group.num_columns):
            id = ids[at]
            if id in wanted:
                statistics = _ColumnStatistics(wanted[id], bounded=id in at_top)
                footer.columns.setdefault(id, statistics).add(group.column(at))
    footer.split_offsets.sort()
    return footer


def _leaf_ids(fields: Iterable[pa.Field]) -> Iterator[int]:
    """The ids of the columns that a file stores, in its order; 0 without one."""
    import pyarrow.types as types

    for each in fields:
        kind = each.type
        if types.is_map(kind):
            yield from _leaf_ids((kind.key_field, kind.item_field))
        elif types.is_list(kind):
            yield from _leaf_ids((kind.value_field,))
        elif types.is_struct(kind):
            yield from _leaf_ids(kind.field(at) for at in range(kind.num_fields))
        else:
            yield int((each.metadata or {}).get(b"PARQUET:field_id", 0))


def _chunk_start(chunk: Any) -> int:
    starts = [chunk.data_page_offset]
    if chunk.has_dictionary_page:
        starts.append(chunk.dictionary_page_offset)
    return int(min(starts))


def offset_bounds(file: DataFile, kind: TableKind) -> tuple[int, int, int]:
    """The partition of the file's records, their first offset and their last."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import IntegerType, LongType

    partition = from_bytes(IntegerType(), file.lower_bounds[PARTITION_IDS[kind]])
    first = from_bytes(LongType(), file.lower_bounds[OFFSET_IDS[kind]])
    last = from_bytes(LongType(), file.upper_bounds[OFFSET_IDS[kind]])
    return int(partition), int(first), int(last)

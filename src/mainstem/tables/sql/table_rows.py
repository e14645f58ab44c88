"""The rows of a topic as Arrow datasets and tables, which DuckDB scans.

Parquet files are scanned where they are. What is only in the log is decoded, and kept for the next query, which then
decodes only what was appended since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs

from mainstem import limits
from mainstem.api.lake import DataFile, Sources, TableColumns
from mainstem.log.read.extents import EXTENT
from mainstem.records.rewrite import in_ranges
from mainstem.records.rows import decodable_rows, table_schema
from mainstem.tables.columns import decode_columns
from mainstem.tables.parts.object_readers import local_path, open_seekable, url_of
from mainstem.tables.parts.source_rows import source_rows
from mainstem.tables.parts.typed_columns import ERROR_COLUMN, typed_fields, with_columns
from mainstem.tables.sql.messages import SqlPartition, SqlTable

_FILTER_RANGES_MAX = 64  # more deleted ranges than this are left out row by row

Range = tuple[int, int]


def schema_of_rows(table: TableColumns) -> pa.Schema:
    """The columns of a topic's table."""
    typed = [field for field in typed_fields(table.columns) if field.name != ERROR_COLUMN]
    return pa.schema([*table_schema(), *typed]).remove_metadata()


@dataclass
class _Decoded:
    """Rows of the log that were decoded for an earlier query."""

    base: int
    end: int
    rows: pa.Table


class ScannedRows(NamedTuple):
    """Rows that DuckDB scans. Files that were written before a column was renamed have its former name."""

    rows: Any
    renamed: dict[str, str]  # name in the table → name in the rows; empty: the same


class TopicRows:
    """Reads topics for queries. Keeps decoded rows of the log, up to a limit."""

    def __init__(self) -> None:
        self._decoded: OrderedDict[tuple[bytes, int, str], _Decoded] = OrderedDict()

    def of(self, table: SqlTable) -> list[ScannedRows]:
        """Arrow tables and datasets that together are the rows. Raises NotFound if a file is gone meanwhile."""
        columns = decode_columns(table.columns)
        schema = schema_of_rows(columns)
        names = {column.id: column.name for column in columns.columns} if columns.registry else {}
        found: list[ScannedRows] = []
        held: list[pa.Table] = []
        for partition in table.partitions:
            for sources in partition.sources:
                found += _files(sources, schema, names)
            held.append(self._log_rows(table, partition, columns, schema))
            if partition.batches:
                batches = (
                    rows
                    for batch in partition.batches
                    for rows in decodable_rows(bytearray(batch), partition.partition, [])
                )
                held.append(_table(batches, columns, schema))
        found += [ScannedRows(rows, {}) for rows in held if rows.num_rows]
        return found or [ScannedRows(schema.empty_table(), {})]

    def _log_rows(
        self, table: SqlTable, partition: SqlPartition, columns: TableColumns, schema: pa.Schema
    ) -> pa.Table:
        """The rows that are in no Parquet file."""
        held = [sources for sources in partition.sources if sources.wal]
        if not held:
            return schema.empty_table()
        base = min(_log_base(sources) for sources in held)
        end = held[-1].end
        key = (table.topic_id, partition.partition, table.columns)
        known = self._decoded.pop(key, None)
        if known is None or not known.base <= base <= known.end <= end:
            known = _Decoded(base, base, schema.empty_table())
        new = (
            rows
            for sources in held
            for rows in source_rows(_from(sources, known.end), table.topic, partition.partition)
        )
        added = _table(new, columns, schema)
        rows = pa.concat_tables([known.rows, added]) if added.num_rows else known.rows
        rows = rows.slice(int(np.searchsorted(rows.column("_offset").to_numpy(), base)))
        self._keep(key, _Decoded(base, end, rows))
        return _without(rows, [hole for sources in held for hole in _unwanted(sources)])

    def _keep(self, key: tuple[bytes, int, str], decoded: _Decoded) -> None:
        self._decoded[key] = decoded
        total = sum(each.rows.nbytes for each in self._decoded.values())
        while total > limits.SQL_DECODED_BYTES_KEPT:
            total -= self._decoded.popitem(last=False)[1].rows.nbytes


def _log_base(sources: Sources) -> int:
    return max([sources.base, *(part.end for part in sources.parts)])


def _from(sources: Sources, base: int) -> Sources:
    """The part of a range that the log serves, from an offset on."""
    base = max(base, _log_base(sources))
    wal = []
    for extents in sources.wal:
        rows = np.frombuffer(extents.rows, EXTENT)
        later = rows[rows["base"] + extents.shift + rows["count"] > base]
        if len(later):
            wal.append(msgspec.structs.replace(extents, rows=later.tobytes()))
    return msgspec.structs.replace(sources, base=min(base, sources.end), wal=tuple(wal), parts=())


def _files(sources: Sources, schema: pa.Schema, names: dict[int, str]) -> list[ScannedRows]:
    """The Parquet files of a range, as datasets. `names` are those of columns that may have been renamed."""
    if not sources.parts:
        return []
    unwanted = _unwanted(sources)
    first, last = sources.parts[0].base, sources.parts[-1].end
    bounds = [(first, sources.base)] if first < sources.base else []
    holes = [*bounds, *((start, end) for start, end in unwanted if start < last and end > first)]
    files = [file for part in sources.parts for file in part.files]
    datasets = _datasets(files, sources.store, schema, names)
    if not holes:
        return datasets
    if len(holes) > _FILTER_RANGES_MAX:
        return [ScannedRows(_without(rows.to_table(), holes), renamed) for rows, renamed in datasets]
    offset = ds.field("_offset")
    condition = ds.scalar(True)
    for start, end in holes:
        condition = condition & ((offset < start) | (offset >= end))
    return [ScannedRows(rows.filter(condition), renamed) for rows, renamed in datasets]


def _datasets(
    files: Iterable[DataFile], store: str, schema: pa.Schema, names: dict[int, str]
) -> list[ScannedRows]:
    """One for the files that have the table's names, and one for each other set of names."""
    format = ds.ParquetFileFormat()
    groups: dict[tuple[tuple[str, str], ...], list[Any]] = {}
    for fragment in _fragments(files, store, format):
        renamed = _renamed(fragment.physical_schema, names) if names else ()
        groups.setdefault(renamed, []).append(fragment)
    found = []
    for renamed, fragments in groups.items():
        former = dict(renamed)
        # A new column may have the name that another one had in these files.
        used = set(former.values())
        named = {
            each: former.get(each, f"{each} of the table" if each in used else each) for each in schema.names
        }
        fields = [field.with_name(named[field.name]) for field in schema]
        dataset = ds.FileSystemDataset(fragments, pa.schema(fields), format)
        found.append(ScannedRows(dataset, named if renamed else {}))
    return found


def _renamed(schema: pa.Schema, names: dict[int, str]) -> tuple[tuple[str, str], ...]:
    """(name in the table, name in the file) of the columns whose names differ."""
    found = []
    for field in schema:
        name = names.get(int((field.metadata or {}).get(b"PARQUET:field_id", 0)), field.name)
        if name != field.name:
            found.append((name, field.name))
    return tuple(found)


def _fragments(files: Iterable[DataFile], store: str, format: Any) -> Iterator[Any]:
    for file in files:
        url = url_of(store, file.key)
        path = local_path(url)
        if path is None:
            source: Any = pa.PythonFile(open_seekable(url, file.bytes), mode="r")
            yield format.make_fragment(source)
        else:
            open_seekable(url, file.bytes).close()  # raises NotFound
            yield format.make_fragment(str(path), filesystem=_LOCAL)


_LOCAL = pa.fs.LocalFileSystem(use_mmap=True)


def _unwanted(sources: Sources) -> list[Range]:
    return [*sources.leave_out, *((start, end) for start, end, _ in sources.lost)]


def _without(rows: pa.Table, holes: Sequence[Range]) -> pa.Table:
    if not holes or not rows.num_rows:
        return rows
    unwanted = in_ranges(rows.column("_offset").to_numpy(), holes)
    return rows.filter(pa.array(~unwanted)) if unwanted.any() else rows


def _table(batches: Iterable[pa.RecordBatch], columns: TableColumns, schema: pa.Schema) -> pa.Table:
    typed = (with_columns(rows, columns) for rows in batches)
    found = [rows.select(schema.names) for rows in typed if rows.num_rows]
    return pa.Table.from_batches(
        [pa.RecordBatch.from_arrays(rows.columns, schema=schema) for rows in found], schema
    )

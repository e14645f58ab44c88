"""Parquet files of records: rows of one stream and one UTC day, in offset order.

The columns are those of `rows.py`, then typed ones with field ids from 1000 up. Files use zstd, row groups of about
PARQUET_ROW_GROUP_BYTES, a page index and page checksums. `_offset` and `_timestamp` are delta-packed, values have no
dictionary. The footer's key-value metadata has an entry `mainstem`, a JSON object:

| field     | meaning                                       |
|-----------|-----------------------------------------------|
| version   | 1                                             |
| topic_id  | of the topic, 32 hex digits                   |
| partition |                                               |
| base      | the first offset in the file                  |
| end       | one past the last                             |

Batches to rows: `rows.decode_rows`. Rows to batches: `rebatching.encode_rows`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import IO, TYPE_CHECKING, Any

import msgspec

from mainstem import limits
from mainstem.errors import LogDamaged, NewerVersion, invariant
from mainstem.records.rows import exact_columns, row_schema

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET_PAGE_BYTES = 1 * limits.MIB
PARQUET_READ_ROWS = 64 * limits.KIB  # rows decompressed at a time by a reader

VERSION = 1
METADATA_KEY = b"mainstem"

_DELTA_PACKED = {"_offset": "DELTA_BINARY_PACKED", "_timestamp": "DELTA_BINARY_PACKED"}
# No dictionary and no bounds: for raw bytes both cost much and are of little use.
_RAW = ("_value", "_headers", "_header_names")


class ParquetFileInfo(msgspec.Struct, frozen=True):
    """The `mainstem` entry of a file's metadata."""

    version: int
    topic_id: str
    partition: int
    base: int
    end: int


class RowFileWriter:
    """Writes one file by row groups. Leaves `sink` open; the file is invalid before `close`."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema, *, topic_id: bytes, partition: int) -> None:
        import pyarrow.parquet as pq

        leaves = _leaves(schema)
        self.schema = schema
        self.records = 0
        self.base = self.end = 0
        self._topic_id = topic_id.hex()
        self._partition = partition
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            use_dictionary=[name for name in leaves if _root(name) not in (*_RAW, *_DELTA_PACKED)],
            column_encoding=_DELTA_PACKED,
            write_statistics=[name for name in leaves if _root(name) not in (*_RAW, "_key")],
            write_page_index=True,
            write_page_checksum=True,
            data_page_size=PARQUET_PAGE_BYTES,
            store_schema=False,
        )

    def write(self, rows: pa.Table) -> None:
        """Add a row group. Its offsets are higher than those already written."""
        if not rows.num_rows:
            return
        offsets = rows.column("_offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        invariant(not self.records or first >= self.end, "rows are written in offset order")
        if not self.records:
            self.base = first
        self.end = last + 1
        self.records += rows.num_rows
        self._writer.write_table(rows.select(self.schema.names), row_group_size=rows.num_rows)

    def close(self) -> None:
        """Write the footer."""
        info = ParquetFileInfo(VERSION, self._topic_id, self._partition, self.base, self.end)
        self._writer.add_key_value_metadata({METADATA_KEY: msgspec.json.encode(info)})
        self._writer.close()

    def abandon(self) -> None:
        """Release a file that will be deleted."""
        # Arrow's writer can only be closed, which writes; if a write failed before, this one fails too.
        with contextlib.suppress(OSError, ValueError):
            self._writer.close()


class RowFile:
    """A file of records, open for reading. `source` is a path or a seekable binary file."""

    def __init__(self, source: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            self._file = pq.ParquetFile(source, page_checksum_verification=True)
            self.facts = _facts(self._file.metadata.metadata)
        except (pa.ArrowInvalid, msgspec.MsgspecError) as error:
            raise LogDamaged(f"not a Parquet file of records: {error}") from error
        if self.facts.version > VERSION:
            raise NewerVersion(
                f"a Parquet file of records has version {self.facts.version}: upgrade Mainstem"
            )

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    @property
    def schema(self) -> pa.Schema:
        """The file's columns, with their field ids."""
        return self._file.schema_arrow

    @property
    def row_bytes(self) -> int:
        """Average size of a row, decompressed."""
        metadata = self._file.metadata
        total = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        return int(total // max(1, metadata.num_rows))

    @property
    def group_bytes(self) -> int:
        """Size of the largest row group, decompressed."""
        metadata = self._file.metadata
        sizes = (metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
        return int(max(sizes, default=0))

    def next_group(self, offset: int) -> int | None:
        """The first row group start after this offset."""
        metadata = self._file.metadata
        at = metadata.schema.names.index("_offset")
        for number in range(metadata.num_row_groups):
            first = int(metadata.row_group(number).column(at).statistics.min)
            if first > offset:
                return first
        return None

    def rows(
        self,
        from_offset: int = 0,
        to_offset: int = limits.OFFSET_MAX,
        *,
        typed: bool = False,
        unread: Collection[str] = (),
        at_a_time: int = PARQUET_READ_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in [from_offset, to_offset) in offset order, in bounded batches.

        They have the columns of `row_schema()`, with nulls in those left `unread`; with `typed`, also the file's
        columns with ids from 1000 up. To continue later, keep the iterator: a new one has to decompress a row group
        from its start."""
        import pyarrow as pa

        groups = self._groups(from_offset, to_offset)
        if not groups:
            return
        wanted = [name for name in self.schema.names if typed or name in row_schema().names]
        stored = [name for name in wanted if name not in unread]
        try:
            for batch in self._file.iter_batches(
                min(at_a_time, PARQUET_READ_ROWS), row_groups=groups, columns=stored, use_threads=False
            ):
                inside = _within(batch, from_offset, to_offset)
                if inside.num_rows:
                    yield whole_rows(inside)
        except (pa.ArrowInvalid, OSError) as error:
            raise LogDamaged(f"a Parquet file of records is damaged: {error}") from error

    def close(self) -> None:
        """Release the footer and the read-ahead. The caller closes the source."""
        self._file.close()

    def _groups(self, from_offset: int, to_offset: int) -> list[int]:
        """Row groups with some of the offsets."""
        metadata = self._file.metadata
        at = metadata.schema.names.index("_offset")
        groups = []
        for number in range(metadata.num_row_groups):
            bounds = metadata.row_group(number).column(at).statistics
            if bounds.min < to_offset and bounds.max >= from_offset:
                groups.append(number)
        return groups


def stored_schema(rows: pa.Table | pa.RecordBatch, known: pa.Schema | None = None) -> pa.Schema:
    """The columns that a file of these rows needs: exact columns only if they have values or `known` has them."""
    import pyarrow as pa

    unneeded = {
        name
        for name in exact_columns()
        if rows.column(name).null_count == rows.num_rows and (known is None or name not in known.names)
    }
    return pa.schema([field for field in rows.schema if field.name not in unneeded])


def whole_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with every column of `row_schema()`, then their typed columns."""
    import pyarrow as pa

    names = rows.schema.names
    columns = [
        rows.column(field.name) if field.name in names else pa.nulls(rows.num_rows, field.type)
        for field in row_schema()
    ]
    typed = [field for field in rows.schema if field.name not in row_schema().names]
    columns += [rows.column(field.name) for field in typed]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*row_schema(), *typed]))


def _within(batch: pa.RecordBatch, from_offset: int, to_offset: int) -> pa.RecordBatch:
    offsets = batch.column("_offset").to_numpy()
    first, last = offsets.searchsorted([from_offset, to_offset])
    return batch.slice(int(first), int(last - first))


def _facts(metadata: dict[bytes, bytes] | None) -> ParquetFileInfo:
    if not metadata or METADATA_KEY not in metadata:
        raise LogDamaged("a Parquet file without Mainstem's metadata is not a file of records")
    return msgspec.json.decode(metadata[METADATA_KEY], type=ParquetFileInfo)


def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of the leaf columns, as Parquet names them."""
    import pyarrow as pa

    def below(path: str, kind: pa.DataType) -> Iterator[str]:
        if pa.types.is_struct(kind):
            for field in kind:
                yield from below(f"{path}.{field.name}", field.type)
        elif pa.types.is_map(kind):
            yield from below(f"{path}.key_value.key", kind.key_type)
            yield from below(f"{path}.key_value.value", kind.item_type)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            yield from below(f"{path}.list.element", kind.value_type)
        else:
            yield path

    return [leaf for field in schema for leaf in below(field.name, field.type)]


def _root(leaf: str) -> str:
    return leaf.partition(".")[0]

"""Rows of a topic's error table: values that do not fit the declared columns, with the reason."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from mainstem.api.lake import DataFile
from mainstem.tables.file_io import StoreIO
from mainstem.tables.parts.typed_columns import ERROR_COLUMN, invalid_rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_COLUMNS = ["_partition_id", "_offset", "_timestamp", "_value", ERROR_COLUMN]


def may_have_errors(footer: pq.FileMetaData) -> bool:
    """Whether a data file may have rows with an error, by its footer's statistics."""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at in range(group.num_columns):
            chunk = group.column(at)
            if chunk.path_in_schema == ERROR_COLUMN:
                statistics = chunk.statistics
                if statistics is None or statistics.null_count != chunk.num_values:
                    return True
    return False


def write_errors(file: DataFile, topic: str, location: str, files: StoreIO) -> tuple[bytes, int]:
    """Write the invalid rows of a data file to a new file at a location. Returns that file's bytes and row count.

    A repetition writes the same rows to the same location."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema()
    sink = io.BytesIO()
    count = 0
    with (
        files.ranged(file.key, file.bytes) as source,
        pq.ParquetFile(source) as parquet,
        pq.ParquetWriter(sink, schema, compression="zstd", store_schema=False) as writer,
    ):
        for batch in parquet.iter_batches(columns=_COLUMNS):
            rows = invalid_rows(batch)
            if not rows.num_rows:
                continue
            count += rows.num_rows
            topics = pa.repeat(pa.scalar(topic), rows.num_rows)
            columns = [
                rows.column(name)
                for name in ("_partition_id", "_offset", "_timestamp", ERROR_COLUMN, "_value")
            ]
            writer.write_batch(pa.RecordBatch.from_arrays([topics, *columns], schema=schema))
    data = sink.getvalue()
    if count:
        files.put(location, data)
    return data, count


def _schema() -> pa.Schema:
    """The columns of the error table, with their field ids."""
    import pyarrow as pa

    columns = [
        ("topic", pa.string(), 1),
        ("partition", pa.int32(), 2),
        ("offset", pa.int64(), 4),
        ("timestamp", pa.timestamp("us", tz="UTC"), 3),
        ("reason", pa.string(), 5),
        ("value", pa.binary(), 6),
    ]
    return pa.schema(
        [pa.field(name, kind, metadata={"PARQUET:field_id": str(id)}) for name, kind, id in columns]
    )

"""Rows of a topic's table of errors: values that did not fit the declared columns, and why."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from mainstem.lake.columns import ERROR_COLUMN, faulty
from mainstem.lake.iceberg.store_io import StoreIO
from mainstem.ledger.parts import DataFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_READ = ["_partition", "_offset", "_timestamp", "_value", ERROR_COLUMN]


def any_errors(footer: pq.FileMetaData) -> bool:
    """Whether a file of records has rows with an error, as far as its footer tells."""
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
    """Store the erroneous rows of a file of records at a location. Returns the new file, and how many they are.

    To write them again gives the same rows at the same place."""
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
        for batch in parquet.iter_batches(columns=_READ):
            rows = faulty(batch)
            if not rows.num_rows:
                continue
            count += rows.num_rows
            topics = pa.repeat(pa.scalar(topic), rows.num_rows)
            columns = [
                rows.column(name) for name in ("_partition", "_offset", "_timestamp", ERROR_COLUMN, "_value")
            ]
            writer.write_batch(pa.RecordBatch.from_arrays([topics, *columns], schema=schema))
    data = sink.getvalue()
    if count:
        files.put(location, data)
    return data, count


def _schema() -> pa.Schema:
    """The columns of the table, with its numbers for them."""
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
